// Numbers, times and the closed sets of the API in words.

import { h } from "./dom.js";

export const LABELS = {
  healthy: "healthy",
  gradient_explosion: "gradient explosion",
  nan: "NaN",
  silent_drift: "silent drift",
  stall: "stall",
  undetermined: "undetermined",
};
// a shape of its own for each, so that colour is never needed
const SHAPES = { critical: "◆", warning: "▲", info: "●", none: "○" };

// made once, when the first moment is shown: the first takes fifty milliseconds
const FORMATS = {};

/** `replica_divergence` → `replica divergence`. */
export function spaced(word) {
  return String(word).replaceAll("_", " ");
}

/** How bad, as a shape and a word. */
export function severityMark(severity, none = "no incident") {
  const word = severity === "none" ? none : severity;
  const shape = h("span", { "aria-hidden": "true" }, SHAPES[severity] ?? "◇");
  return h("span", { class: `mark ${severity}` }, shape, ` ${word}`);
}

/** A number as people read it; what is not a number is text already, and absent is a dash. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : String(Number(value.toPrecision(6)));
}

/** A moment in the reader's own time; UTC on hovering. */
export function moment(iso) {
  if (!iso) return h("span", null, "–");
  const date = new Date(iso);
  const isToday = date.toDateString() === new Date().toDateString();
  const shown = isToday ? inTime(date) : inDays(date);
  return h("time", { datetime: iso, title: `${iso.replace("T", " ").replace("Z", "")} UTC` }, shown);
}

function inTime(date) {
  FORMATS.time ??= new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  return FORMATS.time.format(date);
}

function inDays(date) {
  FORMATS.days ??= new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  return FORMATS.days.format(date);
}

/** How long ago; the moment itself on hovering. It keeps its age while it is shown. */
export function ago(iso) {
  if (!iso) return h("span", null, "–");
  const date = new Date(iso);
  return h("time", { datetime: iso, class: "ago", title: `${inDays(date)}; ${iso.replace("T", " ").replace("Z", "")} UTC` }, age(date));
}

function age(date) {
  const seconds = Math.max(0, (Date.now() - date.getTime()) / 1000);
  if (seconds < 60) return "just now";
  const steps = [[60, "min"], [3600, "h"], [86_400, "d"]];
  const [size, unit] = steps.findLast(([least]) => seconds >= least);
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

setInterval(() => {
  for (const one of document.querySelectorAll("time.ago")) one.textContent = age(new Date(one.dateTime));
}, 20_000);

/** `1 rank`, `8 ranks`. */
export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${String(count) === "1" ? one : many}`;
}

/** Ranks as ranges: `0-3, 7`, at most six of them, then how many more. */
export function rankList(ranks, count) {
  const spans = [];
  for (const rank of ranks) {
    const last = spans.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else spans.push([rank, rank]);
  }
  const shown = spans.slice(0, 6);
  const words = shown.map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`));
  const hidden = Math.max(count ?? 0, ranks.length) - shown.reduce((sum, [low, high]) => sum + high - low + 1, 0);
  return words.join(", ") + (hidden > 0 ? ` and ${hidden} more` : "");
}

/** `(380, 390]` as `between 380 and 390`; empty where that says no more than the iteration. */
export function between(interval) {
  if (!interval) return "";
  const [low, high] = interval;
  if (low === null) return "never seen clean before";
  return high - low > 1 ? `between ${low} and ${high}` : "";
}
