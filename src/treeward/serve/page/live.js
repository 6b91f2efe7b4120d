// What the service does, second by second.

import { ask, query, repeat } from "./api.js";
import * as chart from "./chart.js";
import { empty, h, loading, number, percent, short } from "./dom.js";

const EVERY = 2000, KEPT = 900, SMOOTH = 15;
const CHARTS = [
  ["reward", "Reward per decision (mean of 15 s)"], ["clicks", "Decisions and rewards per second"],
  ["bold", "Exploration: decisions that rejected a higher mean in order to learn"], ["covered", "Different items shown so far"],
  ["rate", "Requests per second"], ["latency", "Time to answer"], ["store", "Store: writes waiting, commits per second"],
];

export async function show(root) {
  const numbers = h("div", { class: "numbers" }), places = {};
  const grid = h("div", { class: "grid" }, ...CHARTS.map(([name, title]) => {
    places[name] = h("div", { class: "chart low", role: "img", "aria-label": title });
    return h("section", { "aria-label": title }, h("h2", { text: title }), places[name]);
  }));
  const quiet = h("div");
  root.replaceChildren(loading("what happened lately"));
  let rows = {}, gone = false, told = null;

  async function look() {
    const after = rows.time?.at(-1);
    const answer = await ask("/v1/live" + query({ after }));
    if (gone) return;
    told = answer;
    for (const [name, values] of Object.entries(told.seconds)) rows[name] = (rows[name] ?? []).concat(values).slice(-KEPT);
    draw();
  }

  // Ratio of sums over the last seconds, at every second; null where the second sum is 0.
  function ratio(above, below, seconds) {
    let top = 0, bottom = 0;
    return above.map((value, i) => {
      top += value; bottom += below[i];
      if (i >= seconds) { top -= above[i - seconds]; bottom -= below[i - seconds]; }
      return bottom > 0 ? top / bottom : null;
    });
  }

  function draw() {
    if (!told) return;
    if (grid.parentElement !== root) root.replaceChildren(numbers, quiet, grid);
    const recent = (name) => (rows[name] ?? []).slice(-60), sum = (name) => recent(name).reduce((a, b) => a + b, 0);
    const last = (name) => recent(name).findLast((value) => value !== null) ?? null;
    numbers.replaceChildren(...[
      ["decisions since the start", number(told.decisions)], ["rewards since the start", number(told.rewards)],
      ["reward per decision, last minute", short(sum("decisions") ? sum("earned") / sum("decisions") : null)],
      ["explored, last minute", sum("decisions") ? percent(sum("bold") / sum("decisions")) : "–"],
      ["catalogue shown", percent((last("covered") ?? 0) / told.items)], ["users", number(told.users)],
      ["99 % answered within", last("p99") === null ? "–" : short(last("p99")) + " ms"],
      ["store", told.store_ok ? "takes writes" : "FAILED"],
    ].map(([label, value]) => h("div", {}, h("b", { text: value }), h("span", { class: "soft", text: label }))));
    quiet.replaceChildren(...(told.decisions ? [] : [empty("Nothing was recommended since the start", h("p", { text: "The curves begin with the first request: POST /v1/recommend, or “Recommend now” in the view “A user”." }))]));
    const x = (rows.time ?? []).map((time) => new Date(time * 1000));
    const line = (name, y, colour) => ({ name, x, y, colour });
    const all = {
      reward: [[line("reward per decision", ratio(rows.earned, rows.decisions, SMOOTH))], {}],
      clicks: [[line("decisions", rows.decisions), line("rewards", rows.rewards), line("earned", rows.earned)], {}],
      bold: [[line("explored", ratio(rows.bold, rows.decisions, SMOOTH).map((one) => (one === null ? null : 100 * one)))], { suffix: " %" }],
      covered: [[line("different items", rows.covered)], { fill: true }],
      rate: [[line("recommend", rows.recommend), line("feedback", rows.feedback), line("refused", rows.refused)], {}],
      latency: [[line("recommend, half within", rows.p50), line("recommend, 99 % within", rows.p99), line("feedback, 99 % within", rows.feedback_p99)], { suffix: " ms" }],
      store: [[line("waiting", rows.waiting), line("commits", rows.commits)], {}],
    };
    for (const [name, [traces, options]] of Object.entries(all)) if (traces[0].y) chart.lines(places[name], traces, options).catch((error) => chart.failed(places[name], error));
  }

  await look();
  const stop = repeat(look, EVERY);
  return { repaint: draw, end: () => { gone = true; stop(); Object.values(places).forEach(chart.clear); } };
}
