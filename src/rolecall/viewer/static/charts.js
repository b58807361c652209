// Line charts in SVG: drawn at the size they have, with one crosshair for all charts of a page.

import { h, number, replace, svg } from "./dom.js";

const HEIGHT = 168;
const PAD = { left: 44, right: 10, top: 8, bottom: 22 };
const crosshair = new EventTarget();
let shownStep = null;

function setCrosshair(step) {
  if (step === shownStep) return;
  shownStep = step;
  crosshair.dispatchEvent(new Event("step"));
}

// series: [{name, color, dash, steps, values, low, high}]; smoothing in [0, 1); pick(step) on click or Enter.
export function chart({ title, hint, unit01 = false, signal, pick }) {
  const canvas = svg("svg", { class: "canvas", height: HEIGHT, tabindex: 0, role: "img" });
  const legend = h("div", { class: "legend" });
  const element = h("figure", { class: "chart" }, h("figcaption", { title: hint ?? title }, title), legend, canvas);
  const state = { series: [], smoothing: 0, width: 0, scale: null, steps: [], title, unit01, canvas, legend };
  const size = new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width && width !== state.width) { state.width = width; draw(state); }
  });
  size.observe(canvas);
  const moved = () => { drawCrosshair(state); drawLegend(state); };
  crosshair.addEventListener("step", moved);
  signal?.addEventListener("abort", () => { size.disconnect(); crosshair.removeEventListener("step", moved); });
  interact(state, pick);
  element.update = (series, smoothing = 0) => {
    Object.assign(state, { series, smoothing });
    draw(state);
  };
  return element;
}

function interact(state, pick) {
  const { canvas } = state;
  canvas.addEventListener("pointermove", (event) => {
    if (!state.scale) return;
    const x = event.clientX - canvas.getBoundingClientRect().left;
    setCrosshair(nearest(state.steps, state.scale.stepAt(x)));
  });
  canvas.addEventListener("pointerleave", () => setCrosshair(null));
  canvas.addEventListener("blur", () => setCrosshair(null));
  canvas.addEventListener("click", () => shownStep !== null && pick?.(shownStep));
  canvas.addEventListener("keydown", (event) => {
    const at = state.steps.indexOf(shownStep);
    const last = state.steps.length - 1;
    const to = { ArrowLeft: at < 0 ? last : Math.max(0, at - 1), ArrowRight: at < 0 ? 0 : Math.min(last, at + 1), Home: 0, End: last }[event.key];
    if (to !== undefined) { setCrosshair(state.steps[to]); event.preventDefault(); }
    if (event.key === "Enter" && shownStep !== null) { pick?.(shownStep); event.preventDefault(); }
  });
}

function draw(state) {
  const { canvas, series, width } = state;
  const named = series.map((one) => `${one.name} ${number(last(one.values))}`).join(", ");
  canvas.setAttribute("aria-label", `${state.title}: ${named || "no values"}`);
  state.steps = [...new Set(series.flatMap((one) => one.steps))].sort((a, b) => a - b);
  drawLegend(state);
  if (!width) return;
  const values = series.flatMap((one) => [...one.values, ...(one.low?.values ?? []), ...(one.high?.values ?? [])]).filter((v) => v !== null);
  if (!values.length) { state.scale = null; replace(canvas); return; }
  const [low, high, ticks] = range(Math.min(...values), Math.max(...values), state.unit01);
  state.scale = makeScale(state.steps[0], state.steps.at(-1), low, high, width);
  replace(canvas, axes(state, ticks), series.map((one) => lines(one, state)), svg("g", { class: "cross" }));
  drawCrosshair(state);
}

function makeScale(first, lastStep, low, high, width) {
  const wide = width - PAD.left - PAD.right, tall = HEIGHT - PAD.top - PAD.bottom;
  const steps = lastStep - first || 1;
  return {
    x: (step) => PAD.left + (lastStep === first ? wide / 2 : ((step - first) / steps) * wide),
    y: (value) => PAD.top + tall - ((value - low) / (high - low)) * tall,
    stepAt: (x) => first + ((x - PAD.left) / wide) * steps,
    first, last: lastStep, wide, tall,
  };
}

function range(low, high, unit01) {
  if (unit01 && low >= 0 && high <= 1 && high - low > 0.25) { low = 0; high = 1; }
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const pad = Math.abs(high) * 0.1 || 0.5; low -= pad; high += pad; }
  const raw = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const start = Math.floor(low / step + 1e-9) * step, end = Math.ceil(high / step - 1e-9) * step;
  const ticks = [];
  for (let at = start; at <= end + step / 2; at += step) ticks.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return [start, end, ticks];
}

function axes({ scale }, ticks) {
  const across = ticks.map((value) => [
    svg("line", { class: "grid", x1: PAD.left, x2: PAD.left + scale.wide, y1: scale.y(value), y2: scale.y(value) }),
    svg("text", { class: "tick", x: PAD.left - 6, y: scale.y(value) + 3.5, "text-anchor": "end" }, number(Number(value.toPrecision(6)))),
  ]);
  const count = Math.max(2, Math.floor(scale.wide / 70));
  const span = scale.last - scale.first;
  const raw = Math.max(1, span / count), power = 10 ** Math.floor(Math.log10(raw));
  const by = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || 1;
  const steps = [];
  for (let at = Math.ceil(scale.first / by) * by; at <= scale.last; at += by) steps.push(at);
  return [across, steps.map((step) => svg("text", { class: "tick", x: scale.x(step), y: HEIGHT - 6, "text-anchor": "middle" }, number(step)))];
}

function lines(one, { scale, smoothing }) {
  const color = { stroke: one.color };
  const parts = [];
  if (one.low && one.high) parts.push(svg("path", { class: "band", style: { fill: one.color }, d: band(one, scale) }));
  if (smoothing > 0) parts.push(svg("path", { class: "line raw", style: color, d: path(one.steps, one.values, scale) }));
  const values = smoothing > 0 ? smoothed(one.values, smoothing) : one.values;
  parts.push(svg("path", { class: "line", style: color, "stroke-dasharray": one.dash, d: path(one.steps, values, scale) }));
  if (one.steps.length < 12) {
    parts.push(one.steps.map((step, i) => values[i] !== null && svg("circle", { r: 2.5, cx: scale.x(step), cy: scale.y(values[i]), style: { fill: one.color } })));
  }
  return parts;
}

function path(steps, values, { x, y }) {
  let pen = "M", found = "";
  steps.forEach((step, i) => {
    if (values[i] === null) { pen = "M"; return; }
    found += `${pen}${x(step).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    pen = "L";
  });
  return found;
}

function band(one, { x, y }) {
  const at = (side) => side.steps.map((step, i) => [step, side.values[i]]).filter(([, v]) => v !== null).map(([s, v]) => `${x(s).toFixed(1)} ${y(v).toFixed(1)}`);
  const up = at(one.high), down = at(one.low).reverse();
  return up.length ? `M${[...up, ...down].join("L")}Z` : "";
}

// Exponential mean with the start corrected, so that the first points are not pulled to 0.
export function smoothed(values, weight) {
  let mean = 0, mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

function drawCrosshair(state) {
  const group = state.canvas.querySelector(".cross");
  if (!group) return;
  replace(group);
  const { scale } = state;
  if (shownStep === null || !scale || shownStep < scale.first || shownStep > scale.last) return;
  const x = scale.x(shownStep);
  group.append(svg("line", { x1: x, x2: x, y1: PAD.top, y2: PAD.top + scale.tall }));
  for (const one of state.series) {
    const value = valueAt(one, shownStep);
    if (value !== null) group.append(svg("circle", { cx: x, cy: scale.y(value), r: 3, style: { fill: one.color } }));
  }
}

function drawLegend({ legend, series }) {
  const step = shownStep ?? Math.max(...series.map((one) => one.steps.at(-1) ?? 0));
  replace(legend,
    series.map((one) => {
      const value = shownStep === null ? last(one.values) : valueAt(one, shownStep);
      return h("span", { class: "entry", title: one.name }, h("i", { style: { background: one.color }, class: one.dash ? "dashed" : "" }), h("span", { class: "who" }, one.name), h("b", {}, number(value)));
    }),
    series.length > 0 && Number.isFinite(step) && h("span", { class: "step" }, `step ${step}`));
}

function valueAt(one, step) {
  const at = one.steps.indexOf(step);
  return at < 0 ? null : one.values[at];
}

const last = (values) => values.findLast((value) => value !== null) ?? null;

function nearest(steps, at) {
  let best = null;
  for (const step of steps) if (best === null || Math.abs(step - at) < Math.abs(best - at)) best = step;
  return best;
}

// A small curve without axes, for a row of a list.
export function spark({ steps, values }, { width = 132, height = 34, label = "" } = {}) {
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  const scale = {
    x: (step) => 3 + ((step - steps[0]) / (steps.at(-1) - steps[0] || 1)) * (width - 8),
    y: (value) => height - 4 - ((value - low) / span) * (height - 8),
  };
  return svg("svg", { class: "spark", width, height, role: "img", "aria-label": label },
    svg("path", { class: "line", d: path(steps, values, scale) }),
    svg("circle", { r: 2.5, cx: scale.x(steps.at(-1)), cy: scale.y(values.at(-1) ?? known.at(-1)) }));
}
