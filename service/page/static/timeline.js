// How an incident went: where in the run it lies, and then what was found and done about it, by the clock.

import { get } from "./api.js";
import { h, name, visible } from "./dom.js";
import { LABELS, between, moment, number, spaced } from "./words.js";

const PAGE = 500; // what the API gives at once by default
const PAGES = 4;
const NEAR = 256; // iterations around the onset: an annotation further away explains nothing of it
const TOLD = {
  incident_new: "detected",
  incident_worsened: "became worse",
  incident_changed: "revised",
  incident_withdrawn: "withdrawn: later records explain it",
};

/** What the store tells of how an incident changed: its events among those of its run. */
export async function askChanges(one, signal) {
  const found = [];
  let place = "";
  for (let page = 0; page < PAGES; page++) {
    const answer = await get(`/v1/runs/${encodeURIComponent(one.run_id)}/events?kind=change&limit=${PAGE}${place}`, signal);
    found.push(...answer.items.filter((event) => event.incident_id === one.id && event.name in TOLD));
    if (!answer.next) break;
    place = `&cursor=${encodeURIComponent(answer.next)}`;
  }
  return found;
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

function moments(one, changes) {
  const found = changes.map((event) => [event.at, told(event)]);
  if (!changes.some((event) => event.name === "incident_new")) found.push([one.opened_at, "detected"]);
  for (const entry of one.log) {
    found.push([entry.at, [h("b", null, spaced(entry.state)), " by ", name(entry.who), entry.note ? h("span", { class: "since" }, visible(entry.note)) : null]]);
  }
  return found.sort((a, b) => Date.parse(a[0]) - Date.parse(b[0]));
}

function told({ name: kind, detail }) {
  const where = detail?.iteration === undefined ? "" : `: ${spaced(detail.certainty)}, ${spaced(detail.severity)}, since iteration ${number(detail.iteration)}`;
  return TOLD[kind] + where;
}
