// A curve as small as a word: the loss of a run in its row of the list.

import { get } from "./api.js";
import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;
const AT_ONCE = 3;
const FRESH_MS = 10_000;
const drawn = new Map();
const waiting = [];
let asking = 0;

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    waiting.push(target);
    next();
  }
});

/** A place for the curve of a run, drawn once it is in sight; `told` then hears its columns. */
export function spark(runId, revision, told = () => {}) {
  const place = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img" });
  place.run = runId;
  place.told = told;
  const before = drawn.get(runId);
  if (before) draw(place, before.columns);
  if (before?.revision === revision) return place;
  place.revision = revision;
  setTimeout(() => seen.observe(place), before ? Math.max(0, before.at + FRESH_MS - Date.now()) : 0);
  return place;
}

async function next() {
  if (asking >= AT_ONCE || !waiting.length) return;
  const place = waiting.shift();
  asking += 1;
  try {
    const { columns } = await get(`/v1/runs/${encodeURIComponent(place.run)}/curves?metric=loss&points=100`);
    drawn.set(place.run, { columns, revision: place.revision, at: Date.now() });
    draw(place, columns);
  } catch {
    drawn.set(place.run, { columns: null, revision: place.revision, at: Date.now() }); // nothing is kept of it
  } finally {
    asking -= 1;
    next();
  }
}

function draw(place, columns) {
  const finite = (columns?.median ?? []).filter((value) => typeof value === "number");
  if (!columns || !columns.iteration.length) return;
  place.told(columns);
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  // an explosion on a linear scale is a flat line and a spike
  const scale = low > 0 && high / low > 100 ? Math.log : (value) => value;
  const span = scale(high) - scale(low) || 1;
  const first = columns.iteration[0];
  const length = columns.iteration.at(-1) - first || 1;
  const x = (at) => 2 + ((WIDTH - 4) * (columns.iteration[at] - first)) / length;
  const y = (value) => 2 + (HEIGHT - 10) * (1 - (scale(value) - scale(low)) / span);
  let path = "";
  let ticks = "";
  columns.median.forEach((value, at) => {
    if (typeof value === "number") path += `${path && typeof columns.median[at - 1] === "number" ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (columns.nan[at] + columns.posinf[at] + columns.neginf[at] > 0) ticks += `M${x(at).toFixed(1)} ${HEIGHT - 6}v5`;
  });
  const words = `loss over iterations ${first} to ${columns.iteration.at(-1)}${ticks ? ", with values that are not finite" : ""}`;
  place.replaceChildren(svg("title", null, words), svg("path", { class: "line", d: path }), svg("path", { class: "ticks", d: ticks }));
}
