// Curves of any metric, by area and role; several runs over each other.

import { chart } from "./charts.js";
import { debounce, h, hue, plural, put, replace, roleHue } from "./dom.js";
import { areasOf, chartsOf, fetchKeys, matcher, overview } from "./groups.js";
import { get, link, note, params } from "./state.js";

const DASHES = [null, "6 3", "2 3", "8 3 2 3"];

export async function page({ main, run, names, signal, go }) {
  const state = {
    names, signal, runs: [run], open: new Map(), smoothing: Number(params().get("smooth") ?? 0), filter: params().get("keys") ?? "",
    pick: (step) => go(link("/steps", { run: run.name, step })),
  };
  state.runs = [run, ...(await Promise.all(names.slice(1).map((name) => get("run", { run: name }, signal))))];
  const sections = h("div", { class: "sections" });
  const side = h("aside", { class: "side" });
  const draw = () => drawSections(sections, state);
  put(main, h("h1", { class: "hidden" }, `Curves of ${names.join(", ")}`), alarms(run), h("div", { class: "curves" }, side, sections));
  drawSide(side, state, draw, go);
  draw();
  return {
    title: "Curves", names,
    refresh: async (fresh) => {
      const before = keysOf(state).length;
      main.querySelector(".alarms")?.remove();
      const words = alarms(fresh);
      if (words) main.prepend(words);
      state.runs = [fresh, ...(await Promise.all(names.slice(1).map((name) => get("run", { run: name }, signal))))];
      if (keysOf(state).length !== before) draw();
      else await Promise.all([...state.open].filter(([, one]) => one.drawn).map(([, one]) => one.load()));
    },
    up: () => go("/"),
  };
}

function alarms(run) {
  if (!run.alarms.length) return null;
  return h("ul", { class: "alarms", "aria-label": "Alarms" }, run.alarms.map((one) => h("li", { class: one.stands ? "stands" : "" },
    h("b", {}, h("a", { href: link("/steps", { run: run.name, step: one.step }) }, `step ${one.step}`), ": "), one.text, " ",
    one.stands ? `(${one.key} still stands.)` : [`(${one.key} stood last in `, h("a", { href: link("/steps", { run: run.name, step: one.last }) }, `step ${one.last}`), ".)"])));
}

const keysOf = ({ runs }) => [...new Set(runs.flatMap((run) => run.keys))];
const unionOf = (runs, name) => [...new Set(runs.flatMap((run) => run[name]))];

function drawSide(side, state, draw, go) {
  const smoothing = h("input", {
    type: "range", min: 0, max: 0.95, step: 0.05, value: String(state.smoothing), id: "smooth",
    oninput: (event) => {
      state.smoothing = Number(event.target.value);
      note({ smooth: state.smoothing || "" });
      for (const one of state.open.values()) one.redraw?.();
    },
  });
  const filter = h("input", {
    type: "search", id: "keys", value: state.filter, placeholder: "e.g. verifier recall", "data-search": true, autocomplete: "off", spellcheck: "false",
    oninput: debounce((event) => { state.filter = event.target.value; note({ keys: state.filter }); draw(); }),
  });
  const runs = h("div", { class: "overlay" });
  put(side,
    h("label", { for: "keys" }, "Metrics"), filter,
    h("label", { for: "smooth" }, "Smoothing"), smoothing,
    h("div", { class: "label" }, "Runs"), runs,
    h("nav", { class: "areas", "aria-label": "Areas", id: "areas" }));
  get("runs", {}, state.signal).then((found) => replace(runs, found.runs.map((one) => overlayRow(one.name, state, go))), () => {});
}

function overlayRow(name, state, go) {
  const at = state.names.indexOf(name);
  const change = (on) => {
    const chosen = on ? [...state.names, name] : state.names.filter((one) => one !== name);
    if (chosen.length) go(link("/curves", { run: chosen, keys: state.filter, smooth: state.smoothing || "" }), { top: false });
  };
  return h("label", { class: "pick" },
    h("input", { type: "checkbox", checked: at >= 0, disabled: at >= 0 && state.names.length === 1, onchange: (event) => change(event.target.checked) }),
    at >= 0 && state.names.length > 1 && h("i", { style: { background: hue(at) } }), h("span", {}, name));
}

function drawSections(sections, state) {
  const keys = keysOf(state).filter(matcher(state.filter));
  const apart = state.names.length > 1;
  const charts = chartsOf(keys, unionOf(state.runs, "roles"), unionOf(state.runs, "policies"), { apart });
  const shown = state.filter ? [] : overview(charts, unionOf(state.runs, "roles"));
  state.open.clear();
  replace(sections,
    !keys.length && h("p", { class: "empty" }, state.filter ? `No metric matches ${state.filter}.` : "No metrics yet; the first step's appear here."),
    shown.length > 0 && section("Overview", shown, state, true),
    [...areasOf(charts)].map(([area, own]) => section(area, own, state, Boolean(state.filter))));
  const areas = document.getElementById("areas") ?? sections.parentElement?.querySelector("#areas");
  if (areas) {
    replace(areas, [...sections.querySelectorAll("details")].map((one) => h("button", {
      class: "quiet", onclick: () => { one.open = true; one.scrollIntoView({ behavior: "smooth" }); one.querySelector("summary").focus({ preventScroll: true }); },
    }, one.dataset.area)));
  }
}

function section(area, charts, state, open) {
  const grid = h("div", { class: "grid" });
  const details = h("details", { class: "area", open, "data-area": area },
    h("summary", { "data-item": true }, h("h2", {}, area), h("small", {}, plural(charts.length, "chart"))), grid);
  const own = { drawn: false };
  state.open.set(area, own);
  const start = () => {
    if (own.drawn || !details.open) return;
    own.drawn = true;
    fill(grid, charts, state, own);
  };
  details.addEventListener("toggle", start);
  start();
  return details;
}

function fill(grid, charts, state, own) {
  const drawn = charts.map((one) => [one, chart({ title: one.title, hint: one.keys.map(({ key }) => key).join("\n"), unit01: one.unit01, signal: state.signal, pick: state.pick })]);
  put(grid, drawn.map(([, figure]) => figure));
  let data = {};
  own.redraw = () => drawn.forEach(([one, figure]) => figure.update(seriesOf(one, data, state), state.smoothing));
  own.load = async () => {
    try {
      data = await series(state.names, charts.flatMap(fetchKeys), state.signal);
      own.redraw();
    } catch (error) {
      if (error.name !== "AbortError") replace(grid, h("p", { class: "empty" }, error.message));
    }
  };
  own.load();
}

// Some keys at a time: an address has a limit.
async function series(names, keys, signal) {
  const found = {};
  for (let at = 0; at < keys.length; at += 80) {
    const some = await get("series", { run: names, key: keys.slice(at, at + 80) }, signal);
    for (const [name, own] of Object.entries(some)) found[name] = { ...found[name], ...own };
  }
  return found;
}

// One run: a colour a role. Several runs: a colour a run, and a dash for each further subject.
function seriesOf(one, data, { names, runs }) {
  const roles = unionOf(runs, "roles");
  return names.flatMap((name, index) => one.keys.flatMap(({ key, subject, band }, number) => {
    const found = data[name]?.[key];
    if (!found) return [];
    const several = names.length > 1;
    const color = several ? hue(index) : subject && roles.includes(subject) ? roleHue(roles, subject) : hue(number);
    const own = several ? name : subject || key.split("/").slice(1).join("/");
    return [{
      name: own, color, dash: several ? DASHES[number % DASHES.length] : null, ...found,
      low: band ? data[name][`${key}_low`] : null, high: band ? data[name][`${key}_high`] : null,
    }];
  }));
}
