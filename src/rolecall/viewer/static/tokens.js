// The tokens of a turn: coloured by probability, prompt apart from what was sampled, trained ones underlined.

import { fixed, h, put } from "./dom.js";
import { get } from "./state.js";

const SHOWN = 3000;

export async function tokenPanel(turn, at, signal) {
  const found = await get("tokens", { ...at, turn: turn.id }, signal);
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a token, or focus one and use ← and →.");
  const strip = h("div", { class: "tokens", role: "group", "aria-label": `tokens of ${turn.name}` });
  const tokens = [];
  const more = h("button", { class: "more", onclick: () => add(Infinity) });
  const add = (limit) => {
    const end = Math.min(found.ids.length, tokens.length + limit);
    while (tokens.length < end) {
      const index = tokens.length;
      if (index === found.num_prompt) strip.append(h("span", { class: "divide" }, "reply"));
      tokens.push(token(found, index));
      strip.append(tokens[index]);
    }
    more.hidden = end === found.ids.length;
    more.textContent = `${(found.ids.length - end).toLocaleString("en-US")} more tokens`;
  };
  strip.append(h("span", { class: "divide" }, "prompt"));
  add(SHOWN);
  const first = tokens[Math.min(found.num_prompt, tokens.length - 1)];
  if (first) first.tabIndex = 0;
  const tell = (element) => element && readout.replaceChildren(describe(found, Number(element.dataset.index)));
  strip.addEventListener("pointerover", (event) => tell(event.target.closest("[data-index]")));
  strip.addEventListener("focusin", (event) => tell(event.target.closest("[data-index]")));
  strip.addEventListener("keydown", (event) => walk(event, tokens));
  return h("div", {}, found.problem && h("p", { class: "words" }, found.problem), legend(found), strip, more, readout);
}

function token(found, index) {
  const logprob = found.logprobs[index];
  const sampled = index >= found.num_prompt;
  const text = found.pieces ? visible(found.pieces[index]) : String(found.ids[index]);
  const element = h("span", { class: `token ${sampled ? (found.trained ? "sampled trained" : "sampled") : "given"}${found.pieces ? "" : " bare"}`, "data-index": index, tabindex: -1 }, text);
  if (logprob !== null) element.style.setProperty("--doubt", doubt(logprob).toFixed(3));
  return element;
}

// 0 for a certain token, 1 for one of probability e^-5 or less.
const doubt = (logprob) => Math.sqrt(Math.min(1, Math.max(0, -logprob) / 5));

function visible(piece) {
  if (piece === "\n") return "↵\n";
  return piece.replaceAll("\n", "↵\n").replaceAll("\t", "⇥");
}

function describe(found, index) {
  const logprob = found.logprobs[index];
  const line = document.createDocumentFragment();
  const sampled = index >= found.num_prompt;
  return put(line,
    h("b", {}, sampled ? `token ${index - found.num_prompt + 1}` : `prompt token ${index + 1}`), ` id ${found.ids[index]}`,
    found.pieces && [" ", h("code", {}, JSON.stringify(found.pieces[index]))],
    logprob !== null && ` p ${probability(logprob)} · log p ${fixed(logprob, 4)} · version ${found.versions[index]}`,
    ` · ${sampled && found.trained ? "trained" : "not trained"}`);
}

function probability(logprob) {
  const p = Math.exp(logprob);
  return p > 0.9999 ? "> 0.9999" : p < 0.0001 ? p.toExponential(1) : p.toFixed(4);
}

function legend(found) {
  return h("p", { class: "tokenlegend" },
    h("span", { class: "ramp", "aria-hidden": "true" }), h("span", {}, "likely to unlikely"),
    h("span", {}, h("span", { class: `token sampled ${found.trained ? "trained" : ""}` }, found.trained ? "trained" : "reply"), ` ${found.why}`),
    h("span", {}, h("span", { class: "token given" }, "prompt"), " never trained"));
}

function walk(event, tokens) {
  const at = tokens.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[event.key];
  if (at < 0 || to === undefined || !tokens[to]) return;
  tokens[at].tabIndex = -1;
  tokens[to].tabIndex = 0;
  tokens[to].focus();
  event.preventDefault();
  event.stopPropagation();
}
