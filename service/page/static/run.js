// One run: its incident, its curves, and how much of it was looked at.

import { go, link } from "./address.js";
import { get } from "./api.js";
import { Charts, askCurves, fetchPlotly, loadPlotly } from "./charts.js";
import { brief, fill, h, visible, wholeName } from "./dom.js";
import { Actions } from "./actions.js";
import { evidenceOf } from "./evidence.js";
import { causesOf, factsOf, headOf, stepsOf } from "./incident.js";
import { bind } from "./keys.js";
import { askChanges, timelineOf } from "./timeline.js";
import { tabs } from "./views.js";
import { LABELS, counted, moment, number, severityMark, spaced } from "./words.js";

const PARTS = ["title", "head", "act", "steps", "facts", "charts", "causes", "evidence", "timeline", "others", "coverage"];
let charts = null;
let actions = null;

/** Show a run, or one of its incidents, in `root`; resolves once the words are there, then the curves. */
export async function showRun(root, view, signal, again) {
  fetchPlotly(); // beside what the words need, not after it
  const told = await ask(view, signal, root.dataset.view ?? "");
  const { run, verdict, one } = told;
  document.title = `${run.run.slice(0, 60)} – firstfault`;
  if (root.dataset.view !== `run ${run.run_id}`) lay(root, run.run_id, again);
  const part = (key) => root.querySelector(`#part-${key}`);
  fill(part("title"), [run.run, run.label, run.severity, run.sentence, run.freshness, one?.id, view], () => title(run, one, view));
  for (const [key, build] of [["head", headOf], ["steps", stepsOf], ["facts", factsOf], ["causes", causesOf], ["evidence", evidenceOf]]) {
    fill(part(key), key === "head" ? [one, told.incidents.map((other) => other.id)] : [one?.id, one?.incident], () => (one === null ? [] : [key === "head" ? pager(run, told.incidents, one) : null, ...build(one)]));
    part(key).hidden = !part(key).children.length;
  }
  fill(part("timeline"), [one, told.changes, verdict.annotations], () => (one === null ? [] : timelineOf(one, told.changes, verdict)));
  root.querySelector(".columns").classList.toggle("single", one === null);
  part("act").hidden = one === null;
  if (one !== null) actions.show(one);
  bind({ ...keysOf(run, told.incidents, one, view), ...(one === null ? {} : actions.keys()) });
  fill(part("others"), [told.incidents, one?.id], () => others(told.incidents, one, run));
  fill(part("coverage"), verdict.coverage, () => coverage(verdict.coverage));
  await new Promise((resume) => setTimeout(resume)); // the words are seen before a curve is drawn
  await charts.show({ run, verdict, incident: one?.incident ?? null, view }, signal, told.curves);
}

/** Which of several incidents this is, and the way to the others. */
function pager(run, incidents, one) {
  const at = incidents.findIndex((other) => other.id === one.id);
  if (incidents.length < 2 || at < 0) return null;
  const to = (step, word) => {
    const next = incidents[(at + step + incidents.length) % incidents.length];
    return h("a", { href: link({ run: run.run_id, incident: next.id }), "data-key": `incident-${word}` }, word);
  };
  return h("nav", { class: "pager", "aria-label": "Incidents of this run" }, `incident ${at + 1} of ${incidents.length}: `, to(-1, "before"), " ", h("kbd", null, "k"), " ", to(1, "next"), " ", h("kbd", null, "j"));
}

function keysOf(run, incidents, one, view) {
  const at = incidents.findIndex((other) => other.id === one?.id);
  const to = (step) => () => {
    const next = incidents[(at + step + incidents.length) % incidents.length];
    if (next) go({ run: run.run_id, incident: next.id });
  };
  return {
    j: ["next incident of this run", to(1)],
    k: ["incident before", to(-1)],
    x: ["ranks × iterations", () => go({ run: run.run_id, view: "ranks", incident: one?.id })],
    z: ["around the onset", () => charts.nearOnset()],
    w: ["the whole run", () => go({ ...view, from: null, to: null })],
    u: ["all runs", () => go({})],
  };
}

async function ask(view, signal, shown) {
  const incident = async (id) => (id === null ? null : get(`/v1/incidents/${encodeURIComponent(id)}`, signal));
  const given = await incident(view.incident);
  const base = `/v1/runs/${encodeURIComponent(view.run ?? given.run_id)}`;
  const [run, { verdict }] = await Promise.all([get(base, signal), get(`${base}/verdict`, signal)]);
  // without one named, the incident that the run's sentence is about, unless it came and went by itself
  const root = verdict.incidents.find((one) => one.id === run.incident_id && one.certainty !== "recovered");
  const id = given?.id ?? root?.id ?? null;
  const isFirst = shown !== `run ${run.run_id}`;
  const curves = isFirst ? askCurves({ run, verdict, incident: given?.incident ?? root ?? null, view }, signal) : null;
  curves?.catch(() => {}); // told where they are waited for
  if (isFirst && verdict.coverage.metrics.length) loadPlotly(); // runs while the service reads what was asked for
  // at once: each further turn to the service is one more that the reader waits for
  const [{ items }, one, changes] = await Promise.all([
    get(`/v1/incidents?run=${encodeURIComponent(run.run)}`, signal),
    given ?? incident(id),
    id === null ? [] : askChanges(id, signal),
  ]);
  // by where they lie in the run: the first is the root
  items.sort((a, b) => a.first.attempt - b.first.attempt || a.first.iteration - b.first.iteration);
  return { run, verdict, incidents: items, one, changes, curves };
}

function lay(root, runId, again) {
  root.dataset.view = `run ${runId}`;
  const place = (key, tag = "section") => h(tag, { id: `part-${key}`, class: "part" });
  const [heading, head, act, ...rest] = PARTS.map((key) => place(key));
  const by = Object.fromEntries(rest.map((one) => [one.id.slice(5), one]));
  const left = h("div", { class: "left" }, by.evidence, by.charts, by.others, by.coverage);
  const right = h("div", { class: "right" }, by.steps, by.facts, by.causes, by.timeline);
  root.replaceChildren(heading, head, act, h("div", { class: "columns" }, right, left));
  charts = new Charts(by.charts);
  actions = new Actions(act, again);
}

function title(run, one, view) {
  const { stale, stale_reasons: reasons, quiet_since: quietSince } = run.freshness;
  const tags = [
    h("span", { class: "tag" }, one === null ? LABELS[run.label] : severityMark(run.severity)),
    one === null ? null : h("span", { class: "tag" }, LABELS[run.label] ?? run.label),
    h("span", { class: "tag" }, `judged to iteration ${number(run.judged_to_iteration)}`),
    h("span", { class: "tag" }, "as of ", moment(run.freshness.updated_at)),
    stale ? h("span", { class: "tag warn", title: reasons.join("; ") }, "⚠ stale") : null,
    quietSince ? h("span", { class: "tag warn" }, "▣ quiet since ", moment(quietSince)) : null,
  ];
  const sentence = one === null ? h("p", { class: "sentence" }, visible(run.sentence)) : null;
  return [
    h("nav", { "aria-label": "Where you are" }, h("a", { href: "/", "data-key": "back" }, "← All runs")),
    h("h1", null, wholeName(run.run)),
    tabs(run, { ...view, view: null }),
    h("p", { class: "tags" }, tags),
    sentence,
  ];
}

function others(incidents, one, run) {
  const rest = incidents.filter((other) => other.id !== one?.id);
  if (!rest.length) return [];
  const rows = rest.map((other) =>
    h(
      "li",
      null,
      severityMark(other.severity),
      ` ${spaced(other.certainty)}${other.state === "open" ? "" : `, ${spaced(other.state)}`}: `,
      h("a", { href: link({ run: run.run_id, incident: other.id }), "data-key": `incident-${other.id}` }, visible(other.sentence)),
    ),
  );
  return [h("h3", null, one === null ? "Incidents of this run" : "Other incidents of this run"), h("ul", { class: "bare" }, rows)];
}

function coverage(covered) {
  const lists = [
    ["Blind to", covered.blind_to.map(visible)],
    ["Not checked", covered.checks.filter((check) => check.state !== "ran").map((check) => `${spaced(check.name)}: ${visible(check.why)}`)],
    ["Checked", [covered.checks.filter((check) => check.state === "ran").map((check) => spaced(check.name)).join(", ")]],
    ["Silent", silent(covered)],
    ["Rejected", Object.entries(covered.rejected_by ?? {}).map(([reason, count]) => `${visible(reason)}: ${count}`)],
    ["Notes", covered.notes.map(visible)],
    ["Looked at", [`${counted(covered.ranks, "rank")}; ${covered.metrics.map(brief).join(", ")}`]],
  ];
  const shown = lists.filter(([, lines]) => lines.some((line) => line));
  const rows = shown.map(([key, lines]) => [h("dt", null, key), h("dd", null, h("ul", { class: "bare" }, lines.map((line) => h("li", null, line))))]);
  return [h("h3", null, "What was looked at, and what was not"), h("dl", null, rows)];
}

function silent(covered) {
  const since = covered.silent_since ?? [];
  const lines = (covered.silent_ranks ?? []).slice(0, 8).map((rank, at) => `rank ${rank} since iteration ${number(since[at])}`);
  const hidden = (covered.silent_rank_count ?? 0) - lines.length;
  return hidden > 0 ? [...lines, `and ${hidden} more`] : lines;
}
