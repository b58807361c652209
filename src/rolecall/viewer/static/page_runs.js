// All runs: how each stands, what it is, and how it went.

import { status } from "./app.js";
import { spark } from "./charts.js";
import { ago, duration, h, hue, percent, plural, put, replace } from "./dom.js";
import { get, link, note, params } from "./state.js";

export async function page({ main, signal, go }) {
  const picked = new Set(params().getAll("pick"));
  const list = h("div", { class: "runs", role: "list" });
  const bar = h("div", { class: "pickbar", "aria-live": "polite" });
  const intro = h("div", { class: "intro" });
  const sparks = {}, drawn = new Map();
  put(main, intro, bar, list);

  const drawBar = () => {
    bar.hidden = picked.size === 0;
    replace(bar,
      h("span", {}, `${plural(picked.size, "run")} picked`),
      h("a", { class: "button", href: link("/curves", { run: [...picked] }) }, picked.size > 1 ? "Overlay their curves" : "Open its curves"),
      h("button", { class: "quiet", onclick: () => { picked.clear(); refresh(); } }, "Clear"));
  };
  const pick = (name, on) => {
    picked[on ? "add" : "delete"](name);
    note({ pick: [...picked] });
    drawBar();
  };

  async function refresh() {
    const { root, runs } = await get("runs", {}, signal);
    for (const name of picked) if (!runs.some((run) => run.name === name)) picked.delete(name);
    replace(intro, h("h1", {}, runs.length ? plural(runs.length, "run") : "No runs yet"), h("p", { class: "where" }, root));
    const focused = document.activeElement?.closest?.("[data-run]")?.dataset.run;
    replace(list, runs.length ? runs.map((run, index) => row(run, index, sparks[run.name], picked, pick)) : nothing(root));
    if (focused) list.querySelector(`[data-run="${CSS.escape(focused)}"] [data-item]`)?.focus();
    note({ pick: [...picked] });
    drawBar();
    drawSparks(runs);
  }

  async function drawSparks(runs) {
    try {
      for (const { name, status: of } of runs) {
        if (drawn.get(name) === of.written) continue;
        drawn.set(name, of.written);
        sparks[name] = (await get("sparks", { run: name }, signal))[name];
        for (const place of list.querySelectorAll("[data-spark]")) if (place.dataset.spark === name) fill(place, sparks[name]);
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  await refresh();
  return { title: "Runs", refresh, help: [["x", "pick the run for an overlay"]], keys: { x: togglePick, c: () => picked.size > 0 && go(link("/curves", { run: [...picked] })) } };
}

function togglePick() {
  const box = document.activeElement?.closest?.("[data-run]")?.querySelector("input");
  box?.click();
  return Boolean(box);
}

function fill(place, curve) {
  if (!curve) return;
  replace(place, spark(curve, { label: `${curve.key} over the steps` }), h("small", {}, curve.key));
}

function row(run, index, curve, picked, pick) {
  const facts = [run.workflow, run.algorithm, run.sharing, run.model?.split("/").at(-1), run.seed !== null && `seed ${run.seed}`].filter(Boolean);
  const { status: of } = run;
  const share = of.steps ? Math.min(1, of.step / of.steps) : 0;
  const place = h("span", { class: "curve", "data-spark": run.name });
  fill(place, curve);
  return h("div", { class: "run", role: "listitem", "data-run": run.name, vars: { "--own": hue(index) } },
    h("input", { type: "checkbox", checked: picked.has(run.name), "aria-label": `Pick ${run.name}`, onchange: (event) => pick(run.name, event.target.checked) }),
    h("span", { class: "name" },
      h("a", { href: link("/curves", { run: run.name }), "data-item": true }, run.name),
      h("small", {}, facts.join(" · ") || "no configuration could be read")),
    h("span", { class: "standing" }, status(of),
      of.state === "running" && h("span", { class: "progress", role: "progressbar", "aria-valuenow": of.step, "aria-valuemax": of.steps ?? 0, "aria-label": "steps" }, h("i", { style: { width: `${100 * share}%` } })),
      h("small", {}, standing(run))),
    place,
    h("span", { class: "result" }, result(run)));
}

function standing({ status: of, wall_s: wall }) {
  if (of.state === "finished") return wall ? `took ${duration(wall)}` : ago(of.written);
  if (of.state === "running" && of.step_s && of.steps) return `about ${duration((of.steps - of.step) * of.step_s)} left`;
  return of.written ? `written ${ago(of.written)}` : "";
}

function result({ before, after }) {
  if (!before && !after) return h("small", {}, "no test figures yet");
  const interval = (one) => one && `95 % interval ${percent(one.low)} to ${percent(one.high)}, ${one.n} episodes`;
  return [
    h("span", { class: "figures" }, h("span", { title: interval(before) }, percent(before?.mean)), h("span", { class: "arrow" }, " → "), h("b", { title: interval(after) }, after ? percent(after.mean) : "…")),
    h("small", {}, "team, test set"),
  ];
}

function nothing(root) {
  return h("div", { class: "empty" },
    h("p", {}, "There is no run folder (one with a config.toml) below ", h("code", {}, root), "."),
    h("p", {}, "Start one with ", h("code", {}, "rolecall train recipes/demo.toml"), "; it appears here by itself."));
}
