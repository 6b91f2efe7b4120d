// Small drawings without a library, so that the first view is there at once: curves, bars, and an interval.

const SVG = "http://www.w3.org/2000/svg";

function s(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Round numbers from `least` to `most`, about `count` of them; both ends are inside.
function marks(least, most, count) {
  const raw = (most - least) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= raw * .999), made = [];
  for (let i = Math.floor(least / step); i <= Math.ceil(most / step); i++) made.push(i * step);
  return made;
}

// Draws again whenever the place gets another width.
export function fitted(place, draw) {
  let wide = place.clientWidth;
  const watch = new ResizeObserver(() => { if (place.clientWidth !== wide) { wide = place.clientWidth; draw(); } });
  watch.observe(place);
  return () => watch.disconnect();
}

// Lines over time with a legend above. `lines`: [{ name, kind, y }], with null where there is nothing to draw.
export function curves(place, x, lines, show, height = 230) {
  const wide = Math.max(240, place.clientWidth), left = 52, right = 12, top = 28, low = height - 24;
  const known = lines.flatMap((one) => one.y.filter((value) => value !== null));
  const rows = marks(Math.min(0, ...known), Math.max(1e-9, ...known), 4), [least, most] = [rows[0], rows.at(-1)];
  const first = x[0], last = Math.max(x.at(-1), first + 1);
  const across = (time) => left + (wide - left - right) * (time - first) / (last - first);
  const down = (value) => low - (low - top) * (value - least) / (most - least);
  const clock = (time) => new Date(1000 * time).toLocaleString("en-GB", last - first > 86400 ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }
    : { hour: "2-digit", minute: "2-digit", second: last - first < 900 ? "2-digit" : undefined });
  const path = (y) => y.map((value, i) => (value === null ? "" : `${i && y[i - 1] !== null ? "L" : "M"}${across(x[i]).toFixed(1)} ${down(value).toFixed(1)}`)).join("");
  let at = left;
  place.replaceChildren(s("svg", { width: wide, height, viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" },
    ...rows.flatMap((value) => [s("line", { class: "rule", x1: left, x2: wide - right, y1: down(value), y2: down(value) }),
      s("text", { class: "mark", x: left - 8, y: down(value) + 4, "text-anchor": "end", text: show(value) })]),
    s("text", { class: "mark", x: left, y: height - 5, text: clock(first) }),
    s("text", { class: "mark", x: wide - right, y: height - 5, "text-anchor": "end", text: clock(last) }),
    ...lines.map((one) => s("path", { class: "curve " + one.kind, d: path(one.y) })),
    ...lines.flatMap((one) => {
      const x1 = at;
      at += 42 + 7.2 * one.name.length;
      return [s("line", { class: "curve " + one.kind, x1, x2: x1 + 20, y1: 10, y2: 10 }), s("text", { class: "name", x: x1 + 26, y: 14, text: one.name })];
    })));
}

// An interval with its middle, on a scale that contains 0.
export function interval(place, { low, middle, high }, show) {
  const wide = Math.max(220, place.clientWidth), rows = marks(Math.min(0, low), Math.max(0, high), wide < 420 ? 3 : 5);
  const across = (value) => 26 + (wide - 52) * (value - rows[0]) / (rows.at(-1) - rows[0]);
  place.replaceChildren(s("svg", { width: wide, height: 58, viewBox: `0 0 ${wide} 58`, "aria-hidden": "true" },
    ...rows.flatMap((value) => [s("line", { class: value === 0 ? "zero" : "rule", x1: across(value), x2: across(value), y1: 4, y2: 38 }),
      s("text", { class: "mark", x: across(value), y: 54, "text-anchor": "middle", text: show(value) })]),
    s("line", { class: "span", x1: across(low), x2: across(high), y1: 21, y2: 21 }),
    s("circle", { class: "middle", cx: across(middle), cy: 21, r: 7 })));
}

// Bars from left to right: `parts` are [{ share (of the width), height (0 to 1), past, hint }].
export function bars(place, parts, height = 48) {
  const wide = Math.max(200, place.clientWidth);
  let at = 0;
  place.replaceChildren(s("svg", { width: wide, height, viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" },
    ...parts.map((one) => {
      const x = at * wide, each = one.share * wide, tall = Math.max(2, one.height * (height - 2));
      at += one.share;
      return s("rect", { class: one.past ? "bar-past" : "bar-later", x: x.toFixed(1), width: Math.max(1, each - Math.min(3, each / 4)).toFixed(1),
        y: height - tall, height: tall }, s("title", { text: one.hint }));
    })));
}
