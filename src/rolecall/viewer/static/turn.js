// One turn as a card: what it said and claimed, what it earned, and on demand its prompt, its tokens, what it changed.

import { fixed, h, mark, put, replace, roleHue, signed } from "./dom.js";
import { get } from "./state.js";
import { tokenPanel } from "./tokens.js";

const LONG = 1400;

export function turnCard(turn, { at, episode, cards, choose, own, roles, signal }) {
  const panel = h("div", { class: "panel", hidden: true });
  const buttons = new Map();
  const card = h("article", { class: turn.context ? "turncard context" : "turncard", tabindex: 0, "data-item": true, "data-turn": turn.id, "aria-label": `turn ${turn.name}`, vars: { "--own": roleHue(roles, turn.role) } });
  let shown = null;

  card.toggle = (name, force) => {
    if (!buttons.has(name)) return false;
    shown = shown === name && !force ? null : name;
    for (const [key, button] of buttons) button.setAttribute("aria-expanded", String(key === shown));
    panel.hidden = shown === null;
    choose(shown ? turn.id : "", shown ?? "");
    if (shown) fill(shown);
    return true;
  };
  async function fill(name) {
    replace(panel, h("p", { class: "wait" }, "…"));
    try {
      const content = await { prompt: () => promptPanel(turn), tokens: () => tokenPanel(turn, at, signal), diff: () => diffPanel(turn, at, episode, signal) }[name]();
      if (shown === name) replace(panel, content);
    } catch (error) {
      if (error.name !== "AbortError" && shown === name) replace(panel, h("p", { class: "words", role: "alert" }, error.message));
    }
  }
  const button = (name, words, key) => {
    const found = h("button", { "aria-expanded": "false", title: `key ${key}`, onclick: () => card.toggle(name) }, words);
    buttons.set(name, found);
    return found;
  };
  put(card, head(turn, cards, episode), turn.context && onThePath(turn, own), claim(turn), said(turn), rewards(turn), meta(turn),
    h("div", { class: "panels" }, button("prompt", "Prompt", "o"), button("tokens", "Tokens", "w"), turn.compare && button("diff", "Changes", "d")), panel);
  return card;
}

function head(turn, cards, episode) {
  const about = turn.about && episode.turns.find((one) => one.id === turn.about);
  return h("header", {},
    h("h3", {}, turn.role, turn.copy ? `.${turn.copy}` : "", h("small", {}, ` call ${turn.call + 1}`)),
    about && h("button", { class: "about", title: "to the turn it is about", onclick: () => { const card = cards.get(about.id); card.focus(); card.scrollIntoView({ block: "nearest" }); } }, `about ${about.name}`),
    turn.advantage !== null && h("span", { class: `advantage ${turn.advantage > 1e-9 ? "up" : turn.advantage < -1e-9 ? "down" : "zero"}`, title: "advantage" }, "adv ", h("b", {}, signed(turn.advantage))));
}

function onThePath(turn, own) {
  return h("p", { class: "elsewhere" }, "On the path; counted and trained as ", h("a", { href: own(turn) }, "a candidate of its own"), ".");
}

// `judged`: whether a verdict fits the grade of the answer that it is about.
function claim({ claim: made, grade, judged }) {
  if (!made) return null;
  return h("p", { class: "claimline" }, h("span", {}, made.kind), " ", made.value === null ? h("em", {}, "could not be read") : h("code", {}, made.value),
    grade && [" ", mark(grade.score), h("span", { title: grade.detail || null }, ` ${grade.status}`)],
    judged !== null && [" ", mark(Number(judged)), h("span", {}, judged ? " rightly" : " wrongly")]);
}

function said({ text, stop }) {
  if (text === null) return h("p", { class: "said none" }, stop === "eos" ? "Nothing that other roles may see." : "Cut off before anything that other roles may see; the tokens have what was said.");
  const pre = h("pre", { class: "said" }, text.slice(0, LONG));
  if (text.length <= LONG) return pre;
  const more = h("button", { class: "more", onclick: () => { replace(pre, text); more.remove(); } }, `… ${(text.length - LONG).toLocaleString("en-US")} more characters`);
  return [pre, more];
}

function rewards({ reward }) {
  if (!reward) return null;
  const parts = Object.entries(reward.parts).filter(([, value]) => value !== 0);
  return h("p", { class: "rewards" },
    h("span", {}, reward.team ? "team reward " : "reward "), h("b", { class: reward.total === null ? "" : reward.total > 0 ? "up" : "down" }, fixed(reward.total)),
    parts.length > 0 && h("span", { class: "parts" }, " = ", parts.map(([name, value], index) => [index ? " + " : "", h("span", { class: "part" }, `${name} ${fixed(value)}`)])),
    reward.team && h("span", { class: "note" }, " the team's outcome, given to every role"));
}

function meta(turn) {
  const versions = turn.versions && (turn.versions[0] === turn.versions[1] ? `version ${turn.versions[0]}` : `versions ${turn.versions[0]} to ${turn.versions[1]}`);
  return h("p", { class: "meta" },
    h("span", {}, `${turn.policy}, ${versions ?? "no version"}`),
    h("span", { title: "tokens of the prompt and of the reply" }, `${turn.num_prompt} → ${turn.num_tokens} tokens`),
    h("span", { class: turn.stop === "eos" ? "" : "cut" }, { eos: "ended by itself", length: "✂ cut by the length limit", abort: "✂ aborted" }[turn.stop] ?? turn.stop),
    turn.mean_logprob !== null && h("span", { title: "mean log-probability of its tokens" }, `mean log p ${fixed(turn.mean_logprob, 3)}`),
    turn.candidate > 0 && h("span", {}, `candidate ${turn.candidate}`));
}

function promptPanel({ messages }) {
  return h("div", { class: "messages" }, messages.map((one) => h("div", { class: "message" }, h("span", { class: "speaker" }, one.role), h("pre", {}, one.content))));
}

async function diffPanel(turn, at, episode, signal) {
  const found = await get("diff", { ...at, turn: turn.id, base: turn.compare }, signal);
  const base = episode.turns.find((one) => one.id === turn.compare);
  if (found.equal) return h("p", { class: "note" }, `The same text as ${base.name}: nothing was changed.`);
  return h("div", { class: "diff" }, h("p", { class: "note" }, `${base.name} → ${turn.name}`),
    h("pre", {}, found.parts.map(([kind, text]) => (kind === "same" ? text : h(kind === "added" ? "ins" : "del", {}, text)))));
}
