// What the charts share: a frame that is redrawn at every width, axes, marks.

const chartPlaces = [];

// A place for a chart: `draw(width)` returns its svg. It is drawn at the width shown, so that text
// keeps its size; the viewBox scales it for printing and zooming.
function chartPlace(draw) {
  const place = h("div", { class: "chart" });
  place.again = () => {
    const width = place.clientWidth;
    if (width > 0) place.replaceChildren(draw(Math.max(280, width)));
  };
  chartPlaces.push(place);
  return place;
}

function drawCharts() {
  for (const place of chartPlaces) place.again();
}

function chartOf(width, height, label, ...children) {
  return svg("svg", {
    viewBox: "0 0 " + width + " " + height, width: "100%", role: "img", "aria-label": label,
  }, ...children);
}

function words(x, y, text, attributes) {
  return svg("text", { x, y, ...attributes }, text);
}

// Horizontal lines with their values on the left.
function valueAxis(steps, y, left, right, label) {
  return svg("g", { class: "axis" }, steps.map((value) => [
    svg("line", { x1: left, x2: right, y1: y(value), y2: y(value),
                  class: value === 0 ? "base" : "grid" }),
    words(left - 8, y(value) + 4, label(value), { "text-anchor": "end" }),
  ]));
}

const MARK_PATHS = {
  circle: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
  square: "M-4.2-4.2h8.4v8.4h-8.4Z",
  triangle: "M0-5.4L5 4H-5Z",
  diamond: "M0-6L6 0L0 6L-6 0Z",
  cross: "M-4.5-2L-2-4.5L0-2.5L2-4.5L4.5-2L2.5 0L4.5 2L2 4.5L0 2.5L-2 4.5L-4.5 2L-2.5 0Z",
  star: "M0-6L1.6-1.8L6-1.5L2.6 1.3L3.7 5.6L0 3.2L-3.7 5.6L-2.6 1.3L-6-1.5L-1.6-1.8Z",
};

function strategyMark(name, x, y, extra) {
  return svg("path", {
    d: MARK_PATHS[STRATEGY_MARKS[name] || "circle"], transform: "translate(" + x + " " + y + ")",
    class: strategyClass(name) + " mark " + (extra || ""),
  });
}

// Moves labels (with .y) apart so that neighbours are at least `gap` apart.
function spread(labels, gap, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i += 1) {
    labels[i].y = Math.max(labels[i].y, labels[i - 1].y + gap);
  }
  const over = labels.length > 0 ? labels[labels.length - 1].y - bottom : 0;
  if (over > 0) {
    labels[labels.length - 1].y -= over;
    for (let i = labels.length - 2; i >= 0; i -= 1) {
      labels[i].y = Math.max(top, Math.min(labels[i].y, labels[i + 1].y - gap));
    }
  }
  return labels;
}

function legendOf(names, describe) {
  return h("ul", { class: "legend" }, names.map((name) => h("li", { title: describe(name) },
    h("span", { class: "swatch " + categoryClass(name) }), name)));
}

function categoryText(name) {
  const known = CATEGORIES.find(([category]) => category === name);
  return known ? known[1] : "";
}

function figure(title, lead, ...content) {
  return h("section", { class: "card" }, h("h2", {}, title), lead && h("p", { class: "lead" }, lead),
    ...content);
}
