// Elements of the page, and readable numbers.

const SVG_SPACE = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  const present = children.flat(Infinity);
  node.append(...present.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Strings become text nodes: no part of the document is ever parsed as HTML.
function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG_SPACE, tag), attributes, children);
}

const BINARY_UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// The same format as the library's format_bytes.
function bytes(value) {
  if (value < 1024) return value + " B";
  let unit = 0;
  let scaled = value / 1024;
  while (scaled >= 1023.5 && unit + 1 < BINARY_UNITS.length) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return scaled.toFixed(digits) + " " + BINARY_UNITS[unit];
}

// A round number of bytes, for an axis.
function roundBytes(value) {
  return bytes(value).replace(/\.0+ /, " ").replace(/(\.[0-9]*?)0+ /, "$1 ");
}

// The number with all its digits, in groups: 13 962 240.
function digits(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

function exactBytes(value) {
  return digits(value) + " B";
}

function count(value) {
  const units = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]];
  for (const [size, name] of units) {
    if (value >= size * 0.9995) return Number((value / size).toPrecision(3)) + name;
  }
  return String(value);
}

function ratio(value) {
  return value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2);
}

function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (value >= 99.5) return value.toFixed(0) + " s";
  if (value >= 0.9995) return value.toFixed(2) + " s";
  if (value >= 0.0009995) return Number((value * 1e3).toPrecision(3)) + " ms";
  return Number((value * 1e6).toPrecision(3)) + " \u00b5s";
}

function loss(value) {
  return value === null || value === undefined ? "not finite" : value.toFixed(4);
}

function plural(number, word) {
  return digits(number) + " " + word + (number === 1 ? "" : "s");
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

// Round steps of an axis from 0 to at least `most`, at most `ticks` of them.
function axisSteps(most, ticks, base) {
  const candidates = base === 2 ? [1, 2, 4, 8] : [1, 2, 5, 10];
  const unit = base === 2 ? 16 : 10;
  const power = Math.pow(unit, Math.floor(Math.log(Math.max(most, 1e-12) / ticks) / Math.log(unit)));
  const step = candidates.concat([unit]).map((c) => c * power).find((s) => most / s <= ticks);
  const steps = [];
  for (let i = 0; i * step <= most * 1.0001; i += 1) steps.push(i * step);
  return steps;
}

// Round values from `low` to `high`, about `ticks` of them.
function stepsBetween(low, high, ticks) {
  const step = axisSteps(high - low, ticks, 10)[1] || high - low;
  const steps = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) {
    steps.push(Number((i * step).toPrecision(12)));
  }
  return steps;
}
