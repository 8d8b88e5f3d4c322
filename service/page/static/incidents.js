// Incidents over all runs, newest first.

import { link } from "./address.js";
import { get } from "./api.js";
import { fill, h, name, visible } from "./dom.js";
import { LABEL_WORDS, STATE_SIGNS, STATE_WORDS, filters, pager, question } from "./filters.js";
import { LABELS, ago, moment, number, rankList, severityMark, spaced } from "./words.js";

const FIELDS = [
  { key: "state", label: "State", options: STATE_WORDS },
  { key: "label", label: "What", options: LABEL_WORDS },
  { key: "host", label: "Host", hint: "exact name" },
];

/** Show the list in `root`. */
export async function showIncidents(root, view, signal) {
  const asked = question(view, ["state", "label", "host", "severity"]);
  asked.set("certainty", "confirmed");
  if (view.page !== null) asked.set("cursor", view.page);
  const page = await get(`/v1/incidents?${asked}`, signal);
  document.title = "Incidents – firstfault";
  if (root.dataset.view !== "incidents") {
    root.dataset.view = "incidents";
    root.replaceChildren(h("div", { id: "incidents-head" }), h("div", { id: "incidents" }));
  }
  fill(root.querySelector("#incidents-head"), [view.state, view.label, view.host], () => [h("h1", null, "Incidents"), filters(view, FIELDS)]);
  fill(root.querySelector("#incidents"), [page, view.page], () => (page.items.length ? [incidentTable(page.items), pager(view, page.next)] : h("p", { class: "card" }, "No incident matches.")));
}

/** Incidents as a table; `further` gives more cells of each. */
export function incidentTable(items, further = null) {
  const heads = ["Incident", "Run", "First", "State", "Stored", ...(further === null ? [] : [further.head])];
  return h(
    "table",
    { class: "runs incidents" },
    h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", null, items.map((one) => row(one, further))),
  );
}

function row(one, further) {
  const anchor = h("a", { href: link({ run: one.run_id, incident: one.id }), "data-key": `incident-${one.id}` }, visible(one.sentence));
  const cells = [
    ["what", anchor, h("span", { class: "marks" }, severityMark(one.severity), ` ${LABELS[one.label] ?? one.label}`, one.certainty === "confirmed" ? "" : `, ${spaced(one.certainty)}`)],
    ["run", name(one.run)],
    ["first", ...first(one.first)],
    ["judged", state(one)],
    ["updated", ago(one.opened_at)],
    ...(further === null ? [] : [["covered", further.cell(one)]]),
  ];
  return h("tr", { class: one.severity }, cells.map(([key, ...inside]) => h("td", { class: key }, inside)));
}

function first(begun) {
  const rank = begun.ranks.length ? `rank ${rankList(begun.ranks, begun.rank_count)}` : "no single rank";
  const host = begun.hosts.length ? [" on ", name(begun.hosts[0]), begun.hosts.length > 1 ? ` +${begun.hosts.length - 1}` : ""] : [];
  return [h("span", null, rank, ...host), h("span", { class: "since" }, `iteration ${number(begun.iteration)}`)];
}

function state(one) {
  const until = one.state === "muted" && one.muted_until ? [" until ", moment(one.muted_until)] : [];
  const rule = one.muted_by ? h("span", { class: "since" }, "muted by a rule of ", name(one.muted_by.who), " until ", moment(one.muted_by.until)) : null;
  return [h("span", null, `${STATE_SIGNS[one.state] ?? ""} ${spaced(one.state)}`, ...until), rule];
}
