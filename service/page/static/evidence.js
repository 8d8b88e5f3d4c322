// What an incident is believed on: each piece with its numbers, and a chart that redraws the decision.

import { fill, h, name, visible } from "./dom.js";
import { redraw } from "./redraw.js";
import { between, counted, number, rankList, spaced } from "./words.js";

const SHOWN = 50;
const READ = {
  explosion: "height of the peak above the baseline, in units of the detector; as much as the threshold is normal",
  curve_drift: "lasting rise over the baseline, in standard deviations of the smoothed curve",
  checksum_vote: "ranks whose bits differ from those of the majority of their group; none may",
  agreement: "ranks whose value differs from the majority where all must agree; none may",
  linear_checksum: "relative difference of what the reduction gave from what its inputs add up to",
  nonfinite: "values or ranks that were not finite; so many are allowed",
  peer_outlier: "score of the rank against its peers, in standard deviations of how they part from each other",
  joint: "score of the rank against its peers in several metrics together, in standard deviations",
  slowdown: "score of the rank's step time against its peers, or the pace of the run against its own before",
  stall: "seconds without a sign of life; so many are allowed",
  evaluation: "relative change from the best evaluation so far",
  repeat: "repeats of one computation on one rank that differ; none may",
};

const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      target.show();
    }
  },
  { rootMargin: "200px" },
);

/** The numbers that the decision was made on, piece by piece. */
export function evidenceOf(one) {
  const listed = one.incident.evidence ?? [];
  if (!listed.length) return [];
  const shown = listed.slice(0, SHOWN).map((piece, at) => card(one, piece, at));
  const hidden = (one.incident.evidence_count ?? listed.length) - shown.length;
  return [h("h3", null, "Evidence"), h("div", { class: "proofs" }, shown), hidden > 0 ? h("p", null, `and ${hidden} more, in the verdict`) : null];
}

function card(one, piece, at) {
  const detectors = h("span", { class: "detector" }, spaced(piece.detector));
  const interval = between(piece.interval);
  const facts = [
    ["Ranks", piece.ranks?.length ? rankList(piece.ranks, piece.rank_count) : "not of single ranks"],
    ["Iteration", `${number(piece.iteration)}${interval ? `, ${interval}` : ""}`],
    ["Measured", value(piece.statistic)],
    ["Threshold", value(piece.threshold)],
    ["Direction", spaced(piece.direction ?? "–")],
  ];
  const numbers = h("dl", { class: "numbers" }, facts.map(([key, shown]) => h("div", null, h("dt", null, key), h("dd", null, shown))));
  const place = h("div", { class: "redrawn" });
  const read = READ[piece.detector];
  const article = h(
    "article",
    { class: `proof ${piece.certainty}` },
    h("h4", null, detectors, " on ", name(piece.metric), h("span", { class: "since" }, spaced(piece.certainty), ", ", spaced(piece.phase ?? ""))),
    numbers,
    read ? h("p", { class: "since" }, `Measured: ${read}.`) : null,
    place,
    detail(piece, at),
  );
  place.show = () => show(place, one, piece);
  seen.observe(place);
  return article;
}

async function show(place, one, piece) {
  try {
    fill(place, piece, () => h("span", { class: "since" }, "…"));
    const drawn = await redraw(one, piece);
    place.replaceChildren(...drawn);
  } catch {
    place.replaceChildren(h("span", { class: "since" }, "What was recorded there could not be read."));
  }
}

function detail(piece, at) {
  const details = Object.entries(piece.detail ?? {});
  if (!details.length) return null;
  const list = h("dl", { class: "detail" }, details.map(([key, given]) => [h("dt", null, name(spaced(key))), h("dd", null, plain(given))]));
  return h("details", { "data-key": `evidence-${at}` }, h("summary", null, counted(details.length, "more number")), list);
}

/** A measured number; what is none stands out. */
export function value(given) {
  const isNumber = typeof given === "number" || given === null || given === undefined;
  return h("span", { class: isNumber ? "value" : "value nonfinite" }, visible(number(given)));
}

function plain(given) {
  if (given !== null && typeof given === "object") return visible(JSON.stringify(given));
  return visible(number(given));
}
