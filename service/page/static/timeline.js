// How an incident went: where in the run it lies, and then what was found and done about it, by the clock.

import { get } from "./api.js";
import { h, name, visible } from "./dom.js";
import { LABELS, between, moment, number, spaced } from "./words.js";

const LONG = 80; // characters of one side of a change
const NEAR = 256; // iterations around the onset: an annotation further away explains nothing of it
const TOLD = {
  new: "detected",
  worsened: "became worse",
  changed: "revised",
  withdrawn: "withdrawn: later records explain it",
  returned: "back: it is seen again",
};

/** What the incident was before, the oldest first. */
export async function askChanges(id, signal) {
  const { items } = await get(`/v1/incidents/${encodeURIComponent(id)}/revisions`, signal);
  return items;
}

/** Both lists, the run's first. */
export function timelineOf(one, changes, verdict) {
  const placed = positions(one.incident, verdict).map(([iteration, words]) => h("li", null, h("span", { class: "when" }, `iteration ${number(iteration)}`), h("span", null, words)));
  const timed = moments(one, changes).map(([at, words]) => h("li", null, h("span", { class: "when" }, moment(at)), h("span", null, words)));
  return [
    h("h3", null, "Timeline"),
    h("ol", { class: "timeline" }, placed),
    h("h4", null, "Found and done"),
    h("ol", { class: "timeline" }, timed),
  ];
}

function positions(incident, verdict) {
  const { first, last_good: good, chain } = incident;
  const found = [];
  if (good?.checkpoint) found.push([good.checkpoint_iteration, ["last good checkpoint ", name(good.checkpoint)]]);
  if (first.interval[0] !== null) found.push([first.interval[0], "last seen clean"]);
  found.push([first.iteration, [h("b", null, `${LABELS[incident.label] ?? incident.label} begins`), ` (${spaced(first.phase)}${between(first.interval) ? `; ${between(first.interval)}` : ""})`]]);
  found.push([incident.detected_at_iteration, "first alarm"]);
  for (const link of (chain ?? []).slice(1)) found.push([link.iteration, `${LABELS[link.label] ?? link.label} follows`]);
  for (const note of verdict.annotations) {
    if (note.attempt === first.attempt && Math.abs(note.iteration - first.iteration) <= NEAR) found.push([note.iteration, `note: ${spaced(note.kind)}`]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}

function moments(one, revisions) {
  const found = revisions.map((revision) => [revision.at, told(revision)]);
  if (!revisions.some((revision) => revision.kind === "new")) found.push([one.opened_at, "detected"]);
  for (const entry of one.log) {
    const until = entry.muted_until ? [" until ", moment(entry.muted_until)] : [];
    found.push([entry.at, [h("b", null, spaced(entry.state)), ...until, " by ", name(entry.who), entry.note ? h("span", { class: "since" }, visible(entry.note)) : null]]);
  }
  return found.sort((a, b) => Date.parse(a[0]) - Date.parse(b[0]));
}

function told({ kind, certainty, severity, first, changed }) {
  const state = `${TOLD[kind] ?? spaced(kind)}: ${spaced(certainty)}, ${spaced(severity)}, since iteration ${number(first.iteration)}`;
  const rows = changed.map(({ field, before, after }) => h("span", { class: "since" }, `${spaced(field)}: ${short(before)} → ${short(after)}`));
  return kind === "new" ? state : [h("span", null, state), ...rows];
}

function short(value) {
  const text = value !== null && typeof value === "object" ? JSON.stringify(value) : number(value);
  return visible(text.length > LONG ? `${text.slice(0, LONG)}…` : text);
}
