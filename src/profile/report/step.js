// One step of one rank: memory in use as a stacked area, and below it, on the same axis, what ran.

const STREAMS = ["compute", "gather", "reduce", "offload", "update", "host"];
const HOST_STREAMS = ["offload", "update", "host"];
const LANE = 22;

function stepDuration(timeline) {
  const ends = timeline.spans.map((span) => span[1]).concat(timeline.points.map((point) => point[0]));
  return timeline.duration_us || Math.max(1, ...ends);
}

function pointTotal(point) {
  return sum(point[3]);
}

// Those of the host pool only if they were used.
function streamsOf(timeline) {
  return STREAMS.filter((name) => !HOST_STREAMS.includes(name) || timeline.spans.some((span) => span[2] === name));
}

// Intervals of one phase: [begin, end, phase].
function phasesOf(timeline, duration) {
  const phases = [];
  for (const [time, phase] of timeline.points) {
    const last = phases[phases.length - 1];
    if (last && last[2] === phase) continue;
    if (last) last[1] = time;
    phases.push([time, duration, phase]);
  }
  return phases;
}

function micro(value) {
  return seconds(value / 1e6);
}

function stepTip(timeline, index, time) {
  const point = timeline.points[index];
  const entries = timeline.categories.map((name, c) => [name, point[3][c]]);
  const running = timeline.spans.filter((span) => span[0] <= time && time < span[1]);
  const doing = [point[1] || "between steps", point[2]].filter(Boolean).join(" ");
  const box = tipOfBytes(doing, "at " + micro(time), entries, pointTotal(point));
  box.append(h("ul", {}, running.map((span) => h("li", {},
    h("b", {}, span[2]), " " + span[3] + " " + span[4] + ", " + micro(span[1] - span[0]),
    span[5] ? (span[2] === "offload" ? ", copies " : ", sends ") + bytes(span[5]) : ""))));
  return box;
}

// The outline of each category in the stack: to the right along its top, back along its bottom.
function stackPaths(timeline, duration, x, y) {
  const points = timeline.points;
  const lower = points.map(() => 0);
  return timeline.categories.map((name, c) => {
    const upper = points.map((point, i) => lower[i] + point[3][c]);
    const xs = points.map((point) => x(point[0]).toFixed(1)).concat(x(duration).toFixed(1));
    let there = "M" + xs[0] + " " + y(lower[0]).toFixed(1);
    let back = "";
    for (let i = 0; i < points.length; i += 1) {
      there += "V" + y(upper[i]).toFixed(1) + "H" + xs[i + 1];
      back = "V" + y(lower[i]).toFixed(1) + "H" + xs[i] + back;
    }
    for (let i = 0; i < points.length; i += 1) lower[i] = upper[i];
    return svg("path", { d: there + back + "Z", class: categoryClass(name) + " area" });
  });
}

function spanShapes(timeline, x, top) {
  return timeline.spans.map((span) => {
    const lane = STREAMS.indexOf(span[2]);
    if (lane < 0) return null;
    const from = x(span[0]);
    const width = Math.max(x(span[1]) - from, 0.75);
    const y = top + lane * LANE + 3;
    const name = span[4] || span[3];
    return [svg("rect", { x: from, y, width, height: LANE - 6, rx: width > 6 ? 2 : 0,
                          class: "span span-" + span[2] + " span-" + span[3] }),
      width > name.length * 6.2 + 6 && words(from + width / 2, y + 12, name,
        { "text-anchor": "middle", class: "span-name" })];
  });
}

function stepChart(timeline, most, allocated, width) {
  const narrow = width < 560;
  const left = narrow ? 56 : 66;
  const top = 26;
  const areaHeight = narrow ? 220 : 280;
  const floor = top + areaHeight;
  const lanes = floor + 12;
  const bottom = lanes + streamsOf(timeline).length * LANE;
  const height = bottom + 26;
  const duration = stepDuration(timeline);
  const x = (time) => left + (width - left - 2) * time / duration;
  const y = (value) => floor - areaHeight * value / (most * 1.03);
  const cursor = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });

  const phases = phasesOf(timeline, duration).map(([begin, end, phase], i) => svg("g", {},
    svg("rect", { x: x(begin), width: Math.max(x(end) - x(begin), 0), y: top - 18,
                  height: bottom - top + 18, class: i % 2 ? "phase odd" : "phase" }),
    x(end) - x(begin) > phase.length * 6 + 8 &&
      words(x(begin) + 5, top - 5, phase, { class: "quiet" })));
  const line = allocated && allocated <= most * 1.03 && svg("g", { class: "allocated" },
    svg("line", { x1: left, x2: width, y1: y(allocated), y2: y(allocated) }),
    words(left + 6, y(allocated) + (y(allocated) < top + 16 ? 14 : -6),
      "allocated " + bytes(allocated)));
  const ticks = axisSteps(duration, narrow ? 4 : 8, 10);
  const items = timeline.points.map((point, i) => ({
    x0: x(point[0]),
    x1: i + 1 < timeline.points.length ? x(timeline.points[i + 1][0]) : x(duration),
    tip: (at) => stepTip(timeline, i, (at - left) / (width - left - 2) * duration),
  }));
  const mark = (item, at) => {
    cursor.setAttribute("visibility", item ? "visible" : "hidden");
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
  };
  const label = "Memory in use over step " + timeline.step + " of rank " + timeline.rank +
    " under " + timeline.strategy + "; highest " + bytes(timeline.peak_bytes);
  const chart = chartOf(width, height, label, phases,
    valueAxis(axisSteps(most, 5, 2), y, left, width, roundBytes),
    stackPaths(timeline, duration, x, y), line,
    streamsOf(timeline).map((name, i) => words(left - 8, lanes + i * LANE + 15, name,
      { "text-anchor": "end", class: "quiet" })),
    spanShapes(timeline, x, lanes),
    svg("g", { class: "axis" }, ticks.map((time, i) => [
      svg("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 4, class: "base" }),
      words(x(time), bottom + 18, time === 0 ? "0" : micro(time),
        { "text-anchor": i === 0 ? "start" : x(time) > width - 24 ? "end" : "middle" })])),
    cursor);
  return pointable(chart, items, mark);
}

// A choice of one of `values`: buttons, or a list if there are many.
function choice(title, values, text, first, chosen) {
  if (values.length > 8) {
    return h("label", { class: "choice" }, title + " ", h("select",
      { onchange: (event) => chosen(values[event.target.selectedIndex]) },
      values.map((value) => h("option", { selected: value === first }, text(value)))));
  }
  const group = "choice-" + title;
  return h("fieldset", { class: "choice" }, h("legend", {}, title), h("div", { class: "segments" },
    values.map((value) => h("label", {},
      h("input", { type: "radio", name: group, checked: value === first, onchange: () => chosen(value) }),
      h("span", {}, text(value))))));
}

function stepNotes(timeline) {
  const notes = [];
  const left = (what, shown, all) => {
    if (all > shown) notes.push(digits(shown) + " of " + digits(all) + " " + what + " are drawn");
  };
  left("changes", timeline.points.length, timeline.points_recorded || 0);
  left("spans", timeline.spans.length, timeline.spans_recorded || 0);
  return notes.length === 0 ? "" : notes.join(", ") +
    ", to keep this file small: of changes close in time the first and the highest, of spans the " +
    "longest. ";
}

function stepSection(report) {
  const timelines = (report.timelines || []).filter((timeline) => timeline.points.length > 0);
  if (timelines.length === 0) return null;
  const most = Math.max(...timelines.map((t) => t.peak_bytes), ...report.strategies.map(peakOf));
  const used = new Set(timelines.flatMap((timeline) => timeline.categories));
  const legend = CATEGORIES.map(([name]) => name).filter((name) => used.has(name));
  const strategies = [...new Set(timelines.map((timeline) => timeline.strategy))];
  let strategy = strategies.includes("zero3") ? "zero3" : strategies[strategies.length - 1];
  let rank = timelines.find((timeline) => timeline.strategy === strategy).rank;
  const current = () => {
    const own = timelines.filter((timeline) => timeline.strategy === strategy);
    return own.find((timeline) => timeline.rank === rank) || own[0];
  };
  const allocatedBy = (timeline) => {
    const from = report.strategies.find((s) => s.name === timeline.strategy);
    const row = from && from.ranks.find((r) => r.rank === timeline.rank);
    return row ? row.peak_bytes : null;
  };
  const note = h("p", { class: "note" });
  const place = chartPlace((width) => {
    const timeline = current();
    note.textContent = stepNotes(timeline) + "Step " + timeline.step + " of rank " + timeline.rank +
      " under " + timeline.strategy + ": " + micro(stepDuration(timeline)) + ", at most " +
      bytes(timeline.peak_bytes) + " in use. The scale is the same for all.";
    return stepChart(timeline, most, allocatedBy(timeline), width);
  });
  const ranks = [...new Set(timelines.map((timeline) => timeline.rank))];
  return figure("One step",
    "Memory in use from the first gather to the end of the update, with what the rank was doing. " +
      "Move over the chart, or focus it and use the arrow keys.",
    timelines.length > 1 && h("div", { class: "controls" },
      choice("strategy", strategies, (name) => name, strategy,
        (name) => { strategy = name; place.again(); }),
      choice("rank", ranks, String, rank, (value) => { rank = value; place.again(); })),
    legendOf(legend, categoryText), place, note);
}
