// Lines over steps: losses, and seconds a step; and bars of step times.

// `series`: [{name, values}], values[i] belongs to step i + 1 and may be null. `label` formats
// a value.
function curvesChart(title, series, label, fromZero, width) {
  const left = 56;
  const right = width - (series.length > 1 ? 58 : 12);
  const top = 12;
  const height = 220;
  const floor = height - 40;
  const finite = series.flatMap((one) => one.values).filter((value) => Number.isFinite(value));
  if (finite.length === 0) return chartOf(width, 40, title, words(left, 24, "no finite values"));
  // Not Math.min(...finite): a long run has more steps than a call has arguments.
  const low = fromZero ? 0 : finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  const space = Math.max((high - low) * 0.06, Math.abs(high) * 1e-6, 1e-9);
  const bottom = fromZero ? 0 : low - space;
  const steps = Math.max(...series.map((one) => one.values.length));
  const stride = Math.ceil(steps / 2000);  // more points than pixels show nothing
  const x = (step) => left + (right - left) * (steps === 1 ? 0.5 : (step - 1) / (steps - 1));
  const y = (value) => floor - (floor - top) * (value - bottom) / (high + space - bottom);
  const ticks = stepsBetween(bottom, high + space, 4);

  const lines = series.map((one) => {
    let path = "";
    let pen = "M";
    one.values.forEach((value, i) => {
      if (i % stride !== 0 && i + 1 !== one.values.length) return;
      if (!Number.isFinite(value)) { pen = "M"; return; }
      path += pen + x(i + 1).toFixed(1) + " " + y(value).toFixed(1);
      pen = "L";
    });
    return svg("path", { d: path, class: one.style + " line" });
  });
  const ends = series.length > 1 ? spread(series.map((one) => ({
    one, y: y(one.values.filter((value) => Number.isFinite(value)).pop() || bottom),
  })), 14, top, floor) : [];
  const cursor = svg("line", { class: "cursor", y1: top, y2: floor, visibility: "hidden" });
  const half = stride * (right - left) / Math.max(steps - 1, 1) / 2;
  const shown = Array.from({ length: steps }, (unused, i) => i)
    .filter((i) => i % stride === 0 || i + 1 === steps);
  const items = shown.map((i) => ({
    x0: x(i + 1) - half, x1: x(i + 1) + half, at: x(i + 1),
    tip: () => h("div", {}, h("p", { class: "tip-title" }, "step " + (i + 1)),
      h("table", {}, series.map((one) => h("tr", {}, h("td", {}, one.name),
        h("td", { class: "number" }, label(one.values[i])))))),
  }));
  const mark = (item) => {
    cursor.setAttribute("visibility", item ? "visible" : "hidden");
    if (item) for (const name of ["x1", "x2"]) cursor.setAttribute(name, item.at);
  };
  const chart = chartOf(width, height, title,
    valueAxis(ticks, y, left, right, (value) => String(label(value)).replace(/\.?0+$/, "")),
    svg("g", { class: "axis" }, (steps > 1 ? [1, steps] : [1]).map((step) =>
      words(x(step), floor + 17, digits(step), { "text-anchor": "middle" })),
      words((left + right) / 2, floor + 32, "step", { "text-anchor": "middle" })),
    lines,
    ends.map(({ one, y: at }) => words(right + 8, at + 4, one.name, { class: one.style + " name" })),
    cursor);
  return pointable(chart, items, mark);
}

function lossPart(report) {
  const measured = lossesOf(report);
  if (measured.length === 0) return null;
  const found = compareLosses(measured);
  const together = !found.different && found.same.length > 1;
  const line = (one) => ({ name: one.name, values: one.losses, style: strategyClass(one.name) });
  const series = together
    ? [{ ...line(found.base), name: found.hybrid ? "others" : "all strategies" }]
      .concat(found.hybrid ? [line(found.hybrid)] : [])
    : measured.map(line);
  const text = measured.length === 1 ? "Of the whole batch, before its update."
    : found.different ? "The strategies' losses differ."
      : found.hybrid ? (found.same.length > 1 ? "The same bits under all others; " : "") + hybridFinding(found) + "."
        : "The same bits under all " + measured.length + " strategies in every step.";
  return h("div", {}, h("h3", {}, "Loss"), h("p", { class: "lead" }, text),
    chartPlace((width) => curvesChart("Loss over the steps", series, loss, false, width)));
}

function timeBars(strategies) {
  const slowest = Math.max(...strategies.map((one) => one.seconds_per_step));
  return h("table", { class: "time-bars" }, h("tbody", {}, strategies.map((one) => h("tr", {},
    h("th", { scope: "row" }, one.name),
    h("td", { class: "bar" }, h("div", { class: strategyClass(one.name) + " time-bar",
      style: "width:" + (100 * one.seconds_per_step / slowest).toFixed(1) + "%" })),
    h("td", { class: "number" }, seconds(one.seconds_per_step)),
    h("td", { class: "number quiet" }, Number.isFinite(one.tokens_per_second)
      ? digits(Math.round(one.tokens_per_second)) + " tokens/s" : "")))));
}

function timePart(report) {
  const timed = report.strategies.filter((one) => Number.isFinite(one.seconds_per_step));
  const steps = Array.isArray(report.steps) ? report.steps : [];
  if (timed.length === 0 && steps.length === 0) return null;
  const series = [{ name: "seconds", values: steps.map((step) => step.seconds),
                    style: strategyClass(report.strategies[0].name) }];
  return h("div", {}, h("h3", {}, "Time of a step"),
    timed.length > 0 && h("p", { class: "lead" }, "The median, without the first two steps."),
    timed.length > 0 && timeBars(timed),
    steps.length > 1 && chartPlace((width) =>
      curvesChart("Seconds of each step", series, seconds, true, width)));
}

function trainingSection(report) {
  const parts = [lossPart(report), timePart(report)].filter(Boolean);
  if (parts.length === 0) return null;
  return figure("Losses and times", null, h("div", { class: "halves" }, parts));
}
