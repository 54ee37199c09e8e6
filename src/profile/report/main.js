// The page from top to bottom.

const THEMES = ["auto", "light", "dark"];

function themeButton() {
  let at = 0;
  const button = h("button", { type: "button", class: "theme", onclick: () => {
    at = (at + 1) % THEMES.length;
    if (at === 0) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = THEMES[at];
    button.textContent = "Colours: " + THEMES[at];
  } }, "Colours: " + THEMES[0]);
  return button;
}

async function copyText(node, button) {
  const text = node.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch (refused) {
    // Some browsers deny local files the clipboard: the text is selected, so one key copies it.
    getSelection().selectAllChildren(node);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2500);
}

function commandBox(command) {
  const code = h("code", {}, command);
  const button = h("button", { type: "button", onclick: () => copyText(code, button) }, "Copy");
  return h("div", { class: "command" }, h("span", { class: "prompt", "aria-hidden": "true" }, "$"),
    h("pre", { tabindex: 0 }, code), button);
}

function emblem() {
  const tiles = ["parameters", "gradients", "optimizer", "activations"];
  return svg("svg", { viewBox: "0 0 24 24", width: 34, height: 34, class: "emblem", "aria-hidden": "true" },
    tiles.map((name, i) => svg("rect", { x: 1 + 12 * (i % 2), y: 1 + 12 * (i >> 1), width: 10,
      height: 10, rx: 2, class: categoryClass(name) })));
}

function titleOf(report) {
  if (report.kind === "scale") {
    return "The largest " + report.family + " model in " + bytes(report.budget_bytes);
  }
  const name = report.model.name === "custom" ? "GPT" : report.model.name;
  const size = name + ", " + count(report.model.parameters) + " parameters";
  if (report.kind === "plan") return size + ": will it fit?";
  return size + (report.kind === "train" ? ": a training run" : "");
}

function factsOf(report) {
  const facts = [];
  const add = (name, value) => {
    if (value !== null && value !== undefined && value !== "") facts.push([name, value]);
  };
  if (report.kind === "scale") {
    add("ranks", report.ranks.map(digits).join(", "));
  } else {
    add("ranks", digits(report.ranks));
    add("parameters", digits(report.model.parameters));
    for (const name of ["layers", "hidden", "heads", "vocab", "seq"]) add(name, report.model[name]);
    add("batch a rank", report.batch);
    add("micro-batches", report.accumulate);
    add("precision", report.precision);
    add("steps", Array.isArray(report.steps) ? report.steps.length : report.steps);
    if (report.threads > 1) add("threads a rank", report.threads);
    add("seed", report.seed);
  }
  add("device", report.device);
  add("communicator", report.comm);
  if (report.budget_bytes) add("budget", bytes(report.budget_bytes));
  return facts;
}

function madeAt(report) {
  const time = report.created ? new Date(report.created) : null;
  const date = time && !Number.isNaN(time.getTime())
    ? time.toISOString().replace("T", " ").slice(0, 16) + " UTC" : report.created;
  return [report.version && "Tessera " + report.version, date].filter(Boolean).join(", ");
}

function header(report) {
  return h("header", {},
    h("div", { class: "top" }, emblem(),
      h("div", { class: "made" }, h("b", {}, "tessera " + report.kind), " ", madeAt(report)),
      themeButton()),
    h("h1", {}, titleOf(report)),
    h("dl", { class: "facts" }, factsOf(report).map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    report.command && commandBox(report.command));
}

function verdictOf(report, strategy) {
  const fits = typeof strategy.fits === "boolean" ? strategy.fits
    : report.budget_bytes ? peakOf(strategy) <= report.budget_bytes : null;
  if (fits === null) return null;
  return h("span", { class: fits ? "verdict fits" : "verdict over" },
    fits ? "\u2713 fits" : "\u2717 does not fit");
}

function tile(report, strategy, highest, ddp) {
  const rank = fullest(strategy.ranks, (one) => one.peak_bytes);
  const peak = rank.peak_bytes;
  const compared = ddp && ddp !== strategy
    ? ratio(peak / peakOf(ddp)) + " \u00d7 ddp"
    : strategy === ddp && report.strategies.length > 1 ? "the reference" : "";
  const least = strategy.ranks.reduce((a, b) => (b.peak_bytes < a.peak_bytes ? b : a));
  const skew = least.peak_bytes < peak
    ? "rank " + rank.rank + "; least " + bytes(least.peak_bytes) + " (rank " + least.rank + ")"
    : strategy.ranks.length > 1 ? "the same on every rank" : "";
  const parts = usedCategories(report).map((name) => h("i", { class: categoryClass(name),
    style: "width:" + (100 * (rank.at_peak[name] || 0) / highest).toFixed(2) + "%" }));
  return h("li", { class: "tile" },
    h("div", { class: "tile-name" }, strategy.name, verdictOf(report, strategy)),
    h("div", { class: "tile-value", title: exactBytes(peak) }, bytes(peak)),
    h("div", { class: "meter", "aria-hidden": "true" }, parts),
    compared && h("div", { class: "quiet" }, compared),
    skew && h("div", { class: "quiet" }, skew),
    Number.isFinite(strategy.seconds_per_step) &&
      h("div", { class: "quiet" }, seconds(strategy.seconds_per_step) + " a step"));
}

function plannedFinding(report) {
  const all = report.strategies.flatMap((strategy) => strategy.ranks);
  const planned = all.filter((rank) => typeof rank.planned_peak_bytes === "number");
  if (report.kind === "plan" || planned.length === 0) return null;
  const off = planned.filter((rank) => rank.planned_peak_bytes !== rank.peak_bytes);
  if (off.length === 0) {
    return "Every measured peak is the planned one, to the byte (" +
      plural(planned.length, "peak") + ").";
  }
  return plural(off.length, "peak") + " of " + planned.length + " differ from the plan.";
}

function lossFinding(measured) {
  if (measured.length < 2) return null;
  const found = compareLosses(measured);
  const values = found.base.losses;
  if (found.different) {
    return "Losses of " + found.base.name + " and " + found.different.name + " differ from step " +
      found.step + " on (" + values[found.step - 1] + " and " +
      found.different.losses[found.step - 1] + ").";
  }
  const alike = found.same.length === 1 ? "Losses of " + found.base.name
    : "Losses are bit-identical under " + (found.hybrid ? "" : "all ") +
      found.same.length + " strategies";
  return alike + ": " + loss(values[0]) + " \u2192 " + loss(values[values.length - 1]) + " in " +
    plural(values.length, "step") + (found.hybrid ? "; " + hybridFinding(found) : "") + ".";
}

function findings(report) {
  const found = [];
  const ddp = report.strategies.find((strategy) => strategy.name === "ddp");
  const least = report.strategies.reduce((a, b) => (peakOf(b) < peakOf(a) ? b : a));
  if (ddp && least !== ddp) {
    found.push("With " + least.name + " the fullest rank needs " + bytes(peakOf(least)) +
      " instead of ddp's " + bytes(peakOf(ddp)) + ": " + ratio(peakOf(least) / peakOf(ddp)) + " \u00d7.");
  }
  const planned = plannedFinding(report);
  if (planned) found.push(planned);
  const losses = lossFinding(lossesOf(report));
  if (losses) found.push(losses);
  return found;
}

function summarySection(report) {
  const ddp = report.strategies.find((strategy) => strategy.name === "ddp");
  const highest = Math.max(...report.strategies.map(peakOf));
  const found = findings(report);
  return h("section", { class: "summary" },
    h("h2", {}, report.kind === "plan" ? "Planned peak of the fullest rank" : "Peak of the fullest rank"),
    h("ul", { class: "tiles" }, report.strategies.map((one) => tile(report, one, highest, ddp))),
    found.length > 0 && h("ul", { class: "findings" }, found.map((text) => h("li", {}, text))));
}

function main() {
  const report = theDocument();
  const sections = report.kind === "scale" ? scaleSections(report)
    : report.strategies.length === 0 ? [h("p", {}, "There is no strategy in this report.")]
      : [summarySection(report), meshSection(report), pipelineSection(report), barsSection(report),
         theorySection(report), stepSection(report),
         trainingSection(report), tableSection(report)];
  document.title = "Tessera: " + titleOf(report);
  document.getElementById("report").append(header(report), ...sections.filter(Boolean), wordsSection(),
    h("footer", {}, "Made by ", h("code", {}, "tessera " + report.kind),
      ". All of it is in this file: nothing is fetched, and nothing is sent."));
  drawCharts();
  let width = innerWidth;
  addEventListener("resize", () => {
    // A phone's address bar appears and disappears, so the height is ignored.
    if (innerWidth !== width) drawCharts();
    width = innerWidth;
  });
  addEventListener("scroll", hideTip, { passive: true });
  document.documentElement.dataset.drawn = "true";
}
