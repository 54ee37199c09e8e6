// All numbers: bytes in readable units, exact ones on request and in data-bytes.

function bytesCell(value, field) {
  if (value === null || value === undefined) {
    return h("td", { class: "number quiet", "data-field": field }, "\u2013");
  }
  return h("td", { class: "number", "data-field": field, "data-bytes": value,
                   title: exactBytes(value) }, bytes(value));
}

function memoryColumns(report) {
  const categories = usedCategories(report);
  const planned = report.strategies.some((s) =>
    s.ranks.some((rank) => typeof rank.planned_peak_bytes === "number"));
  return [
    ...(planned ? [["planned", "planned_peak_bytes", (rank) => rank.planned_peak_bytes]] : []),
    ["peak", "peak_bytes", (rank) => rank.peak_bytes],
    ...categories.map((name) => [name, "at_peak." + name, (rank) => rank.at_peak[name] || 0]),
    ...STATE_PARTS.map((name) => [name, "model_state_bytes." + name,
      (rank) => rank.model_state_bytes[name]]),
  ];
}

function memoryTable(report) {
  const columns = memoryColumns(report);
  const categories = usedCategories(report).length;
  const heads = columns.map(([name]) => h("th", { scope: "col", class: "number" }, name));
  const bodies = report.strategies.map((strategy) => h("tbody", {},
    rowsOf(strategy, RANKS_APART).map((row, i) => h("tr",
      { "data-strategy": strategy.name, "data-rank": row.first, "data-count": row.count },
      h("th", { scope: "row" }, i === 0 ? strategy.name : h("span", { class: "again" }, strategy.name)),
      h("td", {}, rowName(row).replace(/^ranks? /, "")),
      columns.map(([, field, value]) => bytesCell(value(row.rank), field))))));
  return h("table", { class: "numbers", id: "memory" },
    h("thead", {},
      h("tr", {}, h("th", { colspan: 2 }),
        h("th", { colspan: columns.length - categories - STATE_PARTS.length, scope: "colgroup" }, ""),
        h("th", { colspan: categories, scope: "colgroup" }, "at the peak, by category"),
        h("th", { colspan: STATE_PARTS.length, scope: "colgroup" }, "model state")),
      h("tr", {}, h("th", { scope: "col" }, "strategy"), h("th", { scope: "col" }, "rank"), heads)),
    bodies);
}

// Shows every number of bytes of `table` in full, or in readable units.
function setExact(table, exact) {
  for (const cell of table.querySelectorAll("[data-bytes]")) {
    const value = Number(cell.dataset.bytes);
    cell.textContent = exact ? digits(value) : bytes(value);
  }
}

function exactSwitch(table) {
  return h("label", { class: "switch" }, h("input", { type: "checkbox",
    onchange: (event) => setExact(table, event.target.checked) }), " exact bytes");
}

function emptyCategories(report) {
  const used = usedCategories(report);
  const named = new Set(report.strategies.flatMap((s) =>
    s.ranks.flatMap((rank) => Object.keys(rank.at_peak))));
  return [...named].filter((name) => !used.includes(name));
}

function tableSection(report) {
  const table = memoryTable(report);
  const empty = emptyCategories(report);
  const merged = report.strategies.some((s) => s.ranks.length > RANKS_APART);
  return figure("All numbers", null,
    h("div", { class: "controls" }, exactSwitch(table), saveButton()),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "memory of every rank" },
      table),
    h("p", { class: "note" },
      empty.length > 0 && "Nothing anywhere in: " + empty.join(", ") + ". ",
      merged && "Neighbouring ranks with the same numbers share a row."));
}

function saveButton() {
  return h("button", { type: "button", onclick: () => {
    const text = document.getElementById("document").textContent;
    const link = h("a", { download: "tessera.json",
      href: URL.createObjectURL(new Blob([text], { type: "application/json" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  } }, "Save as JSON");
}

function wordsSection() {
  return h("details", { class: "card words" }, h("summary", {}, "What the words mean"),
    h("dl", {}, CATEGORIES.map(([name, text]) => [
      h("dt", {}, h("span", { class: "swatch " + categoryClass(name) }), name), h("dd", {}, text)]),
    h("dt", {}, "peak"), h("dd", {}, "The most that the rank held at any moment, all categories together"),
    h("dt", {}, "in use"), h("dd", {}, "Allocated, without the parts of slots and activations that " +
      "hold nothing at the moment"),
    h("dt", {}, "model state"), h("dd", {}, "What stays from step to step: parameters, gradients and " +
      "optimizer state, without slots")));
}
