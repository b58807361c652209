// The run's setup: configuration, environment, and its figures before and after.

import { h, percent, put } from "./dom.js";
import { link } from "./state.js";

export async function page({ main, run, go }) {
  put(main, h("h1", {}, "Setup"), h("div", { class: "setup" },
    results(run),
    h("section", {}, h("h2", {}, "Configuration"), tree(run.config)),
    Object.keys(run.environment).length > 0 && h("section", {}, h("h2", {}, "Environment"), tree(run.environment))));
  return { title: "Setup", refresh: async () => {}, up: () => go(link("/curves", { run: run.name })) };
}

function results({ summary, roles }) {
  const { before, after } = summary.evaluation ?? {};
  if (!before?.sampled || !after?.sampled) return null;
  const rows = [["team", before.sampled.team, after.sampled.team], ["first answer alone", before.sampled.first_answer, after.sampled.first_answer]];
  if (before.greedy && after.greedy) rows.push(["team, greedy", before.greedy.team, after.greedy.team]);
  for (const role of roles) {
    const figures = after.sampled.roles?.[role] ?? {};
    for (const name of Object.keys(figures)) rows.push([`${role}: ${name.replaceAll("_", " ")}`, before.sampled.roles?.[role]?.[name], figures[name]]);
  }
  return h("section", {}, h("h2", {}, "Test set"), h("table", { class: "figures" },
    h("thead", {}, h("tr", {}, ["figure", "before", "after"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.filter(([, a, b]) => a || b).map(([name, a, b]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, estimate(a)), h("td", {}, estimate(b)))))));
}

const estimate = (one) => (one ? [h("b", {}, percent(one.mean)), h("small", {}, ` ${percent(one.low)} to ${percent(one.high)}`)] : "–");

function tree(value) {
  const plain = [], tables = [];
  for (const [name, one] of Object.entries(value)) (one !== null && typeof one === "object" && !Array.isArray(one) ? tables : plain).push([name, one]);
  return h("dl", { class: "tree" },
    plain.map(([name, one]) => h("div", {}, h("dt", {}, name), h("dd", {}, words(one)))),
    tables.filter(([, one]) => Object.keys(one).length).map(([name, one]) => h("div", { class: "table" }, h("dt", {}, name), h("dd", {}, tree(one)))));
}

function words(value) {
  if (Array.isArray(value)) return value.map(words).join(", ") || "none";
  return String(value);
}
