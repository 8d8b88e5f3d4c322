// Ranks × iterations of one metric: the worst of each cell, with a mark for everything that is no number.

import { go, link, note, read } from "./address.js";
import { get } from "./api.js";
import { attemptChoice } from "./charts.js";
import { bind } from "./keys.js";
import { brief, fill, h, name } from "./dom.js";
import { Heat, MARKS, cellOf } from "./heatcells.js";
import { frame } from "./views.js";
import { counted, number } from "./words.js";

const CELL_PX = 6; // the least on which a mark can be told from another
const LABELS_PX = 110;
const AROUND = 64;
const MOST_ROWS = 100;
const MOST_CELLS = 20_000; // what the API gives by default
const WORST = 15;
const STANDS_OUT = 8; // deviations from its peers; below it a value is one of many
const REST = 10; // times as long as an answer took until it is asked for again while nothing else is looked at
let last = { key: "", tookMs: 0 };
let heat = null;
let asked = null;

/** Show the heat map of a run; resolves once it is drawn. */
export async function showRanks(root, view, signal, again) {
  const { run, incident } = await frame(root, view, "ranks", signal, lay);
  const { verdict } = await get(`/v1/runs/${encodeURIComponent(run.run_id)}/verdict`, signal);
  const one = incident ?? (run.incident_id === null ? null : await get(`/v1/incidents/${encodeURIComponent(run.incident_id)}`, signal));
  const metric = view.metric ?? chosen(verdict.coverage.metrics, one?.incident);
  if (metric === null) return void fill(part("told"), 0, () => "No metric of this run is known yet.");
  asked = { run, one, metric, view, verdict };
  if (!part("told").textContent) fill(part("told"), "reading", () => h("p", { class: "since" }, "Reading what the ranks reported…"));
  const map = await asNew({ view, run, one, metric }, signal, again);
  fill(part("controls"), [map.attempts, map.ways, map.by, metric, verdict.coverage.metrics, view, one?.id], () => controls(map));
  fill(part("told"), [map, one?.id], () => told(map));
  part("picture").hidden = !map.rows.length;
  if (map.rows.length) heat.show(map, placeOf(one, map));
  fill(part("legend"), map, () => (map.rows.length ? legend(map) : []));
  fill(part("worst"), [map, run.run_id], () => (map.rows.length ? worst(map) : []));
  bind({
    w: ["where single ranks are kept", () => move({ from: null, to: null, ranks: null })],
    z: ["around the onset", () => onset() && move(onset())],
    u: ["back to the run", () => go({ run: run.run_id, incident: view.incident })],
  });
}

function lay() {
  const box = h("div", { id: "heat-picture" });
  heat = new Heat(box, { open, zoom });
  const places = ["controls", "told"].map((key) => h("div", { id: `heat-${key}` }));
  const after = ["legend", "worst"].map((key) => h("div", { id: `heat-${key}` }));
  return [h("section", { class: "card heat" }, ...places, box, ...after)];
}

function part(key) {
  return document.getElementById(`heat-${key}`);
}

/** The answer, asked for anew where that is not too dear: of 100 000 ranks it takes the service seconds. */
async function asNew(about, signal, again) {
  const key = JSON.stringify([about.view, about.run.run_id, about.metric, about.one?.incident.first]);
  const restMs = last.key === key ? last.at + REST * last.tookMs - Date.now() : 0;
  if (restMs > 0) {
    clearTimeout(last.timer);
    last.timer = setTimeout(again, restMs);
    return last.map;
  }
  const begun = Date.now();
  const map = await ask(about, signal);
  last = { key, map, at: Date.now(), tookMs: Date.now() - begun };
  return map;
}

async function ask({ view, run, one, metric }, signal) {
  const width = part("picture").parentElement.clientWidth || 800;
  const columns = Math.max(30, Math.min(400, Math.floor((width - LABELS_PX - 32) / CELL_PX)));
  const query = new URLSearchParams({ metric, columns, rows: Math.min(MOST_ROWS, Math.floor(MOST_CELLS / columns)) });
  const attempt = view.attempt ?? one?.incident.first.attempt ?? null;
  if (attempt !== null) query.set("attempt", attempt);
  const isOfIt = one !== null && Number(attempt) === one.incident.first.attempt;
  const around = view.from === null && view.to === null && isOfIt ? onset(one) : null;
  const [from, to] = around ? [around.from, around.to] : [view.from, view.to];
  if (from !== null) query.set("from", from);
  if (to !== null) query.set("to", to);
  for (const key of ["by", "ranks"]) if (view[key] !== null) query.set(key, view[key]);
  try {
    return await get(`/v1/runs/${encodeURIComponent(run.run_id)}/heatmap?${query}`, signal);
  } catch (error) {
    if (error.kind !== "not-kept") throw error;
    // no history of the run yet, or not of what the address names
    return { run_id: run.run_id, metric, attempt, by: "rank", ways: ["rank"], kept: [], rows: [], columns: { iteration: [], last_iteration: [] } };
  }
}

/** The metric that an incident is seen in, else the loss. */
function chosen(metrics, incident) {
  const wanted = [incident?.first.metric, ...(incident?.evidence ?? []).map((piece) => piece.metric), "loss", "local_grad_norm", "grad_norm", ...metrics];
  return wanted.find((metric) => metrics.includes(metric)) ?? null;
}

function onset(one = asked?.one) {
  if (!one) return null;
  const [low, high] = one.incident.first.interval;
  const end = Math.max(high ?? 0, one.incident.detected_at_iteration);
  return { from: Math.max(0, (low ?? one.incident.first.iteration) - AROUND), to: end + AROUND };
}

function placeOf(one, map) {
  if (!one || one.incident.first.attempt !== map.attempt) return null;
  const { iteration, ranks } = one.incident.first;
  return { iteration, ranks };
}

function move(change) {
  note({ ...read(), ...change });
  dispatchEvent(new Event("popstate"));
}

function zoom({ from, to, ranks }) {
  move({ from, to, ...(ranks === undefined ? {} : { ranks }) });
}

/** Go to the run at the place of a cell. */
function open(iteration) {
  const { run, view } = asked;
  go({ run: run.run_id, incident: view.incident, attempt: view.attempt, from: Math.max(0, iteration - AROUND), to: iteration + AROUND });
}

function controls(map) {
  const { metric, view, verdict, one } = asked;
  const choice = (label, key, options, chosenOne) => {
    const select = h("select", { id: `heat-by-${key}`, "data-key": `heat-${key}` }, options.map(([value, word]) => h("option", { value, selected: value === chosenOne }, word)));
    select.addEventListener("change", () => move({ [key]: select.value }));
    return h("label", null, label, " ", select);
  };
  const button = (word, change, isOff) => {
    const made = h("button", { type: "button", class: "copy", "data-key": `heat-${word}`, disabled: isOff }, word);
    made.addEventListener("click", () => move(change));
    return made;
  };
  const near = onset(one);
  return h(
    "div",
    { class: "controls" },
    choice("Metric", "metric", verdict.coverage.metrics.map((each) => [each, brief(each)]), metric),
    choice("Rows by", "by", map.ways.map((way) => [way, way]), map.by),
    attemptChoice(map),
    near ? button("Around the onset", near, view.from === String(near.from) || (view.from === null && view.to === null)) : null,
    button("Where ranks are kept", { from: map.kept[0]?.[0] ?? null, to: map.kept.at(-1)?.[1] ?? null, ranks: null }, !map.kept.length),
    button("Whole run", { from: 0, to: null, ranks: null }, view.from === "0" && view.to === null),
    view.ranks === null ? null : button("All ranks", { ranks: null }, false),
  );
}

function told(map) {
  if (!map.rows.length) return h("p", null, "Nothing of single ranks is kept of ", name(map.metric), " there: only its newest iterations and those around incidents are. ", h("a", { href: link({ ...read(), from: 0, to: null }) }, "The whole run"));
  const { iteration, last_iteration: ends } = map.columns;
  const ranks = map.rows.reduce((sum, row) => sum + row.rank_count, 0);
  const isGrouped = map.rows.some((row) => row.rank_count > 1);
  const size = isGrouped ? `; a row is several ranks` : "";
  const wide = iteration.some((first, at) => ends[at] > first) ? "; a column is several iterations" : "";
  const cut = map.is_cut ? " Too many values to look at all: the first iterations are left out." : "";
  const extremes = map.rows.some((row) => row.marks.includes("e")) ? " Hatched columns know only who had the extremes: single ranks are no longer kept there." : "";
  return h("p", { class: "since" }, name(map.metric), `, ${counted(ranks, "rank")}, iterations ${number(iteration[0])} to ${number(ends.at(-1))}, attempt ${map.attempt}. Each cell shows the worst of what lies in it${size}${wide}.${cut}${extremes} Drag to zoom, click to go to the run there; arrow keys move, Enter opens.`);
}

function legend(map) {
  const found = [];
  for (const [letter, { word, sign }] of Object.entries(MARKS)) {
    const cells = map.rows.reduce((sum, row) => sum + row.marks.split(letter).length - 1, 0);
    const unknown = map.any.marks.includes(letter) ? "of a rank that is not known" : null;
    if (cells || (letter !== "." && unknown)) found.push(h("li", null, h("span", { class: `sign s-${word.replaceAll(" ", "-")}`, "aria-hidden": "true" }, sign), ` ${word}: `, cells ? counted(cells, "cell") : unknown));
  }
  const steps = [0, 2, 4, 8, 16].map((low, at) => h("span", { class: `step d${at}` }, at === 4 ? "≥ 16" : `${low}–${[2, 4, 8, 16][at]}`));
  return [h("p", { class: "scale" }, "Value, by standard deviations from its peers: ", steps), h("ul", { class: "legend" }, found)];
}

/** The worst cells as a table: what the picture shows, in words. */
function worst(map) {
  const cells = map.rows.flatMap((row) => [...row.marks].flatMap((letter, at) => (letter === " " ? [] : [cellOf(map, row, at)])));
  cells.sort((a, b) => MARKS[b.letter].order - MARKS[a.letter].order || (b.score ?? 0) - (a.score ?? 0) || a.iteration - b.iteration);
  const rows = cells
    .filter((cell) => MARKS[cell.letter].order > 1 || cell.score >= STANDS_OUT)
    .slice(0, WORST).map((cell) => {
    const anchor = h("a", { href: link({ run: map.run_id, incident: asked.view.incident, attempt: map.attempt, from: Math.max(0, cell.iteration - AROUND), to: cell.iteration + AROUND }) }, number(cell.iteration));
    return h("tr", null, [String(cell.rank), cell.group ? name(cell.group) : "–", anchor, MARKS[cell.letter].word, number(cell.value), cell.score === null ? "–" : number(cell.score)].map((inside) => h("td", null, inside)));
  });
  if (!rows.length) return [h("h3", null, "The worst cells"), h("p", { class: "since" }, "None stands out: no value is missing, differs or lies far from its peers.")];
  const head = ["Rank", map.by === "rank" ? "Host" : "Group", "Iteration", "What", "Value", "Deviations"].map((word) => h("th", { scope: "col" }, word));
  return [h("h3", null, "The worst cells"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The worst cells" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows)))];
}
