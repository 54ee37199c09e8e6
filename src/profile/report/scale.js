// The largest model of a family that fits, against the number of ranks, for each strategy.

function scaleItems(report) {
  return [...report.ranks].sort((a, b) => a - b).map((n) => ({
    n,
    rows: report.strategies.map((strategy) => ({
      name: strategy.name, entry: strategy.largest.find((one) => one.ranks === n),
    })).filter((row) => row.entry && row.entry.parameters > 0),
  }));
}

function scaleTip(item) {
  const rows = [...item.rows].sort((a, b) => b.entry.parameters - a.entry.parameters);
  return h("div", {}, h("p", { class: "tip-title" }, plural(item.n, "rank")),
    h("table", {}, rows.map(({ name, entry }) => h("tr", {},
      h("td", {}, markBeside(name), name),
      h("td", { class: "number" }, count(entry.parameters)),
      h("td", { class: "number quiet" }, bytes(entry.peak_bytes || 0)),
      h("td", { class: "quiet" }, entry.measured_peak_bytes ? "measured" : "planned")))));
}

function scaleChart(report, width) {
  const narrow = width < 560;
  const left = narrow ? 48 : 58;
  const right = width - 58;
  const top = 16;
  const height = narrow ? 320 : 420;
  const floor = height - 46;
  const items = scaleItems(report);
  const sizes = items.flatMap((item) => item.rows.map((row) => row.entry.parameters));
  if (sizes.length === 0) {
    return chartOf(width, 60, "no model fits", words(left, 34, "No model of this family fits."));
  }
  const low = Math.floor(Math.log10(Math.min(...sizes)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...sizes))), low + 1);
  const mostRanks = Math.max(...report.ranks);
  const leastRanks = Math.min(...report.ranks);
  const octaves = Math.max(Math.log2(mostRanks / leastRanks), 1e-9);
  const x = (n) => left + 10 + (right - left - 20) * Math.log2(n / leastRanks) / octaves;
  const y = (value) => floor - (floor - top) * (Math.log10(value) - low) / (high - low);
  const decades = [];
  for (let i = low; i <= high; i += 1) decades.push(Math.pow(10, i));
  const minor = decades.slice(0, -1).flatMap((value) => [2 * value, 5 * value]);

  const lines = report.strategies.map((strategy) => {
    const points = items.map((item) => [item.n, item.rows.find((row) => row.name === strategy.name)])
      .filter(([, row]) => row);
    const path = points.map(([n, row]) => x(n).toFixed(1) + " " + y(row.entry.parameters).toFixed(1));
    return [svg("path", { d: "M" + path.join("L"), class: strategyClass(strategy.name) + " line" }),
      points.map(([n, row]) => strategyMark(strategy.name, x(n), y(row.entry.parameters),
        row.entry.measured_peak_bytes ? "" : "hollow"))];
  });
  const last = items[items.length - 1].rows;
  const names = spread(last.map((row) => ({ row, y: y(row.entry.parameters) })), 15, top, floor);
  const spots = items.filter((item) => item.rows.length > 0).map((item, i, all) => {
    const before = i > 0 ? (x(all[i - 1].n) + x(item.n)) / 2 : left;
    const after = i + 1 < all.length ? (x(all[i + 1].n) + x(item.n)) / 2 : right;
    return { x0: before, x1: after, at: x(item.n), tip: () => scaleTip(item) };
  });
  const cursor = svg("line", { class: "cursor", y1: top, y2: floor, visibility: "hidden" });
  const mark = (item) => {
    cursor.setAttribute("visibility", item ? "visible" : "hidden");
    if (item) for (const name of ["x1", "x2"]) cursor.setAttribute(name, item.at);
  };
  const apart = [];
  for (const n of report.ranks) {
    if (apart.length === 0 || x(n) - x(apart[apart.length - 1]) > 26) apart.push(n);
  }
  const chart = chartOf(width, height, "Largest model against the number of ranks",
    svg("g", { class: "axis" },
      minor.map((value) => svg("line", { x1: left, x2: right, y1: y(value), y2: y(value),
                                         class: "grid faint" })),
      apart.map((n) => [words(x(n), floor + 17, digits(n), { "text-anchor": "middle" }),
        svg("line", { x1: x(n), x2: x(n), y1: floor, y2: floor + 4, class: "base" })]),
      words((left + right) / 2, floor + 36, "ranks", { "text-anchor": "middle" })),
    valueAxis(decades, y, left, right, count), lines,
    names.map(({ row, y: at }) => words(right + 8, at + 4, row.name,
      { class: strategyClass(row.name) + " name" })),
    cursor);
  return pointable(chart, spots, mark);
}

function scaleTable(report) {
  const row = (strategy, n) => {
    const entry = strategy.largest.find((one) => one.ranks === n);
    if (!entry || !entry.parameters) {
      return h("tr", {}, h("td", { class: "number" }, digits(n)), h("td", { colspan: 5 }, "none fits"));
    }
    return h("tr", { "data-strategy": strategy.name, "data-ranks": n },
      h("td", { class: "number" }, digits(n)),
      h("td", { class: "number", "data-field": "parameters", "data-value": entry.parameters,
                title: digits(entry.parameters) }, count(entry.parameters)),
      h("td", { class: "number" }, entry.layers || "\u2013"),
      h("td", { class: "number" }, entry.hidden || "\u2013"),
      bytesCell(entry.peak_bytes, "peak_bytes"),
      bytesCell(entry.measured_peak_bytes, "measured_peak_bytes"));
  };
  const heads = ["ranks", "parameters", "layers", "hidden", "planned peak", "measured peak"];
  return h("table", { class: "numbers", id: "scale" },
    h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col", class: "number" }, name)))),
    report.strategies.map((strategy) => h("tbody", {},
      h("tr", { class: "group" }, h("th", { colspan: 6, scope: "rowgroup" },
        markBeside(strategy.name), strategy.name)),
      report.ranks.map((n) => row(strategy, n)))));
}

function scaleSections(report) {
  const table = scaleTable(report);
  const measured = report.strategies.some((s) => s.largest.some((one) => one.measured_peak_bytes));
  return [
    figure("Largest model against ranks",
      "Parameters of the largest model whose peak on every rank is at most " +
        bytes(report.budget_bytes) + "; both axes logarithmic. Hollow marks are planned" +
        (measured ? ", filled ones were run and measured." : "."),
      chartPlace((width) => scaleChart(report, width))),
    figure("All numbers", null,
      h("div", { class: "controls" }, exactSwitch(table), saveButton()),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "largest models" }, table)),
  ];
}
