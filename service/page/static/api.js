// Asks the API. What has not changed since it was last asked is the same object again.

const TOKEN = "firstfault.token";
const MAX_KEPT = 200;
const kept = new Map();

/** An answer that is no data: the problem document, or its status alone. */
export class Problem extends Error {
  constructor(status, document) {
    super(document?.detail ?? `the service answered ${status}`);
    this.status = status;
    this.kind = (document?.type ?? "").split(":").at(-1);
  }
}

/** The token of this tab, if one was given. */
export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** Keep a token until this tab is closed, or forget it. */
export function setToken(given) {
  kept.clear();
  if (given) sessionStorage.setItem(TOKEN, given);
  else sessionStorage.removeItem(TOKEN);
}

/** The headers that every request has. */
export function headers() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}

/** The problem that an answer tells of, whatever its status; null for data. */
async function problemOf(answer) {
  const isProblem = (answer.headers.get("content-type") ?? "").startsWith("application/problem+json");
  if (answer.ok && !isProblem) return null;
  const document = await answer.json().catch(() => null);
  return new Problem(document?.status ?? answer.status, document);
}

/** The JSON at `path`. Throws a `Problem`, or a TypeError where there is no answer at all. */
export async function get(path, signal) {
  const before = kept.get(path);
  // what a run does not have is no error: of each the browser would write a line to its console
  const asked = { ...headers(), Prefer: "handling=lenient", ...(before ? { "If-None-Match": before.tag } : {}) };
  const answer = await fetch(path, { headers: asked, signal, cache: "no-store" });
  if (answer.status === 304 && before) return before.data;
  const problem = await problemOf(answer);
  if (problem !== null) throw problem;
  const data = await answer.json();
  keep(path, answer.headers.get("etag"), data);
  return data;
}

/** The ETag of what `get` answered last for `path`: what the reader has seen. */
export function tagOf(path) {
  return kept.get(path)?.tag ?? null;
}

/** Send `body` to `path`, which must still be as it bears the tag `seen`; what is answered. */
export async function post(path, body, seen) {
  const sent = { ...headers(), "Content-Type": "application/json", ...(seen ? { "If-Match": seen } : {}) };
  const answer = await fetch(path, { method: "POST", headers: sent, body: JSON.stringify(body), cache: "no-store" });
  const problem = await problemOf(answer);
  if (problem !== null) throw problem;
  return answer.json();
}

function keep(path, tag, data) {
  kept.delete(path);
  if (!tag) return;
  kept.set(path, { tag, data });
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value);
}
