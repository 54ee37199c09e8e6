// Strategies side by side: a stacked bar for each rank, by category, at the rank's peak.

function barGroups(report) {
  return report.strategies.map((strategy) => {
    const rows = rowsOf(strategy, RANKS_APART);
    const drawn = rows.length <= BARS_EACH ? rows
      : [...rows].sort((a, b) => b.rank.peak_bytes - a.rank.peak_bytes).slice(0, BARS_EACH)
        .sort((a, b) => a.first - b.first);
    return { strategy, rows: drawn, left: rows.length - drawn.length };
  });
}

function barTip(group, row, categories) {
  const rank = row.rank;
  const planned = rank.planned_peak_bytes;
  let note = "at its peak";
  if (typeof planned === "number") {
    note = planned === rank.peak_bytes ? "planned to the byte" : "planned: " + exactBytes(planned);
  }
  const entries = categories.map((name) => [name, rank.at_peak[name] || 0]);
  return tipOfBytes(group.strategy.name + ", " + rowName(row), note, entries, rank.peak_bytes);
}

function barsChart(report, groups, categories, width) {
  const narrow = width < 560;
  const left = narrow ? 52 : 66;
  const top = 34;
  const bottom = 46;
  const height = narrow ? 330 : 380;
  const floor = height - bottom;
  const budget = report.budget_bytes;
  const highest = Math.max(...groups.flatMap((g) => g.rows.map((row) => row.rank.peak_bytes)));
  const shown = budget && budget < 2.5 * highest ? Math.max(budget, highest) : highest;
  const y = (value) => floor - (floor - top) * value / (shown * 1.02);
  const room = (width - left - 4) / groups.length;
  const items = [];
  const focus = svg("rect", { class: "focus-mark", rx: 4, visibility: "hidden" });
  const ddp = report.strategies.find((s) => s.name === "ddp");

  const drawn = groups.map((group, g) => {
    const space = Math.min(room * 0.86, group.rows.length * (groups.length > 1 ? 40 : 72));
    const start = left + room * g + (room - space) / 2;
    const step = space / group.rows.length;
    const gap = step > 8 ? Math.min(4, step * 0.16) : 0;
    const middle = left + room * (g + 0.5);
    const bars = group.rows.map((row, r) => {
      const x = start + step * r;
      items.push({ x0: x, x1: x + step, row, tip: () => barTip(group, row, categories) });
      let below = 0;
      const parts = categories.map((name) => {
        const value = row.rank.at_peak[name] || 0;
        if (value === 0) return null;
        const part = svg("rect", {
          x: x + gap / 2, width: Math.max(step - gap, 1), y: y(below + value),
          height: Math.max(y(below) - y(below + value), 0), class: categoryClass(name) + " segment",
        });
        below += value;
        return part;
      });
      const planned = row.rank.planned_peak_bytes;
      return [parts,
        report.kind !== "plan" && typeof planned === "number" && svg("line", { class: "planned", x1: x, x2: x + step,
          y1: y(planned), y2: y(planned) }),
        step >= 5 + 7 * Math.max(...group.rows.map((one) => rowShortName(one).length)) &&
          words(x + step / 2, floor + 15, rowShortName(row),
            { "text-anchor": "middle", class: "quiet" })];
    });
    const peak = peakOf(group.strategy);
    const compared = ddp && group.strategy !== ddp && room > 64
      ? ratio(peak / peakOf(ddp)) + " \u00d7" : "";
    return svg("g", {}, bars,
      words(middle, floor + 36, group.strategy.name, { "text-anchor": "middle", class: "name" }),
      words(middle, y(peak) - 8, room > 70 ? bytes(peak) : bytes(peak).replace(" ", ""),
        { "text-anchor": "middle", class: "value" }),
      compared && words(middle, y(peak) - 23, compared,
        { "text-anchor": "middle", class: "quiet" }));
  });

  const mark = (item) => {
    focus.setAttribute("visibility", item ? "visible" : "hidden");
    if (!item) return;
    focus.setAttribute("x", item.x0);
    focus.setAttribute("width", item.x1 - item.x0);
    focus.setAttribute("y", y(item.row.rank.peak_bytes) - 2);
    focus.setAttribute("height", floor - y(item.row.rank.peak_bytes) + 4);
  };
  const line = budget && budget <= shown && svg("g", { class: "budget" },
    svg("line", { x1: left, x2: width, y1: y(budget), y2: y(budget) }),
    words(width - 4, y(budget) - 6, "budget " + bytes(budget), { "text-anchor": "end" }));
  const label = "Peak memory of every rank by category: " +
    report.strategies.map((s) => s.name + " " + bytes(peakOf(s))).join(", ");
  const chart = chartOf(width, height, label,
    valueAxis(axisSteps(shown, 6, 2), y, left, width, roundBytes), drawn, line, focus);
  return pointable(chart, items, mark);
}

function barsSection(report) {
  const groups = barGroups(report);
  const categories = usedCategories(report);
  const notes = [];
  const planned = report.strategies.some((s) =>
    s.ranks.some((rank) => typeof rank.planned_peak_bytes === "number"));
  if (planned && report.kind !== "plan") notes.push("The line across a bar is the planned peak.");
  const budget = report.budget_bytes;
  const highest = Math.max(...report.strategies.map(peakOf));
  if (budget && budget >= 2.5 * highest) {
    notes.push("The budget of " + bytes(budget) + " is " + ratio(budget / highest) +
      " times the highest peak and not drawn.");
  }
  if (groups.some((group) => group.left > 0)) {
    notes.push("The " + BARS_EACH + " fullest ranks of each strategy are drawn; the table has all.");
  }
  const lead = report.kind === "plan"
    ? "What each rank will hold when it holds most, planned by running the engine without data."
    : "What each rank holds when it holds most, by what it is for. One bar a rank.";
  return figure("Memory of each rank", lead, legendOf(categories, categoryText),
    chartPlace((width) => barsChart(report, groups, categories, width)),
    notes.length > 0 && h("p", { class: "note" }, notes.join(" ")));
}
