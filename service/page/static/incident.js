// One incident: what happened, what to do about it, and what it is believed on.

import { link } from "./address.js";
import { copyable, h, name, visible } from "./dom.js";
import { seen } from "./seen.js";
import { LABELS, between, counted, moment, number, rankList, severityMark, spaced } from "./words.js";

/** The sentence and how sure it is. */
export function headOf(one) {
  const { incident } = one;
  const facts = [
    severityMark(one.severity),
    spaced(incident.certainty),
    spaced(incident.pattern),
    `first alarm at iteration ${incident.detected_at_iteration}`,
    one.is_withdrawn ? "withdrawn: later records explain it" : spaced(one.state),
  ];
  const opened = h("span", { class: "tag" }, "stored ", moment(one.opened_at));
  const tags = facts.map((fact) => h("span", { class: "tag" }, fact));
  return [h("h2", { class: "sentence" }, visible(one.sentence)), h("p", { class: "tags" }, tags, opened)];
}

/** What to do, in order, with the commands to copy. */
export function stepsOf({ incident }) {
  if (!incident.advice?.length) return [h("h3", null, "What to do"), h("p", null, "Nothing: it recovered by itself.")];
  const steps = incident.advice.map((step, at) => {
    const target = step.target ? [": ", name(step.target)] : [];
    const command = step.command ? copyable(step.command, `step-${at}`, "the command") : null;
    return h("li", null, h("span", { class: "action" }, sentenceCase(spaced(step.action)), ...target), command);
  });
  return [h("h3", null, "What to do"), h("ol", { class: "steps" }, steps)];
}

/** Who, since when, what is still good, and what it costs. */
export function factsOf({ incident }) {
  const { first } = incident;
  const rows = [
    ["Certainty", certainty(incident)],
    ["Where", suspects(first)],
    ["Since", since(first)],
    ["Last good", lastGood(incident.last_good ?? {})],
    ["Cost", cost(incident.cost ?? {})],
    ["Then", chain(incident.chain ?? [])],
    ["Victims", first.victims?.length ? `${first.victims.length === 1 ? "rank" : "ranks"} ${rankList(first.victims, first.victim_count)}` : null],
    ["Note", first.note ? visible(first.note) : null],
  ];
  const shown = rows.filter(([, value]) => value !== null);
  return [h("h3", null, "In numbers"), h("dl", null, shown.map(([key, value]) => [h("dt", null, key), h("dd", null, value)]))];
}

/** What may lie behind it, the likeliest first. */
export function causesOf({ incident }) {
  if (!incident.causes?.length) return [];
  const causes = incident.causes.map((cause) => {
    const stage = cause.stage && cause.stage !== "unknown" ? `, ${spaced(cause.stage)}` : "";
    const share = Math.round(cause.confidence * 100);
    const meter = h("meter", { min: 0, max: 100, value: share, "aria-label": `confidence ${share} %` });
    const because = h("ul", null, cause.because.map((reason) => h("li", null, visible(reason))));
    return h("li", null, h("span", { class: "action" }, spaced(cause.kind), stage), h("span", { class: "share" }, meter, ` ${share} %`), because);
  });
  return [h("h3", null, "Likely causes"), h("ol", { class: "causes" }, causes)];
}

/** How sure it is, and what that rests on. */
function certainty({ certainty: how, evidence, evidence_count: count }) {
  const [strongest] = evidence ?? [];
  if (!strongest) return spaced(how);
  const against = Object.entries(strongest.detail ?? {}).filter(([key]) => key.startsWith("why"));
  const rest = (count ?? evidence.length) - 1;
  const more = rest > 0 ? `; ${counted(rest, "more piece")} of evidence` : "";
  const reasons = against.map(([, why]) => h("span", { class: "since" }, visible(why)));
  return [h("b", null, spaced(how)), `: ${visible(seen(strongest))} (${spaced(strongest.detector)})${more}`, ...reasons];
}

function suspects(first) {
  if (!first.ranks?.length) return first.scope === "all" ? "all ranks" : "unknown: the telemetry says nothing about ranks";
  const known = new Map((first.suspects ?? []).map((one) => [one.rank, one]));
  const lines = first.ranks.slice(0, 6).map((rank) => {
    const { host, device, why } = known.get(rank) ?? {};
    const place = [host ? [" on host ", h("a", { href: link({ host }), "data-key": `host-${rank}` }, name(host))] : [], device ? [", device ", name(device)] : []];
    return h("li", null, `rank ${rank}`, place.flat(2), why ? h("span", { class: "since" }, visible(why)) : null);
  });
  const hidden = (first.rank_count ?? 0) - lines.length;
  const rest = hidden > 0 ? h("li", null, `and ${hidden} more`) : null;
  const tie = first.tie ? h("p", { class: "since" }, "one of them: they cannot be told apart") : null;
  return [tie, h("ul", { class: "bare" }, lines, rest)];
}

function since(first) {
  const attempt = first.attempt ? ` of attempt ${first.attempt}` : "";
  const range = between(first.interval);
  return `iteration ${first.iteration}${attempt}${range ? ` (${range})` : ""}, ${spaced(first.phase)}`;
}

function lastGood(good) {
  if (good.iteration === null || good.iteration === undefined) return "unknown: no iteration is known to be clean";
  const words = `iteration ${good.iteration}, ${spaced(good.basis)}`;
  if (!good.checkpoint) return `${words}; no checkpoint up to it was reported`;
  return [`${words}; checkpoint of iteration ${number(good.checkpoint_iteration)}`, copyable(good.checkpoint, "checkpoint", "the checkpoint")];
}

function cost(given) {
  const words = [];
  const [low, high] = given.iterations_since_onset ?? [null, null];
  if (low !== null) words.push(`${low === high ? low : high === null ? `at least ${low}` : `${low} to ${high}`} iterations since the onset`);
  if (given.iterations_to_redo !== null && given.iterations_to_redo !== undefined) words.push(`${given.iterations_to_redo} to redo`);
  if (given.device_hours !== null && given.device_hours !== undefined) words.push(`${number(Number(given.device_hours.toPrecision?.(3) ?? given.device_hours))} device hours`);
  return words.length ? words.join(", ") : null;
}

function chain(links) {
  const later = links.slice(1).map((one) => `${LABELS[one.label] ?? one.label} at iteration ${one.iteration}`);
  return later.length ? later.join(", ") : null;
}

function sentenceCase(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
