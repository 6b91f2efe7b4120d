// One user: estimated interests on the tree, now and at earlier times, and what to recommend next.

import { ask, query, spelled } from "./api.js";
import * as chart from "./chart.js";
import { empty, h, later, loading, number, percent, problem, rated, say, short } from "./dom.js";
import { bars, fitted } from "./figure.js";

let kind = "sunburst";

export async function show(root, [who = "", where = "0"], go, about) {
  const input = h("input", { id: "who", list: "users", placeholder: "A user’s id …", "aria-label": "User", autocomplete: "off", maxlength: 512 });
  const users = h("datalist", { id: "users" }), body = h("div"), recent = h("div", { class: "bar" });
  root.replaceChildren(
    h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); pick(); } },
      h("span", { class: "grow" }, input), users, h("button", { class: "main", text: "Look" })),
    recent, body);

  // The text is a known string, else a known integer, else a new user.
  const list = async (q) => {
    const found = await ask("/v1/users" + query({ q, n: 30 }));
    users.replaceChildren(...found.users.map((one) => h("option", { value: String(one) })));
    return found;
  };
  const pick = async () => {
    const typed = input.value.trim();
    if (!typed) return;
    if (/^int:-?\d+$/.test(typed)) { go("user", typed); return; }
    try {
      const exact = (await list(typed)).users.filter((one) => String(one) === typed);
      go("user", spelled(exact.includes(typed) ? typed : exact[0] ?? typed));
    } catch (error) {
      if (error.status === 401) throw error;
      body.replaceChildren(problem(error, pick));
    }
  };
  input.addEventListener("input", later(() => list(input.value.trim()).catch(() => {}), 200));

  let view = null, turn = 0;

  async function open(parts) {
    const [name = "", node = "0"] = parts, mine = ++turn, told = await list("");
    if (mine !== turn) return;
    recent.replaceChildren(h("span", { class: "soft", text: told.total ? `${number(told.total)} users; recently active:` : "" }),
      ...told.users.slice(0, 8).map((one) => h("button", { text: String(one), "aria-pressed": String(spelled(one) === name), onclick: () => go("user", spelled(one)) })));
    if (!name) {
      view?.end();
      view = null;
      body.replaceChildren(told.total
        ? empty("Whose interests?", h("p", { text: "Pick one of the users above, or type an id. The page then tells what was shown to them, what they liked, and how the service learned it." }))
        : empty("There are no users yet", h("p", { text: "Type any id and press “Look” to see the interests expected of a new user. “Recommend now” makes them the first." })));
      return;
    }
    if (view && view.name === name) { await view.move(Number(node) || 0); return; }
    view?.end();
    view = null;
    const place = h("div", {}, loading("what is known of this user"));
    body.replaceChildren(place);
    const made = await one(place, name, Number(node) || 0, go, about);
    if (mine === turn) view = made; else made.end();
  }
  await open([who, where]);
  return { repaint: () => view?.draw(), move: open, escape: () => view?.escape() ?? false, end: () => view?.end() };
}

async function one(root, name, start, go, about) {
  const base = "/v1/users/" + encodeURIComponent(name);
  const shown = name.startsWith("str:") ? name.slice(4) : name.replace(/^int:(-?\d+)$/, "$1");
  const user = !/^int:-?\d+$/.test(name) ? shown : Number.isSafeInteger(Number(shown)) ? Number(shown) : BigInt(shown);
  const place = h("div", { class: "chart", role: "img", "aria-label": "Interests drawn on the tree; the table holds the same." });
  const path = h("nav", { class: "path", "aria-label": "Where you are" }), kinds = h("span", { role: "group", "aria-label": "Drawing" });
  const slider = h("input", { type: "range", id: "time", min: 0, max: 0, value: 0, "aria-labelledby": "time-label", "aria-describedby": "when" });
  const when = h("p", { id: "when" }), play = h("button", { id: "play", text: "Play" }), now_ = h("button", { text: "Now", onclick: () => { stop(); seek(held.events); } });
  const { clicks, share } = rated(about), story = h("p", { id: "story" }), strip = h("div", { class: "drawn", id: "strip", role: "img" }), time = h("div", { id: "timeline" });
  const field = h("p", { id: "field" }), liked = h("p", { id: "liked" }), note = h("p", { class: "soft" }), interests = h("div", { class: "scroll" }), history = h("ol", { class: "list", id: "history" });
  const offers = h("div", { id: "offers", "aria-live": "polite" }), ends = h("div", { class: "legend" });
  const recommend = h("button", { class: "main", id: "recommend", text: "Recommend now" });
  const many = h("select", { "aria-label": "How many" }, ...[1, 3, 5].map((n) => h("option", { value: n, text: String(n) })));
  root.replaceChildren(h("div", { class: "two" },
    h("div", {},
      h("section", { "aria-label": "The story" }, h("h2", { text: "The story of " + shown }), story, note, time),
      h("section", { "aria-label": "Interests on the tree" }, h("h2", { text: "What interests " + shown }), field, liked,
        h("div", { class: "bar" }, path, kinds), place, ends)),
    h("div", {},
      h("section", { "aria-label": "Recommend" }, h("div", { class: "bar" }, recommend, many, h("span", { class: "soft", text: "items" })), offers),
      h("section", { "aria-label": "History" }, h("h2", { text: "History" }), h("p", { class: "soft", text: "The latest is on top. Press an event to see what was known after it." }), history)),
    h("section", { class: "under", "aria-label": "Interests as a table" }, interests)));
  time.append(h("p", { class: "soft", text: `Each bar is a part of the history: the higher, the ${clicks ? "more clicks per item shown" : "larger the reward per item shown"}. Green: up to the moment that is shown.` }), strip, slider,
    h("div", { class: "bar" }, play, now_, h("label", { for: "time", id: "time-label", class: "soft", text: "Move the slider, or press Play, to see what was known at a moment." })), when);

  let held = null, life = null, node = start, timer = null, asked = null, gone = false, low = null, high = null;

  async function look(upto) {
    asked?.abort();
    asked = new AbortController();
    held = await ask(base + "/field" + query({ node: node || null, upto }), { signal: asked.signal });
    slider.max = held.events;
    slider.value = held.upto;
    slider.setAttribute("aria-valuetext", `after ${held.upto} of ${held.events} events`);
    time.hidden = !held.events;
    now_.disabled = held.upto === held.events;
    draw();
  }

  const judged = () => held.nodes.node.map((_, i) => i).filter((i) => i > 0 && held.visible[i]);

  function draw() {
    if (!held) return;
    const { nodes } = held;
    kinds.replaceChildren(...["sunburst", "treemap"].map((one) => h("button", { text: one === "sunburst" ? "Sunburst" : "Treemap",
      "aria-pressed": String(one === kind), onclick: () => { kind = one; chart.clear(place); draw(); } })));
    path.replaceChildren(...held.path.map((step, i) => h("button", { text: step.name, "aria-current": i === held.path.length - 1 ? "page" : null,
      onclick: () => go("user", name, String(step.node)) })));
    const which = judged().length ? judged() : [0];
    const means = which.map((i) => held.mean[i]), widths = which.map((i) => held.width[i]);
    // The scale only widens while a user is open: replaying the history would otherwise repaint everything at every event.
    low = Math.min(low ?? Infinity, ...means);
    high = Math.max(high ?? -Infinity, ...means);
    const most = Math.max(...widths, 1e-9), least = Math.min(...widths);
    const share = (mean) => (high - low > 1e-9 ? (mean - low) / (high - low) : .5);
    const sure = (width) => 1 - .6 * (most - least > 1e-9 ? (width - least) / (most - least) : 0);
    const colour = (i) => (held.visible[i] && (i > 0 || nodes.node.length === 1) ? chart.ramp(share(held.mean[i]), sure(held.width[i])) : chart.grey());
    const hint = (i) => (held.visible[i] ? `interest ${short(held.mean[i])} ± ${short(held.width[i])}` : held.opened ? "opened further below" : "") +
      (held.visits[i] ? `, ${number(held.visits[i])} rewards, ${short(held.reward[i])} in all` : "");
    ends.replaceChildren(h("span", { text: "interest " + short(low) }), h("span", { class: "ramp", "aria-hidden": "true" }), h("span", { text: short(high) }),
      h("span", { text: "sure" }), h("span", { class: "fade", "aria-hidden": "true" }), h("span", { text: "unsure" }), h("span", { text: "· small groups are drawn larger" }));
    chart.tree(place, nodes, { kind, hint, colour, flat: true, open: (to, centre) => go("user", name, String(centre && to === node && held.path.length > 1 ? held.path.at(-2).node : to)) })
      .catch((error) => place.replaceChildren(problem(error, draw)));
    field.textContent = held.opened
      ? `The field has ${number(held.opened)} visible ${held.opened === 1 ? "node" : "nodes"}${held.opened > 1 ? ": it opened where rewards came" : ""}.`
      : about.field ? "" : `${about.policy} has no field to open: all groups are judged at any time.`;
    const order = [...which].sort((a, b) => held.mean[b] - held.mean[a]), few = order.length > 3 ? 2 : 1;
    const named = (some) => some.map((i) => `${nodes.name[i]} (${short(held.mean[i], 2)} ± ${short(held.width[i], 2)})`).join("; ");
    const whose = held.upto ? "" : " This is expected of any new user.";
    liked.textContent = order.length < 2 ? whose.trim() : `Most interesting: ${named(order.slice(0, few))}. Least: ${named(order.slice(-1))}.${whose}`;
    when.textContent = moment();
    drawStrip();
    mark();
    table(which);
  }

  function table(which) {
    const { nodes } = held, best = [...which].sort((a, b) => held.mean[b] - held.mean[a]).slice(0, 15);
    interests.replaceChildren(h("table", { id: "interests" }, h("caption", { text: held.opened ? "Visible nodes, most interesting first" : "Groups, most interesting first" }),
      h("thead", {}, h("tr", {}, ...["group", "items", "interest", "width", "rewards", "earned"].map((text) => h("th", { scope: "col", text })))),
      h("tbody", {}, ...best.map((i) => h("tr", {}, h("td", {}, h("button", { class: "link", text: nodes.name[i], onclick: () => go("user", name, String(nodes.node[i])) })),
        ...[number(nodes.items[i]), short(held.mean[i]), short(held.width[i]), number(held.visits[i]), short(held.reward[i])].map((text) => h("td", { text })))))));
  }

  // A sentence about the moment that is drawn.
  function moment() {
    const { upto, events, last } = held;
    if (!events) return "No events yet.";
    if (!upto) return `After 0 of ${number(events)} events: before the first visit. Press Play to see what was learned since.`;
    const rewards = held.visits[0], earned = held.reward[0], all = node === 0 && rewards > 0;
    return `After ${number(upto)} of ${number(events)} events` + (all ? `, with ${number(rewards)} ${rewards === 1 ? "reward" : "rewards"}${clicks ? `, ${number(Math.round(earned))} of them clicks` : ` of ${short(earned)} in all`}` : "") +
      (last ? `; the last: ${told(last)}` : "") + ".";
  }

  const rate = (one) => one.earned / Math.max(one.shown, one.rewards, 1);

  function drawStrip() {
    if (!life?.story.length || !held) return;
    const most = Math.max(1e-9, ...life.story.map(rate)), total = life.story.at(-1).upto;
    bars(strip, life.story.map((one, i) => {
      const before = i ? life.story[i - 1].upto : 0;
      return { share: (one.upto - before) / total, height: Math.max(0, rate(one)) / most, past: before < held.upto,
        hint: `Events ${number(before + 1)} to ${number(one.upto)}: ${number(one.shown)} shown, ${clicks ? `${number(Math.round(one.earned))} clicked` : `earned ${short(one.earned)}`}` };
    }));
  }

  // The whole history in two sentences: how much, and whether it became better.
  function drawStory() {
    const parts = life.story, sum = (some, name) => some.reduce((all, one) => all + one[name], 0);
    const shows = sum(parts, "shown"), earned = sum(parts, "earned");
    strip.setAttribute("aria-label", `${clicks ? "Clicks" : "Rewards"} per item shown, in ${parts.length} parts of the history, first to last: ${parts.map((one) => share(rate(one))).join(", ")}`);
    if (!life.events) {
      story.textContent = `Nobody called ${shown} has been here. What you see is expected of any new user. If you meant somebody else, check the id; or press “Recommend now” to begin.`;
      return;
    }
    const quarter = Math.ceil(parts.length / 4), over = (some) => sum(some, "earned") / Math.max(1, sum(some, "shown"), sum(some, "rewards"));
    const what = shows ? `${number(shows)} ${shows === 1 ? "item was" : "items were"} shown` : `${number(sum(parts, "rewards"))} rewards are known from before`;
    story.textContent = `${what}, ${clicks ? `${number(Math.round(earned))} of them clicked` : `and the rewards add up to ${short(earned)}`}.` +
      (parts.length >= 8 ? ` In the first quarter, ${clicks ? `${share(over(parts.slice(0, quarter)))} were clicked` : `the mean reward was ${share(over(parts.slice(0, quarter)))}`}; in the last quarter, ${share(over(parts.slice(-quarter)))}.` : "");
  }

  const told = (event) => `${event.title ?? event.item ?? "an item that is gone"}${event.reward === null ? " was shown" : `: ${event.kind} ${short(event.reward)}`}`;

  // The row of the event that the drawing ends with.
  function mark() {
    history.querySelectorAll("li.now").forEach((one) => one.classList.remove("now"));
    history.querySelectorAll("[aria-current]").forEach((one) => one.removeAttribute("aria-current"));
    const row = held.upto ? [...history.querySelectorAll("[data-upto]")].findLast((one) => Number(one.dataset.upto) >= held.upto) : null;
    row?.setAttribute("aria-current", "true");
    row?.parentElement.classList.add("now");
    if (row) history.scrollTop = row.offsetTop - history.offsetTop - history.clientHeight / 2;  // the page itself stays where it is
  }

  async function tell() {
    life = await ask(base);
    // An item that was shown and its reward are one row, if nothing happened between them.
    const all = life.history.map((event, i) => ({ ...event, upto: life.events - life.history.length + i + 1 }));
    const rows = all.filter((event, i) => event.reward !== null || all[i + 1]?.kind !== "reward" || all[i + 1].item !== event.item).reverse();
    history.replaceChildren(...rows.map((event) => h("li", {}, h("button", { "data-upto": event.upto, title: event.time ? new Date(1000 * event.time).toLocaleString() : null,
      onclick: () => { stop(); seek(event.upto); } }, h("span", { text: event.title ?? String(event.item ?? "gone") }), h("span", { text: event.reward === null ? "shown" : `${event.kind} ${short(event.reward)}` })))));
    if (life.events > all.length) history.append(h("li", { class: "more", text: `and ${number(life.events - all.length)} events before: move the slider to see them` }));
    if (!rows.length) history.append(h("li", { class: "more", text: "Nothing was shown to this user yet." }));
    note.textContent = life.held_out ? "This user is held out, as a control: what is popular is shown, and nothing is explored." : "";
    drawStory();
    if (held) { drawStrip(); mark(); }
  }

  async function again() {
    try {
      await look();
    } catch (error) {
      if (error.name !== "AbortError") throw error;  // the slider was moved meanwhile, and its new position is drawn
    }
    await tell();
  }

  if (about.mode === "apprentice") {
    recommend.disabled = true;
    offers.replaceChildren(h("p", { class: "soft", text: "An apprentice serves the caller’s own items: there is nothing to recommend from here." }));
  }
  recommend.addEventListener("click", async () => {
    stop();
    recommend.disabled = true;
    try {
      const made = await ask("/v1/recommend", { body: { user, n: Number(many.value) } });
      offers.replaceChildren(...await Promise.all(made.items.map(offer)));
      say(`${made.items.length} recommended`);
      await again();
    } catch (error) {
      if (error.status === 401) throw error;
      offers.replaceChildren(h("div", { class: "problem", role: "alert", text: refused(error) }));
    } finally {
      recommend.disabled = false;
    }
  });

  async function offer(choice) {
    // If the title cannot be read, the id is shown: the decision is made.
    const item = await ask("/v1/items/" + encodeURIComponent(choice.item)).catch(() => ({ title: null }));
    const state = h("p", { class: "soft" }), why = h("details", {}, h("summary", { text: "Why this?" }));
    const send = async (reward, label) => {
      for (const button of buttons) button.disabled = true;
      try {
        const answer = await ask("/v1/feedback", { body: { decision_id: choice.decision_id, reward } });
        state.textContent = answer.duplicate ? "That was said before." : label + ", and on disk.";
        say(state.textContent);
        await again().catch(() => {});  // the feedback is recorded even if the new state cannot be drawn
      } catch (error) {
        state.replaceChildren(h("span", { class: "problem", role: "alert", text: refused(error) }));
        for (const button of buttons) button.disabled = false;
      }
    };
    const buttons = [h("button", { class: "main", text: "Like", onclick: () => send(about.high, "Liked") }), h("button", { text: "Skip", onclick: () => send(about.low, "Skipped") })];
    why.addEventListener("toggle", () => { if (why.open && why.children.length === 1) explain(choice, why); });
    const facts = choice.policy === "explore"
      ? `estimate ${short(choice.mean)} ± ${short(choice.width)}, chance ${percent(choice.propensity)}`
      : choice.policy === "popular" ? "popular: this user is held out" : "the caller’s own item";
    return h("div", { class: "offer" }, h("h3", { text: item.title ?? String(choice.item) }), h("p", { class: "soft", text: facts }),
      h("div", { class: "bar" }, ...buttons), state, why);
  }

  async function explain(choice, place_) {
    if (choice.policy !== "explore") {
      place_.append(h("p", { class: "soft", text: choice.policy === "popular" ? "It has earned most so far: nothing is explored for users who are held out." : "The caller chose it." }));
      return;
    }
    try {
      const told_ = await ask("/v1/decisions/" + encodeURIComponent(choice.decision_id));
      const rows = (options) => h("tbody", {}, ...options.map((option) => h("tr", { class: option.chosen ? "chosen" : null },
        h("td", { text: option.name + (option.chosen ? " ✓" : "") }), h("td", { text: short(option.mean) }), h("td", { text: short(option.width) }))));
      const head = () => h("thead", {}, h("tr", {}, ...["considered", "mean", "width"].map((text) => h("th", { scope: "col", text }))));
      place_.append(h("div", {},
        told_.way.length > 0 && h("p", { class: "soft", text: "Found under: " + told_.way.map((one) => `${one.name} (${short(one.mean)} ± ${short(one.width)})`).join(" › ") }),
        ...told_.steps.map((step, i) => h("div", { class: "scroll" }, h("table", {},
          h("caption", { text: `Step ${i + 1}: ${step.kind === "node" ? "which group" : "which item"}; ${number(step.considered.length)} of ${number(step.total)} considered, chance ${percent(step.chance)}` }),
          head(), rows(step.considered.slice(0, 12).concat(step.considered.slice(12).filter((one) => one.chosen)))))),
        !told_.reproduced && h("p", { class: "soft", text: "Deciding again gave another item: the tree or the settings have changed since, or the request had filters." })));
    } catch (error) { place_.append(h("div", { class: "problem", role: "alert", text: refused(error) })); }
  }

  const refused = (error) => (error.status === 403 ? "This key may look but not act: " + error.message : error.message);

  let run = 0;
  function stop() {
    run++;
    clearTimeout(timer);
    timer = null;
    play.textContent = "Play";
  }
  const seek = later((upto) => look(upto).catch(() => {}), 60);
  slider.addEventListener("input", () => { stop(); seek(Number(slider.value)); });
  play.addEventListener("click", async () => {
    if (timer) { stop(); return; }
    play.textContent = "Stop";
    let at = held && held.upto < held.events ? held.upto : 0;
    // A replay takes a few seconds, however long the history is, and has few steps for those who want little motion.
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches, step = Math.max(1, Math.ceil((held?.events ?? 0) / (calm ? 8 : 40)));
    const mine = ++run;
    const next = async () => {
      if (gone || mine !== run) return;
      try {
        await look(at);
      } catch { if (mine === run) stop(); return; }
      if (gone || mine !== run) return;
      if (at >= held.events) { stop(); return; }
      at = Math.min(held.events, at + step);
      timer = setTimeout(next, calm ? 1000 : 150);
    };
    timer = setTimeout(next, 0);
  });

  await again();
  const unfit = fitted(strip, drawStrip);
  return {
    name, draw,
    escape: () => {
      if (timer) { stop(); return true; }
      const open = offers.querySelector("details[open]");
      if (!open) return false;
      open.open = false;
      open.firstElementChild.focus();
      return true;
    },
    move: (to) => { node = to; low = high = null; stop(); return look(held && held.upto < held.events ? held.upto : undefined); },
    end: () => { gone = true; stop(); unfit(); asked?.abort(); chart.clear(place); },
  };
}
