// Filters of a list and the way through its pages: all of it part of the address.

import { go, link, read } from "./address.js";
import { h } from "./dom.js";
import { LABELS, spaced } from "./words.js";

export const LABEL_WORDS = Object.entries(LABELS);
export const STATE_WORDS = ["open", "acknowledged", "muted", "resolved", "false_alarm"].map((one) => [one, spaced(one)]);
export const STATE_SIGNS = { open: "◆", acknowledged: "✓", muted: "🔇︎", resolved: "✔", false_alarm: "✗" };

/** What a list is asked: the `keys` that the address has. */
export function question(view, keys) {
  const asked = new URLSearchParams();
  for (const key of keys) if (view[key] !== null && view[key] !== "") asked.set(key, view[key]);
  return asked;
}

/** A form whose fields (`{key, label, options | hint}`) narrow the list, each a part of the address. */
export function filters(view, fields) {
  const inputs = fields.map((one) => [one.key, one.options ? choice(view, one) : text(view, one)]);
  const form = h("form", { class: "filters", role: "search" }, inputs.map(([key, input], at) => h("label", { for: `filter-${key}` }, fields[at].label, input)));
  const isNarrowed = fields.some(({ key }) => view[key] !== null);
  if (isNarrowed) form.append(h("a", { href: link({ view: view.view }), "data-key": "filter-none" }, "show all"));
  const apply = () => {
    const given = Object.fromEntries(inputs.map(([key, input]) => [key, input.value.trim() || null]));
    go({ ...read(), ...given, page: null });
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  form.addEventListener("change", apply);
  return form;
}

/** To the next page of a list, and back to its beginning. */
export function pager(view, next) {
  if (next === null && view.page === null) return null;
  const links = [
    view.page === null ? null : h("a", { href: link({ ...view, page: null }), "data-key": "page-first" }, "◀ first page"),
    next === null ? h("span", { class: "since" }, "this is the last page") : h("a", { href: link({ ...view, page: next }), "data-key": "page-next" }, "next page ▶"),
  ];
  return h("nav", { class: "pager", "aria-label": "Pages" }, links);
}

function choice(view, { key, options }) {
  const all = h("option", { value: "" }, "any");
  const listed = options.map(([value, words]) => h("option", { value, selected: view[key] === value }, words));
  return h("select", { id: `filter-${key}`, name: key, "data-key": `filter-${key}` }, all, listed);
}

function text(view, { key, hint }) {
  return h("input", { id: `filter-${key}`, name: key, type: "search", maxlength: 256, placeholder: hint, value: view[key], "data-key": `filter-${key}` });
}
