// What a detector saw, in the words of an engineer.

import { counted, number, rankList } from "./words.js";

const IN_WORDS = {
  checksum_vote: votes,
  agreement: votes,
  repeat: ({ metric }, who) => `${who} computed ${metric} twice and got two results`,
  nonfinite: ({ metric, statistic, threshold }, who) => {
    if (metric.startsWith("nonfinite_")) return `${who} counted values that are not finite in ${metric}, where none may be`;
    return threshold === 0 ? `${metric} of ${who} is not finite` : `${metric} of ${who} was not finite ${number(statistic)} times in a row; ${number(threshold)} are allowed`;
  },
  explosion: ({ metric, detail: { baseline, peak } }) => (told(baseline, peak) ? `${metric} went from ${number(baseline)} up to ${number(peak)}` : null),
  curve_drift: ({ metric, detail: { baseline, level } }) => (told(baseline, level) ? `${metric} went from ${number(baseline)} to ${number(level)} and stayed there` : null),
  evaluation: ({ metric, detail: { before, after } }) => (told(before, after) ? `${metric} went from ${number(before)} to ${number(after)}` : null),
  linear_checksum: ({ detail: { got, expected } }) => (told(got, expected) ? `the reduction gave ${number(got)} where its inputs add up to ${number(expected)}` : null),
  peer_outlier: apart,
  joint: apart,
  slowdown: apart,
  stall: ({ statistic, threshold }, who) => `no sign of life of ${who} for ${number(statistic)} s; ${number(threshold)} s are allowed`,
};

/** One piece of evidence as a clause. */
export function seen(piece) {
  const who = piece.ranks?.length ? `${piece.ranks.length === 1 ? "rank" : "ranks"} ${rankList(piece.ranks, piece.rank_count)}` : "the run";
  const words = IN_WORDS[piece.detector]?.({ ...piece, detail: piece.detail ?? {} }, who);
  return words ?? `${piece.metric} gave ${number(piece.statistic)}; ${number(piece.threshold)} is the limit`;
}

function votes({ metric, rank_count: count, ranks, detail: { members } }) {
  const differing = count ?? ranks?.length ?? 0;
  const of = members === undefined ? "" : ` of ${number(members)}`;
  return `${members === undefined ? counted(differing, "rank") : `${number(differing)}${of} ranks`} ${differing === 1 ? "differs" : "differ"} in ${metric}, where none may`;
}

function apart({ metric, statistic, threshold, detail: { relative_shift: shift } }, who) {
  const size = typeof shift === "number" && metric !== "joint" ? `, ${number(Number((100 * shift).toPrecision(2)))} % from its peers` : "";
  return `${metric === "joint" ? "several metrics together" : metric} of ${who}${size}: score ${number(Number(statistic.toPrecision?.(3) ?? statistic))}, ${number(Number(threshold.toPrecision?.(3) ?? threshold))} is the limit`;
}

function told(...values) {
  return values.every((value) => value !== undefined && value !== null);
}
