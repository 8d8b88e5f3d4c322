// Who is told: alert channels and what became of their messages; what is muted, by whom; what people said of
// each detector; the tokens. Each part asks for itself, so that one that may not be read hides no other.

import { Problem, get, post } from "./api.js";
import { fill, h, name, visible } from "./dom.js";
import { link } from "./address.js";
import { LABELS, ago, moment, number, spaced } from "./words.js";

const DELIVERIES = 30;
const AGAIN_MS = 10_000; // what a channel did with a message is no event of the stream
const SIGNS = { sent: "✓ sent", failed: "▲ failed", given_up: "✗ given up", waiting: "… waiting", dropped: "– dropped" };
const PARTS = [
  ["channels", "Channels", "/v1/alerts/channels", channels],
  ["deliveries", "Last messages", `/v1/alerts/deliveries?limit=${DELIVERIES}`, deliveries],
  ["mutes", "Mutes", "/v1/mutes", mutes],
  ["detectors", "What people said of each detector", "/v1/detectors", detectors],
  ["tokens", "Tokens", "/v1/tokens", tokens],
];

let timer = 0;
let look = () => {};

/** Show all parts in `root`. */
export async function showAlerts(root, view, signal, again) {
  document.title = "Alerts – firstfault";
  if (root.dataset.view !== "alerts") {
    root.dataset.view = "alerts";
    root.replaceChildren(h("h1", null, "Alerts"), ...PARTS.map(([key]) => h("section", { id: `alerts-${key}`, class: "card" })));
  }
  await Promise.all(PARTS.map((part) => showPart(root, part, signal)));
  look = () => root.dataset.view === "alerts" && again();
  clearTimeout(timer);
  timer = setTimeout(look, AGAIN_MS);
}

async function showPart(root, [key, title, path, build], signal) {
  const told = await get(path, signal).catch((error) => {
    if (error instanceof Problem && error.status !== 401) return error;
    throw error;
  });
  const refused = told instanceof Problem ? told.message : null;
  fill(root.querySelector(`#alerts-${key}`), [refused, refused === null ? told : null], () => [h("h2", null, title), refused === null ? build(told.items) : h("p", null, visible(refused))]);
}

function channels(items) {
  if (!items.length) return h("p", null, "No channel is set: [alerts.channels.NAME] in the settings names webhooks, Alertmanagers and others.");
  return table(["Channel", "Tells", "Waiting", "What became of it", ""], items.map((one) => [
    [h("b", null, name(one.name)), h("span", { class: "since" }, one.kind ?? "not in the settings", one.target ? [", ", name(one.target)] : null)],
    [`${one.min_certainty ?? "–"} and worse, from ${one.min_severity ?? "–"}`, h("span", { class: "since" }, [...(one.labels ?? []).map((label) => LABELS[label] ?? label), one.runs ? `runs ${visible(one.runs)}` : "all runs", one.tells_resolved ? "resolved too" : ""].filter(Boolean).join(", "))],
    [number(one.waiting), one.oldest_waiting_at ? h("span", { class: "since" }, "since ", ago(one.oldest_waiting_at)) : null],
    [one.is_failing ? h("b", { class: "mark warning" }, "▲ failing ") : null, one.results.map((result) => h("span", { class: "since" }, `${SIGNS[result.result] ?? result.result}: ${number(result.messages)}, `, ago(result.at), result.detail ? `: ${visible(result.detail)}` : ""))],
    one.kind === null ? "" : tryButton(one.name),
  ]));
}

function tryButton(channel) {
  const button = h("button", { type: "button", class: "copy", "data-key": `test-${channel}` }, "Send a test");
  button.addEventListener("click", () => act(button, () => post(`/v1/alerts/channels/${encodeURIComponent(channel)}/test`, {}), "Put out"));
  return button;
}

/** Do what a button says, and say on it what came of that. */
async function act(button, what, done) {
  button.disabled = true;
  try {
    await what();
    button.textContent = done;
    setTimeout(look, 1_000);
  } catch (error) {
    button.textContent = error instanceof Problem ? visible(error.message) : "No answer";
  }
}

function deliveries(items) {
  if (!items.length) return h("p", null, "No message was sent yet.");
  return table(["Message", "Channel", "State", "Made", "About"], items.map((one) => [
    spaced(one.kind),
    name(one.channel),
    [SIGNS[one.state] ?? spaced(one.state), one.attempts > 1 ? ` after ${number(one.attempts)} tries` : "", one.detail ? h("span", { class: "since" }, visible(one.detail)) : null],
    ago(one.created_at),
    one.incidents.map((incident) => h("span", { class: "about" }, `${spaced(incident.event)}: `, incident.id ? h("a", { href: link({ run: one.run_id, incident: incident.id }), "data-key": `about-${one.id}-${incident.id}` }, visible(incident.sentence)) : visible(incident.sentence ?? ""))),
  ]));
}

function mutes(items) {
  if (!items.length) return h("p", null, "Nothing is muted by a rule.");
  const matched = (one) => ["run", "label", "pattern", "detector", "host"].filter((key) => one[key] !== null).map((key, at) => [at ? ", " : "", `${key} `, h("b", null, name(one[key]))]);
  return table(["Matches", "Why", "By", "Until", "State"], items.map((one) => [
    matched(one),
    visible(one.comment),
    name(one.who),
    moment(one.until),
    [one.active ? "● active" : "○ over", one.ended_by ? h("span", { class: "since" }, "ended by ", name(one.ended_by)) : null],
  ]));
}

function detectors(items) {
  if (!items.length) return h("p", null, "No detector has fired.");
  const share = (one) => (one.estimate === null ? "not judged" : `${Math.round(one.estimate * 100)} % (${Math.round(one.low * 100)} to ${Math.round(one.high * 100)} %)`);
  return table(["Detector", "Fired", "Confirmed", "Judged real", "False alarms", "Right"], items.map((one) => [
    h("b", null, spaced(one.detector)),
    number(one.fired),
    number(one.confirmed),
    number(one.judged_real),
    number(one.false_alarms),
    share(one.precision),
  ]));
}

function tokens(items) {
  if (!items.length) return h("p", null, "There are none, so this machine alone is served: firstfault token create.");
  return table(["Token", "May", "Last used", "Expires", "State"], items.map((one) => [
    [h("b", null, name(one.name)), h("span", { class: "since" }, `${visible(one.prefix)}…`)],
    one.scopes.join(", "),
    one.last_used_at ? ago(one.last_used_at) : "never",
    one.expires_at ? moment(one.expires_at) : "never",
    one.is_valid ? "● valid" : "○ ended",
  ]));
}

function table(heads, rows) {
  const head = h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one))));
  const body = rows.map((cells) => h("tr", null, cells.map((cell, at) => h("td", { "data-head": heads[at] || null }, cell))));
  return h("table", { class: "plain-table" }, head, h("tbody", null, body));
}
