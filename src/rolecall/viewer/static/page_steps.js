// The steps of a run, and one step: what each task's episodes came to, and every metric beside the step before.

import { duration, fixed, h, mark, number, percent, plural, put, replace, roleHue } from "./dom.js";
import { matcher } from "./groups.js";
import { get, link, note, params } from "./state.js";

const HEADS = { "episodes/started": "episodes", "reward/team": "team", "validation/team": "validation", "engine/tokens": "tokens", "engine/tokens_per_s": "tokens / s" };
const ROLE = /^reward\/(.+)\/total$/;
const SHARES = new Set(["reward/team", "validation/team"]);

export async function page(context) {
  const step = params().get("step");
  return step === null ? table(context) : oneStep(context, Number(step));
}

async function table({ main, run, signal, go }) {
  const body = h("tbody");
  const head = h("tr");
  const count = h("p", { class: "count" });
  const more = h("button", { class: "more", onclick: () => load(oldest) }, "Earlier steps");
  let oldest = null, newest = 0;
  put(main, h("h1", {}, "Steps"), count, h("div", { class: "scroll" }, h("table", { class: "steps" }, h("thead", {}, head), body)), more);

  async function load(before) {
    const found = await get("steps", { run: run.name, before, limit: 200 }, signal);
    replace(head, h("th", { scope: "col" }, "step"), found.columns.map((key) => h("th", { scope: "col", title: key }, ROLE.test(key) && h("i", { class: "dot", style: { background: roleHue(run.roles, heading(key)) } }), heading(key))), h("th", { scope: "col" }, "time"));
    put(body, found.rows.map((one) => stepRow(run, one, found.columns)));
    note_(found);
    more.hidden = !found.more;
    oldest = found.rows.at(-1)?.step ?? oldest;
  }
  const note_ = (found) => {
    newest = Math.max(newest, found.rows[0]?.step ?? 0);
    replace(count, found.total ? `${plural(found.total, "step")} so far` : "No step has ended yet; the first one appears here.");
  };
  await load(null);
  return {
    title: "Steps",
    refresh: async () => {
      const found = await get("steps", { run: run.name, limit: 200 }, signal);
      const fresh = found.rows.filter((one) => one.step > newest);
      if (!head.children.length || found.columns.length + 2 !== head.children.length) { replace(body); await load(null); return; }
      body.prepend(...fresh.map((one) => stepRow(run, one, found.columns, true)));
      note_(found);
    },
    up: () => go(link("/curves", { run: run.name })),
  };
}

const heading = (key) => HEADS[key] ?? ROLE.exec(key)?.[1] ?? key;

function stepRow(run, { step, values, time_s: time }, columns, fresh) {
  return h("tr", { class: fresh ? "fresh" : null, "data-step": step },
    h("th", { scope: "row" }, h("a", { href: link("/steps", { run: run.name, step }), "data-item": true }, step)),
    columns.map((key) => h("td", {}, SHARES.has(key) ? percentBar(values[key]) : ROLE.test(key) ? fixed(values[key], 3) : number(values[key]))),
    h("td", {}, duration(time)));
}

function percentBar(value) {
  if (value === null || value === undefined) return "";
  return h("span", { class: "share" }, h("span", { class: "track" }, h("i", { style: { width: `${Math.max(0, Math.min(1, value)) * 100}%` } })), percent(value));
}

async function oneStep({ main, run, signal, go }, step) {
  const found = await get("step", { run: run.name, step }, signal);
  const last = () => run.status.step;
  const to = (other) => link("/steps", { run: run.name, step: other });
  const move = (by) => { if (step + by >= 1 && step + by <= last()) go(to(step + by)); };
  put(main,
    h("div", { class: "title" },
      h("h1", {}, `Step ${step}`),
      h("span", { class: "pager" },
        step > 1 ? h("a", { href: to(step - 1), title: "p" }, `← ${step - 1}`) : h("span", {}, "the first step"),
        step < last() ? h("a", { href: to(step + 1), title: "n" }, `${step + 1} →`) : h("span", {}, "the last step"),
        h("a", { href: link("/steps", { run: run.name }) }, "all steps"),
        h("a", { href: link("/episodes", { run: run.name, step_min: step, step_max: step }) }, "its episodes as a list"))),
    h("div", { class: "onestep" }, tasks(run, found, step), metrics(found)));
  return { title: `Step ${step}`, refresh: async (fresh) => { run = fresh; }, keys: { n: () => move(1), p: () => move(-1) }, up: () => go(link("/steps", { run: run.name })) };
}

function tasks(run, { tasks: all }, step) {
  if (!all.length) return h("section", {}, h("h2", {}, "Tasks"), h("p", { class: "empty" }, "The episodes of this step are not there (yet)."));
  const spread = all.filter((one) => new Set(one.episodes.map((e) => e.team_score)).size > 1).length;
  return h("section", { class: "tasks" },
    h("h2", {}, plural(all.length, "task")),
    h("p", { class: "count" }, `Each mark is an episode. In ${spread} of ${all.length} the team's outcomes differ, so peers can be compared.`),
    h("ul", {}, all.map((one) => h("li", {},
      h("a", { class: "task", "data-item": true, href: link("/episodes", { run: run.name, task: one.task, step_min: step, step_max: step }) }, one.task),
      h("span", { class: "dots" }, one.episodes.map((e) => h("a", { href: link("/episode", { run: run.name, id: e.episode }), "aria-label": `episode ${e.episode}` }, mark(e.team_score, dotTitle(e)))))))));
}

const dotTitle = (e) => `${e.team_score === null ? "not graded" : e.team_score >= 1 ? "right" : "wrong"}, ${e.outcome}`;

function metrics({ values, earlier }) {
  const body = h("tbody");
  const draw = (text) => {
    const test = matcher(text);
    const keys = Object.keys(values).filter(test);
    replace(body, keys.map((key) => {
      const change = values[key] !== null && earlier[key] !== undefined && earlier[key] !== null ? values[key] - earlier[key] : null;
      return h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, number(values[key])), h("td", { class: "change" }, change ? (change > 0 ? "+" : "") + number(change) : ""));
    }));
  };
  const field = h("input", {
    type: "search", placeholder: "filter metrics", value: params().get("keys") ?? "", "aria-label": "Filter metrics", "data-search": true,
    oninput: (event) => { note({ keys: event.target.value }); draw(event.target.value); },
  });
  draw(field.value);
  return h("section", { class: "metrics" }, h("h2", {}, "Metrics"), field,
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "key"), h("th", { scope: "col" }, "value"), h("th", { scope: "col" }, "change"))), body));
}
