// All runs, the worst first.

import { link } from "./address.js";
import { get } from "./api.js";
import { copyable, fill, h, name, visible } from "./dom.js";
import { LABEL_WORDS, STATE_SIGNS, STATE_WORDS, filters, pager, question } from "./filters.js";
import { spark } from "./spark.js";
import { LABELS, ago, counted, moment, number, rankList, severityMark, spaced } from "./words.js";

const PAGE = 100;

/** Show the list in `root`; resolves once it is there. */
export async function showFleet(root, view, signal) {
  const asked = question(view, ["label", "severity", "state", "text"]);
  asked.set("order", "severity");
  asked.set("limit", PAGE);
  if (view.page !== null) asked.set("cursor", view.page);
  const page = await get(`/v1/runs?${asked}`, signal);
  document.title = "firstfault";
  if (root.dataset.view !== "fleet") {
    root.dataset.view = "fleet";
    root.replaceChildren(h("div", { id: "fleet-head" }), h("div", { id: "fleet" }));
  }
  const isNarrowed = ["label", "severity", "state", "text", "page"].some((key) => view[key] !== null);
  fill(root.querySelector("#fleet-head"), [view.label, view.severity, view.state, view.text, isNarrowed || page.items.length > 0], () => (isNarrowed || page.items.length ? head(view) : []));
  fill(root.querySelector("#fleet"), [page, view.page], () => (page.items.length ? list(page, view) : isNarrowed ? none() : empty()));
}

function head(view) {
  return [
    h("h1", null, "Runs"),
    filters(view, [
      { key: "text", label: "Name", hint: "part of the name" },
      { key: "label", label: "What", options: LABEL_WORDS },
      { key: "severity", label: "Severity", options: ["critical", "warning", "info", "none"].map((one) => [one, one]) },
      { key: "state", label: "Incidents", options: STATE_WORDS },
    ]),
  ];
}

function list(page, view) {
  const columns = ["Run", "What happened", "First", "Judged to", "Covered", "Loss", "Updated"];
  const table = h(
    "table",
    { class: "runs" },
    h("thead", null, h("tr", null, columns.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", null, page.items.map(row)),
  );
  return [h("p", { class: "tally" }, tally(page)), table, pager(view, page.next)];
}

function none() {
  return h("section", { class: "card" }, h("p", null, "No run matches. "), h("p", null, h("a", { href: "/" }, "All runs")));
}

function tally(page) {
  const counts = {};
  for (const { severity } of page.items) counts[severity] = (counts[severity] ?? 0) + 1;
  const levels = ["critical", "warning", "info", "none"].filter((level) => counts[level]);
  const marks = levels.map((level) => h("span", null, `${counts[level]} `, severityMark(level)));
  return [...marks, page.next ? h("span", null, "on this page") : null];
}

function row(run) {
  const here = link({ run: run.run_id, incident: run.severity === "none" ? null : run.incident_id });
  const label = LABELS[run.label] ?? run.label;
  const anchor = h("a", { href: here, "data-key": `run-${run.run_id}`, title: visible(run.run) }, name(run.run));
  const rate = h("span", { class: "since rate" });
  const cells = [
    ["run", anchor, h("span", { class: "marks" }, severityMark(run.severity, label), run.severity === "none" ? null : ` ${label}`)],
    ["what", run.sentence, marks(run)],
    [run.first && run.severity !== "none" ? "first" : "first none", ...first(run)],
    ["judged", h("span", { class: "narrow" }, "judged to "), number(run.judged_to_iteration), rate],
    ["covered", coverage(run.coverage)],
    ["loss", spark(run.run_id, run.revision, (columns) => (rate.textContent = pace(columns)))],
    ["updated", ago(run.updated_at)],
  ];
  return h("tr", { class: run.severity }, cells.map(([key, ...inside]) => h("td", { class: key }, inside)));
}

/** Iterations a second over the last tenth of a curve, by the clocks of the trainers. */
function pace(columns) {
  const at = columns.time.map((one, place) => [Date.parse(one ?? ""), columns.last_iteration[place]]).filter(([time]) => !Number.isNaN(time));
  if (at.length < 2) return "";
  const [last, before] = [at.at(-1), at[Math.max(0, Math.min(at.length - 2, Math.floor(at.length * 0.9)))]];
  const perSecond = ((last[1] - before[1]) * 1000) / (last[0] - before[0]);
  if (!Number.isFinite(perSecond) || perSecond <= 0) return "";
  return perSecond >= 1 ? `${number(Number(perSecond.toPrecision(2)))} it/s` : `${number(Number((1 / perSecond).toPrecision(2)))} s/it`;
}

function marks(run) {
  const found = [];
  if (run.quiet_since) found.push(h("span", { class: "tag" }, "▣ quiet since ", moment(run.quiet_since)));
  if (run.open_incidents > 1) found.push(h("span", { class: "tag" }, counted(run.open_incidents, "open incident")));
  for (const [state, count] of Object.entries(run.incident_states)) {
    if (state !== "open") found.push(h("span", { class: "tag" }, `${STATE_SIGNS[state] ?? ""} ${number(count)} ${spaced(state)}`));
  }
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
  const words = [h("span", { class: "whole" }, `${covered.checks_run} of ${counted(all, "check")}`)];
  if (covered.ranks) words.push(h("span", { class: "whole" }, counted(covered.ranks, "rank")));
  const gaps = [];
  if (covered.silent_ranks) gaps.push(`${covered.silent_ranks} silent`);
  if (covered.rejected) gaps.push(`${covered.rejected} rejected`);
  return [words, gaps.length ? h("span", { class: "tag" }, gaps.join(", ")) : null];
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
