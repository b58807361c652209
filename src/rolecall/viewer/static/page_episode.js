// One episode: lanes by role, an edge from each turn to the turn it is about, and everything known of each turn.

import { drawEdges } from "./edges.js";
import { h, mark, number, put, roleHue } from "./dom.js";
import { filterOf } from "./page_episodes.js";
import { get, link, note, params } from "./state.js";
import { turnCard } from "./turn.js";

export async function page({ main, run, signal, go }) {
  const id = params().get("id") ?? "";
  const filter = filterOf();
  const at = { run: run.name, source: params().get("source"), id };
  const found = await get("episode", { ...filter, run: run.name, id }, signal);
  const to = (other) => link("/episode", { run: run.name, id: other, ...filter });
  const cards = new Map();
  const choose = (turn, panel) => note({ turn, panel });
  const own = (turn) => link("/episode", { run: run.name, id: turn.id, source: params().get("source") });
  for (const turn of found.turns) cards.set(turn.id, turnCard(turn, { at, episode: found, cards, choose, own, roles: found.roles, signal }));
  const board = h("div", { class: "board", vars: { "--lanes": found.lanes.length } },
    found.lanes.map((lane, index) => h("div", { class: "lane", style: { gridColumn: index + 1 }, vars: { "--own": roleHue(found.roles, lane.role) } },
      h("h2", {}, lane.role, lane.copy ? h("small", {}, ` ${lane.copy}`) : ""), h("small", {}, found.turns.find((t) => t.lane === index)?.policy))));
  for (const turn of found.turns) {
    const card = cards.get(turn.id);
    Object.assign(card.style, { gridColumn: turn.lane + 1, gridRow: turn.row + 2 });
    board.append(card);
  }
  put(main, heading(found, run, to, filter), found.turns.length
    ? h("div", { class: "boardscroll" }, board)
    : h("p", { class: "empty" }, "No turn was made before the episode ended."));
  const edges = drawEdges(board, found.turns, cards, signal);
  return {
    title: found.task.question,
    ready: () => { edges(); openChosen(cards); },
    keys: {
      n: () => (found.next ? go(to(found.next)) : false),
      p: () => (found.previous ? go(to(found.previous)) : false),
      ...Object.fromEntries(["o", "w", "d"].map((key) => [key, () => ownPanel(key, cards)])),
    },
    help: [["w", "tokens of the turn (its words with their probabilities)"], ["o", "prompt of the turn"], ["d", "difference from the answer it repairs"]],
    up: () => go(link("/episodes", { run: run.name, ...filter })),
    refresh: async () => {},
  };
}

function ownPanel(key, cards) {
  const card = [...cards.values()].find((one) => one.contains(document.activeElement)) ?? [...cards.values()][0];
  return card?.toggle({ o: "prompt", w: "tokens", d: "diff" }[key]) ?? false;
}

function openChosen(cards) {
  const card = cards.get(params().get("turn"));
  if (!card) return;
  const panel = params().get("panel");
  if (panel) card.toggle(panel, true);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function heading(found, run, to, filter) {
  const { task, team, outcome, failure } = found;
  const answer = outcome?.answer;
  const figures = Object.entries(outcome?.figures ?? {});
  return h("section", { class: "summary" },
    h("div", { class: "title" },
      h("h1", { class: "question" }, task.question),
      h("span", { class: "pager" },
        found.previous && h("a", { href: to(found.previous), title: "p" }, "← previous"),
        h("a", { href: link("/episodes", { run: run.name, ...filter }), title: "Esc" }, "list"),
        found.next && h("a", { href: to(found.next), title: "n" }, "next →"))),
    h("dl", { class: "facts" },
      fact("Team", [mark(team.score), ` ${team.status}`], team.detail),
      fact("Answer", answer === null || answer === undefined ? "none" : h("code", {}, answer)),
      fact("Wanted", task.answer === null ? "not known" : h("code", {}, task.answer)),
      fact("Outcome", found.outcome_class, outcome?.reason),
      fact("Step", params().get("source") ? `after ${found.step}` : h("a", { href: link("/steps", { run: run.name, step: found.trained_in }) }, found.trained_in)),
      found.candidate && found.step !== found.trained_in && fact("Task came in", `step ${found.step}`),
      found.attempt > 0 && fact("Attempt", found.attempt + 1),
      figures.map(([name, value]) => fact(name.replaceAll("_", " "), number(value))),
      fact("Task", h("a", { href: link("/episodes", { run: run.name, task: task.id, source: params().get("source") }) }, task.id))),
    failure && h("p", { class: "words", role: "note" }, `${failure.where}: ${failure.detail} (${failure.kind})`),
    found.siblings.length > 1 && h("p", { class: "siblings" }, h("span", {}, "Its peers in the step: "),
      h("span", { class: "dots" }, found.siblings.map((one) => h("a", {
        href: to(one.episode), "aria-current": one.episode === found.id ? "true" : null, "aria-label": `episode ${one.episode}`,
      }, mark(one.team_score))))));
}

const fact = (name, value, title) => h("div", { title }, h("dt", {}, name), h("dd", {}, value));
