// The keyboard: the same few keys on every page, and a page's own.

import { h, replace } from "./dom.js";

const EVERYWHERE = [
  ["?", "this help"],
  ["g r", "all runs"],
  ["g c · g s · g e · g u", "curves, steps, episodes, setup of the run"],
  ["/", "to the search or filter"],
  ["j · k", "next, previous item"],
  ["Enter", "open the item"],
  ["n · p", "next, previous page, step or episode"],
  ["← · →", "along a chart or the tokens, when one is focused"],
  ["t", "colours: system, light, dark"],
  ["Esc", "leave a field; go up"],
];
let context = null;
let waiting = false;

export function listen(given) {
  context = given;
  document.addEventListener("keydown", pressed);
}

export function showHelp() {
  const dialog = document.getElementById("help");
  const own = context?.page()?.help ?? [];
  const rows = [...EVERYWHERE, ...own].map(([keys, words]) => h("tr", {},
    h("th", { scope: "row" }, keys.split(" · ").map((key, index) => [index ? " " : "", h("kbd", {}, key)])), h("td", {}, words)));
  replace(dialog, h("h2", { id: "help-title" }, "Keys"), h("table", {}, h("tbody", {}, rows)),
    h("button", { onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const field = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape") return escape(field);
  if (field && !["checkbox", "radio", "range"].includes(field.type)) return;
  const page = context.page();
  const done = waiting ? context.tab(event.key) || true : act(event, page);
  waiting = !waiting && event.key === "g";
  if (done) event.preventDefault();
}

function escape(field) {
  if (field) field.blur();
  else context.page()?.up?.();
}

function act(event, page) {
  const own = page?.keys?.[event.key];
  if (own) return own(event) !== false;
  switch (event.key) {
    case "?": showHelp(); return true;
    case "t": context.theme(); return true;
    case "/": return search();
    case "j": return move(1);
    case "k": return move(-1);
    default: return event.key === "g";
  }
}

function search() {
  const field = document.querySelector("[data-search]");
  if (!field) return false;
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  field.select?.();
  return true;
}

// Items are the elements marked data-item; the focus is the cursor.
function move(by) {
  const items = [...document.querySelectorAll("[data-item]")].filter((item) => item.offsetParent !== null);
  if (!items.length) return false;
  const at = items.findIndex((item) => item === document.activeElement || item.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by));
  items[next].focus();
  items[next].scrollIntoView({ block: "nearest" });
  return true;
}
