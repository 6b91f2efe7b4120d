// Calls to the service. The key stays in this tab, and is sent to the service only.

const STORED = "treeward.key";

export class Problem extends Error {
  constructor(status, name, message) {
    super(message);
    this.status = status;
    this.name = name;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED),
  set: (value) => sessionStorage.setItem(STORED, value),
  forget: () => sessionStorage.removeItem(STORED),
};

// Ids that a number cannot hold are read as BigInt, and written as they were.
const read = (text) => JSON.parse(text, (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);
const written = (body) => JSON.stringify(body, (_, value) => (typeof value === "bigint" ? JSON.rawJSON(String(value)) : value));

export async function ask(path, { body, signal, method } = {}) {
  const headers = {};
  if (key.get() && !/^[\x21-\x7e]+$/.test(key.get())) throw new Problem(401, "key", "This is not a key.");
  if (key.get()) headers.authorization = "Bearer " + key.get();
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: method ?? (body === undefined ? "GET" : "POST"), headers, signal, cache: "no-store",
      body: body === undefined ? undefined : written(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "gone", "The service does not answer.");
  }
  let told = {};
  try {
    told = read(await answer.text());
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (answer.ok) throw new Problem(0, "gone", "The service broke off its answer.");
  }
  if (!answer.ok) throw new Problem(answer.status, told.error ?? "error", told.message ?? answer.statusText);
  return told;
}

// Users are strings or integers; in a path, an integer is int:7, and a string that looks like that is str:int:7.
export const spelled = (user) =>
  typeof user !== "string" ? "int:" + user : /^(int:|str:|\.{1,2}$)/.test(user) ? "str:" + user : user;

export const query = (parts) => {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) if (value !== undefined && value !== null && value !== "") made.set(name, value);
  const text = made.toString();
  return text ? "?" + text : "";
};

// Calls `look` again and again while the page is visible, until the function that is returned is called.
export function repeat(look, milliseconds) {
  let timer = null, stopped = false;
  const next = async () => {
    try {
      if (!document.hidden) await look();
    } catch (error) {
      if (error.status === 401) throw error;  // main.js asks for the key
      // For other errors the header shows that the service is gone: go on trying.
    }
    if (!stopped) timer = setTimeout(next, milliseconds);
  };
  timer = setTimeout(next, milliseconds);
  return () => { stopped = true; clearTimeout(timer); };
}
