// Builds the document from data. Everything that comes from data goes in as text or as an attribute:
// nothing here, and nothing in the other modules, reads a string as HTML.

const SVG = "http://www.w3.org/2000/svg";
// what Unicode calls control, format (direction marks among them), surrogate and private, and line ends
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;
const LONG = 100; // characters of a name that are shown: two lines of a column
const END = 24; // of them at the end, where names made by programs differ
const prints = new WeakMap();

/** An element: `h("p", {class: "note"}, "text", child)`; null children are left out. */
export function h(tag, attributes, ...children) {
  return built(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return built(document.createElementNS(SVG, tag), attributes, children);
}

/** A text out of telemetry, with characters that cannot be seen, or turn others around, as their code. */
export function visible(text) {
  return String(text).replace(UNSEEN, (one) => {
    const code = one.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

/** A name out of telemetry, which keeps its direction of writing to itself; a long one whole on hovering. */
export function name(text) {
  const [shown, whole] = [brief(text), visible(text)];
  return h("bdi", shown === whole ? null : { title: whole }, shown);
}

/** A name in full, on the page of what bears it. */
export function wholeName(text) {
  return h("bdi", null, visible(text));
}

/** A text as `visible` gives it, of a long one its beginning and its end: names may be made to fill a page. */
export function brief(text) {
  const letters = [...visible(text)];
  if (letters.length <= LONG) return letters.join("");
  return `${letters.slice(0, LONG - END - 1).join("")}…${letters.slice(-END).join("")}`;
}

/** Show `data` in `slot` by what `build` makes of it; untouched where the data is as before. */
export function fill(slot, data, build) {
  const print = JSON.stringify(data);
  if (prints.get(slot) === print) return false;
  prints.set(slot, print);
  const focused = slot.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = new Set([...slot.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
  slot.replaceChildren(...[build(data)].flat(Infinity).filter((one) => one !== null));
  for (const one of slot.querySelectorAll("[data-key]")) {
    if (one.dataset.key === focused) one.focus({ preventScroll: true });
    if (open.has(one.dataset.key)) one.open = true;
  }
  return true;
}

/** Put `text` on the clipboard, and say so on the button for a while. */
export async function copy(button, text) {
  const isDone = await written(text);
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  button.textContent = isDone ? "Copied" : "Select and copy by hand";
  setTimeout(() => (button.textContent = before), 2000);
}

/** A text to copy, with its button. */
export function copyable(text, key, what) {
  const button = h("button", { type: "button", class: "copy", "data-key": key, "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", () => copy(button, text));
  return h("span", { class: "copyable" }, h("code", null, visible(text)), button);
}

function built(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writtenTheOldWay(text); // a plain http address of another machine has no clipboard
  }
}

function writtenTheOldWay(text) {
  const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}
