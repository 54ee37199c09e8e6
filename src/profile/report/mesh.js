// The mesh: a cell for each rank, by its place along every dimension.

const CELLS_DRAWN = 1024;
const HUES = [210, 30, 145, 330, 55, 270, 180, 0];

// The dimensions of the mesh with several ranks, the slowest first: [name, size].
function meshDims(report) {
  return Object.entries(report.mesh || {}).filter(([, size]) => size > 1);
}

// The place of `rank` along each dimension, in the order of `dims`.
function placesIn(dims, rank) {
  const places = [];
  let rest = rank;
  for (let d = dims.length - 1; d >= 0; d -= 1) {
    places.unshift(rest % dims[d][1]);
    rest = Math.floor(rest / dims[d][1]);
  }
  return places;
}

function placeText(dims, places) {
  return dims.map(([name], d) => name + " " + places[d]).join(", ");
}

// A colour for one of many, distinct from its neighbours. `light` is that of its surface.
function colourOf(index, light) {
  const hue = (HUES[index % HUES.length] + 19 * Math.floor(index / HUES.length)) % 360;
  return "hsl(" + hue + " 62% " + light + "%)";
}

// Where a rank's cell lies, in cells: the last half of the dimensions runs to the right, the others
// down. Blocks of all but the fastest dimension have a gap between them.
function cellOf(dims, across, places) {
  const along = (from, to) => {
    let at = 0;
    let gaps = 0;
    for (let d = from; d < to; d += 1) {
      at = at * dims[d][1] + places[d];
      gaps = d + 1 < to ? gaps * dims[d][1] + places[d] : gaps;
    }
    return at + 0.35 * gaps;
  };
  return [along(across, dims.length), along(0, across)];
}

function peakOfRank(report, rank, places, dims) {
  const last = report.strategies[report.strategies.length - 1];
  const exact = last.ranks.find((one) => one.rank === rank && !one.places);
  if (exact) return exact.peak_bytes;
  const kind = last.ranks.find((one) => Object.entries(one.places || {}).every(([name, [from, to]]) => {
    const d = dims.findIndex(([dim]) => dim === name);
    return d < 0 || (from <= places[d] && places[d] <= to);
  }));
  return kind ? kind.peak_bytes : null;
}

function meshChart(report, dims, across, ranks, width) {
  const cells = ranks.map((rank) => {
    const places = placesIn(dims, rank);
    return { rank, places, at: cellOf(dims, across, places) };
  });
  const columns = Math.max(...cells.map((cell) => cell.at[0])) + 1;
  const rows = Math.max(...cells.map((cell) => cell.at[1])) + 1;
  const left = 4;
  const top = 4;
  const size = Math.min(64, (width - left - 4) / columns);
  const tall = Math.min(size, 34);
  const pipe = dims.findIndex(([name]) => name === "pipe");
  const drawn = cells.map((cell) => {
    const x = left + cell.at[0] * size;
    const y = top + cell.at[1] * tall;
    const peak = peakOfRank(report, cell.rank, cell.places, dims);
    const name = "rank " + cell.rank + ": " + placeText(dims, cell.places);
    const gap = size > 12 ? 3 : 1;
    const label = String(cell.rank);
    const widest = String(ranks.length - 1).length;
    return svg("g", { class: "mesh-rank", "data-rank": cell.rank },
      svg("title", {}, name + (peak ? ", " + bytes(peak) + " at its peak" : "")),
      svg("rect", { x, y, width: Math.max(size - gap, 1), height: Math.max(tall - gap, 1),
                    rx: size > 12 ? 4 : 1, fill: colourOf(pipe < 0 ? 0 : cell.places[pipe], 62) }),
      size > widest * 7 + 8 && tall > 15 && words(x + (size - gap) / 2, y + tall / 2 + 3, label,
        { "text-anchor": "middle", class: "on-colour" }));
  });
  const label = "The mesh: " + dims.map(([name, count]) => count + " along " + name).join(", ");
  return chartOf(width, top + rows * tall + 4, label, drawn);
}

function meshSection(report) {
  const dims = meshDims(report);
  if (dims.length < 1) return null;
  const all = dims.reduce((ranks, [, size]) => ranks * size, 1);
  const ranks = Array.from({ length: Math.min(all, CELLS_DRAWN) }, (_, rank) => rank);
  const across = Math.floor(dims.length / 2);
  const names = (some) => some.map(([name, size]) => name + " (" + size + ")").join(", then ");
  const down = across > 0 ? "down along " + names(dims.slice(0, across)) + ", " : "";
  const pipe = dims.some(([name]) => name === "pipe");
  return figure("The mesh",
    "A cell is a rank: " + down + "to the right along " + names(dims.slice(across)) +
      ", the last the fastest." + (pipe ? " Ranks of one colour have the same layers." : ""),
    chartPlace((width) => meshChart(report, dims, across, ranks, width)),
    all > ranks.length && h("p", { class: "note" },
      digits(ranks.length) + " of " + digits(all) + " ranks are drawn."));
}
