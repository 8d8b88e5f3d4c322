// Where the reader is: every view is an address, so that a reload or a link shows the same again.

const KEYS = [
  ...["view", "run", "incident", "host", "attempt", "from", "to", "metric", "curves", "by", "ranks", "at"],
  ...["label", "state", "severity", "text", "page", "trial"],
];

/** The view that the address names. */
export function read() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(KEYS.map((key) => [key, given.get(key)]));
}

/** The address of a view. */
export function link(view) {
  const given = new URLSearchParams();
  for (const key of KEYS) if (view[key] !== null && view[key] !== undefined) given.set(key, view[key]);
  const query = given.toString();
  return query ? `/?${query}` : "/";
}

/** Note a change of the view that is no step of its own, as a zoom is. */
export function note(view) {
  history.replaceState(null, "", link(view));
}

/** Call `show` when the reader follows a link to a view of this page, or goes back. */
export function follow(show) {
  addEventListener("popstate", show);
  document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!anchor || !isPlain || anchor.origin !== location.origin || anchor.pathname !== "/" || anchor.hash) return;
    event.preventDefault();
    history.pushState(null, "", anchor.href);
    scrollTo(0, 0);
    show();
  });
}

/** Go to a view of this page. */
export function go(view) {
  history.pushState(null, "", link(view));
  scrollTo(0, 0);
  dispatchEvent(new Event("popstate"));
}
