// The tip beside the pointer, and charts that respond to pointer, finger or arrow keys.

function showTip(content, x, y) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(content);
  tip.hidden = false;
  const width = tip.offsetWidth;
  const height = tip.offsetHeight;
  const right = x + 16 + width > document.documentElement.clientWidth - 8;
  const left = right ? Math.max(8, x - width - 16) : x + 16;
  const top = Math.min(Math.max(8, y - height / 2), innerHeight - height - 8);
  tip.style.left = left + "px";
  tip.style.top = Math.max(8, top) + "px";
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

// Makes `chart` show `items[i].tip(x)` for the item whose [x0, x1) contains the pointer, or that
// the arrow keys select. `mark(item, x)` draws a mark there; without an item it removes the mark.
// x is in the units of the chart's viewBox.
function pointable(chart, items, mark) {
  let at = -1;
  const scale = () => chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  const leave = () => { hideTip(); mark(null, 0); };
  const show = (index, x, clientY) => {
    at = index;
    const item = items[index];
    const box = chart.getBoundingClientRect();
    mark(item, x);
    showTip(item.tip(x), box.left + x * scale(), clientY);
  };
  const under = (x) => {
    let low = 0;
    let high = items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (items[middle].x0 <= x) low = middle; else high = middle - 1;
    }
    return items[low].x0 <= x && x < items[low].x1 ? low : -1;
  };
  const point = (event) => {
    const x = (event.clientX - chart.getBoundingClientRect().left) / scale();
    const index = under(x);
    if (index < 0) leave(); else show(index, x, event.clientY);
  };
  const step = (to) => {
    const index = Math.min(Math.max(to, 0), items.length - 1);
    const box = chart.getBoundingClientRect();
    show(index, (items[index].x0 + items[index].x1) / 2, box.top + box.height / 3);
  };
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("blur", leave);
  chart.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: items.length - 1,
                    PageDown: at + 10, PageUp: at - 10 };
    if (event.key === "Escape") leave();
    else if (event.key in moves) step(moves[event.key]);
    else return;
    event.preventDefault();
  });
  chart.setAttribute("tabindex", "0");
  return chart;
}

// Rows "swatch, name, value, share" of a composition, largest categories in their order.
function tipOfBytes(title, subtitle, entries, total) {
  const rows = entries.filter(([, value]) => value > 0).map(([name, value]) => h("tr", {},
    h("td", {}, h("span", { class: "swatch " + categoryClass(name) })),
    h("td", {}, name),
    h("td", { class: "number" }, bytes(value)),
    h("td", { class: "number quiet" }, total > 0 ? Math.round(100 * value / total) + " %" : "")));
  return h("div", {},
    h("p", { class: "tip-title" }, title),
    subtitle && h("p", { class: "quiet" }, subtitle),
    h("table", {}, rows.reverse(),
      h("tr", { class: "total" }, h("td"), h("td", {}, "total"),
        h("td", { class: "number", colspan: 2 }, bytes(total))),
      h("tr", {}, h("td"), h("td", { class: "number quiet", colspan: 3 }, exactBytes(total)))));
}
