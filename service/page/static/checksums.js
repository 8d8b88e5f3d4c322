// Replica groups around one check: who holds what most of the group does not.

import { link, note, read } from "./address.js";
import { Problem, get } from "./api.js";
import { brief, fill, h, name, visible } from "./dom.js";
import { frame } from "./views.js";
import { counted, number, rankList } from "./words.js";

const SIGNS = { same: "=", odd: "≠", tie: "?", missing: "–" };
const WORDS = { same: "as most", odd: "differs", tie: "no majority", missing: "not reported" };

/** Show the matrix of a run in `root`. */
export async function showChecksums(root, view, signal) {
  const { run, incident } = await frame(root, view, "checksums", signal, () => [h("div", { id: "checksums" })]);
  const told = await ask(run, incident, view, signal);
  const slot = root.querySelector("#checksums");
  if (told instanceof Problem) {
    fill(slot, told.message, () => h("section", { class: "card" }, h("h2", null, "No checksums to show"), h("p", null, visible(told.message))));
    return;
  }
  fill(slot, [told, view.incident], () => [choice(told), steps(told, view), summary(told), ...told.groups.map((one) => group(one, told)), rest(told), legend()]);
}

async function ask(run, incident, view, signal) {
  const asked = new URLSearchParams();
  for (const key of ["metric", "attempt", "at"]) if (view[key] !== null) asked.set(key, view[key]);
  if (incident !== null) asked.set("incident", incident.id);
  try {
    return await get(`/v1/runs/${encodeURIComponent(run.run_id)}/checksums?${asked}`, signal);
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 422)) return error;
    throw error;
  }
}

/** Which checksum, as links. */
function choice(told) {
  const links = told.metrics.map((metric) =>
    h("a", { href: link({ ...read(), metric, at: told.at }), "data-key": `metric-${metric}`, "aria-current": metric === told.metric ? "true" : null }, name(metric)),
  );
  return h("nav", { class: "choice", "aria-label": "Which checksum" }, links);
}

function steps(told, view) {
  const to = (at, key, words) =>
    at === null ? h("span", { class: "off" }, words) : h("a", { href: link({ ...view, at }), "data-key": key }, words);
  const input = h("input", { id: "go", type: "text", inputmode: "numeric", pattern: "[0-9]+", size: 9, "aria-label": "Go to iteration", placeholder: "iteration", value: told.at });
  const form = h("form", { class: "go" }, input, h("button", { type: "submit", class: "copy" }, "Go"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    note({ ...read(), at: input.value.trim() || null });
    dispatchEvent(new Event("popstate"));
  });
  return h(
    "div",
    { class: "steps-line" },
    to(told.previous, "previous", "◀ check before"),
    h("b", null, `iteration ${number(told.at)}`),
    to(told.next, "next", "check after ▶"),
    to(told.first_differing, "first", "first that differs"),
    form,
  );
}

function summary(told) {
  const differing = told.chosen === null ? 0 : told.differing[told.chosen];
  const groups = counted(told.groups_in_all, "replica group");
  const from = { layout: "groups by the layout", learned: "groups learned from the first checks that are kept", none: "no groups are known" }[told.groups_from];
  const words = told.groups_in_all
    ? `${differing ? `${number(differing)} of ${groups} ${differing === 1 ? "differs" : "differ"}` : `all of ${groups} agree`}: ${counted(told.ranks_in_groups, "rank")}, ${from}`
    : `no rank is compared with another: ${from}`;
  const alone = told.ranks_alone ? `; ${counted(told.ranks_alone, "rank")} with nobody to be compared with` : "";
  const looked = told.looked_at.length ? `Looked at iterations ${told.looked_at[0]} to ${told.looked_at[1]}.` : "";
  return [h("p", { class: "sentence" }, `${words}${alone}.`), h("p", { class: "since" }, looked)];
}

function group(one, told) {
  const vote = one.votes[told.chosen];
  const kinds = one.cells[told.chosen].map((code) => kind(code, vote));
  const cells = one.ranks.map((_, at) => cell(one, at, kinds[at], valueOf(one.cells[told.chosen][at], vote)));
  const hosts = new Set(one.hosts.filter((host) => host !== null));
  const hidden = one.size - one.ranks.length;
  const place = one.place ? ` (${one.place})` : "";
  return h(
    "section",
    { class: `card group ${vote.others.length ? "differs" : ""}` },
    h("h3", null, `Group of rank ${one.group}${place}: ${counted(one.size, "member")}, ${verdict(vote, one.size)}`),
    h("ul", { class: "cells" }, hosts.size > 1 ? byHost(one, cells) : cells),
    hidden ? h("p", { class: "since" }, `and ${hidden} more, as most of them at every check shown`) : null,
    values(one, vote, told.chosen),
    course(one, told),
  );
}

function verdict(vote, size) {
  if (!vote.reported) return "nobody reported";
  const missing = vote.reported < size ? `, ${size - vote.reported} did not report` : "";
  if (vote.majority === null) return `no majority${missing}`;
  return vote.others.length ? `${vote.reported - vote.count} of ${vote.reported} ${vote.reported - vote.count === 1 ? "differs" : "differ"}${missing}` : `equal${missing}`;
}

function kind(code, vote) {
  if (code < 0) return "missing";
  if (vote.majority === null) return "tie";
  return code ? "odd" : "same";
}

function valueOf(code, vote) {
  if (code < 0) return "not reported";
  if (code === 0) return vote.majority;
  return vote.others[code - 1]?.[0] ?? "another value";
}

/** The cells of each host behind its name. */
function byHost(one, cells) {
  return one.hosts.flatMap((host, at) => (host === one.hosts[at - 1] ? [cells[at]] : [h("li", { class: "host" }, host === null ? "–" : name(host)), cells[at]]));
}

function cell(one, at, sort, value) {
  const [rank, host] = [one.ranks[at], one.hosts[at]];
  const where = host ? `, host ${brief(host)}` : "";
  return h("li", { class: sort, title: `rank ${rank}${where}: ${value} (${WORDS[sort]})` }, h("b", null, SIGNS[sort]), ` ${rank}`);
}

/** Every value at the chosen check and who holds it. */
function values(one, vote, chosen) {
  const held = (code) => one.ranks.filter((_, at) => one.cells[chosen][at] === code);
  const lines = vote.others.map(([value, count], at) => {
    const ranks = held(at + 1);
    const hosts = [...new Set(one.hosts.filter((_, place) => one.cells[chosen][place] === at + 1 && one.hosts[place]))];
    const where = hosts.length ? [" on ", name(hosts[0]), hosts.length > 1 ? ` and ${hosts.length - 1} more` : ""] : [];
    return h("li", null, h("b", null, vote.majority === null ? SIGNS.tie : SIGNS.odd), " ", h("code", null, value), ` ${count === 1 ? "rank" : `${count} ranks:`} ${rankList(ranks, count)}`, ...where);
  });
  const most = vote.majority === null ? null : h("li", null, h("b", null, SIGNS.same), " ", h("code", null, vote.majority), ` ${counted(vote.count, "rank")}`);
  return h("ul", { class: "bare values" }, most, lines);
}

/** What became of each member that differs, check by check. */
function course(one, told) {
  const odd = one.ranks.map((_, at) => at).filter((at) => one.cells.some((row, check) => kind(row[at], one.votes[check]) !== "same"));
  if (!odd.length) return null;
  const heads = told.iteration.map((at, place) => h("th", { scope: "col", class: place === told.chosen ? "here" : null }, number(at)));
  const rows = odd.slice(0, 32).map((at) => {
    const marks = one.cells.map((row, check) => {
      const sort = kind(row[at], one.votes[check]);
      return h("td", { class: `${sort}${check === told.chosen ? " here" : ""}`, title: valueOf(row[at], one.votes[check]) }, SIGNS[sort]);
    });
    return h("tr", null, h("th", { scope: "row" }, `rank ${one.ranks[at]}`), marks);
  });
  const others = one.size - odd.length;
  const label = `Checks around iteration ${number(told.at)}`;
  const table = h("table", { class: "course" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "iteration"), heads)), h("tbody", null, rows));
  return [
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table),
    h("p", { class: "since" }, `${odd.length > 32 ? `${odd.length - 32} more differ; ` : ""}${others ? `the other ${others} as most throughout` : ""}`),
  ];
}

function rest(told) {
  const left = told.groups_in_all - told.groups.length;
  return left > 0 ? h("p", { class: "card" }, `${counted(left, "more group")} not shown: those that differ come first.`) : null;
}

function legend() {
  return h("p", { class: "since legend-line" }, Object.keys(SIGNS).map((key) => h("span", { class: `cell ${key}` }, h("b", null, SIGNS[key]), ` ${WORDS[key]}`)));
}
