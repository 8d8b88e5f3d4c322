// One metric over iterations. Values that are not finite have a lane of their own: plotly.js would turn
// them into gaps without a word.

import { Table, lastFinite, rankLines } from "./chartextras.js";
import { brief, h, name, visible } from "./dom.js";
import { number, spaced } from "./words.js";

const LOG_RATIO = 100; // from here on the lower part of a linear axis is a flat line
const LANE = [
  ["nan", "NaN", "x-thin-open", 1],
  ["posinf", "Infinity", "triangle-up", 2],
  ["neginf", "-Infinity", "triangle-down", 0],
];
const CONFIG = {
  displayModeBar: false, // its buttons cannot be reached by keyboard; ours can
  responsive: true,
};

/** A figure that is drawn again in place. */
export class Chart {
  #isLog = null;
  #last = null;

  constructor(box, zoom) {
    this.box = box;
    this.zoom = zoom;
    this.caption = h("figcaption");
    this.scale = h("button", { type: "button", class: "copy" });
    this.plot = h("div", { class: "plot" });
    this.scale.addEventListener("click", () => {
      this.#isLog = !this.#isLog;
      this.redraw();
    });
    box.append(h("div", { class: "caption" }, this.caption, h("span", { class: "grow" }), this.scale), this.plot);
    this.table = new Table();
    box.append(this.table.details);
  }

  /** Draw a curve of the API, and the single ranks that are known. */
  draw(plotly, curve, told, lines) {
    this.#last = [plotly, curve, told, lines];
    const columns = curve.columns;
    this.#isLog ??= curve.metric.split("/")[0].includes("grad_norm") || isWide(columns);
    const look = theme(this.box);
    this.caption.replaceChildren(name(curve.metric));
    this.scale.textContent = this.#isLog ? "Linear scale" : "Log scale";
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", summary(curve));
    const signs = [...lane(columns, look), notes(told, curve, look), lastFinite(columns, look)].filter((one) => one.x.length);
    const traces = [...bands(columns, look, this.#isLog), ...signs, ...rankLines(lines, look)];
    const isNew = !this.plot.classList.contains("js-plotly-plot");
    plotly.react(this.plot, traces, layout(columns, told, curve, look, this.#isLog), CONFIG);
    this.table.show(columns, told.incident?.first.attempt === curve.attempt ? told.incident.first.iteration : null);
    if (isNew) this.plot.on("plotly_relayout", (change) => this.#moved(change));
  }

  /** Draw the same again: other colours, or another scale. */
  redraw() {
    if (this.#last) this.draw(...this.#last);
  }

  #moved(change) {
    if (change["xaxis.autorange"]) this.zoom(null);
    const [low, high] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (low !== undefined) this.zoom([Math.max(0, Math.floor(low)), Math.max(0, Math.ceil(high))]);
  }
}

function bands(columns, look, isLog) {
  const line = {
    type: "scatter",
    mode: columns.iteration.length > 1 ? "lines" : "markers",
    name: "median",
    x: columns.iteration,
    y: finite(columns.median),
    line: { width: 1.6, color: look.line },
    zorder: 2, // above single ranks
    text: columns.median.map((_, at) => words(columns, at)),
    hoverinfo: "text",
    showlegend: false,
  };
  return [area(columns, ["min", "max"], look.wide, isLog), area(columns, ["p25", "p75"], look.half, isLog), line];
}

/** What lies between two columns, as an outline for each stretch that has both: drawn in half the time of two edges. */
function area(columns, [low, high], color, isLog) {
  const [floors, tops] = [finite(columns[low]), finite(columns[high])];
  // a logarithmic axis has no place for what is not positive: the area goes down to the least that has one
  const least = isLog ? Math.min(...[...floors, ...tops, ...finite(columns.median)].filter((value) => value > 0)) : -Infinity;
  const [x, y] = [[], []];
  let stretch = [];
  const close = () => {
    const back = stretch.toReversed();
    x.push(...stretch.map((at) => columns.iteration[at]), ...back.map((at) => columns.iteration[at]), null);
    y.push(...stretch.map((at) => tops[at]), ...back.map((at) => Math.max(least, floors[at])), null);
    stretch = [];
  };
  for (let at = 0; at < floors.length; at += 1) {
    if (floors[at] !== null && tops[at] !== null && tops[at] >= least) stretch.push(at);
    else if (stretch.length) close();
  }
  if (stretch.length) close();
  return { type: "scatter", mode: "lines", name: `${low} to ${high}`, x, y, line: { width: 0 }, fill: "toself", fillcolor: color, hoverinfo: "skip", showlegend: false };
}

function lane(columns, look) {
  return LANE.map(([kind, text, symbol, height]) => {
    const places = columns[kind].flatMap((count, at) => (count > 0 ? [at] : []));
    return {
      type: "scatter",
      mode: "markers",
      name: text,
      x: places.map((at) => columns.iteration[at]),
      y: places.map(() => height),
      yaxis: "y2",
      marker: { symbol, size: 7, color: look.bad, line: { width: 1.6, color: look.bad } },
      text: places.map((at) => `${text} (${columns[kind][at]} of ${columns.reported[at]} values)<br>${span(columns, at)}`),
      hoverinfo: "text",
      showlegend: false,
    };
  });
}

function notes({ verdict }, { attempt, columns }, look) {
  const [low, high] = [columns.iteration[0], columns.last_iteration.at(-1)];
  const mine = verdict.annotations.filter((one) => one.attempt === attempt && one.iteration >= low && one.iteration <= high);
  return {
    type: "scatter",
    mode: "markers",
    x: mine.map((one) => one.iteration),
    y: mine.map(() => 1),
    yaxis: "y3",
    marker: { symbol: "diamond-open", size: 8, color: look.ink },
    text: mine.map((one) => escaped(`${spaced(one.kind)} at iteration ${one.iteration} ${inWords(one.detail)}`)),
    hoverinfo: "text",
    showlegend: false,
  };
}

function layout(columns, told, curve, look, isLog) {
  const hasLane = LANE.some(([kind]) => columns[kind].some((count) => count > 0));
  const axis = { gridcolor: look.grid, linecolor: look.grid, zeroline: false, tickfont: { color: look.ink } };
  const { shapes, annotations } = marks(told, curve, look);
  return {
    autosize: true,
    height: 300,
    margin: { l: 56, r: 12, t: 26, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "inherit", size: 12, color: look.ink },
    hovermode: "closest",
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    // a zoom is kept while the same part is drawn anew
    uirevision: `${told.view.from}-${told.view.to}`,
    xaxis: { ...axis, type: "linear", range: reach(columns), title: { text: "iteration", standoff: 6 }, tickformat: "d", anchor: hasLane ? "y2" : "y" },
    yaxis: { ...axis, type: isLog ? "log" : "linear", domain: [hasLane ? 0.22 : 0, 0.96], fixedrange: true, exponentformat: "power" },
    yaxis2: {
      ...axis,
      type: "linear",
      domain: [0, 0.16],
      range: [-0.5, 2.5],
      tickvals: hasLane ? [0, 1, 2] : [],
      ticktext: ["-Inf", "NaN", "Inf"],
      fixedrange: true,
      visible: hasLane,
    },
    yaxis3: { type: "linear", domain: [0.96, 1], range: [0, 2], visible: false, fixedrange: true },
    shapes,
    annotations,
  };
}

function marks({ incident }, { attempt, columns }, look) {
  if (!incident || incident.first.attempt !== attempt || !columns.iteration.length) return { shapes: [], annotations: [] };
  const { first, last_good: good } = incident;
  const [low, high] = [first.interval[0] ?? columns.iteration[0], first.interval[1] ?? first.iteration];
  const rule = (x, color, dash) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color, width: 1.5, dash } });
  const shade = { type: "rect", x0: low, x1: high, yref: "paper", y0: 0, y1: 1, fillcolor: look.onset, line: { width: 0 }, layer: "below" };
  const shapes = [shade, rule(first.iteration, look.bad, "solid")];
  const texts = [`onset ${first.iteration}`];
  if (good?.iteration !== null && good?.iteration !== undefined) {
    shapes.push(rule(good.iteration, look.good, "dash"));
    texts.unshift(`last good ${good.iteration} ┆`);
  }
  const [begin, end] = reach(columns);
  if (first.iteration < begin || first.iteration > end) return { shapes, annotations: [] };
  const xanchor = first.iteration - begin < (end - begin) / 2 ? "left" : "right";
  const label = { x: first.iteration, y: 1, yref: "paper", text: texts.join(" "), showarrow: false, xanchor, yanchor: "bottom" };
  return { shapes, annotations: [label] };
}

/** The iterations that are drawn, with a little room: labels at an edge would else widen the axis. */
function reach(columns) {
  const [low, high] = [columns.iteration[0], columns.last_iteration.at(-1)];
  const room = Math.max(0.5, (high - low) / 100);
  return [low - room, high + room];
}

function words(columns, at) {
  const rank = (key) => (columns[key][at] === null ? "" : ` (rank ${columns[key][at]})`);
  return [
    span(columns, at),
    `median ${number(columns.median[at])}`,
    `least ${number(columns.min[at])}${rank("min_rank")}`,
    `greatest ${number(columns.max[at])}${rank("max_rank")}`,
    columns.missing[at] ? `${columns.missing[at]} not reported` : "",
  ]
    .filter((one) => one)
    .join("<br>");
}

function span(columns, at) {
  const [low, high] = [columns.iteration[at], columns.last_iteration[at]];
  return low === high ? `iteration ${low}` : `iterations ${low} to ${high}`;
}

function summary({ metric, columns }) {
  const bad = LANE.map(([kind, text]) => [text, columns[kind].findIndex((count) => count > 0)]).filter(([, at]) => at >= 0);
  const told = bad.map(([text, at]) => `, ${text} first at iteration ${columns.iteration[at]}`).join("");
  const range = `${columns.iteration[0]} to ${columns.last_iteration.at(-1)}`;
  return visible(`${brief(metric)} over iterations ${range}, median ${number(columns.median[0])} at first, ${number(columns.median.at(-1))} at last${told}`);
}

function finite(column) {
  return column.map((value) => (typeof value === "number" ? value : null));
}

function isWide(columns) {
  const positive = columns.max.filter((value) => typeof value === "number" && value > 0);
  const least = columns.min.filter((value) => typeof value === "number");
  return least.length > 0 && Math.min(...least) > 0 && Math.max(...positive) / Math.min(...least) > LOG_RATIO;
}

function inWords(detail) {
  return Object.entries(detail ?? {})
    .map(([key, value]) => `${spaced(key)} ${typeof value === "object" ? JSON.stringify(value) : number(value)}`)
    .join(", ")
    .slice(0, 200);
}

/** A text for plotly.js, which reads some tags and entities. */
function escaped(text) {
  return visible(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function theme(box) {
  const style = getComputedStyle(box);
  const keys = ["ink", "grid", "line", "wide", "half", "bad", "good", "onset"];
  return Object.fromEntries(keys.map((key) => [key, style.getPropertyValue(`--${key}`).trim()]));
}
