// The tree of the catalogue as a drawing and as a list, with exposures and rewards of each group.

import { ask, query } from "./api.js";
import * as chart from "./chart.js";
import { empty, h, later, loading, number, problem, say, short } from "./dom.js";

const PAGE = 50;
const COLOURS = { groups: "Groups", earned: "Reward", shown: "Exposure", crowd: "Crowd" };
let kind = "sunburst", colour = "groups";

export async function show(root, [where = "0", what = "", coloured = ""], go) {
  if (Object.hasOwn(COLOURS, coloured)) colour = coloured;
  const place = h("div", { class: "chart", role: "img", "aria-label": "The tree: click a part to open it. The list holds the same groups." });
  const path = h("nav", { class: "path", "aria-label": "Where you are" });
  const title = h("h2", { id: "title", tabindex: "-1" }), facts = h("p", { class: "soft" });
  const list = h("ol", { class: "list", id: "list" }), detail = h("div", { id: "detail" });
  const search = h("input", { type: "search", id: "search", placeholder: "Find an item or a group …", "aria-label": "Find an item or a group", maxlength: 200 });
  const choice = (names, now, pick) => Object.entries(names).map(([name, label]) =>
    h("button", { "data-choice": name, "aria-pressed": String(name === now), text: label, onclick: () => pick(name) }));
  const kinds = h("span", { role: "group", "aria-label": "Drawing" }), colours = h("span", { role: "group", "aria-label": "Coloured by" });
  const legend = h("div", { class: "legend" });
  root.replaceChildren(h("div", { class: "two" },
    h("section", { "aria-label": "Drawing of the tree" }, h("div", { class: "bar" }, path), place, legend,
      h("div", { class: "bar" }, kinds, " ", h("span", { class: "soft", text: "coloured by" }), colours)),
    h("section", { "aria-label": "Groups and items" }, search, title, facts, detail, list)));

  let held = null, now = Number(where) || 0, asked = null;

  function draw() {
    kinds.replaceChildren(...choice({ sunburst: "Sunburst", treemap: "Treemap" }, kind, (name) => { kind = name; chart.clear(place); draw(); }));
    const { nodes } = held, { crowd: all, ...others } = COLOURS;
    if (colour === "crowd" && !nodes.crowd.length) colour = "groups";  // there is no crowd
    colours.replaceChildren(...choice(nodes.crowd.length ? { ...others, crowd: all } : others, colour, (name) => { colour = name; draw(); }));
    const rate = nodes.shown.map((shown, i) => (shown ? nodes.earned[i] / shown : null));
    const each = nodes.shown.map((shown, i) => shown / nodes.items[i]);
    // The node in the middle is left out: only its parts are compared.
    const values = colour === "crowd" ? nodes.crowd : colour === "earned" ? rate : each, known = values.filter((value, i) => value !== null && (colour !== "crowd" || i > 0));
    const most = Math.max(...known, colour === "crowd" ? -Infinity : 1e-9), least = colour === "shown" ? 0 : Math.min(...known, most);
    legend.replaceChildren(...(colour === "groups" ? [] : [
      h("span", { text: { earned: "reward per exposure: ", shown: "exposures per item: ", crowd: "expected reward for a new user: " }[colour] + short(least) }),
      h("span", { class: "ramp", "aria-hidden": "true" }), h("span", { text: short(most) }), colour !== "crowd" && h("span", { text: "grey: never shown" })].filter(Boolean)));
    const hint = (i) => (nodes.children[i] ? number(nodes.children[i]) + " groups, " : "") +
      (nodes.shown[i] ? "shown " + number(nodes.shown[i]) + " times, reward " + short(rate[i]) + " per exposure" : "never shown") +
      (colour === "crowd" && i > 0 ? ", expected for a new user " + short(nodes.crowd[i]) : "");
    const shade = colour === "groups" ? null : (i) =>
      (colour === "crowd" ? i > 0 : nodes.shown[i]) ? chart.ramp((values[i] - least) / Math.max(most - least, 1e-9)) : chart.grey();
    chart.tree(place, nodes, { kind, hint, colour: shade, open: (node, centre) => open(centre && node === now ? parentOf(node) : node) })
      .catch((error) => place.replaceChildren(problem(error, draw)));
  }

  const parentOf = (node) => (held.path.length > 1 ? held.path[held.path.length - 2].node : node);
  const open = (node) => go("catalogue", String(node));

  async function load(node, item) {
    find.cancel();  // a search that was typed before would replace the list
    asked?.abort();
    asked = new AbortController();
    list.setAttribute("aria-busy", "true");
    try {
      held = await ask(`/v1/tree/${node}/map`, { signal: asked.signal });
      // A leaf contains nothing to draw: its parent is drawn, and the leaf is listed.
      if (held.nodes.node.length === 1 && held.path.length > 1) {
        const above = held.path[held.path.length - 2].node;
        held = { ...held, nodes: (await ask(`/v1/tree/${above}/map`, { signal: asked.signal })).nodes, leaf: held.nodes };
      }
      const moved = now !== node;
      now = node;
      draw();
      await tell(item);
      if (moved && document.activeElement === document.body) title.focus();  // the row that had the focus is gone
    } catch (error) {
      if (error.name === "AbortError") return;
      if ([0, 401, 503].includes(error.status) || !held) throw error;
      list.replaceChildren(h("li", {}, problem(error, () => load(node, item))));
    } finally {
      list.removeAttribute("aria-busy");
    }
  }

  async function tell(item) {
    const own = held.leaf ?? held.nodes;
    path.replaceChildren(...held.path.map((one, i) => h("button", {
      text: one.name, "aria-current": i === held.path.length - 1 ? "page" : null, onclick: () => open(one.node) })));
    title.textContent = `${own.name[0]}: ${number(own.items[0])} items` + (own.children[0] ? `, ${number(own.children[0])} groups` : "");
    facts.textContent = own.shown[0] ? `shown ${number(own.shown[0])} times, reward ${short(own.earned[0] / own.shown[0])} per exposure` : "never shown yet";
    detail.replaceChildren();
    if (item) await tellItem(item);
    const children = [];
    if (!held.leaf) own.node.forEach((node, i) => { if (i > 0 && own.parent[i] === own.node[0]) children.push(i); });
    children.sort((a, b) => own.items[b] - own.items[a]);
    const rows = children.map((i) => groupRow(own, i));
    list.replaceChildren(...rows);
    if (!held.leaf && children.length < own.children[0]) list.append(further("Smaller groups", own.children[0] - children.length, (after) => groups(after), children.length));
    if (!children.length) await more(0);
    else list.append(further("Show its items", null, more, 0));
    say(title.textContent);
  }

  // A row that is replaced by the rows that follow, unless another node was opened meanwhile.
  function further(label, left, fetch_, after) {
    const row = h("li", {}, h("button", { onclick: async () => {
      const node = now;
      try {
        await fetch_(after, row, node);
      } catch (error) {
        if (error.name === "AbortError" || node !== now) return;
        if (error.status === 401) throw error;
        row.replaceChildren(h("div", { class: "problem", role: "alert", text: error.message }));
      }
    } }, h("span", { text: label }), h("span", { text: left === null ? "" : number(left) })));
    return row;
  }

  async function more(after, row = null, node = now) {
    const part = await ask(`/v1/tree/${node}/items${query({ after: after || null, n: PAGE })}`, { signal: asked.signal });
    if (node !== now) return;
    const seen = after + part.items.length, rows = part.items.map(itemRow);
    if (seen < part.total) rows.push(further("More items", part.total - seen, more, seen));
    if (row) row.replaceWith(...rows); else list.append(...rows);
  }

  async function groups(after, row, node) {
    const part = await ask(`/v1/tree/${node}/children${query({ after, n: PAGE })}`, { signal: asked.signal });
    if (node !== now) return;
    const seen = after + part.nodes.node.length, rows = part.nodes.node.map((_, i) => groupRow(part.nodes, i));
    if (seen < part.total) rows.push(further("Smaller groups", part.total - seen, groups, seen));
    row.replaceWith(...rows);
  }

  const groupRow = (nodes, i) => h("li", {}, h("button", { onclick: () => open(nodes.node[i]) },
    h("span", { text: nodes.name[i] }), h("span", { text: number(nodes.items[i]) + " items" + (nodes.shown[i] ? " · reward " + short(nodes.earned[i] / nodes.shown[i], 2) : "") })));
  const itemRow = (one) => h("li", {}, h("button", { onclick: () => go("catalogue", String(now), String(one.item)) },
    h("span", { text: one.title ?? String(one.item) }), h("span", { text: one.shown ? `${number(one.shown)} shown · ${short(one.earned)}` : "" })));

  async function tellItem(item) {
    const node = now, told = await ask("/v1/items/" + encodeURIComponent(item), { signal: asked.signal });
    if (node !== now) return;
    const columns = Object.entries(told.columns).filter(([name]) => name !== "title" && name !== "id");
    detail.replaceChildren(h("div", { class: "offer", id: "item" }, h("h3", { text: told.title ?? String(told.item) }),
      h("dl", {}, h("dt", { text: "id" }), h("dd", { text: String(told.item) }),
        ...columns.flatMap(([name, value]) => [h("dt", { text: name }), h("dd", { text: String(value ?? "–") })])),
      h("button", { text: "Close", onclick: () => go("catalogue", String(now)) })));
  }

  const picked = () => { search.value = ""; find.cancel(); };
  const find = later(async () => {
    const wanted = search.value.trim();
    if (!wanted) { if (held) tell(""); return; }
    try {
      const found = await ask("/v1/search" + query({ q: wanted }));
      if (search.value.trim() !== wanted) return;
      detail.replaceChildren();
      title.textContent = `${number(found.all_nodes)} groups and ${number(found.all_items)} items match`;
      facts.textContent = "";
      list.replaceChildren(
        ...found.nodes.map((one) => h("li", {}, h("button", { onclick: () => { picked(); open(one.node); } }, h("span", { text: one.name }), h("span", { text: number(one.items) + " items" })))),
        ...found.items.map((one) => h("li", {}, h("button", { onclick: async () => {
          picked();
          try {
            const told = await ask("/v1/items/" + encodeURIComponent(one.item));
            go("catalogue", String(told.path.at(-1) ?? 0), String(one.item));
          } catch (error) {
            if (error.status === 401) throw error;
            list.replaceChildren(h("li", {}, problem(error, find)));
          }
        } }, h("span", { text: one.title ?? String(one.item) }), h("span", { text: "item" })))));
      if (!found.nodes.length && !found.items.length) list.replaceChildren(h("li", {}, empty("Nothing has that name")));
      say(title.textContent);
    } catch (error) { list.replaceChildren(h("li", {}, problem(error, find))); }
  }, 250);
  search.addEventListener("input", find);

  list.replaceChildren(h("li", {}, loading("the tree")));
  await load(now, what);
  const escape = () => {
    if (!document.getElementById("item")) return false;
    go("catalogue", String(now));
    return true;
  };
  return { repaint: draw, escape, move: ([node = "0", item = ""]) => load(Number(node) || 0, item), end: () => { asked?.abort(); chart.clear(place); } };
}
