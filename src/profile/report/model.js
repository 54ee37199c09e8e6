// Converts the document into the form that charts and tables draw.

const CATEGORIES = [
  ["parameters", "Model parameters, or this rank's shard of them"],
  ["gradients", "Gradients that stay: whole, or this rank's shard"],
  ["optimizer", "Moments and master weights of what this rank updates"],
  ["gather", "Slots into which the parameters of a unit are gathered while it is used"],
  ["reduce", "Slots that hold a unit's full gradients until they are reduced"],
  ["activations", "What the forward pass keeps for the backward pass"],
  ["workspace", "Scratch memory of kernels"],
  ["communicator", "Buffers of the communication library"],
  ["context", "What the process or the device holds before any of this"],
  ["unattributed", "What the system reports and nobody has claimed"],
];

// Up to this many ranks each have a bar of their own; of more, equal ranks share one.
const RANKS_APART = 8;
const BARS_EACH = 12;

function theDocument() {
  return JSON.parse(document.getElementById("document").textContent);
}

// Whether no gradients stay on the device: reduced in slots, they go to the host.
function gradientsLeave(name, report) {
  if (!(report.offload || "none").includes("optimizer")) return false;
  const sharded = ["zero2", "zero3", "fsdp", "hybrid"].includes(name);
  const mode = report.accumulate_mode || "automatic";
  return report.accumulate > 1 && mode !== "automatic" ? mode === "every" : sharded;
}

// The divisors of the parts of the model state on a rank (docs/memory.md, docs/offload.md); null
// if there is no formula.
function divisorsOf(name, report) {
  if (report.offload_keep > 0) return null;  // of whole units
  if (report.mesh && (report.mesh.pipe > 1 || report.mesh.tensor > 1)) return null;  // uneven parts
  const n = report.mesh ? report.mesh.shard || 1 : report.ranks;
  const groups = report.shard_group || n;
  const whole = report.accumulate > 1 && report.accumulate_mode === "deferred";
  const table = {
    dp: [1, 1, 1],
    ddp: [1, 1, 1],
    zero1: [1, 1, n],
    zero2: [1, whole ? 1 : n, n],
    zero3: [n, whole ? 1 : n, n],
    fsdp: [n, whole ? 1 : n, n],
    hybrid: [groups, whole ? 1 : groups, groups],
  };
  const divisors = table[name];
  if (!divisors) return null;
  return gradientsLeave(name, report) ? [divisors[0], Infinity, divisors[2]] : divisors;
}

const STATE_PARTS = ["parameters", "gradients", "optimizer"];

function stateOf(rank) {
  return sum(STATE_PARTS.map((part) => rank.model_state_bytes[part] || 0));
}

function fullest(ranks, measure) {
  return ranks.reduce((most, rank) => (measure(rank) > measure(most) ? rank : most));
}

function peakOf(strategy) {
  return fullest(strategy.ranks, (rank) => rank.peak_bytes).peak_bytes;
}

// The parts of the whole model state, from the rank that holds most of it.
function wholeState(report) {
  const known = report.strategies.filter((strategy) => divisorsOf(strategy.name, report));
  const base = known.find((strategy) => strategy.name === "ddp") ||
    known.find((strategy) => !gradientsLeave(strategy.name, report)) || known[0];
  if (!base) return null;
  const divisors = divisorsOf(base.name, report);
  const rank = fullest(base.ranks, stateOf);
  return {
    from: base.name,
    parts: STATE_PARTS.map((part, i) =>
      Number.isFinite(divisors[i]) ? (rank.model_state_bytes[part] || 0) * divisors[i] : 0),
  };
}

// Model state of a rank under `name` on `n` ranks, by the formula.
function stateInTheory(name, report, whole, n) {
  const divisors = divisorsOf(name, { ...report, ranks: n });
  return sum(whole.parts.map((part, i) => part / divisors[i]));
}

function sameMemory(a, b) {
  const content = (rank) => JSON.stringify(
    [rank.peak_bytes, rank.planned_peak_bytes, rank.at_peak, rank.model_state_bytes]);
  return content(a) === content(b);
}

function rankCount(rank) {
  return rank.count || 1;
}

// Ranks as they are drawn and listed: {first, last, count, rank}.
function rowsOf(strategy, ranksApart) {
  const rows = [];
  for (const rank of strategy.ranks) {
    const last = rows[rows.length - 1];
    const joins = last && strategy.ranks.length > ranksApart && sameMemory(last.rank, rank);
    if (joins) {
      last.last = rank.rank;
      last.count += rankCount(rank);
    } else {
      rows.push({ first: rank.rank, last: rank.rank, count: rankCount(rank), rank });
    }
  }
  return rows;
}

// "pipe 0", "pipe 1 to 2, tensor 3": the place of ranks that a plan distinguishes by it; else empty.
function rowPlaces(row) {
  return Object.entries(row.rank.places || {}).map(([name, [first, last]]) =>
    name + " " + (last > first ? first + "\u2013" + last : first)).join(", ");
}

function rowName(row) {
  if (row.rank.places) return rowPlaces(row);
  if (row.count === 1) return "rank " + row.first;
  if (row.last > row.first) return "ranks " + row.first + "\u2013" + row.last;
  return "rank " + row.first + " and " + digits(row.count - 1) + " alike";
}

function rowShortName(row) {
  if (row.rank.places) return rowPlaces(row).replace(/(pipe|tensor) /g, (word) => word[0]).replace(", ", " ");
  if (row.count === 1) return String(row.first);
  if (row.last > row.first) return row.first + "\u2013" + row.last;
  return "\u00d7" + digits(row.count);
}

// Categories with memory on any rank, in order; unknown ones last.
function usedCategories(report) {
  const used = new Set();
  for (const strategy of report.strategies) {
    for (const rank of strategy.ranks) {
      for (const [name, value] of Object.entries(rank.at_peak)) if (value > 0) used.add(name);
    }
  }
  const known = CATEGORIES.map(([name]) => name).filter((name) => used.has(name));
  return known.concat([...used].filter((name) => !known.includes(name)));
}

function categoryClass(name) {
  return "cat cat-" + (CATEGORIES.some(([known]) => known === name) ? name : "other");
}

const STRATEGY_MARKS = {
  dp: "cross", ddp: "circle", zero1: "triangle", zero2: "square", zero3: "diamond",
  fsdp: "diamond", hybrid: "star",
};

function strategyClass(name) {
  return "strat strat-" + (STRATEGY_MARKS[name] ? name : "other");
}

// How the losses of several strategies agree: those with the bits of the first (`same`); hybrid,
// which adds gradients group by group, if it differs, and by how much; or the first other strategy
// that differs, and from which step on.
function compareLosses(strategies) {
  const base = strategies.find((one) => one.name !== "hybrid") || strategies[0];
  const found = { base, same: [], hybrid: null, within: 0, different: null, step: 0 };
  for (const one of strategies) {
    const longer = base.losses.length >= one.losses.length ? base : one;
    const step = longer.losses.findIndex((_, i) => base.losses[i] !== one.losses[i]);
    const apart = base.losses.map((value, i) => (value === one.losses[i] ? 0
      : Number.isFinite(one.losses[i]) ? Math.abs((one.losses[i] - value) / value) : NaN));
    if (step < 0) {
      found.same.push(one);
    } else if (one.name === "hybrid" && apart.every(Number.isFinite)) {
      found.hybrid = one;
      found.within = apart.reduce((a, b) => Math.max(a, b));
    } else if (!found.different) {
      found.different = one;
      found.step = step + 1;
    }
  }
  return found;
}

function hybridFinding(found) {
  return "hybrid, which adds gradients group by group, is within " + found.within.toExponential(1) +
    " of " + found.base.name;
}

function lossesOf(report) {
  const measured = report.strategies.filter((s) => Array.isArray(s.losses) && s.losses.length > 0);
  if (measured.length > 0) return measured;
  if (!Array.isArray(report.steps)) return [];
  return [{ name: report.strategies[0].name, losses: report.steps.map((step) => step.loss) }];
}
