// The open view, the colours, the key, and the state of the service.

import { ask, key, Problem } from "./api.js";
import { h, loading, number, problem } from "./dom.js";
import * as overview from "./overview.js";

const VIEWS = {
  overview: () => Promise.resolve(overview),
  catalogue: () => import("./catalogue.js"),
  user: () => import("./user.js"),
  crowd: () => import("./crowd.js"),
  live: () => import("./live.js"),
  experiments: () => import("./experiments.js"),
};
const LOADING = { overview: "what the service brings", catalogue: "the tree", user: "the users", crowd: "what was learned", live: "what happened lately", experiments: "the reports" };
const THEMES = { "": ["◐", "as the system has them"], light: ["☀", "light"], dark: ["☾", "dark"] };
const root = document.getElementById("view"), state = document.getElementById("state"), facts = document.getElementById("facts");
let view = null, open = null, about = null, failed = false, turn = 0;

const where = () => location.hash.replace(/^#\/?/, "").split("/").map((part) => {
  try { return decodeURIComponent(part); } catch { return part; }
});

export function go(...parts) {
  const hash = "#/" + parts.map(encodeURIComponent).join("/");
  if (location.hash === hash) route(true);
  else location.hash = hash;
}

async function route(fresh = false) {
  const mine = ++turn, [given, ...parts] = where(), name = Object.hasOwn(VIEWS, given) ? given : "overview";
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  root.setAttribute("aria-busy", "true");
  try {
    if (!about) await introduce();
    if (!fresh && open === name && view?.move) {
      await view.move(parts);
    } else {
      view?.end();
      view = null;
      open = name;
      // Each view draws into an element of its own: answers that arrive after it was left do no harm.
      const place = h("div", {}, loading(LOADING[name]));
      root.replaceChildren(place);
      const module = await VIEWS[name]().catch(() => { throw new Problem(0, "gone", "A file of the page cannot be fetched."); });
      if (mine !== turn) return;
      const made = await module.show(place, parts, go, about);
      if (mine !== turn) { made.end(); return; }
      view = made;
    }
    failed = false;
    fetchRest();
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    fail(error);
  } finally {
    if (mine === turn) root.removeAttribute("aria-busy");
  }
}

// The files of the other views, so that they open at once, and also while the service does not answer.
let rest = false;
function fetchRest() {
  if (rest) return;
  rest = true;
  (window.requestIdleCallback ?? setTimeout)(() => Promise.all(Object.values(VIEWS).map((view) => view())).catch(() => { rest = false; }));
}

function fail(error) {
  view?.end();
  view = null;
  open = null;
  failed = error.status === 0 || error.status === 503;
  if (error.status === 401) askForKey();
  else root.replaceChildren(problem(error instanceof Problem ? error : new Problem(-1, "page", String(error.message ?? error)), () => route(true)));
}
addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof Problem && event.reason.status === 401) { event.preventDefault(); fail(event.reason); }
});

async function introduce() {
  about = await ask("/v1/about");
  document.getElementById("key").hidden = !key.get();
  facts.textContent = `${number(about.items)} items in ${number(about.nodes)} nodes on ${about.levels} levels · ${about.policy} · ${about.mode}` +
    (about.holdout ? ` · ${Number((100 * about.holdout).toPrecision(3))} % of users held out` : "") + (about.role === "read" ? " · this key may only look" : "") + ` · treeward ${about.version}`;
}

function askForKey() {
  const wrong = Boolean(key.get());
  key.forget();
  about = null;
  facts.textContent = "";
  const input = h("input", { type: "password", id: "key-input", autocomplete: "off", placeholder: "tw_…" });
  root.replaceChildren(h("form", { class: "empty", onsubmit: (event) => {
    event.preventDefault();
    if (input.value.trim()) { key.set(input.value.trim()); route(true); }
  } }, h("h2", { text: "A key, please" }),
    wrong && h("p", { class: "problem", role: "alert", text: "The service does not know that key." }),
    h("p", { text: "This service answers those who have a key. Ask its operator for one with the role read, or write to try recommendations. It is kept in this tab only." }),
    h("p", {}, h("label", { for: "key-input", text: "API key" }), input), h("p", {}, h("button", { class: "main", text: "Go on" }))));
  input.focus();
}

document.getElementById("key").addEventListener("click", () => { key.forget(); about = null; document.getElementById("key").hidden = true; route(true); });

function paint(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  const button = document.getElementById("theme");
  button.firstElementChild.textContent = THEMES[theme][0];
  button.setAttribute("aria-label", "Colours: " + THEMES[theme][1]);
  button.title = "Colours: " + THEMES[theme][1];
  view?.repaint?.();
}
document.getElementById("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES), next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
  localStorage.setItem("treeward.theme", next);
  paint(next);
});
paint(THEMES[localStorage.getItem("treeward.theme")] ? localStorage.getItem("treeward.theme") : "");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.repaint?.());

async function pulse() {
  let is = "good", text = "ready";
  try {
    const told = await (await fetch("/readyz", { cache: "no-store" })).json();
    if (!told.ok) [is, text] = ["bad", "not ready: " + told.reason];
    else if (told.crowd) text = "ready, but no new editions: see The crowd";
  } catch { [is, text] = ["bad", "no answer; trying again"]; }
  state.dataset.is = is;
  if (document.getElementById("state-text").textContent !== text) document.getElementById("state-text").textContent = text;
  if (is === "good" && failed) { about = null; failed = false; route(true); }
  setTimeout(pulse, document.hidden ? 10000 : 2500);
}

// Escape ends what is going on: a replay, an explanation, an open item.
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented && !event.target.matches?.("input[type=search]") && view?.escape?.()) event.preventDefault();
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); root.focus(); });
addEventListener("hashchange", () => route());
route();
pulse();
