// The pipeline: what each place along pipe does over time, with a colour for each micro-batch.

const PIPE_LANE = 26;
const WORK_LIGHT = { forward: 68, backward: 50, backward_input: 50, backward_weight: 38 };
const WORK_WORDS = [
  ["forward", "light: forward"],
  ["backward", "dark: backward"],
  ["backward_input", "dark: gradients of inputs"],
  ["backward_weight", "darkest: gradients of weights"],
];

// The schedules to draw: as planned, and as recorded in a run.
function pipelinesOf(report) {
  const pipeline = report.pipeline || {};
  const all = [];
  for (const recorded of pipeline.recorded || []) {
    all.push({ name: "recorded, " + recorded.strategy, unit: 1e-6, ...recorded });
  }
  if (pipeline.ranks) {
    all.push({ name: "the schedule by itself", unit: null, ranks: pipeline.ranks, length: pipeline.length });
  }
  return all;
}

function idleShare(rank, length) {
  const busy = sum(rank.map(([begin, end]) => end - begin));
  return length > 0 ? 1 - busy / length : 0;
}

function percent(share) {
  return (100 * share).toFixed(1) + " %";
}

function pipelineTime(pipeline, value) {
  return pipeline.unit ? seconds(value * pipeline.unit) : Number(value.toPrecision(3)) + " units";
}

function pipelineLane(pipeline, rank, index, x, top) {
  const y = top + index * PIPE_LANE;
  return rank.map(([begin, end, work, stage, micro]) => {
    const width = Math.max(x(end) - x(begin) - 0.6, 0.6);
    const label = String(micro);
    const tip = work.replace("_", " of ") + " of micro-batch " + micro + " on stage " + stage + ", " +
      pipelineTime(pipeline, begin) + " to " + pipelineTime(pipeline, end);
    return svg("g", { class: "pipe-action", "data-work": work, "data-micro-batch": micro },
      svg("title", {}, tip),
      svg("rect", { x: x(begin), y: y + 2, width, height: PIPE_LANE - 4, rx: width > 6 ? 2 : 0,
                    fill: colourOf(micro, WORK_LIGHT[work] || 60) }),
      width > label.length * 7 + 3 && words(x(begin) + width / 2, y + PIPE_LANE / 2 + 4, label,
        { "text-anchor": "middle", class: WORK_LIGHT[work] > 60 ? "on-colour" : "on-dark" }));
  });
}

function pipelineChart(pipeline, width) {
  const narrow = width < 560;
  const left = narrow ? 48 : 58;
  const right = narrow ? 46 : 62;
  const top = 4;
  const bottom = top + pipeline.ranks.length * PIPE_LANE;
  const x = (time) => left + (width - left - right) * time / pipeline.length;
  const ticks = axisSteps(pipeline.length, narrow ? 4 : 8, 10);
  const label = "What each place along pipe does: " + pipeline.name;
  return chartOf(width, bottom + 24, label,
    pipeline.ranks.map((rank, place) => [
      svg("rect", { x: left, y: top + place * PIPE_LANE + 2, width: width - left - right,
                    height: PIPE_LANE - 4, class: "idle" }),
      words(left - 8, top + place * PIPE_LANE + PIPE_LANE / 2 + 4, "pipe " + place,
        { "text-anchor": "end", class: "quiet" }),
      pipelineLane(pipeline, rank, place, x, top),
      words(width - right + 8, top + place * PIPE_LANE + PIPE_LANE / 2 + 4,
        percent(idleShare(rank, pipeline.length)), { class: "quiet" })]),
    svg("g", { class: "axis" }, ticks.map((time, i) => [
      svg("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 4, class: "base" }),
      words(x(time), bottom + 18, time === 0 ? "0" : pipelineTime(pipeline, time),
        { "text-anchor": i === 0 ? "start" : "middle" })])));
}

function pipelineSection(report) {
  const all = pipelinesOf(report);
  if (all.length === 0) return null;
  let pipeline = all[0];
  const note = h("p", { class: "note" });
  const place = chartPlace((width) => {
    const bubble = sum(pipeline.ranks.map((rank) => idleShare(rank, pipeline.length))) /
      pipeline.ranks.length;
    note.textContent = "At the right: the part of the time in which a place has nothing to do; " +
      percent(bubble) + " on average" + (pipeline.unit ? ", step " + pipeline.step
        : ", if all stages take as long and a backward pass twice as long as a forward pass") + ".";
    return pipelineChart(pipeline, width);
  });
  const works = new Set(all.flatMap((one) => one.ranks.flatMap((rank) => rank.map((span) => span[2]))));
  return figure("The pipeline",
    "Schedule " + report.pipeline.schedule + " of " + plural(report.pipeline.stages, "stage") + " and " +
      digits(report.pipeline.micro_batches) + " micro-batches" +
      ": a colour and a number are a micro-batch; " +
      WORK_WORDS.filter(([work]) => works.has(work)).map(([, text]) => text).join(", ") +
      "; grey: nothing to do.",
    all.length > 1 && h("div", { class: "controls" },
      choice("shown", all, (one) => one.name, pipeline, (one) => { pipeline = one; place.again(); })),
    place, note);
}
