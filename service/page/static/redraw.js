// Redraws the decision of one piece of evidence out of what was recorded around it.

import { get } from "./api.js";
import { brief, h, name, svg } from "./dom.js";
import { mini } from "./mini.js";
import { number, spaced } from "./words.js";

const AROUND = 96; // iterations on both sides: within what is frozen of an incident
const POINTS = 400;
const LINES = 4; // ranks with a line of their own
const VOTERS = 16;
const BEFORE = 2; // columns of a vote: so many checks before it, and so many from it on
const FROM = 2;
const SHOWN_DIGITS = 6; // of a checksum: two that differ do so in the first ones
const VOTES = new Set(["checksum_vote", "agreement", "repeat"]);
const RELATIVE = new Set(["peer_outlier", "slowdown"]);

/** What to show of a piece of evidence: a vote, a chart, or the measured number beside its threshold. */
export async function redraw(one, piece) {
  const span = spanOf(one, piece);
  if (VOTES.has(piece.detector)) {
    const matrix = await askMatrix(one, piece, voters(piece));
    return [matrix ? vote(matrix, piece) : gauge(piece)].filter((part) => part !== null);
  }
  const metric = piece.metric === "joint" ? (piece.detail?.metrics?.[0] ?? "joint") : piece.metric;
  const [curve, matrix] = await Promise.all([
    askCurve(one, metric, span),
    piece.ranks?.length ? askMatrix(one, { ...piece, metric }, piece.ranks.slice(0, LINES)) : null,
  ]);
  const chart = curve ? chartOf(one, { ...piece, metric }, curve, matrix) : null;
  return [chart, gauge(piece)].filter((part) => part !== null).flat();
}

function spanOf({ incident }, piece) {
  const low = piece.interval?.[0] ?? piece.iteration;
  const high = Math.max(piece.interval?.[1] ?? piece.iteration, incident.detected_at_iteration ?? 0);
  return [Math.max(0, low - AROUND), high + AROUND];
}

async function askCurve(one, metric, [from, to]) {
  const asked = new URLSearchParams({ metric, attempt: one.incident.first.attempt, from, to, points: POINTS });
  const answer = await quietly(`/v1/runs/${encodeURIComponent(one.run_id)}/curves?${asked}`);
  return answer?.columns.iteration.length ? answer : null;
}

async function askMatrix(one, piece, ranks) {
  const [from, to] = spanOf(one, piece);
  const asked = new URLSearchParams({ metric: piece.metric, attempt: one.incident.first.attempt, from, to, ranks: ranks.join(",") });
  return quietly(`/v1/runs/${encodeURIComponent(one.run_id)}/matrix?${asked}`);
}

async function quietly(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error.status === 404 || error.status === 422) return null; // nothing of it is kept
    throw error;
  }
}

/** The suspects and some of those that they are compared with. */
function voters(piece) {
  const suspects = (piece.ranks ?? []).slice(0, VOTERS / 2);
  const first = suspects.length ? Math.max(0, suspects[0] - VOTERS / 2) : 0;
  const others = Array.from({ length: VOTERS }, (_, at) => first + at).filter((rank) => !suspects.includes(rank));
  return [...suspects, ...others.slice(0, VOTERS - suspects.length)].sort((a, b) => a - b);
}

/** Who held what at the checks around the onset: the table that the vote was taken on. */
function vote(matrix, piece) {
  const checks = matrix.iteration.flatMap((iteration, at) => (matrix.values[at].some((cell) => cell !== null) ? [at] : []));
  const begin = checks.findIndex((at) => matrix.iteration[at] >= piece.iteration);
  const shown = begin < 0 ? checks.slice(-BEFORE) : checks.slice(Math.max(0, begin - BEFORE), begin + FROM);
  const common = new Map(shown.map((at) => [at, most(matrix.values[at])]));
  const head = h("tr", null, h("th", { scope: "col" }, "Rank"), shown.map((at) => h("th", { scope: "col", class: matrix.iteration[at] === piece.iteration ? "here" : null }, number(matrix.iteration[at]))));
  const rows = matrix.ranks.map((rank, column) =>
    h("tr", null, h("th", { scope: "row" }, String(rank)), shown.map((at) => ballot(matrix.values[at][column], common.get(at), piece.detail?.tolerance ?? 0))),
  );
  const words = h("p", { class: "since" }, name(piece.metric), ` at the checks around iteration ${number(piece.iteration)}; ✕ is not what most hold.`);
  const table = h("table", { class: "vote" }, h("thead", null, head), h("tbody", null, rows));
  return h("div", null, words, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Vote on ${brief(piece.metric)}` }, table));
}

function most(cells) {
  const counts = new Map();
  for (const cell of cells) if (cell !== null) counts.set(cell, (counts.get(cell) ?? 0) + 1);
  const [first, second] = [...counts].sort((a, b) => b[1] - a[1]);
  return second && second[1] === first[1] ? undefined : first?.[0]; // a tie has no majority
}

function ballot(cell, common, tolerance) {
  if (cell === null) return h("td", { class: "absent" }, "–");
  const isNear = typeof cell === "number" && typeof common === "number" && Math.abs(cell - common) <= tolerance * Math.abs(common);
  const isSame = cell === common || isNear;
  const shown = typeof cell === "number" ? number(cell) : String(cell).slice(0, SHOWN_DIGITS);
  return h("td", { class: isSame ? null : "differs", title: String(cell) }, isSame ? shown : `✕ ${shown}`);
}

function chartOf(one, piece, { columns }, matrix) {
  const { incident } = one;
  const frame = { iteration: columns.iteration, range: piece.interval ?? [piece.iteration, piece.iteration], at: piece.iteration, alarm: incident.detected_at_iteration };
  const own = ownLines(matrix, columns.iteration);
  const isRelative = RELATIVE.has(piece.detector) && own.length > 0 && typeof piece.detail?.relative_shift === "number";
  const drawing = isRelative
    ? { ...frame, lines: own.map((line) => ({ ...line, values: ratio(line.values, columns.median) })), levels: shiftLevels(piece), isLog: false }
    : {
        ...frame,
        band: columns.reported.some((count) => count > 1) ? [columns.min, columns.max] : null,
        lines: [{ name: "median", values: told(columns), kind: own.length ? "peers" : "own" }, ...own],
        levels: levelsOf(piece),
        isLog: piece.metric.includes("grad_norm") ? true : undefined,
      };
  const what = isRelative ? `${piece.metric}: rank ${own.map((line) => line.rank).join(", ")} relative to the median of all ranks` : piece.metric;
  const title = `${what}, iterations ${columns.iteration[0]} to ${columns.last_iteration.at(-1)}, onset ${piece.iteration}`;
  const legend = [
    ...own.map((line) => `▬ rank ${line.rank}`),
    ...(isRelative ? [] : [own.length ? "┄ median of all ranks" : "▬ median", drawing.band ? "░ least to greatest" : ""]),
  ].filter((word) => word);
  const caption = h("figcaption", null, name(what), h("span", { class: "since" }, legend.join("  ")));
  return h("figure", { class: "evidence-chart" }, caption, mini({ ...drawing, title }), table(drawing, piece));
}

/** The median; where no value was finite, what was there instead. */
function told(columns) {
  return columns.median.map((value, at) => (columns.reported[at] === 0 ? null : value));
}

function ownLines(matrix, iteration) {
  if (!matrix || matrix.values.length === 0) return [];
  const place = new Map(matrix.iteration.map((at, row) => [at, row]));
  return matrix.ranks.map((rank, column) => ({
    name: `rank ${rank}`,
    rank,
    kind: "own",
    values: iteration.map((at) => (place.has(at) ? matrix.values[place.get(at)][column] : null)),
  }));
}

function ratio(values, median) {
  return values.map((value, at) => (typeof value === "number" && typeof median[at] === "number" && median[at] !== 0 ? value / median[at] - 1 : typeof value === "string" ? value : null));
}

function shiftLevels({ detail }) {
  const levels = [
    { name: "as its peers", value: 0, kind: "baseline" },
    { name: "shift", value: detail.relative_shift, kind: "threshold" },
  ];
  return typeof detail.sigma === "number" ? [...levels, { name: "one deviation", value: Math.sign(detail.relative_shift || 1) * Math.expm1(detail.sigma), kind: "baseline" }] : levels;
}

/** The lines of a decision on the axis of its metric, as far as its numbers give them. */
function levelsOf({ detector, metric, statistic, threshold, detail = {} }) {
  const { baseline, peak, level, before, after, expected, got } = detail;
  const levels = [];
  const add = (word, given, kind) => typeof given === "number" && levels.push({ name: word, value: given, kind });
  add("baseline", baseline, "baseline");
  add("level", level, "baseline");
  add("before", before, "baseline");
  add("after", after, "threshold");
  add("expected", expected, "baseline");
  add("got", got, "threshold");
  if (detector === "explosion" && [baseline, peak, statistic, threshold].every((one) => typeof one === "number") && statistic > 0) {
    // statistic = (peak − baseline) / unit, of a gradient norm in logarithms
    const isLog = metric.includes("grad_norm") && baseline > 0;
    const unit = (isLog ? Math.log(peak / baseline) : peak - baseline) / statistic;
    add("threshold", isLog ? baseline * Math.exp(threshold * unit) : baseline + threshold * unit, "threshold");
  }
  if (detector === "curve_drift" && typeof detail.sigma_of_8_points === "number" && typeof threshold === "number") add("threshold", baseline + threshold * detail.sigma_of_8_points, "threshold");
  if (detector === "nonfinite" && metric.startsWith("nonfinite_")) add("threshold", threshold, "threshold");
  return levels;
}

/** The measured number as a bar, and where it was too much. */
function gauge({ statistic, threshold, detector }) {
  if (typeof statistic !== "number" || typeof threshold !== "number" || threshold <= 0) return null;
  const full = 1.1 * Math.max(Math.abs(statistic), threshold);
  const x = (value) => (400 * Math.abs(value)) / full;
  const bar = svg("rect", { class: "measured", x: 0, y: 5, width: x(statistic), height: 10 });
  const rule = svg("path", { class: "rule", d: `M${x(threshold).toFixed(1)} 0V20` });
  const title = svg("title", null, `${spaced(detector)}: measured ${number(statistic)}, threshold ${number(threshold)}`);
  const words = h("span", { class: "since" }, `${number(statistic)} measured ${Math.abs(statistic) >= threshold ? "≥" : "<"} ${number(threshold)} threshold ┃`);
  return h("div", { class: "gauge" }, svg("svg", { viewBox: "0 0 400 20", role: "img", preserveAspectRatio: "none" }, title, bar, rule), words);
}

function table({ iteration, lines }, piece) {
  const place = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the chart" });
  const details = h("details", null, h("summary", null, "Table"), place);
  details.addEventListener("toggle", () => {
    if (!details.open || place.children.length) return;
    const at = iteration.findIndex((one) => one >= piece.iteration);
    const rows = iteration.map((_, row) => row).slice(Math.max(0, at - 20), Math.max(0, at) + 40);
    const head = h("tr", null, h("th", { scope: "col" }, "Iteration"), lines.map((line) => h("th", { scope: "col" }, line.name)));
    const body = rows.map((row) => h("tr", null, h("th", { scope: "row" }, number(iteration[row])), lines.map((line) => h("td", null, number(line.values[row])))));
    place.append(h("table", { class: "plain" }, h("thead", null, head), h("tbody", null, body)));
  });
  return details;
}
