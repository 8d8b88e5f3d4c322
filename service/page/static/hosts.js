// What each host was accused of over all runs: repeat offenders first.

import { link } from "./address.js";
import { Problem, get } from "./api.js";
import { fill, h, name, visible, wholeName } from "./dom.js";
import { pager } from "./filters.js";
import { incidentTable } from "./incidents.js";
import { LABELS, ago, counted, number, severityMark } from "./words.js";

const CHANCE = { more_than_chance: "▲ more than chance", may_be_chance: "○ may be chance", unknown: "– not known" };

/** Show the hosts that were suspects. */
export async function showHosts(root, view, signal) {
  const page = await get(`/v1/hosts${view.page === null ? "" : `?cursor=${encodeURIComponent(view.page)}`}`, signal);
  document.title = "Hosts – firstfault";
  if (root.dataset.view !== "hosts") {
    root.dataset.view = "hosts";
    root.replaceChildren(h("h1", null, "Hosts"), h("p", { class: "since" }, "Hosts of suspects of confirmed incidents over all runs; those accused alone most often come first."), h("div", { id: "hosts" }));
  }
  fill(root.querySelector("#hosts"), [page, view.page], () => (page.items.length ? [table(page.items), pager(view, page.next)] : h("p", { class: "card" }, "No host was a suspect yet.")));
}

function table(items) {
  const heads = ["Host", "Accused alone", "With others", "Runs", "Chance", "Devices", "Newest"];
  return h("table", { class: "runs hosts" }, h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one)))), h("tbody", null, items.map(row)));
}

function row(one) {
  const seen = one.runs_seen === null ? "" : ` of ${number(one.runs_seen)}`;
  const alarms = one.false_alarms ? h("span", { class: "since" }, counted(one.false_alarms, "false alarm")) : null;
  const cells = [
    ["run", h("a", { href: link({ host: one.host }), "data-key": `host-${one.host}` }, name(one.host))],
    ["alone", h("span", { class: "narrow" }, "accused alone "), number(one.as_sole_suspect), alarms],
    ["others", h("span", { class: "narrow" }, "with others "), number(one.as_one_of_several)],
    ["judged", h("span", { class: "narrow" }, "in "), `${number(one.runs)}${seen}`, h("span", { class: "narrow" }, " runs")],
    ["covered", h("span", { class: `mark ${one.chance.state === "more_than_chance" ? "warning" : "none"}` }, CHANCE[one.chance.state]), h("span", { class: "since" }, visible(one.chance.why))],
    ["devices", one.devices.slice(0, 3).map((device, at) => [at ? ", " : "", name(device)]), one.devices.length > 3 ? ` and ${one.devices.length - 3} more` : ""],
    ["updated", newest(one.newest)],
  ];
  return h("tr", null, cells.map(([key, ...inside]) => h("td", { class: key }, inside)));
}

function newest(one) {
  if (one === null) return "–";
  return [h("span", null, severityMark(one.severity), ` ${LABELS[one.label] ?? one.label}`), h("span", { class: "since" }, name(one.run), ", ", ago(one.opened_at))];
}

/** Show one host: its devices and what accuses it. */
export async function showHost(root, view, signal) {
  const told = await get(`/v1/hosts/${encodeURIComponent(view.host)}`, signal).catch((error) => {
    if (error instanceof Problem && (error.status === 404 || error.status === 422)) return error;
    throw error;
  });
  document.title = `${view.host.slice(0, 60)} – firstfault`;
  if (root.dataset.view !== "host") {
    root.dataset.view = "host";
    const way = h("nav", { "aria-label": "Where you are" }, h("a", { href: link({ view: "hosts" }), "data-key": "back" }, "← All hosts"));
    root.replaceChildren(way, h("div", { id: "host" }));
  }
  fill(root.querySelector("#host"), told instanceof Problem ? [view.host, told.message] : told, () => (told instanceof Problem ? unknown(view.host, told) : host(told)));
}

function unknown(given, problem) {
  return [h("h1", null, wholeName(given)), h("section", { class: "card" }, h("p", null, visible(problem.message)))];
}

function host(told) {
  const seen = told.runs_seen === null ? "no run named its hosts" : `seen in ${counted(told.runs_seen, "run")}`;
  const facts = [
    `accused alone in ${counted(told.as_sole_suspect, "incident")}`,
    `with others in ${number(told.as_one_of_several)}`,
    `of ${counted(told.runs, "run")}; ${seen}`,
    told.false_alarms ? `${counted(told.false_alarms, "false alarm")} set aside` : "",
  ];
  return [
    h("h1", null, "Host ", wholeName(told.host)),
    h("p", { class: "sentence" }, CHANCE[told.chance.state], ": ", visible(told.chance.why), "."),
    h("p", { class: "tags" }, facts.filter(Boolean).map((one) => h("span", { class: "tag" }, one))),
    devices(told.device_history),
    h("h2", null, "Incidents"),
    told.history.length ? incidentTable(told.history, { head: "Accused", cell: (one) => (one.is_sole_suspect ? "alone" : "with other hosts") }) : h("p", { class: "card" }, "Nothing accuses it."),
    told.more ? h("p", { class: "since" }, "older ones are left out") : null,
  ];
}

function devices(listed) {
  if (!listed.length) return null;
  const rows = listed.map((one) => {
    const elsewhere = one.other_hosts.length ? [" – suspected on ", one.other_hosts.slice(0, 4).map((host, at) => [at ? ", " : "", h("a", { href: link({ host }), "data-key": `other-${one.device}-${host}` }, name(host))]), " too: it was moved"] : [];
    return h("li", null, h("b", null, name(one.device)), `: ${counted(one.incidents, "incident")}, ${number(one.as_sole_suspect)} alone`, elsewhere);
  });
  return h("section", { class: "card" }, h("h3", null, "Devices"), h("ul", { class: "bare" }, rows));
}
