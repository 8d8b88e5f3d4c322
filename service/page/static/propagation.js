// How an incident spread: lanes of ranks, columns of phases in causal order, and what carried it.

import { Problem, get } from "./api.js";
import { fill, h, name, visible } from "./dom.js";
import { frame } from "./views.js";
import { counted, number, rankList, spaced } from "./words.js";

const SIGNS = { bad: "✖", tie: "?", waits: "…", fine: "·", none: "" };
const WORDS = { bad: "bad", tie: "differs, no majority", waits: "waits for others", fine: "reported, nothing bad", none: "not reported" };
const ROLES = { suspect: "◆ suspect", victim: "▽ victim", affected: "▽ affected", clean: "○ clean" };

/** Show how the incident of a run spread, in `root`. */
export async function showPropagation(root, view, signal) {
  const { run, incident } = await frame(root, view, "propagation", signal, () => [h("div", { id: "propagation" })]);
  const asked = incident === null ? "" : `?incident=${encodeURIComponent(incident.id)}`;
  const told = await get(`/v1/runs/${encodeURIComponent(run.run_id)}/propagation${asked}`, signal).catch((error) => {
    if (error instanceof Problem && error.status === 404) return error;
    throw error;
  });
  const slot = root.querySelector("#propagation");
  if (told instanceof Problem) {
    fill(slot, told.message, () => h("section", { class: "card" }, h("h2", null, "Nothing spread"), h("p", null, visible(told.message))));
    return;
  }
  const sentence = incident?.sentence ?? run.sentence;
  fill(slot, [told, sentence], () => [h("p", { class: "sentence" }, visible(sentence)), notes(told), told.columns.length ? [order(told), lanes(told)] : null, legend(told)]);
}

function notes(told) {
  const lines = [...told.notes];
  if (told.told_by === "evidence") lines.push("only the evidence tells: what single ranks reported around it is not kept");
  if (told.are_columns_cut) lines.push(`only the first ${told.columns.length} phases are shown`);
  return lines.length ? h("ul", { class: "card order" }, lines.map((line) => h("li", null, visible(line)))) : null;
}

/** In words, column by column, who turned bad and how that can have come. */
function order(told) {
  const isBad = (cell) => cell === "bad" || cell === "tie";
  const items = told.columns.map((one, at) => {
    const waits = told.lanes.some((lane) => lane.cells[at] === "waits");
    if (!one.new_ranks && !waits) return null;
    const begun = told.lanes.filter((lane) => (isBad(lane.cells[at]) && !lane.cells.slice(0, at).some(isBad)) || (waits && lane.cells[at] === "waits"));
    const who = begun.map((lane) => `${lane.role} ${lane.rank_count === 1 ? "rank" : "ranks"} ${rankList(lane.ranks, lane.rank_count)}`).join("; ");
    const seen = [", seen in ", one.metrics.slice(0, 4).map((metric, place) => [place ? ", " : "", name(metric)])];
    const words = waits && !one.new_ranks ? `: ${one.via}: ${who}` : [`: ${who}`, ...seen, one.via ? `, through ${one.via}` : ""];
    return h("li", null, h("b", null, `iteration ${number(one.iteration)}, ${spaced(one.phase)}`), words);
  });
  return h("section", { class: "card" }, h("h3", null, "In order"), h("ol", { class: "steps" }, items));
}

function lanes(told) {
  const sizes = [];
  for (const { iteration } of told.columns) {
    if (sizes.at(-1)?.[0] === iteration) sizes.at(-1)[1] += 1;
    else sizes.push([iteration, 1]);
  }
  const corner = h("th", { scope: "col", rowspan: 2 }, "Ranks");
  const tops = sizes.map(([iteration, span]) => h("th", { scope: "colgroup", colspan: span }, `iteration ${number(iteration)}`));
  const phases = told.columns.map((one) => h("th", { scope: "col", title: one.metrics.map(visible).join(", ") }, spaced(one.phase)));
  const body = [...told.lanes.map((lane) => row(lane, told.columns)), carried(told), shown(told)];
  const table = h("table", { class: "lanes" }, h("thead", null, h("tr", null, corner, tops), h("tr", null, phases)), h("tbody", null, body));
  const hidden = told.hidden_lanes ? h("p", null, `and ${counted(told.hidden_lanes, "more lane")}`) : null;
  return h("section", { class: "card" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranks by phase" }, table), hidden);
}

function row(lane, columns) {
  const hosts = lane.hosts.length ? h("span", { class: "since" }, "on ", lane.hosts.map((host, at) => [at ? ", " : "", name(host)]), lane.rank_count > lane.ranks.length ? " …" : "") : null;
  const who = h("th", { scope: "row" }, h("b", null, ROLES[lane.role]), ` ${lane.rank_count === 1 ? "rank" : `${number(lane.rank_count)} ranks:`} ${rankList(lane.ranks, lane.rank_count)}`, hosts);
  const begun = lane.cells.findIndex((cell) => cell !== "fine" && cell !== "none");
  const cells = lane.cells.map((cell, at) => {
    const metrics = columns[at].metrics.map(visible).join(", ");
    const words = lane.role === "clean" ? "nothing bad" : WORDS[cell];
    return h("td", { class: `${cell}${at === begun ? " begun" : ""}`, title: `${words}: ${metrics}` }, lane.role === "clean" ? SIGNS.fine : SIGNS[cell], h("span", { class: "offscreen" }, ` ${words}`));
  });
  return h("tr", { class: lane.role }, who, cells);
}

/** What brought it to the ranks that turned bad in each column. */
function carried(told) {
  const cells = told.columns.map((one) => h("td", null, one.via ? `${one.new_ranks ? `${counted(one.new_ranks, "rank")} more, through ` : ""}${one.via}` : ""));
  return h("tr", { class: "via" }, h("th", { scope: "row" }, "Through"), cells);
}

function shown(told) {
  const cells = told.columns.map((one) => h("td", null, one.metrics.map((metric, at) => [at ? ", " : "", name(metric)])));
  return h("tr", { class: "via" }, h("th", { scope: "row" }, "Seen in"), cells);
}

function legend(told) {
  if (!told.columns.length) return null;
  return h("p", { class: "since legend-line" }, ["bad", "tie", "waits", "fine"].map((key) => h("span", { class: "cell" }, h("b", null, SIGNS[key]), ` ${WORDS[key]}`)), h("span", { class: "cell" }, h("b", null, "▏"), " bad for the first time"));
}
