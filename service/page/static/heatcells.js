// Draws the cells of a heat map on a canvas, and tells of the one under the pointer or the keys.

import { brief, h, name, visible } from "./dom.js";
import { line, paint } from "./heatpaint.js";
import { number } from "./words.js";

const LEFT = 110; // room for names of hosts beside ranks
const NARROW = 64; // the same without names: a phone needs the rest
const TOP = 20; // the lane of all ranks
const GAP = 6;
const BOTTOM = 22;
const LEAST_ROW = 7;
const MOST_ROW = 24;
const HEIGHT = 520;
const DRAG_PX = 6;
const MOST_NAMED = 1000; // characters of ranks in an address
/** What a letter of the API means: a word, a sign, and how bad, the worst last. */
export const MARKS = {
  ".": { word: "value", sign: "▪", order: 1 },
  e: { word: "extreme of all ranks", sign: "▨", order: 0 },
  m: { word: "missing", sign: "·", order: 2 },
  l: { word: "late", sign: "–", order: 3 },
  x: { word: "differs", sign: "≠", order: 4 },
  c: { word: "not finite", sign: "#", order: 5 },
  "-": { word: "-Infinity", sign: "▼", order: 6 },
  "+": { word: "Infinity", sign: "▲", order: 7 },
  n: { word: "NaN", sign: "×", order: 8 },
};

const NOTES = { x: ", differs from its replicas", c: " values were not finite" };

/** A picture with a cursor; `act` has `open(iteration)` and `zoom({from, to, ranks})`. */
export class Heat {
  #map = null;
  #place = null;
  #at = null;
  #drag = null;
  #touched = null;

  constructor(box, act) {
    this.act = act;
    this.canvas = h("canvas", { tabindex: 0, role: "img" });
    this.tip = h("div", { class: "tip", role: "status", "aria-live": "polite", hidden: true });
    this.box = box;
    box.classList.add("heatbox");
    box.append(this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.canvas.addEventListener("pointerleave", (event) => event.pointerType === "touch" || this.#point(null));
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.pointerType !== "touch") this.#drag = this.#cell(event);
    });
    this.canvas.addEventListener("pointerup", (event) => this.#released(event));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("blur", () => this.#point(null));
    new ResizeObserver(() => this.draw()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Show an answer of the API; `place` is the onset, if it is of this attempt. */
  show(map, place) {
    this.#map = map;
    this.#place = place;
    this.#at = null;
    this.tip.hidden = true;
    this.canvas.setAttribute("aria-label", summary(map));
    this.draw();
  }

  draw() {
    const map = this.#map;
    const width = this.box.clientWidth;
    if (map === null || !width || !map.rows.length) return;
    const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(HEIGHT / map.rows.length)));
    const height = TOP + GAP + row * map.rows.length + BOTTOM;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.left = map.rows.some((one) => one.group) ? LEFT : NARROW;
    this.size = { row, width, height, column: (width - this.left - 4) / map.columns.iteration.length };
    this.look = theme(this.box);
    pen.font = "11px system-ui, sans-serif";
    this.#lane(pen);
    map.rows.forEach((one, at) => this.#row(pen, one, at));
    this.#labels(pen);
    this.#axis(pen);
    this.#onset(pen);
    if (this.#at) this.#outline(pen, this.#at);
  }

  #lane(pen) {
    pen.fillStyle = this.look.ink;
    pen.fillText("any rank", 2, 13);
    this.#cells(pen, this.#map.any, 2, TOP - 4);
  }

  #row(pen, one, at) {
    this.#cells(pen, one, this.#top(at), this.size.row - (this.size.row > 10 ? 1 : 0));
  }

  #cells(pen, { marks, score }, top, height) {
    const { column } = this.size;
    for (let at = 0; at < marks.length; at++) {
      if (marks[at] === " ") continue;
      const left = this.left + at * column;
      paint(pen, this.look, { letter: marks[at], score: score[at], left, top, width: Math.max(1, column - (column > 8 ? 1 : 0)), height });
    }
  }

  #top(at) {
    return TOP + GAP + at * this.size.row;
  }

  /** The groups beside their first row, or the ranks where there is room. */
  #labels(pen) {
    let group = null;
    let before = -99;
    this.#map.rows.forEach((one, at) => {
      const top = this.#top(at);
      const isNew = one.group !== group;
      group = one.group;
      if (isNew && one.group && at > 0 && one.rank_count === 1) line(pen, this.look.soft, [0, top - 0.5, this.left, top - 0.5]);
      if (top - before < 11) return;
      before = top;
      const ranks = one.rank_count === 1 ? `${one.first_rank}` : one.ranks.length > 9 ? `${one.first_rank}…` : one.ranks;
      pen.fillStyle = this.#place?.ranks.includes(one.first_rank) && one.rank_count === 1 ? this.look.bad : this.look.soft;
      const [first, ...joined] = visible(one.group).split(" … ");
      const label = isNew || one.rank_count > 1 ? `${first.slice(0, 14)}${joined.length ? " …" : ""}` : "";
      pen.textAlign = "left";
      pen.fillText(label, 2, top + Math.min(this.size.row, 12) - 2, one.rank_count > 1 ? this.left - 8 : this.left - 44);
      pen.textAlign = "right";
      pen.fillText(one.group && one.rank_count > 1 && this.#map.by !== "rank" ? "" : ranks, this.left - 5, top + Math.min(this.size.row, 12) - 2, this.left - 10);
      pen.textAlign = "left";
    });
  }

  #axis(pen) {
    const { iteration, last_iteration: last } = this.#map.columns;
    const bottom = this.#top(this.#map.rows.length);
    pen.fillStyle = this.look.soft;
    const step = Math.max(1, Math.ceil(90 / this.size.column));
    for (let at = 0; at < iteration.length; at += step) {
      const x = this.left + at * this.size.column;
      line(pen, this.look.soft, [x + 0.5, bottom, x + 0.5, bottom + 4]);
      if (x < this.size.width - 60) pen.fillText(number(iteration[at]), x, bottom + 15);
    }
    pen.textAlign = "right";
    pen.fillText(number(last.at(-1)), this.size.width - 4, bottom + 15);
    pen.textAlign = "left";
  }

  #onset(pen) {
    const { iteration, last_iteration: last } = this.#map.columns;
    const at = this.#place === null ? -1 : iteration.findIndex((first, place) => first <= this.#place.iteration && this.#place.iteration <= last[place]);
    if (at < 0) return;
    const x = this.left + at * this.size.column;
    pen.setLineDash([4, 3]);
    line(pen, this.look.bad, [x, 0, x, this.#top(this.#map.rows.length)]);
    pen.setLineDash([]);
  }

  #outline(pen, { row, column }) {
    const top = row < 0 ? 2 : this.#top(row);
    pen.strokeStyle = this.look.ink;
    pen.lineWidth = 2;
    pen.strokeRect(this.left + column * this.size.column - 1, top - 1, this.size.column + 2, (row < 0 ? TOP - 4 : this.size.row) + 2);
    pen.lineWidth = 1;
  }

  /** The cell at a place of the pointer; row -1 is the lane of all ranks. */
  #cell(event) {
    const edge = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
    const column = Math.floor((x - this.left) / this.size.column);
    const row = y < TOP ? -1 : Math.floor((y - TOP - GAP) / this.size.row);
    if (column < 0 || column >= this.#map.columns.iteration.length || row >= this.#map.rows.length) return null;
    return { row: Math.max(-1, row), column, x, y };
  }

  #hover(event) {
    if (this.#map === null || !this.size) return;
    const at = this.#cell(event);
    this.#point(at);
    if (this.#drag && at) {
      const pen = this.canvas.getContext("2d");
      pen.strokeStyle = this.look.ink;
      pen.setLineDash([3, 3]);
      pen.strokeRect(this.#drag.x, this.#drag.y, at.x - this.#drag.x, at.y - this.#drag.y);
      pen.setLineDash([]);
    }
  }

  #released(event) {
    const [from, to] = [this.#drag, this.#cell(event)];
    this.#drag = null;
    if (!to) return;
    // a finger has no pointer to hover with: its first touch tells of the cell, its second opens it
    const isKnown = this.#touched?.row === to.row && this.#touched.column === to.column;
    this.#touched = to;
    if (event.pointerType === "touch" && !isKnown) return this.#point(to);
    const isClick = !from || Math.hypot(to.x - from.x, to.y - from.y) < DRAG_PX;
    if (isClick) this.#open(to);
    else this.#zoom(from, to);
  }

  #zoom(a, b) {
    const { iteration, last_iteration: last } = this.#map.columns;
    const [low, high] = [Math.min(a.column, b.column), Math.max(a.column, b.column)];
    const [first, final] = [Math.min(a.row, b.row), Math.max(a.row, b.row)];
    const rows = this.#map.rows.slice(Math.max(0, first), final + 1);
    // what has too many ranks to be named in an address is looked at whole
    const ranks = rows.map((row) => row.ranks).join(",");
    const isAcross = first >= 0 && (final > first || rows[0].rank_count > 1) && rows.length < this.#map.rows.length && ranks.length < MOST_NAMED && !ranks.includes("…");
    this.act.zoom({ from: iteration[low], to: last[high], ...(isAcross ? { ranks } : {}) });
  }

  #open(at) {
    const one = at.row < 0 ? this.#map.any : this.#map.rows[at.row];
    if (one.marks[at.column] !== " ") this.act.open(cellOf(this.#map, one, at.column).iteration);
  }

  #key(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Enter" && this.#at) return this.#open(this.#at);
    if (!(event.key in steps) || this.#map === null) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    const before = this.#at ?? { row: -1, column: 0 };
    const row = Math.max(-1, Math.min(this.#map.rows.length - 1, before.row + down));
    const column = Math.max(0, Math.min(this.#map.columns.iteration.length - 1, before.column + right));
    this.#point({ row, column });
  }

  #point(at) {
    if (at?.row === this.#at?.row && at?.column === this.#at?.column && !this.#drag) return;
    this.#at = at;
    this.draw();
    this.tip.hidden = at === null;
    if (at === null) return;
    this.tip.replaceChildren(...describe(this.#map, at));
    const left = Math.min(this.left + at.column * this.size.column + 14, this.size.width - 250);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${(at.row < 0 ? TOP : this.#top(at.row + 1)) + 6}px`;
  }
}

/** One cell in words: rank, host, iteration, value. */
function describe(map, { row, column }) {
  const one = row < 0 ? map.any : map.rows[row];
  const letter = one.marks[column];
  const [first, last] = [map.columns.iteration[column], map.columns.last_iteration[column]];
  const span = first === last ? `iteration ${number(first)}` : `iterations ${number(first)} to ${number(last)}`;
  const whose = row < 0 ? "all ranks" : one.rank_count === 1 ? `rank ${one.first_rank}` : `ranks ${one.ranks}`;
  const head = h("b", null, whose, ", ", span);
  if (letter === " ") return [head, h("span", null, "nothing is known")];
  const cell = cellOf(map, one, column);
  const group = cell.group ? [" on ", name(cell.group)] : [];
  const who = cell.rank === null || cell.rank === undefined ? "rank not known" : `rank ${cell.rank}`;
  const score = cell.score === null || cell.score === undefined ? "" : `, ${number(cell.score)} deviations from its peers`;
  const shown = cell.value === null ? MARKS[letter].word : `${number(cell.value)}${letter === "." || letter === "e" ? score : NOTES[letter] ?? ""}`;
  return [head, h("span", null, who, ...group, `, iteration ${number(cell.iteration)}: `, h("b", null, shown))];
}

function summary(map) {
  const counts = Object.entries(MARKS).map(([letter, { word }]) => [word, map.rows.reduce((sum, row) => sum + row.marks.split(letter).length - 1, 0)]);
  const words = counts.filter(([, count]) => count).map(([word, count]) => `${count} ${word}`);
  return visible(`${brief(map.metric)} of ranks over iterations ${map.columns.iteration[0]} to ${map.columns.last_iteration.at(-1)}: cells ${words.join(", ")}`);
}

function theme(box) {
  const style = getComputedStyle(box);
  return Object.fromEntries(["ink", "soft", "line", "bad", "warn", "paper"].map((key) => [key, style.getPropertyValue(`--${key}`).trim()]));
}

/** One cell with all that is known of it. */
export function cellOf(map, row, at) {
  return {
    letter: row.marks[at],
    score: row.score[at],
    value: row.value[at],
    rank: row.rank?.[at] ?? row.first_rank,
    group: row.host ?? row.group,
    iteration: row.iteration?.[at] ?? map.columns.iteration[at],
  };
}
