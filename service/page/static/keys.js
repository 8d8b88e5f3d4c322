// Single keys for what is done often. Each is on a button too, which names it.

import { h } from "./dom.js";

const bound = new Map();

/** Bind keys to what they do in the view that is shown: `{a: ["Acknowledge", act]}`; the ones before are let go. */
export function bind(keys) {
  bound.clear();
  for (const [key, use] of Object.entries(keys)) bound.set(key, use);
}

/** Listen; `?` tells what there is. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return;
    if (event.key === "?") return tell();
    const use = bound.get(event.key);
    if (!use) return;
    event.preventDefault();
    use[1]();
  });
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function tell() {
  const before = document.activeElement;
  const rows = [...bound].map(([key, [what]]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]);
  const close = h("button", { type: "button" }, "Close");
  const dialog = h("dialog", { "aria-label": "Keys" }, h("h3", null, "Keys"), h("dl", null, rows, h("dt", null, h("kbd", null, "?")), h("dd", null, "this list")), close);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}
