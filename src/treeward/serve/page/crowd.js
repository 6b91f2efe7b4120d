// What the crowd has learned: the present edition, the items and groups that rose, and whether clicks rise with them.

import { ask, query, repeat } from "./api.js";
import * as chart from "./chart.js";
import { age, empty, h, loading, number, rated, short } from "./dom.js";

const EVERY = 2000, KEPT = 900, SMOOTH = 30;

export async function show(root, parts, go, about) {
  const { clicks, each, share } = rated(about);
  const title = "What the crowd has learned", curve = each[0].toUpperCase() + each.slice(1) + ` (mean of ${SMOOTH} s, and since the first point)`;
  const numbers = h("div", { class: "numbers", id: "crowd-numbers" }), warned = h("div");
  const place = h("div", { class: "chart low", role: "img", "aria-label": curve });
  const risen = h("div", { class: "scroll", id: "risen" }), best = h("div", { class: "scroll" }), worst = h("div", { class: "scroll" });
  const body = [h("h2", { text: title }), warned, numbers, h("div", { class: "grid wide" },
    h("div", {}, h("section", { "aria-label": curve }, h("h2", { text: curve }), place),
      h("section", { "aria-label": "Groups a new user will like best" }, h("h2", { text: "Groups a new user will like best" }), best,
        h("p", {}, h("button", { text: "Colour the tree by the crowd", onclick: () => go("catalogue", "0", "", "crowd") })))),
    h("div", {}, h("section", { "aria-label": "Items that rose most" }, h("h2", { text: "Items that rose most" }),
      h("p", { class: "soft", text: "Liked more than items like them: by how much, what a showing earned, and how often they were shown." }), risen),
      h("section", { "aria-label": "Groups a new user will like least" }, h("h2", { text: "Groups a new user will like least" }), worst)))];
  root.replaceChildren(loading("what the crowd has learned"));
  let rows = {}, told = null, gone = false;

  async function look() {
    const [crowd, live] = await Promise.all([ask("/v1/crowd"), ask("/v1/live" + query({ after: rows.time?.at(-1) }))]);
    if (gone) return;
    told = crowd;
    for (const [name, values] of Object.entries(live.seconds)) rows[name] = (rows[name] ?? []).concat(values).slice(-KEPT);
    draw();
  }

  // Reward per decision over the last seconds, at every second; null where nothing was decided.
  function ratio(seconds) {
    let top = 0, bottom = 0;
    return (rows.earned ?? []).map((value, i) => {
      top += value; bottom += rows.decisions[i];
      if (i >= seconds) { top -= rows.earned[i - seconds]; bottom -= rows.decisions[i - seconds]; }
      return bottom > 0 ? (clicks ? 100 : 1) * Math.max(0, top / bottom) : null;
    });
  }

  const table = (head, lines) => h("table", {}, h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, ...lines.map((line) => h("tr", {}, ...line.map((cell) => h("td", {}, cell))))));
  const link = (text, ...where) => h("button", { class: "link", text, onclick: () => go(...where) });
  const signed = (value) => (value > 0 ? "+" : "") + short(value, 2);

  async function openItem(item) {
    const found = await ask("/v1/items/" + encodeURIComponent(item));
    go("catalogue", String(found.path.at(-1) ?? 0), String(item));
  }

  function groups(place, nodes) {
    place.replaceChildren(nodes.length ? table(["group", "items", "expected", "from its items' own effects"], nodes.map((one) =>
      [link(one.name, "catalogue", String(one.node)), number(one.items), share(clicks ? Math.max(0, one.mean) : one.mean), signed(one.offset)])) : h("p", { class: "soft", text: "The tree has few groups: all are in the other list." }));
  }

  function draw() {
    if (!told) return;
    if (!told.learns) { root.replaceChildren(empty("There is no crowd", h("p", { text: "Each user is learned alone. With the setting crowd = true, the rewards of one user also help all others." }))); return; }
    if (numbers.parentElement !== root) root.replaceChildren(...body);
    warned.replaceChildren(...(told.problem ? [h("p", { class: "problem", role: "alert", text: `Edition ${number(told.edition)} stays in use: ${told.problem}` })] : []));
    numbers.replaceChildren(...[
      ["present edition", number(told.edition)], ["made", age(told.age) + " ago"], ["rewards in it", number(told.rewards)],
      ["rewards since", number(told.waiting)], [clicks ? "clicks per visit, so far" : "mean reward", told.rewards ? share(told.mean_reward) : "–"],
      ["users compared", number(told.users)], ["time to make it", short(1000 * told.publish_seconds, 2) + " ms"],
    ].map(([label, value]) => h("div", {}, h("b", { text: value }), h("span", { class: "soft", text: label }))));
    risen.replaceChildren(told.risen.length ? table(["item", "better by", clicks ? "clicks" : "reward", "shown"], told.risen.map((one) =>
      [h("button", { class: "link", text: one.title ?? String(one.item), onclick: () => openItem(one.item) }), signed(one.effect), one.shown ? share(one.earned / one.shown) : "–", number(one.shown)]))
      : h("p", { class: "soft", text: "No item stands out yet. Rewards have to come first: send them with POST /v1/feedback." }));
    groups(best, told.strongest);
    groups(worst, told.weakest);
    const x = (rows.time ?? []).map((time) => new Date(time * 1000));
    if (x.length) chart.lines(place, [{ name: "lately", x, y: ratio(SMOOTH) }, { name: "since the first point", x, y: ratio(KEPT + 1) }], { suffix: clicks ? " %" : "" }).catch((error) => chart.failed(place, error));
  }

  await look();
  const stop = repeat(look, EVERY);
  return { repaint: draw, end: () => { gone = true; stop(); chart.clear(place); } };
}
