// What other settings of the detectors would have said of a stored run; nothing that is stored changes.

import { go, read } from "./address.js";
import { Problem, get, post } from "./api.js";
import { fill, h, name, visible } from "./dom.js";
import { frame } from "./views.js";
import { LABELS, number, rankList, severityMark, spaced } from "./words.js";

const KINDS = { appears: "+ appears", vanishes: "− vanishes", moves: "→ moves", changes: "≈ changes", stays: "= stays" };
const AGAIN_MS = 1_500;

/** Show the form, and the trial that the address names, in `root`. */
export async function showWhatIf(root, view, signal, again) {
  const { run } = await frame(root, view, "what-if", signal, () => [h("section", { id: "whatif-form", class: "card" }), h("div", { id: "whatif" })]);
  const base = `/v1/runs/${encodeURIComponent(run.run_id)}/what-if`;
  const missing = (error) => {
    if (error instanceof Problem && error.status !== 401) return error;
    throw error;
  };
  const settings = await get("/v1/detectors/settings", signal).catch(missing);
  const trial = view.trial === null ? null : await get(`${base}/${encodeURIComponent(view.trial)}`, signal).catch(missing);
  fill(root.querySelector("#whatif-form"), [settings.items ?? settings.message, trial?.settings], () => (settings instanceof Problem ? [h("p", null, visible(settings.message))] : form(settings.items, trial?.settings ?? {}, base)));
  fill(root.querySelector("#whatif"), trial instanceof Problem ? trial.message : trial, () => result(trial));
  if (trial?.state === "running") setTimeout(again, AGAIN_MS);
}

function form(items, tried, base) {
  const known = new Map(items.map((one) => [one.name, one.value]));
  const list = h("datalist", { id: "settings" }, items.map((one) => h("option", { value: one.name })));
  const rows = h("div", { class: "trial-rows" });
  const add = (key = "", value = "") => rows.append(row(known, key, value, rows.children.length));
  Object.entries(tried).forEach(([key, value]) => add(key, JSON.stringify(value)));
  if (!rows.children.length) add();
  const more = h("button", { type: "button", class: "copy", "data-key": "trial-more" }, "One more setting");
  more.addEventListener("click", () => add());
  const submit = h("button", { type: "submit", "data-key": "trial-go" }, "Judge again");
  const said = h("p", { role: "status", "aria-live": "polite" });
  const made = h(
    "form",
    { class: "trial" },
    h("h2", null, "What if"),
    h("p", { class: "since" }, "The run is judged again under other settings, out of what its ranks reported. What is stored stays as it is."),
    list,
    rows,
    h("p", null, more, " ", submit),
    said,
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    await ask(made, base, submit, said);
  });
  return made;
}

function row(known, key, value, at) {
  const setting = h("input", { name: "setting", list: "settings", value: key, placeholder: "detectors.explosion.loss_hold", "aria-label": `Setting ${at + 1}`, autocomplete: "off" });
  const wanted = h("input", { name: "value", value, placeholder: "value", "aria-label": `Value ${at + 1}`, autocomplete: "off" });
  const now = h("span", { class: "since" });
  const tell = () => (now.textContent = known.has(setting.value) ? `now ${JSON.stringify(known.get(setting.value))}` : "");
  setting.addEventListener("input", tell);
  tell();
  return h("div", { class: "trial-row" }, setting, wanted, now);
}

async function ask(made, base, submit, said) {
  const values = [...made.querySelectorAll(".trial-row")].map((one) => [...one.querySelectorAll("input")].map((input) => input.value.trim()));
  const settings = Object.fromEntries(values.filter(([key]) => key).map(([key, value]) => [key, plain(value)]));
  if (!Object.keys(settings).length) {
    said.textContent = "Name a setting to try.";
    return;
  }
  submit.disabled = true;
  said.textContent = "Judging again: some seconds …";
  try {
    const { id } = await post(base, { settings });
    go({ ...read(), trial: id });
  } catch (error) {
    said.textContent = error instanceof Problem ? visible(error.message) : "No answer.";
  } finally {
    submit.disabled = false;
  }
}

/** A value as the settings file has it: a number, true, false or a list; else a text. */
function plain(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function result(trial) {
  if (trial === null) return [];
  if (trial instanceof Problem) return h("p", { class: "card" }, visible(trial.message));
  if (trial.state === "running") return h("p", { class: "card" }, "… still being judged.");
  if (trial.after === null) return h("p", { class: "card" }, visible(trial.refusal));
  const tried = Object.entries(trial.settings).map(([key, value]) => h("li", null, name(key), " = ", h("code", null, visible(JSON.stringify(value)))));
  return [
    h("section", { class: "card" }, h("h3", null, "Tried"), h("ul", { class: "bare" }, tried)),
    h("section", { class: "card" }, h("dl", null, h("dt", null, "As stored"), h("dd", null, side(trial.before)), h("dt", null, "With these"), h("dd", null, side(trial.after)))),
    h("h2", null, "Incidents"),
    trial.differences.length ? h("ul", { class: "bare differences" }, trial.differences.map(difference)) : h("p", { class: "card" }, "None, on either side."),
  ];
}

function side(verdict) {
  return [h("b", null, LABELS[verdict.label] ?? verdict.label), `: ${visible(verdict.sentence)}`];
}

function difference(one) {
  const shown = one.after ?? one.before;
  const changed = one.changed.map((field) => h("li", null, `${visible(spaced(field.field))}: ${worth(field.before)} → ${worth(field.after)}`));
  const place = `rank ${shown.first.ranks.length ? rankList(shown.first.ranks, shown.first.rank_count) : "–"}, iteration ${number(shown.first.iteration)}`;
  return h("li", { class: `card ${one.kind}` }, h("b", { class: "kind" }, KINDS[one.kind] ?? one.kind), " ", severityMark(shown.severity), ` ${spaced(shown.certainty)}, ${place}`, h("p", null, visible(shown.sentence)), changed.length ? h("ul", { class: "since" }, changed) : null);
}

function worth(value) {
  return value === null ? "–" : visible(typeof value === "object" ? JSON.stringify(value) : number(value));
}
