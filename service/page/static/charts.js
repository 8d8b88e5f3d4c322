// Which curves of a run to draw, and when: plotly.js is fetched for the first of them, and a zoom asks
// the API for the part that is looked at.

import { note, read } from "./address.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { Chart } from "./chart.js";
import { counted } from "./words.js";

const MOST = 3;
const POINTS = 1000;
const MARGIN = 64; // iterations on both sides of an onset: enough to see what was normal
const AT_LEAST_MS = 2_000;
let plotly = null;

/** The curves of one run; at most `MOST`, one below the other. */
export class Charts {
  #places = new Map();
  #shownAt = 0;
  #print = "";
  #onset = null;

  constructor(slot) {
    this.slot = slot;
    fetchPlotly(); // beside what the words need, not after it
    this.heading = h("p", { class: "since" });
    this.near = h("button", { type: "button", class: "copy" }, "Around the onset");
    this.whole = h("button", { type: "button", class: "copy" }, "Whole run");
    this.whole.addEventListener("click", () => this.#zoom(null));
    this.near.addEventListener("click", () => this.#zoom(this.#onset));
    slot.replaceChildren(h("div", { class: "caption" }, h("h3", null, "Curves"), h("span", { class: "grow" }), this.near, this.whole), this.heading);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const { chart } of this.#places.values()) chart.redraw();
    });
  }

  /** Draw what `told` (run, verdict, incident, view) needs; a run that lives is drawn anew now and then. */
  async show(told, signal) {
    const print = JSON.stringify([told.incident, told.view, told.verdict.annotations]);
    if (print === this.#print && Date.now() - this.#shownAt < AT_LEAST_MS) return;
    this.#print = print;
    this.#shownAt = Date.now();
    const metrics = chosen(told.verdict.coverage.metrics, told.incident?.first.metric);
    const answers = await Promise.all(metrics.map((metric) => curve(told, metric, signal)));
    const kept = answers.filter((one) => one?.columns.iteration.length);
    this.#say(kept, told);
    this.#offer(kept, told);
    if (!kept.length) return;
    const library = await fetchPlotly();
    if (library === null) {
      this.heading.textContent = "The drawing library could not be loaded.";
      return;
    }
    for (const one of kept) {
      this.#place(one.metric).chart.draw(library, one, told);
      await new Promise((resume) => setTimeout(resume)); // the first is seen before the next is drawn
    }
    for (const [metric, { box }] of this.#places) box.hidden = !kept.some((one) => one.metric === metric);
  }

  #place(metric) {
    if (!this.#places.has(metric)) {
      const box = h("figure", { class: "chart" });
      this.slot.append(box);
      this.#places.set(metric, { box, chart: new Chart(box, (range) => this.#zoom(range)) });
    }
    return this.#places.get(metric);
  }

  #zoom(range) {
    note({ ...read(), from: range?.[0] ?? null, to: range?.[1] ?? null });
    dispatchEvent(new Event("popstate"));
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
    this.heading.textContent = `${which}${band}${kept.some((one) => one.is_downsampled) ? "; thinned out so that extremes stay, zoom for all" : ""}.`;
  }
}

async function curve({ run, incident, view }, metric, signal) {
  const asked = new URLSearchParams({ metric, points: String(POINTS) });
  const attempt = view.attempt ?? incident?.first.attempt;
  if (attempt !== undefined && attempt !== null) asked.set("attempt", attempt);
  if (view.from !== null) asked.set("from", view.from);
  if (view.to !== null) asked.set("to", view.to);
  try {
    return await get(`/v1/runs/${encodeURIComponent(run.run_id)}/curves?${asked}`, signal);
  } catch (error) {
    if (error.status === 404 || error.status === 422) return null; // nothing of it is kept
    throw error;
  }
}

function chosen(metrics, first) {
  const isCurve = (metric) => !/_checksum$/.test(metric.split("/")[0]) && metrics.includes(metric);
  const wanted = ["loss", "global_loss", first, "grad_norm", "local_grad_norm"].filter((metric) => metric && isCurve(metric));
  const found = wanted.length ? wanted : metrics.filter(isCurve);
  return [...new Set(found)].slice(0, MOST);
}

/** plotly.js, fetched once; null, and to be tried again, where that failed. */
function fetchPlotly() {
  const address = document.querySelector("meta[name=plotly]").content;
  plotly ??= new Promise((done) => {
    const script = h("script", { src: address });
    script.addEventListener("load", () => done(globalThis.Plotly));
    script.addEventListener("error", () => {
      plotly = null;
      done(null);
    });
    document.head.append(script);
  });
  return plotly;
}
