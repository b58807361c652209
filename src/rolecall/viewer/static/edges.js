// Edges from a turn to the turn that it is about, over the cards of a board.

import { replace, svg } from "./dom.js";

export function drawEdges(board, turns, cards, signal) {
  const layer = svg("svg", { class: "edges", "aria-hidden": "true" });
  board.append(layer);
  const pairs = turns.filter((turn) => turn.about && cards.has(turn.about)).map((turn) => [turn.about, turn.id]);
  const draw = () => {
    const narrow = getComputedStyle(board).getPropertyValue("--narrow").trim() === "1";
    const frame = board.getBoundingClientRect();
    layer.setAttribute("width", board.scrollWidth);
    layer.setAttribute("height", board.scrollHeight);
    replace(layer, svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z" }))),
      pairs.map(([from, to]) => edge(from, to, cards, frame, narrow)));
  };
  const observer = new ResizeObserver(draw);
  observer.observe(board);
  for (const card of cards.values()) {
    observer.observe(card);
    for (const event of ["pointerenter", "focusin"]) card.addEventListener(event, () => light(layer, card.dataset.turn));
    card.addEventListener("pointerleave", () => light(layer, null));
  }
  signal?.addEventListener("abort", () => observer.disconnect());
  return draw;
}

function light(layer, turn) {
  for (const path of layer.querySelectorAll(".edge")) path.classList.toggle("lit", turn !== null && (path.dataset.to === turn || path.dataset.from === turn));
}

function edge(from, to, cards, frame, narrow) {
  const a = box(cards.get(from), frame), b = box(cards.get(to), frame);
  return svg("path", { class: "edge", d: narrow ? gutter(a, b) : between(a, b), "marker-end": "url(#tip)", "data-from": from, "data-to": to, "data-edge": true });
}

// In one column: an arc through the margin at the left.
function gutter(a, b) {
  const y1 = a.top + 18, y2 = b.top + 18, bend = 14;
  return `M${a.left} ${y1}C${a.left - bend} ${y1} ${a.left - bend} ${y1} ${a.left - bend} ${y1 + bend}L${b.left - bend} ${y2 - bend}C${b.left - bend} ${y2} ${b.left - bend} ${y2} ${b.left - 1} ${y2}`;
}

// Between lanes: out of the side, round a corner, and down onto the card; in one lane straight down.
function between(a, b) {
  const x2 = (b.left + b.right) / 2;
  if (Math.abs(a.left - b.left) < 4) return `M${x2} ${a.bottom}L${x2} ${b.top - 1}`;
  const right = b.left > a.left;
  const x1 = right ? a.right : a.left;
  const y1 = Math.min(a.top + 26, (a.top + a.bottom) / 2);
  const round = Math.min(18, Math.abs(x2 - x1) / 2, Math.max(4, (b.top - y1) / 2));
  const side = right ? 1 : -1;
  return `M${x1} ${y1}L${x2 - side * round} ${y1}Q${x2} ${y1} ${x2} ${y1 + round}L${x2} ${b.top - 1}`;
}

function box(card, frame) {
  const found = card.getBoundingClientRect();
  return { left: found.left - frame.left, right: found.right - frame.left, top: found.top - frame.top, bottom: found.bottom - frame.top };
}
