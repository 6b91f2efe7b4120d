// Drawing with plotly, which is loaded with the first chart and then cached by the browser.

import { h, number } from "./dom.js";

let fetched;
function plotly() {
  fetched ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = document.body.dataset.plotly;
    script.onload = () => done(window.Plotly);
    script.onerror = () => { fetched = undefined; script.remove(); failed(new Error("the plotting library cannot be fetched")); };
    document.head.append(script);
  });
  return fetched;
}
export const ready = plotly;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");  // plotly reads tags in labels
const WAY = ["#4c8c6b", "#d98f4e", "#5b7fb4", "#b7657b", "#8d7fb8", "#c2a83e", "#4fa3a5", "#a5714f", "#7a9a3f", "#c46a4a"];

function layout(more) {
  return {
    margin: { l: 4, r: 4, t: 4, b: 4 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: style("--ink"), family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { namelength: -1 }, ...more,
  };
}

// From cold through neutral to warm; the colour-blind can distinguish them too.
export function ramp(share, alpha = 1) {
  const stops = [[59, 111, 182], [215, 211, 200], [200, 98, 45]];
  const at = Math.min(Math.max(share, 0), 1) * 2, low = Math.min(Math.floor(at), 1), part = at - low;
  return over(stops[low].map((value, i) => value + part * (stops[low + 1][i] - value)), alpha);
}
export const grey = () => over([133, 141, 151], .35);

// A translucent colour over the card as one solid colour, by which plotly chooses the colour of labels.
function over(colour, alpha) {
  const card = style("--card").match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
  return `rgb(${colour.map((value, i) => Math.round(alpha * value + (1 - alpha) * card[i])).join(",")})`;
}

// Turns nodes in columns into what plotly draws; parts that are too small to see become one grey part. Sizes are
// numbers of items or, if `flat`, a low power of them, so that small groups are visible next to large ones.
function wedges(nodes, told) {
  const at = new Map(nodes.node.map((node, i) => [node, i]));
  const made = { ids: [], labels: [], parents: [], values: [], customdata: [], colors: [] };
  const add = (id, label, parent, value, node, hint, colour) => {
    made.ids.push(id); made.labels.push(plain(label)); made.parents.push(parent); made.values.push(value);
    made.customdata.push([node, plain(hint)]); made.colors.push(colour);
  };
  const inside = new Map(), drawn = new Map();
  nodes.node.forEach((node, i) => {
    const parent = i === 0 ? "" : String(nodes.parent[i]);
    add(String(node), nodes.name[i], parent, nodes.items[i], node, told.hint(i), told.colour ? told.colour(i) : null);
    if (i > 0) {
      inside.set(nodes.parent[i], (inside.get(nodes.parent[i]) ?? 0) + nodes.items[i]);
      drawn.set(nodes.parent[i], (drawn.get(nodes.parent[i]) ?? 0) + 1);
    }
  });
  for (const [node, items] of inside) {
    const i = at.get(node), left = nodes.items[i] - items;
    if (left > 0) add(node + "+", number(nodes.children[i] - drawn.get(node)) + " more", String(node), left, node, "too small to draw: see the list", grey());
  }
  made.text = made.values.map((items) => number(items) + " items");
  if (told.flat) flatten(made);
  // Names are a few words each: in wide parts below each other, in narrow ones the first.
  made.inside = made.labels.map((label, i) => (made.values[i] > made.values[0] / 24 ? label.replaceAll(", ", "<br>") : label.split(", ")[0]));
  return made;
}

function flatten(made) {
  const at = new Map(made.ids.map((id, i) => [id, i])), inner = new Set(made.parents);
  made.values = made.values.map((items, i) => (inner.has(made.ids[i]) ? 0 : items ** .35));
  const depth = (i) => (made.parents[i] === "" ? 0 : 1 + depth(at.get(made.parents[i])));
  const deepest = made.ids.map((_, i) => i).sort((a, b) => depth(b) - depth(a));
  for (const i of deepest) if (made.parents[i] !== "") made.values[at.get(made.parents[i])] += made.values[i];
}

export async function tree(place, nodes, { kind = "sunburst", colour, hint, open, flat = false }) {
  const Plotly = await plotly(), made = wedges(nodes, { colour, hint, flat });
  const trace = {
    type: kind, ids: made.ids, labels: made.labels, parents: made.parents, values: made.values, customdata: made.customdata,
    hovertext: made.text, text: made.inside, textinfo: "text", branchvalues: "total", sort: false, marker: { colors: made.colors, line: { width: made.ids.length > 120 ? .25 : .6, color: style("--card") } },
    hovertemplate: "<b>%{label}</b><br>%{hovertext}<br>%{customdata[1]}<extra></extra>",
    ...(kind === "sunburst" ? { insidetextorientation: "auto", leaf: { opacity: 1 } } : { tiling: { pad: 1 }, pathbar: { visible: false } }),
  };
  await Plotly.react(place, [trace], layout({
    uniformtext: kind === "sunburst" ? { minsize: 9, mode: "hide" } : {}, sunburstcolorway: WAY, treemapcolorway: WAY,
  }), { displayModeBar: false, responsive: true });
  for (const name of ["plotly_sunburstclick", "plotly_treemapclick"]) {
    place.removeAllListeners(name);
    place.on(name, (click) => {
      const point = click.points[0];
      open(point.customdata[0], point.id === made.ids[0]);
      return false;
    });
  }
}

export async function lines(place, traces, { title, suffix = "", low = 0, fill } = {}) {
  const Plotly = await plotly();
  const axis = { gridcolor: style("--line"), zerolinecolor: style("--line"), linecolor: style("--line") };
  await Plotly.react(place, traces.map((one, i) => ({
    type: "scatter", mode: "lines", name: one.name, x: one.x, y: one.y, connectgaps: false,
    line: { width: 1.8, color: one.colour ?? WAY[(i + 2) % WAY.length] }, fill: fill ? "tozeroy" : undefined,
    hovertemplate: "%{y:,.4~g}" + suffix + "<extra>" + plain(one.name) + "</extra>",
  })), layout({
    margin: { l: 58, r: 12, t: 8, b: 30 }, showlegend: traces.length > 1,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { ...axis, type: "date", nticks: 4, tickformat: "%H:%M:%S", tickangle: 0 }, yaxis: { ...axis, rangemode: low === 0 ? "tozero" : "normal", ticksuffix: suffix, title },
  }), { displayModeBar: false, responsive: true });
}

export function failed(place, error) {
  clear(place);
  place.replaceChildren(h("p", { class: "problem", text: `No drawing: ${error.message}. Reload the page to try again.` }));
}

export function clear(place) {
  if (window.Plotly && place) window.Plotly.purge(place);
}
