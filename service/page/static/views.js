// The views of one run as a line of links, and the frame that they have in common.

import { link } from "./address.js";
import { get } from "./api.js";
import { h, wholeName } from "./dom.js";

const VIEWS = [
  [null, "Run"],
  ["ranks", "Ranks"],
  ["checksums", "Checksums"],
  ["propagation", "Propagation"],
  ["what-if", "What-if"],
];

/** Links to every view of a run; `view` is that of the address, `incident` the one they are about, if any. */
export function tabs(run, view) {
  const items = VIEWS.map(([key, word]) => {
    const isHere = (view.view ?? null) === key;
    const to = link({ run: run.run_id, incident: view.incident, view: key, attempt: view.attempt });
    return h("a", { href: to, "data-key": `tab-${key}`, "aria-current": isHere ? "page" : null }, word);
  });
  return h("nav", { class: "tabs", "aria-label": "Views of this run" }, items);
}

/** A view of a run: where it is shown, and the run itself. `lay` builds its parts once. */
export async function frame(root, view, key, signal, lay) {
  const given = view.incident === null ? null : await get(`/v1/incidents/${encodeURIComponent(view.incident)}`, signal);
  const runId = view.run ?? given?.run_id;
  const run = await get(`/v1/runs/${encodeURIComponent(runId)}`, signal);
  document.title = `${run.run.slice(0, 60)} – ${key} – firstfault`;
  const shown = `${key} ${run.run_id} ${view.incident ?? ""}`;
  if (root.dataset.view !== shown) {
    root.dataset.view = shown;
    root.replaceChildren(...head(run, view), ...lay());
  }
  return { run, incident: given };
}

function head(run, view) {
  return [
    h("nav", { "aria-label": "Where you are" }, h("a", { href: "/", "data-key": "back" }, "← All runs")),
    h("h1", null, wholeName(run.run)),
    tabs(run, view),
  ];
}
