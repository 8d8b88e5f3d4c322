// A small chart of our own: a value over iterations with the lines that a decision was made by.
//
// Drawn as SVG without plotly.js, so that the evidence of an incident shows before that is fetched.

import { svg, visible } from "./dom.js";
import { number } from "./words.js";

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 10;
const TOP = 16;
const BOTTOM = 24;
const LANE = 12;
const LOG_RATIO = 100;
const LINE_PX = 13;

/**
 * The chart of `{iteration, band: [low, high], lines: [{name, values, kind}], levels: [{name, value, kind}],
 * range: [low, high] of the onset, at, alarm, isLog, title}`. A value is a number, null, or the text of what is none.
 */
export function mini(drawing) {
  const scale = scales(drawing);
  const parts = [frame(scale), onset(drawing, scale), band(drawing, scale), ...drawing.lines.flatMap((line) => path(line, drawing, scale)), ...levels(drawing, scale)];
  return svg("svg", { class: "mini", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, svg("title", null, visible(drawing.title)), ...parts);
}

function scales({ iteration, band, lines, levels, isLog }) {
  const values = [...(band ?? []).flat(), ...lines.flatMap((line) => line.values), ...levels.map((level) => level.value)];
  const finite = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  const isPositive = finite.length > 0 && finite.every((value) => value > 0);
  const wide = isPositive && Math.max(...finite) / Math.min(...finite) > LOG_RATIO;
  const by = (isLog ?? wide) && isPositive ? Math.log10 : (value) => value;
  const [low, high] = reach(finite.map(by));
  const [begin, end] = reach(iteration, 0);
  const hasLane = lines.some((line) => line.values.some((value) => typeof value === "string"));
  const bottom = HEIGHT - BOTTOM - (hasLane ? LANE : 0);
  return {
    by,
    low,
    high,
    begin,
    end,
    bottom,
    hasLane,
    back: by === Math.log10 ? (value) => 10 ** value : (value) => value,
    x: (at) => LEFT + ((WIDTH - LEFT - RIGHT) * (at - begin)) / (end - begin || 1),
    y: (value) => bottom - ((bottom - TOP) * (by(value) - low)) / (high - low || 1),
  };
}

function reach(values, room = 0.06) {
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = (high - low || Math.abs(high) || 1) * room;
  return [low - margin, high + margin];
}

function frame({ low, high, begin, end, back, y, bottom }) {
  const middle = (low + high) / 2;
  const ticks = [low, middle, high].map((at) => svg("text", { x: LEFT - 5, y: y(back(at)) + 4, "text-anchor": "end" }, short(back(at))));
  const ends = [
    svg("text", { x: LEFT, y: HEIGHT - 6 }, number(begin)),
    svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, `iteration ${number(end)}`),
  ];
  return svg("g", { class: "axis" }, svg("path", { d: `M${LEFT} ${TOP}V${bottom}H${WIDTH - RIGHT}` }), ...ticks, ...ends);
}

function onset({ range, alarm, at }, { x, begin, end, bottom }) {
  if (!range) return null;
  const low = Math.max(begin, range[0] ?? begin);
  const high = Math.min(end, range[1]);
  if (high < begin || low > end) return null;
  const shade = svg("rect", { class: "onset", x: x(low), y: TOP, width: Math.max(1.5, x(high) - x(low)), height: bottom - TOP });
  const isSeen = alarm !== undefined && alarm > high && alarm <= end;
  const side = x(high) < WIDTH / 2 ? "start" : "end";
  const word = svg("text", { class: "onset-word", x: x(high) + (side === "start" ? 3 : -3), y: TOP - 5, "text-anchor": side }, `onset ${number(at)}`);
  return svg("g", null, shade, word, isSeen ? svg("path", { class: "alarm", d: `M${x(alarm)} ${TOP}V${bottom}` }) : null);
}

function band({ band: edges, iteration }, { x, y }) {
  if (!edges) return null;
  const places = iteration.flatMap((at, place) => (typeof edges[0][place] === "number" && typeof edges[1][place] === "number" ? [[at, place]] : []));
  const up = places.map(([at, place]) => `${x(at).toFixed(1)} ${y(edges[1][place]).toFixed(1)}`);
  const down = places.map(([at, place]) => `${x(at).toFixed(1)} ${y(edges[0][place]).toFixed(1)}`).reverse();
  return up.length > 1 ? svg("path", { class: "band", d: `M${[...up, ...down].join("L")}Z` }) : null;
}

function levels({ levels: given }, { y, bottom }) {
  // names to the left and to the right in turn, and those of one side stacked from the lowest up: where
  // two lie close together they would else cover each other
  const before = [bottom + LINE_PX, bottom + LINE_PX];
  return given
    .filter((level) => Number.isFinite(level.value))
    .map((level) => ({ ...level, at: y(level.value) }))
    .sort((a, b) => b.at - a.at)
    .map((level, place) => {
      const side = place % 2;
      before[side] = Math.min(level.at - 3, before[side] - LINE_PX);
      const where = side ? { x: WIDTH - RIGHT - 4, "text-anchor": "end" } : { x: LEFT + 4 };
      return svg(
        "g",
        { class: `level ${level.kind}` },
        svg("path", { d: `M${LEFT} ${level.at.toFixed(1)}H${WIDTH - RIGHT}` }),
        svg("text", { ...where, y: before[side] }, `${level.name} ${short(level.value)}`),
      );
    });
}

function path(line, { iteration }, { x, y, bottom }) {
  let drawn = "";
  let isGap = true;
  const points = [];
  const ticks = [];
  line.values.forEach((value, place) => {
    const at = x(iteration[place]).toFixed(1);
    if (typeof value === "number") {
      drawn += `${isGap ? "M" : "L"}${at} ${y(value).toFixed(1)}`;
      points.push(svg("circle", { cx: at, cy: y(value).toFixed(1), r: 1.7 }, svg("title", null, `${line.name}: ${number(value)} at iteration ${iteration[place]}`)));
    } else if (typeof value === "string") {
      ticks.push(svg("path", { class: "tick", d: `M${at} ${bottom + 3}v${LANE - 4}` }, svg("title", null, `${line.name}: ${value} at iteration ${iteration[place]}`)));
    }
    // what was not reported is left out: a check every 25 iterations is a line all the same
    if (value !== null) isGap = typeof value === "string";
  });
  const word = ticks.length ? svg("text", { class: "tickword", x: LEFT - 5, y: bottom + 11, "text-anchor": "end" }, "NaN/Inf") : null;
  return [svg("path", { class: `line ${line.kind}`, d: drawn }), points.length <= 160 ? svg("g", { class: `dots ${line.kind}` }, points) : null, ...ticks, word];
}

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
