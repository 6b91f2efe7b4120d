// The first view: what the service brings its owner, what it has learned, and what it has found.

import { ask, repeat } from "./api.js";
import { age, empty, h, loading, number, percent, rated, short } from "./dom.js";
import { curves, fitted, interval } from "./figure.js";

const EVERY = 2000, EACH_CROWD = 5000, EACH_LIFT = 30000, FEW = 30, SHOWN = 20;

export async function show(root, parts, go, about) {
  const { clicks, each, share } = rated(about), unit = clicks ? "clicks per 100 visits" : "reward per visit";
  const points = (value) => short(clicks ? 100 * value : value, 2), overTime = each[0].toUpperCase() + each.slice(1) + " over time";
  const lead = h("p", { class: "lead", id: "verdict" }), story = h("p", { id: "story" }), scale = h("div", { class: "drawn" }), groups = h("div", { id: "groups" });
  const curve = h("div", { class: "drawn", id: "curve", role: "img" }), learned = h("div", { id: "learned" }), found = h("div", { id: "found" });
  const body = [h("section", { "aria-label": "What the service brings" }, h("h2", { text: "What the service brings" }), lead, story,
    h("div", { class: "halves" }, h("div", {}, groups, scale), h("div", {}, h("h3", { text: overTime }), curve))),
  h("div", { class: "grid wide below" },
    h("section", { "aria-label": "What was learned" }, h("h2", { text: "What was learned from all users" }), learned),
    h("section", { "aria-label": "What was explored and found" }, h("h2", { text: "What was explored and found" }), found))];
  const asked = { crowd: -Infinity, lift: -Infinity };
  let told = null, crowd = null, tree = null, lift = null, gone = false, unable = "";
  root.replaceChildren(loading("what the service brings"));

  async function look() {
    const now = performance.now(), due = now - asked.crowd > EACH_CROWD;
    const [overview, ...known] = await Promise.all([ask("/v1/overview"), due ? ask("/v1/crowd") : crowd, due ? ask("/v1/tree/0/map") : tree]);
    if (gone) return;
    told = overview;
    [crowd, tree] = known;
    if (due) asked.crowd = now;
    draw();
    if (about.holdout && now - asked.lift > EACH_LIFT) compare(now);
  }

  // Comparing reads every event: the rest is drawn meanwhile.
  async function compare(now) {
    asked.lift = now;
    try {
      lift = await ask("/v1/lift");
      unable = "";
    } catch (error) {
      if (error.status === 401) throw error;
      unable = error.message;
    }
    if (!gone) draw();
  }

  function draw() {
    if (!told.decisions && !told.users) {
      root.replaceChildren(empty("Nobody was here yet",
        h("p", { text: "Ask for an item with POST /v1/recommend, and say what became of it with POST /v1/feedback. This page then shows what that brings." }),
        h("p", {}, h("a", { href: "/docs", text: "How to call the service" }), " · ", h("a", { href: "#/user", text: "Try it as a user" }))));
      return;
    }
    if (body[0].parentElement !== root) root.replaceChildren(...body);
    const span = age(Math.max(1, (told.periods.time.at(-1) ?? told.since) - told.since));
    story.textContent = told.decisions
      ? `In the ${span} since the service started: ${number(told.decisions)} visits and ${clicks ? `${number(Math.round(told.earned))} clicks` : `rewards that add up to ${short(told.earned)}`}. ${number(told.users)} users are known.`
      : `No visits in the ${span} since the service started. ${number(told.users)} users are known from before.`;
    drawVerdict();
    drawCurve();
    drawLearned();
    drawFound();
  }

  function drawVerdict() {
    if (lift && lift.difference !== null) {
      const better = lift.low > 0, worse = lift.high < 0;
      lead.textContent = better ? `Exploring brings ${points(lift.difference)} more ${unit}.` : worse ? `Exploring costs ${points(-lift.difference)} ${unit}.`
        : "Whether exploring brings more cannot be said yet.";
      groups.replaceChildren(group("explored", "Explored for", lift.explored), group("held", "Held out, as a control", lift.held_out),
        h("p", { class: "soft", text: `Difference: ${points(lift.difference)} ${unit}, with a 95 % interval from ${points(lift.low)} to ${points(lift.high)}. Every user counts once. ` +
          (better || worse ? "The interval does not contain 0. It holds for one look: who looks every day will now and then see this by chance." : "The interval contains 0. More visits make it narrower.") }));
      interval(scale, { low: lift.low, middle: lift.difference, high: lift.high }, points);
      return;
    }
    const rate = told.decisions ? told.earned / told.decisions : null, lately = recent(-1), early = recent(1);
    lead.textContent = rate === null ? "No visits since the service started." : `${share(rate)} ${each} since the service started.`;
    scale.replaceChildren();
    groups.replaceChildren(...[
      lately !== null && early !== null && h("p", { text: `At first ${share(early)}, lately ${share(lately)}.` }),
      told.decisions > 0 && !told.rewards && h("p", { class: "problem", text: "No reward has come. Say what became of each decision with POST /v1/feedback: without rewards, nothing can be learned." }),
      h("p", { class: "soft", text: !about.holdout
        ? "Compared with what? Start the service with --set holdout=0.1. A tenth of the users then get your own items or popular ones, as a control, and the difference is shown here with its interval."
        : unable ? `The groups cannot be compared: ${unable}.`
          : !lift ? "Comparing with the users who are held out …"
            : "Users are held out as a control. The difference is shown here when there are at least two users in both groups." }),
    ].filter(Boolean));
  }

  const filled = (kind, part) => h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill " + kind, style: `width: ${(100 * Math.min(1, Math.max(0, part))).toFixed(1)}%` }));
  const group = (kind, name, one) => h("div", { class: "versus" }, h("span", { text: name }),
    filled(kind, one.reward / Math.max(lift.explored.reward, lift.held_out.reward, 1e-9)), h("b", { text: share(one.reward) }),
    h("span", { class: "soft", text: `${each}; ${number(one.users)} users, ${number(one.decisions)} visits` }));

  const begin = () => told.periods.explored.findIndex((value, i) => value + told.periods.held_out[i] > 0);

  // Reward per visit in the first (1) or the last (-1) fifth of the time with visits.
  function recent(which) {
    const { explored, explored_earned, held_out, held_out_earned } = told.periods, from = begin();
    if (from < 0 || explored.length - from < 10) return null;
    const size = Math.ceil((explored.length - from) / 5);
    const sum = (values) => (which > 0 ? values.slice(from, from + size) : values.slice(-size)).reduce((a, b) => a + b, 0);
    const count = sum(explored) + sum(held_out);
    return count ? Math.max(0, (sum(explored_earned) + sum(held_out_earned)) / count) : null;
  }

  // Ratio of sums over the last `window` parts, at every part; null where there are too few visits to say.
  const smooth = (above, below, window) => above.map((_, i) => {
    let top = 0, bottom = 0;
    for (let j = Math.max(0, i - window + 1); j <= i; j++) { top += above[j]; bottom += below[j]; }
    return bottom >= FEW ? Math.max(0, top / bottom) : null;
  });

  function drawCurve() {
    const { time, explored, explored_earned, held_out, held_out_earned } = told.periods, from = begin();
    if (from < 0 || time.length - from < 5) {
      curve.setAttribute("aria-label", overTime + ": there is nothing to draw yet");
      curve.replaceChildren(h("p", { class: "soft", text: "The curve begins a few seconds after the first visit." }));
      return;
    }
    const cut = (values) => values.slice(from), window = Math.ceil((time.length - from) / 5);
    const lines = [{ name: about.holdout ? "explored for" : each, kind: "explored", y: smooth(cut(explored_earned), cut(explored), window) }];
    if (about.holdout) lines.push({ name: "held out", kind: "held", y: smooth(cut(held_out_earned), cut(held_out), window) });
    const ends = lines.map((one) => {
      const known = one.y.filter((value) => value !== null);
      return known.length ? `${one.name}: ${share(known[0])} at first, ${share(known.at(-1))} now` : `${one.name}: no visits`;
    });
    curve.setAttribute("aria-label", `${overTime}. ${ends.join("; ")}.`);
    curves(curve, cut(time), lines, (value) => (clicks ? short(100 * value) + " %" : short(value)));
  }

  const link = (text, ...where) => h("button", { class: "link", text, onclick: () => go(...where) });

  // What the groups below the root have earned, of those that were shown often enough to say.
  function drawLearned() {
    const { nodes } = tree, known = nodes.node.map((node, i) => ({ node, name: nodes.name[i], shown: nodes.shown[i], rate: nodes.earned[i] / nodes.shown[i] }))
      .filter((one, i) => i > 0 && nodes.parent[i] === nodes.node[0] && one.shown >= SHOWN).sort((a, b) => b.rate - a.rate);
    const most = Math.max(1e-9, ...known.map((one) => one.rate)), best = known.slice(0, 4), least = known.slice(4).slice(-2);
    const rows = (label, some) => h("ol", { "aria-label": label }, ...some.map((one) => h("li", { class: "liked" }, link(one.name, "catalogue", String(one.node)),
      filled("explored", one.rate / most), h("b", { text: share(one.rate) }), h("span", { class: "soft", text: `${number(one.shown)} showings` }))));
    learned.replaceChildren(...[
      crowd.problem && h("p", { class: "problem", text: `Edition ${number(crowd.edition)} stays in use: ${crowd.problem}` }),
      h("p", { text: !crowd.learns ? "Each user is learned alone. With the setting crowd = true, the rewards of one user also help all others."
        : crowd.rewards ? `Edition ${number(crowd.edition)} of what all users taught knows ${number(crowd.rewards)} rewards and was made ${age(crowd.age)} ago.`
          : "No edition knows a reward yet. Editions are made as soon as feedback comes." }),
      best.length > 0 && told.rewards + crowd.rewards > 0 ? h("p", { text: `Groups that are liked best, by ${clicks ? "clicks" : "reward"} per showing:` }) : h("p", { class: "soft", text: `Groups are compared here once they were shown ${SHOWN} times.` }),
      best.length > 0 && rows("Groups that are liked best", best),
      least.length > 0 && h("p", { text: "Liked least:" }),
      least.length > 0 && rows("Groups that are liked least", least),
      h("p", {}, link("More about the crowd", "crowd"))].filter(Boolean));
  }

  async function openItem(item) {
    const known = await ask("/v1/items/" + encodeURIComponent(item));
    go("catalogue", String(known.path.at(-1) ?? 0), String(item));
  }

  function drawFound() {
    const part = told.items ? Math.min(1, told.covered / told.items) : 0;
    found.replaceChildren(
      h("dl", { class: "facts" },
        h("dt", { text: "Shown for the first time" }), h("dd", {}, h("b", { text: number(told.first_shown) }), " items since the service started"),
        h("dt", { text: "Shown so far" }), h("dd", {}, h("b", { text: percent(part) }), ` of the catalogue: ${number(told.covered)} of ${number(told.items)} items`, filled("explored", part)),
        h("dt", { text: "Found" }), h("dd", {}, told.found_at ? [h("b", { text: number(told.found) }), ` items with ${clicks ? `${number(told.found_at)} clicks` : `rewards of ${short(told.found_at)} in all`} or more`]
          : "Not counted, because the largest reward is not positive.")),
      ...(crowd.risen.length ? [h("p", { text: "Liked more than items like them:" }), h("ol", { "aria-label": "Items that rose most" }, ...crowd.risen.slice(0, 4).map((one) =>
        h("li", { class: "row" }, h("button", { class: "link", text: one.title ?? String(one.item), onclick: () => openItem(one.item) }),
          h("span", { text: clicks ? `${number(Math.round(one.earned))} clicks, shown ${number(one.shown)} times` : `earned ${short(one.earned)}, shown ${number(one.shown)} times` }))))]
        : [h("p", { class: "soft", text: "No item stands out yet." })]));
  }

  await look();
  const stop = repeat(look, EVERY);
  const ends = [fitted(curve, () => told && drawCurve()), fitted(scale, () => scale.firstChild && drawVerdict())];
  return { end: () => { gone = true; stop(); ends.forEach((end) => end()); } };
}
