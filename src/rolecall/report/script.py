"""The one script of the page: values under the pointer, or by the arrow keys. The page works without it."""

SCRIPT = """
"use strict";
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const data = JSON.parse(figure.dataset.chart), svg = figure.querySelector(".plot");
  const frame = figure.querySelector(".frame");
  const all = [...new Set(data.l.flatMap((line) => line.x))].sort((a, b) => a - b);
  const first = all[0], last = all[all.length - 1], span = last - first || 1;
  for (const title of figure.querySelectorAll("svg title")) {
    if (title.parentNode !== svg) title.remove();
  }
  svg.setAttribute("aria-label", svg.querySelector("title").textContent + ". " + svg.querySelector("desc").textContent);
  svg.removeAttribute("aria-labelledby");
  svg.querySelector("title").remove();
  let tip = null, cross = null, at = -1;
  const text = (value) => value === null ? "\\u2013"
    : data.k === "rate" ? (100 * value).toFixed(1) + "\\u202f%"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  const nearest = (xs, x) => xs.reduce((best, one, i) => Math.abs(one - x) < Math.abs(xs[best] - x) ? i : best, 0);
  const hide = () => { tip?.remove(); cross?.remove(); tip = cross = null; at = -1; };
  const show = (index) => {
    at = Math.max(0, Math.min(all.length - 1, index));
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "tip";
      tip.setAttribute("role", "status");
      cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
      cross.setAttribute("class", "cross");
      cross.setAttribute("y2", "100%");
      svg.append(cross);
      frame.append(tip);
    }
    const x = all[at], share = all.length === 1 ? 0.5 : (x - first) / span;
    cross.setAttribute("x1", 100 * share + "%");
    cross.setAttribute("x2", 100 * share + "%");
    tip.replaceChildren(document.createTextNode("step " + Math.round(x).toLocaleString("en")));
    for (const line of data.l) {
      const i = nearest(line.x, x), row = document.createElement("div"), value = document.createElement("b");
      const name = document.createElement("i");
      row.className = line.c;
      value.textContent = text(line.y[i]);
      name.textContent = line.n + (Math.abs(line.x[i] - x) > 0.5 ? " (step " + Math.round(line.x[i]) + ")" : "");
      row.append(value, "\\u25cf ", name);
      tip.append(row);
    }
    const box = svg.getBoundingClientRect(), left = box.left - frame.getBoundingClientRect().left;
    const place = left + share * box.width, wide = tip.offsetWidth;
    tip.style.left = Math.max(0, place + wide + 14 > frame.clientWidth ? place - wide - 10 : place + 10) + "px";
  };
  frame.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(nearest(all, first + span * (event.clientX - box.left) / box.width));
  });
  frame.addEventListener("pointerleave", hide);
  figure.tabIndex = 0;
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") show(at + 1);
    else if (event.key === "ArrowLeft") show(at < 0 ? all.length - 1 : at - 1);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  });
}
"""
