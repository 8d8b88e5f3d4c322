// What a person makes of an incident: acknowledge, mute, resolve, call a false alarm, open again.
//
// A decision is sent with the tag of the incident as its maker saw it. Where it has changed since, what
// changed is shown first, and the same decision can be sent again.

import { get, post, tagOf } from "./api.js";
import { fill, h, name, visible } from "./dom.js";
import { moment, spaced } from "./words.js";

const HOUR_S = 3600;
const MUTES = [
  ["1 hour", HOUR_S],
  ["4 hours", 4 * HOUR_S],
  ["1 day", 24 * HOUR_S],
  ["7 days", 7 * 24 * HOUR_S],
];
const MAX_NOTE = 2000; // what the API takes
const DECISIONS = {
  acknowledged: ["a", "Acknowledge", "Somebody is looking at it."],
  muted: ["m", "Mute…", "No alerts of it until then; a note says why."],
  resolved: ["r", "Resolve", "It is over. Should it come back, it opens again."],
  false_alarm: ["f", "False alarm", "Nothing was wrong. Kept and counted for each detector; it changes no setting."],
  open: ["o", "Reopen", "Somebody has to look at it."],
};
const AFTER = {
  open: ["acknowledged", "muted", "resolved", "false_alarm"],
  acknowledged: ["muted", "resolved", "false_alarm", "open"],
  muted: ["acknowledged", "resolved", "false_alarm", "open"],
  resolved: ["open", "false_alarm"],
  false_alarm: ["open"],
};
const WITH_NOTE = new Set(["muted", "false_alarm"]);
const SEEN = ["state", "muted_until", "certainty", "severity", "is_withdrawn", "sentence"];

/** The buttons of one incident and the form behind them, in a place that outlives news of it. */
export class Actions {
  #one = null;

  constructor(slot, done) {
    this.done = done;
    this.state = h("div", { class: "state" });
    this.form = h("div", { class: "decide" });
    slot.replaceChildren(this.state, this.form);
  }

  /** Show what can be done with the incident as it is now. */
  show(one) {
    if (one?.id !== this.#one?.id) this.form.replaceChildren();
    this.#one = one;
    fill(this.state, [one.state, one.muted_until, one.log, one.is_withdrawn, one.allowed], () => [said(one), h("p", { class: "buttons" }, this.#buttons(one))]);
  }

  /** The keys that do the same as the buttons. */
  keys() {
    const able = this.#one === null ? [] : offered(this.#one);
    return Object.fromEntries(able.map((state) => [DECISIONS[state][0], [DECISIONS[state][1], () => this.#ask(state)]]));
  }

  #buttons(one) {
    return offered(one).map((state) => {
      const [key, label] = DECISIONS[state];
      const button = h("button", { type: "button", "data-key": `do-${state}`, "aria-keyshortcuts": key }, label, " ", h("kbd", { "aria-hidden": "true" }, key));
      button.addEventListener("click", () => this.#ask(state));
      return button;
    });
  }

  /** Open the form of a decision about the incident as it is shown at this moment. */
  #ask(state) {
    const one = this.#one;
    const seen = { one, tag: tagOf(pathOf(one.id)) };
    const [, label, means] = DECISIONS[state];
    const title = label.replace("…", "");
    const note = h("textarea", { id: "note", rows: 2, maxlength: MAX_NOTE, required: WITH_NOTE.has(state) });
    const until = state === "muted" ? muteField() : null;
    const said = h("div", { role: "alert" });
    const send = h("button", { type: "submit", class: "primary" }, title);
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h(
      "form",
      { class: "card", "aria-label": title },
      h("p", null, h("b", null, title), " – ", means),
      until?.field,
      h("label", { for: "note" }, WITH_NOTE.has(state) ? "Why (needed)" : "Note (may be empty)"),
      note,
      h("p", { class: "buttons" }, send, cancel),
      said,
    );
    cancel.addEventListener("click", () => this.#close(state));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#close(state);
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const decision = { state, note: note.value, ...(until ? { muted_until: until.value() } : {}) };
      this.#send(decision, seen, { said, send, title });
    });
    this.form.replaceChildren(form);
    note.focus();
  }

  async #send(decision, seen, parts) {
    const { said, send, title } = parts;
    send.disabled = true;
    try {
      await post(`${pathOf(seen.one.id)}/state`, decision, seen.tag);
      this.#close(decision.state);
      this.done();
    } catch (error) {
      if (error.status === 412) {
        const path = pathOf(seen.one.id);
        const now = await get(path).catch(() => null);
        if (now !== null) {
          said.replaceChildren(...changed(seen.one, now));
          send.textContent = `${title} all the same`;
          Object.assign(seen, { one: now, tag: tagOf(path) }); // sent again, it is about what is shown now
        }
      } else {
        said.replaceChildren(h("p", null, "⚠ ", visible(refused(error))));
      }
    } finally {
      send.disabled = false;
    }
  }

  #close(state) {
    this.form.replaceChildren();
    this.state.querySelector(`[data-key=do-${state}]`)?.focus();
  }
}

function pathOf(id) {
  return `/v1/incidents/${encodeURIComponent(id)}`;
}

function offered({ state, allowed }) {
  return (allowed ?? AFTER[state]).filter((next) => next !== state && next in DECISIONS);
}

function said(one) {
  const last = one.log.at(-1);
  const until = one.muted_until ? [" until ", moment(one.muted_until)] : [];
  const isOver = last !== undefined && last.state !== one.state;
  const by = last === undefined || isOver ? [] : [" by ", name(last.who), ", ", moment(last.at)];
  const note = last?.note && !isOver ? h("span", { class: "since" }, visible(last.note)) : null;
  const words = last === undefined && one.state === "open" ? "open: nobody has taken it yet" : spaced(one.state);
  return h("p", { class: "stated" }, h("b", null, words), ...until, ...by, note);
}

function muteField() {
  const choice = h("select", { id: "until" }, MUTES.map(([label, seconds]) => h("option", { value: seconds }, label)), h("option", { value: "" }, "until…"));
  const exact = h("input", { type: "datetime-local", "aria-label": "End of the mute", hidden: true });
  choice.addEventListener("change", () => {
    exact.hidden = choice.value !== "";
    exact.required = choice.value === "";
  });
  const value = () => (choice.value === "" ? new Date(exact.value) : new Date(Date.now() + 1000 * Number(choice.value))).toISOString();
  return { field: h("p", null, h("label", { for: "until" }, "For "), choice, exact), value };
}

function changed(before, now) {
  const rows = SEEN.filter((key) => before[key] !== now[key]).map((key) =>
    h("li", null, h("b", null, spaced(key)), ": ", visible(before[key] ?? "–"), " → ", visible(now[key] ?? "–")),
  );
  const news = now.log.slice(before.log.length).map((entry) => h("li", null, name(entry.who), ": ", spaced(entry.state), " ", moment(entry.at), entry.note ? `, ${visible(entry.note)}` : ""));
  const rest = rows.length + news.length ? [] : [h("li", null, "its evidence")];
  return [h("p", null, "⚠ It has changed since you opened this:"), h("ul", null, ...rows, ...news, ...rest)];
}

function refused(error) {
  if (error.status === 403) return `${error.message}: deciding needs a token with the scope write`;
  return error.status ? error.message : "The service does not answer; nothing was changed.";
}
