// Episodes that match a filter, a page at a time; each with its turns in short.

import { debounce, fixed, h, mark, plural, put, replace, roleHue, signed } from "./dom.js";
import { changed, get, link, params } from "./state.js";

const PAGE = 50;
const FIELDS = ["source", "step_min", "step_max", "outcome", "team", "task", "role", "reward_min", "reward_max", "text", "order"];
const OUTCOMES = ["ok", "truncated", "invalid", "error", "timeout"];

export async function page({ main, run, signal, go }) {
  const list = h("ol", { class: "episodes" });
  const count = h("p", { class: "count", "aria-live": "polite" });
  const fresh = h("button", { class: "fresh", hidden: true, onclick: () => { fresh.hidden = true; load(); } });
  const pager = h("nav", { class: "pager", "aria-label": "Pages of the list" });
  const filters = form(run, (changes) => { go.silent(changed({ ...changes, offset: "" })); load(); });
  put(main, h("div", { class: "title" }, h("h1", {}, "Episodes"), fresh), filters,
    h("div", { class: "listhead" }, count, h("p", { class: "note" }, "Each turn: role, what it claims, reward, advantage.")), list, pager);
  go.silent = (address) => history.replaceState(null, "", address);
  let asked = 0, known = run.sources.training ?? 0;

  async function load() {
    const mine = ++asked;
    const given = { ...filterOf(), run: run.name, offset: params().get("offset"), limit: PAGE };
    list.setAttribute("aria-busy", "true");
    try {
      const found = await get("episodes", given, signal);
      if (mine !== asked) return;
      known = found.sources.training ?? 0;
      draw(found);
    } catch (error) {
      if (error.name === "AbortError" || mine !== asked) return;
      replace(list);
      replace(count, h("span", { class: "words", role: "alert" }, error.message));
    } finally {
      if (mine === asked) list.removeAttribute("aria-busy");
    }
  }

  function draw(found) {
    const { rows, total, offset, more } = found;
    const end = offset + rows.length;
    replace(count, total === 0 ? nothing(run) : total === null ? `${offset + 1} to ${end}, and more` : `${(offset + 1).toLocaleString("en-US")} to ${end.toLocaleString("en-US")} of ${plural(total, "episode")}`);
    replace(list, rows.map((row) => item(run, row, found.roles)));
    const to = (at) => changed({ offset: at || "" });
    replace(pager,
      offset > 0 && h("a", { href: to(Math.max(0, offset - PAGE)), title: "p" }, "← previous"),
      more && h("a", { href: to(offset + PAGE), title: "n" }, "next →"));
    turn = { n: more && (() => go(to(offset + PAGE))), p: offset > 0 && (() => go(to(Math.max(0, offset - PAGE)))) };
  }
  let turn = {};
  await load();
  return {
    title: "Episodes",
    refresh: async (now) => {
      const more = (now.sources.training ?? 0) - known;
      if (more <= 0 || (params().get("source") ?? "training") !== "training") return;
      if (!list.children.length) { await load(); return; }
      replace(fresh, `${plural(more, "new episode")}: show`);
      fresh.hidden = false;
    },
    keys: { n: () => turn.n ? turn.n() : false, p: () => turn.p ? turn.p() : false, r: () => load() },
    help: [["r", "read the list again"]],
    up: () => go(link("/curves", { run: run.name })),
  };
}

export function filterOf() {
  const given = params();
  return Object.fromEntries(FIELDS.map((name) => [name, given.get(name)]).filter(([, value]) => value));
}

function form(run, change) {
  const given = params();
  const slow = debounce(change, 250);
  const choice = (name, label, options) => field(label, h("select", { onchange: (event) => change({ [name]: event.target.value }) },
    options.map(([value, words]) => h("option", { value, selected: (given.get(name) ?? "") === value }, words))));
  const entry = (name, label, props) => field(label, h("input", { value: given.get(name) ?? "", autocomplete: "off", oninput: (event) => slow({ [name]: event.target.value.trim() }), ...props }));
  const range = (name, label, props) => h("div", { class: "field" }, h("span", {}, label), h("div", { class: "between" },
    bound(`${name}_min`, `${label}, from`, props), "to", bound(`${name}_max`, `${label}, to`, props)));
  const bound = (name, label, props) => h("input", { type: "number", class: "short", value: given.get(name) ?? "", "aria-label": label, oninput: (event) => slow({ [name]: event.target.value.trim() }), ...props });
  const sources = Object.entries(run.sources).map(([name, size]) => [name === "training" ? "" : name, `${name === "training" ? name : `test set, ${name}`} (${size.toLocaleString("en-US")})`]);
  const set = FIELDS.filter((name) => given.get(name));
  return h("details", { class: "filters", open: innerWidth > 720 },
    h("summary", {}, "Filter", set.length > 0 && ` (${set.length})`),
    h("form", { role: "search", onsubmit: (event) => event.preventDefault() },
      entry("text", "Text", { type: "search", placeholder: "question, prompt or reply", "data-search": true, class: "wide" }),
      choice("source", "From", sources),
      choice("team", "Team", [["", "any"], ["right", "right"], ["wrong", "wrong"], ["failed", "not graded"]]),
      choice("outcome", "Outcome", [["", "any"], ...OUTCOMES.map((one) => [one, one])]),
      choice("role", "Role that acted", [["", "any"], ...run.roles.map((one) => [one, one])]),
      range("reward", "Its reward", { step: "any" }),
      range("step", "Steps", { min: 0 }),
      choice("order", "Order", [["", "newest first"], ["oldest", "oldest first"], ["turns", "most turns first"]]),
      given.get("task") && h("span", { class: "chip" }, "task ", h("b", {}, given.get("task")), h("a", { href: changed({ task: "", offset: "" }), "aria-label": "any task" }, " ✕")),
      set.length > 0 && h("a", { class: "clear", href: link("/episodes", { run: run.name }) }, "Clear")));
}

const field = (label, control) => h("label", { class: "field" }, h("span", {}, label), control);

function nothing(run) {
  const any = Object.values(run.sources).some((size) => size > 0);
  return any ? "No episode matches; change the filter or clear it." : "No episodes yet; the first step's appear here.";
}

function item(run, row, roles) {
  const address = link("/episode", { run: run.name, id: row.episode, ...filterOf() });
  const failed = row.outcome !== "ok";
  return h("li", { class: "item" },
    mark(row.team_score, `team ${row.team_score === null ? "not graded" : row.team_score >= 1 ? "right" : "wrong"}`),
    h("div", { class: "what" },
      h("a", { href: address, "data-item": true, class: "question" }, row.question || row.task),
      h("span", { class: "answer" }, row.answer === null ? "no answer" : ["= ", h("b", {}, row.answer)]),
      failed && h("span", { class: "outcome" }, row.outcome)),
    h("span", { class: "where" }, h("span", {}, `step ${row.step}`), " · ", h("span", { title: row.episode }, row.episode.split("/").at(-1))),
    h("div", { class: "turns" }, row.problem ? h("span", { class: "words" }, row.problem) : [
      row.context > 0 && h("span", { class: "after", title: "turns before it on its path, which are counted as candidates of their own" }, `after ${row.context} ${row.context === 1 ? "turn" : "turns"}`),
      row.turns.map((turn) => chip(turn, roles))]));
}

function chip(turn, roles) {
  const name = turn.role + (turn.copy ? `.${turn.copy}` : "");
  const words = [name, turn.kind && `${turn.kind} ${turn.claim ?? "unparsed"}`, turn.grade, turn.reward !== null && `reward ${fixed(turn.reward)}`, turn.advantage !== null && `advantage ${signed(turn.advantage)}`, turn.stop !== "eos" && `stopped by ${turn.stop}`];
  const good = turn.reward === null ? "" : turn.reward > 0 ? "good" : "bad";
  return h("span", { class: `chip turn ${good}`, title: words.filter(Boolean).join(", "), vars: { "--own": roleHue(roles, turn.role) } },
    h("i", {}), h("span", { class: "role" }, name),
    h("span", { class: "claim" }, turn.claim ?? (turn.kind ? "unparsed" : "")),
    turn.stop !== "eos" && h("span", { class: "cut", title: `stopped by ${turn.stop}` }, "✂"),
    turn.reward !== null && h("b", {}, fixed(turn.reward)),
    turn.advantage ? h("span", { class: turn.advantage > 0 ? "up" : "down" }, signed(turn.advantage)) : null);
}
