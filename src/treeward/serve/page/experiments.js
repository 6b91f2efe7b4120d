// Reports of past experiments: listed, and opened in a frame that can reach nothing.

import { ask } from "./api.js";
import { empty, h } from "./dom.js";

export async function show(root, [name = ""], go) {
  const told = await ask("/v1/reports");
  if (!told.reports.length) {
    root.replaceChildren(empty(told.set ? "There are no reports yet" : "No folder of reports is set",
      h("p", { text: told.set ? "Run treeward experiment … -o RUN in that folder, and they are here." : "Start the service with --reports FOLDER: the pages that treeward experiment writes are listed here." })));
    return { end: () => {} };
  }
  const place = h("div");
  const list = h("ol", { class: "list", id: "reports" }, ...told.reports.map((one) => h("li", { class: one.name === name ? "now" : null },
    h("button", { onclick: () => go("experiments", one.name) }, h("span", { text: one.title + " · " + one.name }), h("span", { text: new Date(one.modified * 1000).toLocaleString() })))));
  root.replaceChildren(h("section", { "aria-label": "Reports" }, h("h2", { text: "Reports of past runs" }), list), place);
  if (name) {
    const link = await ask("/v1/reports/" + encodeURIComponent(name));
    place.replaceChildren(h("p", {}, h("a", { href: link.url, target: "_blank", rel: "noopener", text: "Open it alone" })),
      h("iframe", { src: link.url, title: "The report " + name, sandbox: "allow-scripts" }));
  }
  return { end: () => {} };
}
