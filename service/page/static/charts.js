// Which curves of a run to draw, and when: plotly.js is fetched for the first of them, and a zoom asks
// the API for the part that is looked at.

import { note, read } from "./address.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { brief, fill, h, name, visible } from "./dom.js";
import { counted, number } from "./words.js";

const MOST = 4;
const MOST_CHOSEN = 12;
const POINTS = 600; // about as many as a chart is wide: extremes stay in any number
const MARGIN = 64; // iterations on both sides of an onset: enough to see what was normal
const AT_LEAST_MS = 2_000;
const MOST_LINES = 64; // more single ranks than these are a blot
const MOST_CELLS = 40_000; // values of single ranks asked for at once: 400 kB
const MOST_ITERATIONS = 500; // of a longer part single ranks would hide what their median does
const MOST_FOR_SUSPECTS = 2_000; // iterations whose single values are looked through, which lie in many small files
const SUSPECTS = 4;
let plotly = null;

/** The curves of one run, one below the other. */
export class Charts {
  #places = new Map();
  #shownAt = 0;
  #print = "";
  #onset = null;

  constructor(slot) {
    this.slot = slot;
    this.heading = h("p", { class: "since" });
    this.legend = h("p", { class: "lines" });
    this.more = h("p", { class: "controls" });
    this.near = h("button", { type: "button", class: "copy" }, "Around the onset");
    this.whole = h("button", { type: "button", class: "copy" }, "Whole run");
    this.whole.addEventListener("click", () => zoom(null));
    this.near.addEventListener("click", () => zoom(this.#onset));
    slot.replaceChildren(h("div", { class: "caption" }, h("h3", null, "Curves"), h("span", { class: "grow" }), this.near, this.whole), this.heading, this.legend, this.more);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const { chart } of this.#places.values()) chart.redraw();
    });
  }

  /** The onset as a part to look at; null without an incident. */
  nearOnset() {
    if (this.#onset !== null) zoom(this.#onset);
  }

  /** Draw what `told` (run, verdict, incident, view) needs; a run that lives is drawn anew now and then.
   *  `asked` is what `askCurves` gave, where it was called before. */
  async show(told, signal, asked = null) {
    const print = JSON.stringify([told.incident, told.view, told.verdict.annotations]);
    if (print === this.#print && Date.now() - this.#shownAt < AT_LEAST_MS) return;
    this.#print = print;
    this.#shownAt = Date.now();
    const all = told.verdict.coverage.metrics;
    const metrics = chosen(all, told);
    const answers = await (asked ?? askCurves(told, signal));
    const kept = answers.filter((one) => one?.columns.iteration.length);
    this.#say(kept, told);
    fill(this.legend, [kept.length, told.verdict.coverage.ranks, told.incident?.first.ranks], () => (kept.length ? legend(told) : []));
    this.#offer(kept, told);
    fill(this.more, [metrics, all, told.view, kept[0]?.attempts], () => [...choice(metrics, all), kept.length ? attemptChoice(kept[0]) : null]);
    for (const [metric, { box }] of this.#places) box.hidden = !kept.some((one) => one.metric === metric);
    if (!kept.length) return;
    const library = await loadPlotly();
    if (library === null) {
      this.heading.textContent = "The drawing library could not be loaded.";
      return;
    }
    for (const one of kept) {
      this.#place(one.metric).draw(library, one, told, []);
      await new Promise((resume) => setTimeout(resume)); // the first is seen before the next is drawn
    }
    for (const one of kept) {
      const lines = await ranksOf(told, one, signal);
      if (lines.length) this.#place(one.metric).draw(library, one, told, lines);
    }
  }

  #place(metric) {
    if (!this.#places.has(metric)) {
      const box = h("figure", { class: "chart" });
      this.slot.append(box);
      this.#places.set(metric, { box, chart: new Chart(box, zoom) });
    }
    return this.#places.get(metric).chart;
  }

  #offer(kept, { incident, view }) {
    const [low, high] = incident?.first.interval ?? [null, null];
    const begin = low ?? incident?.first.iteration;
    this.#onset = begin === undefined ? null : [Math.max(0, begin - MARGIN), high + MARGIN];
    this.near.hidden = !kept.length || this.#onset === null || view.from === String(this.#onset[0]);
    this.whole.hidden = view.from === null && view.to === null;
  }

  #say(kept, told) {
    if (!kept.length) {
      this.heading.textContent = "No curve of this run is kept.";
      return;
    }
    const { attempt, attempts } = kept[0];
    const which = attempts.length > 1 ? `attempt ${attempt} of ${attempts.join(", ")}; ` : "";
    const ranks = told.verdict.coverage.ranks;
    const band = ranks > 1 ? `median of ${counted(ranks, "rank")}, with the middle half and the extremes` : "one rank";
    const first = told.view.from ?? kept[0].columns.iteration[0];
    const span = told.view.from === null ? "" : `iterations ${number(first)} to ${number(told.view.to ?? kept[0].columns.last_iteration.at(-1))}; `;
    this.heading.textContent = `${which}${span}${band}${kept.some((one) => one.is_downsampled) ? "; thinned out so that extremes stay, zoom for all" : ""}.`;
  }
}

/** What the lines and signs of the charts mean. */
function legend({ verdict, incident }) {
  const isOne = verdict.coverage.ranks < 2;
  const suspects = incident?.first.ranks ?? [];
  const shown = [
    ["median", isOne ? "the rank" : "median"],
    isOne ? null : ["half", "middle half"],
    isOne ? null : ["wide", "least to greatest"],
    suspects.length ? ["suspect", suspects.length === 1 ? `rank ${suspects[0]}, suspected` : "suspected ranks"] : null,
    ["nan", "✕ NaN, ▲▼ infinities, each in its lane"],
    ["last", "▼ last finite value"],
    ["note", "◇ note"],
    incident ? ["begin", "onset"] : null,
  ];
  return shown.filter((one) => one !== null).map(([kind, word]) => h("span", { class: `key k-${kind}` }, word));
}

function zoom(range) {
  note({ ...read(), from: range?.[0] ?? null, to: range?.[1] ?? null });
  dispatchEvent(new Event("popstate"));
}

/** Which attempt is shown, where there are several; null for one. */
export function attemptChoice({ attempt, attempts }) {
  if ((attempts ?? []).length < 2) return null;
  const select = h("select", { "data-key": "attempt" }, attempts.map((one) => h("option", { value: one, selected: one === attempt }, `attempt ${one}`)));
  select.addEventListener("change", () => {
    note({ ...read(), attempt: select.value, from: null, to: null });
    dispatchEvent(new Event("popstate"));
  });
  return h("label", null, "Attempt ", select);
}

/** Metrics to add and to take away; which are shown is part of the address. */
function choice(shown, all) {
  const rest = all.filter((metric) => isCurve(metric) && !shown.includes(metric));
  const set = (metrics) => {
    note({ ...read(), curves: metrics.map(encodeURIComponent).join(",") });
    dispatchEvent(new Event("popstate"));
  };
  const select = h("select", { "data-key": "add-curve", "aria-label": "Add a curve" }, h("option", { value: "" }, "Add a curve…"), rest.map((metric) => h("option", { value: metric }, brief(metric))));
  select.addEventListener("change", () => select.value && set([...shown, select.value].slice(-MOST_CHOSEN)));
  const taken = shown.map((metric) => {
    const button = h("button", { type: "button", class: "copy", "data-key": `without-${metric}`, "aria-label": `Do not show ${visible(metric)}` }, name(metric), " ×");
    button.addEventListener("click", () => set(shown.filter((one) => one !== metric)));
    return button;
  });
  return [...(shown.length > 1 ? taken : []), rest.length ? select : null];
}

/** The answers of the API for the curves that `told` (run, verdict, incident, view) needs. */
export function askCurves(told, signal) {
  return Promise.all(chosen(told.verdict.coverage.metrics, told).map((metric) => curve(told, metric, signal)));
}

async function curve({ run, incident, view }, metric, signal) {
  const asked = new URLSearchParams({ metric, points: String(POINTS) });
  const attempt = view.attempt ?? incident?.first.attempt;
  if (attempt !== undefined && attempt !== null) asked.set("attempt", attempt);
  if (view.from !== null) asked.set("from", view.from);
  if (view.to !== null) asked.set("to", view.to);
  return quietly(`/v1/runs/${encodeURIComponent(run.run_id)}/curves?${asked}`, signal);
}

/** Single ranks, as far as their values are kept: all of a few over a short part, else the suspects. */
async function ranksOf({ run, incident, verdict }, { metric, attempt, columns, kept }, signal) {
  const [first, last] = [columns.iteration[0], columns.last_iteration.at(-1)];
  const { ranks } = verdict.coverage;
  if (ranks < 2 || !kept.some(([low, high]) => low <= last && high >= first)) return [];
  const base = `/v1/runs/${encodeURIComponent(run.run_id)}`;
  const part = { metric, attempt, from: first, to: last };
  const suspects = incident?.first.attempt === attempt ? incident.first.ranks.slice(0, SUSPECTS) : [];
  if (last - first >= MOST_FOR_SUSPECTS) return [];
  if (ranks <= MOST_LINES && last - first < MOST_ITERATIONS && ranks * (last - first + 1) <= MOST_CELLS) {
    const matrix = await quietly(`${base}/matrix?${new URLSearchParams(part)}`, signal);
    return (matrix?.ranks ?? []).map((rank, at) => ({ rank, isSuspect: suspects.includes(rank), x: matrix.iteration, y: matrix.values.map((row) => row[at]) }));
  }
  const answers = await Promise.all(suspects.map((rank) => quietly(`${base}/curves?${new URLSearchParams({ ...part, ranks: rank, points: POINTS })}`, signal)));
  return answers.flatMap((one, at) => (one?.columns.iteration.length ? [{ rank: suspects[at], isSuspect: true, x: one.columns.iteration, y: one.columns.median }] : []));
}

async function quietly(path, signal) {
  try {
    return await get(path, signal);
  } catch (error) {
    if (error.status === 404 || error.status === 422) return null; // nothing of it is kept
    throw error;
  }
}

function isCurve(metric) {
  return !/_checksum$/.test(metric.split("/")[0]);
}

/** What the address names, else the curves that tell most, that of the incident among them. */
function chosen(metrics, { incident, view }) {
  const named = (view.curves ?? "").split(",").map(decoded).filter((metric) => metrics.includes(metric) && isCurve(metric));
  if (named.length) return [...new Set(named)].slice(0, MOST_CHOSEN);
  const wanted = ["loss", "global_loss", incident?.first.metric, "grad_norm", "local_grad_norm", "step_time_s"].filter((metric) => metric && metrics.includes(metric) && isCurve(metric));
  const found = wanted.length ? wanted : metrics.filter(isCurve);
  return [...new Set(found)].slice(0, MOST);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Have the browser fetch plotly.js, which `loadPlotly` then runs: that keeps the page from answering for a moment. */
export function fetchPlotly() {
  const href = addressOfPlotly();
  if (document.querySelector(`link[rel=preload][href="${href}"]`) === null) document.head.append(h("link", { rel: "preload", as: "script", href }));
}

/** plotly.js, run once; null, and to be tried again, where it could not be fetched. */
export function loadPlotly() {
  plotly ??= new Promise((done) => {
    const script = h("script", { src: addressOfPlotly() });
    script.addEventListener("load", () => done(globalThis.Plotly));
    script.addEventListener("error", () => {
      plotly = null;
      done(null);
    });
    document.head.append(script);
  });
  return plotly;
}

function addressOfPlotly() {
  return document.querySelector("meta[name=plotly]").content;
}
