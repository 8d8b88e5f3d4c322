// What a chart shows beside its band: single ranks, the last finite value before a stretch that is not, a table.

import { h } from "./dom.js";
import { number } from "./words.js";

const ROWS = 120;
const HEAD = ["Iteration", "Median", "Least", "Rank", "Greatest", "Rank", "Reported", "NaN", "Infinity", "-Infinity", "Not reported"];
const KEYS = ["median", "min", "min_rank", "max", "max_rank", "reported", "nan", "posinf", "neginf", "missing"];

/** A thin line for each rank; those under suspicion stand out, dashed. */
export function rankLines(lines, look) {
  return lines.map(({ rank, isSuspect, x, y }) => ({
    type: "scatter",
    mode: "lines",
    name: `rank ${rank}`,
    x,
    y: y.map((value) => (typeof value === "number" ? value : null)),
    connectgaps: false,
    zorder: 1,
    opacity: isSuspect ? 0.85 : 0.35,
    line: { width: isSuspect ? 1.2 : 0.8, color: isSuspect ? look.bad : look.line, dash: isSuspect ? "dot" : "solid" },
    hovertemplate: `rank ${rank}: %{y} at iteration %{x}<extra></extra>`,
    showlegend: false,
  }));
}

/** A triangle at each last finite value before all that was reported is none. */
export function lastFinite(columns, look) {
  const isFinite = (at) => typeof columns.median[at] === "number";
  const places = columns.median.flatMap((_, at) => (at + 1 < columns.median.length && isFinite(at) && !isFinite(at + 1) && columns.reported[at + 1] > 0 ? [at] : []));
  return {
    type: "scatter",
    mode: "markers",
    name: "last finite value",
    x: places.map((at) => columns.last_iteration[at]),
    y: places.map((at) => columns.median[at]),
    marker: { symbol: "triangle-down", size: 10, color: look.bad },
    text: places.map((at) => `last finite value ${number(columns.median[at])}<br>iteration ${number(columns.last_iteration[at])}`),
    hoverinfo: "text",
    showlegend: false,
  };
}

/** The numbers of a chart, filled in when it is opened: around the onset where there is one, else from the end. */
export class Table {
  constructor() {
    this.place = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the chart" });
    this.details = h("details", { class: "table" }, h("summary", null, "Table"), this.place);
    this.details.addEventListener("toggle", () => this.#fill());
  }

  /** Take the columns that are drawn now. */
  show(columns, onset) {
    this.columns = columns;
    this.onset = onset;
    this.#fill();
  }

  #fill() {
    if (!this.details.open || !this.columns) return;
    const { iteration, last_iteration: last } = this.columns;
    const at = this.onset === null ? iteration.length : last.findIndex((end) => end >= this.onset);
    const begin = Math.max(0, Math.min(at - ROWS / 3, iteration.length - ROWS));
    const rows = iteration.slice(begin, begin + ROWS).map((first, row) => {
      const span = first === last[begin + row] ? number(first) : `${number(first)}–${number(last[begin + row])}`;
      const cells = KEYS.map((key) => {
        const value = this.columns[key][begin + row];
        return h("td", { class: typeof value === "string" ? "nonfinite" : null }, number(value));
      });
      return h("tr", { class: begin + row === at ? "here" : null }, h("th", { scope: "row" }, span), cells);
    });
    const hidden = iteration.length - rows.length;
    const caption = hidden > 0 ? h("caption", null, `${rows.length} of ${iteration.length} rows; zoom to see others`) : null;
    this.place.replaceChildren(h("table", { class: "plain" }, caption ?? "", h("thead", null, h("tr", null, HEAD.map((word) => h("th", { scope: "col" }, word)))), h("tbody", null, rows)));
  }
}
