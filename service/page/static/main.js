// The page: shows the view that the address names, and keeps it as new as the service is.

import { follow, read } from "./address.js";
import { Problem, get, setToken, token } from "./api.js";
import { fill, h, visible } from "./dom.js";
import { showFleet } from "./fleet.js";
import { listen } from "./keys.js";
import { Live } from "./live.js";
import { showRun } from "./run.js";
import { moment } from "./words.js";

const AT_MOST_EVERY_MS = 1_000;
const HEALTH_EVERY_MS = 10_000;
// a curve is written some seconds after the verdict that knows of it
const CURVES_LAG_MS = 6_000;
const BADGES = {
  connecting: ["◌", "connecting"],
  live: ["●", "live"],
  polling: ["◐", "live, by polling"],
  reconnecting: ["◌", "reconnecting"],
  stale: ["■", "stale"],
};
// what the service may lack without newer telemetry being unjudged
const NOT_STALE = new Set(["rank-silent"]);
// fetched when they are first looked at
const VIEWS = {
  ranks: async () => (await import("./heatmap.js")).showRanks,
  checksums: async () => (await import("./checksums.js")).showChecksums,
  propagation: async () => (await import("./propagation.js")).showPropagation,
  incidents: async () => (await import("./incidents.js")).showIncidents,
  hosts: async () => (await import("./hosts.js")).showHosts,
  host: async () => (await import("./hosts.js")).showHost,
  "what-if": async () => (await import("./whatif.js")).showWhatIf,
  alerts: async () => (await import("./alerts.js")).showAlerts,
};
const OF_A_RUN = new Set(["ranks", "checksums", "propagation", "what-if"]);
const root = document.getElementById("view");
const live = new Live();
let isShowing = null;
let isDue = false;
let shownAt = 0;
let reasons = [];
let trailing = 0;

/** Show the view of the address from the beginning: the reader went there. */
function visit() {
  isShowing?.abort();
  isShowing = null;
  show();
}

/** Show the view with what is new, soon and not too often. */
async function refresh() {
  if (isDue) return;
  isDue = true;
  await new Promise((resume) => setTimeout(resume, Math.max(50, shownAt + AT_MOST_EVERY_MS - Date.now())));
  isDue = false;
  if (isShowing === null) show();
  else isShowing.again = true;
}

async function show() {
  const mine = (isShowing = new AbortController());
  const view = read();
  mark(view);
  try {
    await (await viewOf(view))(root, view, mine.signal, refresh);
    notice();
  } catch (error) {
    if (!mine.signal.aborted) failed(error);
  }
  if (isShowing !== mine) return;
  shownAt = Date.now();
  isShowing = null;
  if (mine.again) refresh();
}

/** Say in the line of links which part of the service is looked at. */
function mark(view) {
  const here = view.view === "incidents" || view.view === "alerts" ? view.view : view.view === "hosts" || (view.view === null && view.host !== null) ? "hosts" : null;
  for (const one of document.querySelectorAll("nav.main a")) {
    const isHere = new URL(one.href).searchParams.get("view") === here && (here !== null || (view.run === null && view.incident === null));
    if (isHere) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

/** What shows a view: `(root, view, signal, again)`. */
async function viewOf(view) {
  const hasRun = view.run !== null || view.incident !== null;
  const key = view.view ?? (view.host !== null ? "host" : null);
  if (key === null) return hasRun ? showRun : showFleet;
  if (!Object.hasOwn(VIEWS, key) || (OF_A_RUN.has(key) && !hasRun)) return () => missing({ message: `There is no view ${key} without more in its address.` });
  return VIEWS[key]();
}

function failed(error) {
  if (error instanceof Problem && (error.status === 401 || error.status === 403)) askForToken(error);
  else if (error instanceof Problem && (error.status === 404 || error.status === 422)) missing(error);
  else if (error instanceof Problem) notice(`The service answers: ${error.message}`);
  else if (error instanceof TypeError && /fetch|network|load/i.test(error.message)) badge(); // the badge tells
  else throw error;
}

function missing(error) {
  root.dataset.view = "missing";
  root.replaceChildren(
    h("section", { class: "card" }, h("h1", null, "Not here"), h("p", null, visible(error.message)), h("p", null, h("a", { href: "/" }, "All runs"))),
  );
}

function askForToken(error) {
  if (root.dataset.view === "token" && !token()) return;
  root.dataset.view = "token";
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, id: "token" });
  const form = h(
    "form",
    { class: "card" },
    h("h1", null, "This service needs a token"),
    h("p", { class: "since" }, token() ? visible(error.message) : "One with the scope read: firstfault token create."),
    h("label", { for: "token" }, "Token"),
    input,
    h("button", { type: "submit" }, "Use it in this tab"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    begin();
  });
  setToken(null);
  document.getElementById("forget").hidden = true;
  root.replaceChildren(form);
  input.focus();
}

function begin() {
  document.getElementById("forget").hidden = !token();
  live.retry();
  visit();
}

/** What is wrong with the service itself. */
async function look() {
  if (document.hidden) return;
  const health = await get("/readyz").catch((error) => (error instanceof Problem ? { reasons: [{ code: "unready", detail: error.message }] } : null));
  if (health === null) return; // no answer: the badge tells
  reasons = health.reasons;
  badge();
  notice();
}

function badge() {
  const isBlind = live.state === "live" && reasons.some((one) => !NOT_STALE.has(one.code));
  const state = isBlind ? "stale" : live.state;
  const [shape, word] = BADGES[state];
  const place = document.getElementById("badge");
  place.className = `badge ${state}`;
  place.title = isBlind ? "connected, but newer telemetry may not have been judged" : "";
  fill(place, [state, live.state === "live" ? 0 : live.heardAt], () => [
    h("span", { "aria-hidden": "true" }, `${shape} `),
    word,
    live.state === "stale" ? h("span", null, " since ", moment(new Date(live.heardAt).toISOString())) : null,
  ]);
}

function notice(error = "") {
  const lines = reasons.map((one) => one.detail ?? one.code);
  if (error) lines.unshift(error);
  fill(document.getElementById("notice"), lines, () => lines.map((line) => h("p", null, "⚠ ", linked(line))));
}

/** A reason in words: where it names a list of the API, the page's own view of it. */
function linked(line) {
  const found = /^(.*?)\/v1\/incidents\?([a-z]+=[a-z_]+)(.*)$/s.exec(line);
  if (found === null) return visible(line);
  return [visible(found[1]), h("a", { href: `/?view=incidents&${found[2]}` }, "the incidents"), visible(found[3])];
}

live.addEventListener("state", () => {
  badge();
  if (live.state === "polling") look();
  if (live.state !== "live") return;
  look();
  refresh(); // what was asked for in vain while it was away
});
live.addEventListener("refresh", refresh);
live.addEventListener("denied", refresh);
live.addEventListener("change", ({ detail }) => {
  const { run, incident } = read();
  // `run …`, `checksums …`: a view of one run names it
  if ((run !== null || incident !== null) && root.dataset.view?.split(" ")[1] !== detail.run_id) return;
  refresh();
  clearTimeout(trailing);
  trailing = setTimeout(refresh, CURVES_LAG_MS);
});
document.getElementById("forget").addEventListener("click", () => {
  setToken(null);
  begin();
});
addEventListener("online", () => live.retry());
follow(visit);
listen();
setInterval(look, HEALTH_EVERY_MS);
begin();
live.start();
