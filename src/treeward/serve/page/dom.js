// Elements from code: text is always text, never markup.

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const number = (value) => (value ?? 0).toLocaleString("en");
export const short = (value, digits = 3) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
export const percent = (value) => (value === null || Number.isNaN(value) ? "–" : (100 * value).toFixed(1) + " %");

export const age = (seconds) => {
  const [size, word] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([one]) => seconds >= 1.5 * one) ?? [1, "second"], count = Math.round(seconds / size);
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
};

// The words for rewards: those from 0 to 1 are called clicks.
export const rated = (about) => {
  const clicks = about.low === 0 && about.high === 1;
  return { clicks, each: clicks ? "clicks per visit" : "reward per visit", share: clicks ? percent : short };
};

export const loading = (what) => h("div", { class: "empty", role: "status" }, h("p", { text: "Loading " + what + " …" }));

export const empty = (title, ...more) => h("div", { class: "empty" }, h("h2", { text: title }), ...more);

// An error in words, with a button to try again. For a missing key, main.js asks.
export function problem(error, again) {
  const told = {
    0: ["The service does not answer", "It may be restarting; this page looks again by itself."],
    403: ["That is not allowed", error.message],
    404: ["There is no such thing", error.message],
    429: ["Too many requests", error.message],
    503: ["The service is not ready", error.message],
  }[error.status] ?? ["Something went wrong", error.message];
  return h("div", { class: "empty", role: "alert" }, h("h2", { text: told[0] }), h("p", { text: told[1] }),
    again && h("p", {}, h("button", { onclick: again, text: "Try again" })));
}

export function say(text) {
  let place = document.getElementById("said");
  if (!place) {
    place = h("div", { id: "said", class: "said", "aria-live": "polite" });
    document.body.append(place);
  }
  place.textContent = text;
}

export function later(action, wait) {
  let timer;
  const start = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
  start.cancel = () => clearTimeout(timer);
  return start;
}
