// All runs, the worst first.

import { link } from "./address.js";
import { get } from "./api.js";
import { copyable, fill, h, name, visible } from "./dom.js";
import { spark } from "./spark.js";
import { LABELS, counted, moment, number, rankList, severityMark } from "./words.js";

const PAGE = 100;
const MOST = 500; // what the API gives at once by default
let limit = PAGE;

/** Show the list in `root`; resolves once it is there. */
export async function showFleet(root, view, signal, again) {
  const page = await get(`/v1/runs?order=severity&limit=${limit}`, signal);
  document.title = "firstfault";
  if (root.dataset.view !== "fleet") {
    root.dataset.view = "fleet";
    root.replaceChildren(h("div", { id: "fleet" }));
  }
  fill(root.querySelector("#fleet"), page, () => (page.items.length ? list(page, again) : empty()));
}

function list(page, again) {
  const head = ["Run", "What happened", "First", "Judged to", "Covered", "Loss", "Updated"];
  const table = h(
    "table",
    { class: "runs" },
    h("thead", null, h("tr", null, head.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", null, page.items.map(row)),
  );
  return [h("h1", null, "Runs"), h("p", { class: "tally" }, tally(page)), table, page.next ? more(again) : null];
}

function tally(page) {
  const counts = {};
  for (const { severity } of page.items) counts[severity] = (counts[severity] ?? 0) + 1;
  const levels = ["critical", "warning", "info", "none"].filter((level) => counts[level]);
  const marks = levels.map((level) => h("span", null, `${counts[level]} `, severityMark(level)));
  return [...marks, page.next ? h("span", null, "and more below") : null];
}

function row(run) {
  const here = link({ run: run.run_id, incident: run.severity === "none" ? null : run.incident_id });
  const label = LABELS[run.label] ?? run.label;
  const anchor = h("a", { href: here, "data-key": `run-${run.run_id}`, title: visible(run.run) }, name(run.run));
  const cells = [
    ["run", anchor, h("span", { class: "marks" }, severityMark(run.severity, label), run.severity === "none" ? null : ` ${label}`)],
    ["what", run.sentence, marks(run)],
    [run.first && run.severity !== "none" ? "first" : "first none", ...first(run)],
    ["judged", h("span", { class: "narrow" }, "judged to "), number(run.judged_to_iteration)],
    ["covered", coverage(run.coverage)],
    ["loss", spark(run.run_id, run.revision)],
    ["updated", moment(run.updated_at)],
  ];
  return h("tr", { class: run.severity }, cells.map(([key, ...inside]) => h("td", { class: key }, inside)));
}

function marks(run) {
  const found = [];
  if (run.quiet_since) found.push(h("span", { class: "tag" }, "▣ quiet since ", moment(run.quiet_since)));
  if (run.open_incidents > 1) found.push(h("span", { class: "tag" }, counted(run.open_incidents, "open incident")));
  return found.length ? h("span", { class: "tags" }, found) : null;
}

function first(run) {
  const begun = run.first;
  if (!begun || run.severity === "none") return ["–"];
  const rank = begun.ranks.length ? `rank ${rankList(begun.ranks, begun.rank_count)}` : "no single rank";
  const host = begun.hosts.length ? [" on ", name(begun.hosts[0]), begun.hosts.length > 1 ? ` +${begun.hosts.length - 1}` : ""] : [];
  return [h("span", null, rank, ...host), h("span", { class: "since" }, `iteration ${begun.iteration}`)];
}

function coverage(covered) {
  const all = covered.checks_run + covered.checks_not_run;
  const words = [`${covered.checks_run} of ${counted(all, "check")}`];
  if (covered.ranks) words.push(counted(covered.ranks, "rank"));
  const gaps = [];
  if (covered.silent_ranks) gaps.push(`${covered.silent_ranks} silent`);
  if (covered.rejected) gaps.push(`${covered.rejected} rejected`);
  return [words.join(", "), gaps.length ? h("span", { class: "tag" }, gaps.join(", ")) : null];
}

function more(again) {
  if (limit >= MOST) return h("p", null, `The worst ${MOST} are shown; the API has all: /v1/runs.`);
  const button = h("button", { type: "button", "data-key": "more" }, "More runs");
  button.addEventListener("click", () => {
    limit = Math.min(MOST, limit + PAGE);
    again();
  });
  return button;
}

function empty() {
  const record = '{"run":"my-run","rank":0,"iteration":0,"loss":2.31}';
  const type = "-H 'Content-Type: application/x-ndjson'";
  const send = `curl ${type} --data-binary '${record}' ${location.origin}/v1/telemetry`;
  return h(
    "section",
    { class: "card" },
    h("h1", null, "No run yet"),
    h("p", null, "To see a fault found in a terminal, in two recorded runs:"),
    copyable("firstfault demo", "demo", "the command"),
    h("p", null, "To watch a run of yours, send what its ranks report, a line each:"),
    copyable(send, "send", "the command"),
    h("p", null, "It appears here by itself."),
  );
}
