// Model state on a rank against the number of ranks: the formulas, and what was measured.

function theoryRows(report, whole) {
  return report.strategies.filter((s) => divisorsOf(s.name, report)).map((strategy) => {
    const measured = stateOf(fullest(strategy.ranks, stateOf));
    return { name: strategy.name, measured,
             theory: stateInTheory(strategy.name, report, whole, report.ranks) };
  });
}

function theoryChart(report, whole, rows, width) {
  const narrow = width < 480;
  const left = narrow ? 52 : 66;
  const right = width - 58;
  const top = 16;
  const height = narrow ? 250 : 300;
  const floor = height - 44;
  const doublings = Math.max(4, Math.ceil(Math.log2(report.ranks)) + 2);
  const full = sum(whole.parts);
  const most = Math.max(full, ...rows.map((row) => row.measured));
  const x = (n) => left + (right - left) * Math.log2(n) / doublings;
  const y = (value) => floor - (floor - top) * value / (most * 1.04);
  const curves = rows.filter((row) => row.name !== "dp" || !rows.some((r) => r.name === "ddp"));

  const paths = curves.map((row) => {
    const points = [];
    for (let i = 0; i <= doublings * 8; i += 1) {
      const n = Math.pow(2, i / 8);
      points.push(x(n).toFixed(1) + " " + y(stateInTheory(row.name, report, whole, n)).toFixed(1));
    }
    return svg("path", { d: "M" + points.join("L"), class: strategyClass(row.name) + " line" });
  });
  const names = spread(curves.map((row) => ({
    row, y: y(stateInTheory(row.name, report, whole, Math.pow(2, doublings))),
  })), 15, top, floor);
  const ticks = [];
  const every = doublings > (narrow ? 7 : 9) ? 2 : 1;
  for (let i = 0; i <= doublings; i += every) ticks.push(Math.pow(2, i));

  const label = "Model state of a rank against the number of ranks; on " + report.ranks +
    ": " + rows.map((row) => row.name + " " + bytes(row.measured)).join(", ");
  return chartOf(width, height, label,
    valueAxis(axisSteps(most, 5, 2), y, left, right, roundBytes),
    svg("g", { class: "axis" }, ticks.map((n) => [
      svg("line", { x1: x(n), x2: x(n), y1: floor, y2: floor + 4, class: "base" }),
      words(x(n), floor + 17, digits(n), { "text-anchor": "middle" })]),
      words((left + right) / 2, floor + 36, "ranks", { "text-anchor": "middle" })),
    svg("line", { x1: x(report.ranks), x2: x(report.ranks), y1: top, y2: floor, class: "here" }),
    paths,
    names.map(({ row, y: at }) => words(right + 8, at + 4, row.name,
      { class: strategyClass(row.name) + " name" })),
    rows.map((row) => strategyMark(row.name, x(report.ranks), y(row.measured))));
}

function theoryTable(rows, found) {
  return h("div", { class: "scroll" }, h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, ["strategy", "theory", found, "ratio"].map((name, i) =>
      h("th", { scope: "col", class: i > 0 ? "number" : null }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("th", { scope: "row" }, markBeside(row.name), row.name),
      h("td", { class: "number", title: exactBytes(Math.round(row.theory)) }, bytes(row.theory)),
      h("td", { class: "number", title: exactBytes(row.measured) }, bytes(row.measured)),
      h("td", { class: "number" }, row.theory > 0 ? (row.measured / row.theory).toFixed(3) : "-"))))));
}

function markBeside(name) {
  return svg("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" },
    strategyMark(name, 0, 0));
}

// The parts that are divided, their divisors, and the part that is not on the device.
function theoryText(report, whole) {
  const names = report.strategies.map((s) => s.name).filter((name) => divisorsOf(name, report));
  const leaving = names.filter((name) => gradientsLeave(name, report));
  const offloads = (report.offload || "none").includes("optimizer");
  const parts = !offloads ? "Parameters, gradients and optimizer state"
    : leaving.length === names.length ? "Parameters" : "Parameters and gradients";
  const grouped = names.includes("hybrid") && report.shard_group && report.shard_group < report.ranks;
  return parts + (offloads ? " on the device" : "") + ": all of them on every rank under ddp (" +
    bytes(sum(whole.parts)) + "); each strategy divides more of them by the number of ranks" +
    (report.mesh ? " along shard" : "") +
    (grouped ? " (hybrid by the " + report.shard_group + " of a shard group)" : "") + ". " +
    (offloads ? "Optimizer state is in host memory" + (leaving.length > 0
      ? ", and so are gradients once they are reduced under " + leaving.join(", ") : "") + ". " : "");
}

function theorySection(report) {
  const whole = wholeState(report);
  if (!whole || sum(whole.parts) === 0) return null;
  const rows = theoryRows(report, whole);
  const planned = report.kind === "plan" ? "planned" : "measured";
  const over = report.ranks > 1
    ? " Padding to multiples of " + (report.moments === "int8" ? 256 : 64) + " elements makes the " +
      planned + " a little more." : "";
  return figure("Model state against theory",
    theoryText(report, whole) + "Lines are the formula, marks what was " + planned + " on " +
      plural(report.ranks, "rank") + "." + over,
    h("div", { class: "beside" },
      chartPlace((width) => theoryChart(report, whole, rows, width)), theoryTable(rows, planned)));
}
