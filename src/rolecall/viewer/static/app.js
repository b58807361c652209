// Which page, its header, going from page to page, and staying live.

import { h, replace } from "./dom.js";
import { listen, showHelp } from "./keys.js";
import { get, link, params } from "./state.js";

const PAGES = {
  "/": () => import("./page_runs.js"),
  "/curves": () => import("./page_curves.js"),
  "/steps": () => import("./page_steps.js"),
  "/episodes": () => import("./page_episodes.js"),
  "/episode": () => import("./page_episode.js"),
  "/config": () => import("./page_config.js"),
};
const TABS = [["/curves", "Curves", "c"], ["/steps", "Steps", "s"], ["/episodes", "Episodes", "e"], ["/config", "Setup", "u"]];
const POLL_MS = 1500;

const main = document.getElementById("main");
const top = document.getElementById("top");
let now = null; // the page that is shown, and whose keys hold until the next one stands: {names, refresh, keys, up}
let leaving = new AbortController();

export function go(address, { replaced = false, top: toTop = true } = {}) {
  history[replaced ? "replaceState" : "pushState"](null, "", address);
  return show({ toTop });
}

async function show({ toTop = true } = {}) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const names = params().getAll("run");
  const open = PAGES[location.pathname];
  document.title = "rolecall";
  try {
    if (!open) throw Object.assign(new Error(`there is no page ${location.pathname}`), { status: 404 });
    // How things stood before anything was read: what is written from here on makes the page look again.
    const [page, before] = await Promise.all([open(), get("pulse", { run: names }, signal)]);
    if (location.pathname !== "/" && !names.length) {
      throw Object.assign(new Error("the address names no run (run=…)"), { status: 404 });
    }
    const run = names.length ? await get("run", { run: names[0] }, signal) : null;
    if (signal.aborted) return;
    header(run);
    const body = h("div", { class: "page" });
    const shown = await page.page({ main: body, run, names, signal, go });
    if (signal.aborted) return;
    replace(main, problems(run), body);
    now = { names: run ? names : [], version: before.version, ...shown };
    document.title = [shown.title, run?.name, "rolecall"].filter(Boolean).join(" · ");
    shown.ready?.();
    if (toTop) scrollTo(0, 0);
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
  main.dataset.shown = String(Number(main.dataset.shown ?? 0) + 1);
}

function failed(error) {
  const missing = error.status === 404;
  now = { names: [], up: () => go("/") };
  document.title = missing ? "Not found · rolecall" : "Trouble · rolecall";
  if (!top.hasChildNodes()) header(null);
  const run = params().get("run");
  replace(
    main,
    h("section", { class: "failed", role: "alert" },
      h("h1", {}, missing ? "Not found" : error.status ? "That cannot be shown" : "The viewer does not answer"),
      h("p", { class: "words" }, error.status ? error.message : `${error.message}. Is rolecall view still running?`),
      h("p", {},
        h("a", { href: "/" }, "All runs"),
        run && location.pathname !== "/curves" && [" · ", h("a", { href: link("/episodes", { run }) }, `Episodes of ${run}`)],
      )),
  );
}

function header(run) {
  const tabs = run && h("nav", { class: "tabs", "aria-label": "Pages of the run" },
    TABS.map(([path, name, key]) => h("a", {
      href: link(path, { run: path === "/curves" ? params().getAll("run") : run.name }),
      "aria-current": current(path) ? "page" : null,
      title: `g then ${key}`,
    }, name)),
    run.has_report && h("a", { href: link("/report", { run: run.name }), target: "_blank", rel: "noopener" }, "Report ↗"));
  replace(
    top,
    h("div", { class: "bar" },
      h("a", { class: "brand", href: "/", title: "All runs (g then r)" }, "rolecall"),
      run && h("span", { class: "crumb" }, h("span", { class: "slash" }, "/"), h("b", {}, run.name), h("span", { id: "status" }, status(run.status))),
      tabs,
      h("span", { class: "spring" }),
      h("span", { id: "live", class: "live", role: "status" }, "live"),
      h("button", { class: "quiet", title: "Colours: system, light, dark (t)", "aria-label": "Change colours", onclick: turnTheme }, "◐"),
      h("button", { class: "quiet", title: "Keys (?)", "aria-label": "Keyboard help", onclick: showHelp }, "?")),
  );
}

const current = (path) => location.pathname === path || (path === "/episodes" && location.pathname === "/episode");

export function status(of) {
  const words = { running: "running", finished: "finished", stopped: "stopped", empty: "nothing yet" }[of.state];
  const steps = of.step || of.steps ? ` ${of.step}${of.steps ? `/${of.steps}` : ""}` : "";
  return h("span", { class: `status ${of.state}`, title: words }, h("i", { "aria-hidden": "true" }), words, h("span", { class: "of" }, steps));
}

function problems(run) {
  if (!run?.problems?.length) return null;
  const count = run.problems.length;
  return h("details", { class: "problems", open: count < 3 },
    h("summary", {}, `${count} ${count === 1 ? "file of this run has" : "files of this run have"} a problem; the rest is shown`),
    h("ul", {}, run.problems.map((words) => h("li", {}, words))));
}

export function turnTheme() {
  const root = document.documentElement;
  const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem("rolecall-theme", next);
    else localStorage.removeItem("rolecall-theme");
  } catch { /* nothing is kept */ }
}

// -- staying live: ask whether something was written, and only then for what ------------------------------------------

async function poll() {
  const page = now;
  const live = document.getElementById("live");
  if (page?.refresh && !document.hidden) {
    try {
      const found = await get("pulse", { run: page.names }, leaving.signal);
      live?.classList.remove("lost");
      if (live) live.textContent = "live";
      if (page === now && found.version !== page.version) await refresh(page);
      page.version = found.version;
    } catch (error) {
      if (error.name !== "AbortError" && live) {
        live.classList.add("lost");
        live.textContent = "not connected";
      }
    }
  }
  setTimeout(poll, POLL_MS);
}

async function refresh(page) {
  if (page.names.length) {
    const run = await get("run", { run: page.names[0] }, leaving.signal);
    if (page !== now) return;
    replace(document.getElementById("status"), status(run.status));
    main.querySelector(":scope > .problems")?.remove();
    const words = problems(run);
    if (words) main.prepend(words);
    await page.refresh(run);
  } else await page.refresh();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !plain || anchor.target || anchor.origin !== location.origin || anchor.hash || !(anchor.pathname in PAGES)) return;
  event.preventDefault();
  go(anchor.href);
});
addEventListener("popstate", () => show({ toTop: false }));

listen({
  page: () => now,
  go,
  theme: turnTheme,
  tab: (key) => {
    const run = params().get("run");
    if (key === "r") return go("/");
    const tab = TABS.find(([, , one]) => one === key);
    return tab && run ? go(link(tab[0], { run })) : undefined;
  },
});
show();
setTimeout(poll, POLL_MS);
