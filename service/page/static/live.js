// The event stream, and how far what is shown can be trusted to be of now.
//
// EventSource sends no token, so the stream is read by fetch. States: `live`, `polling` (the stream is
// refused, but the service answers), `reconnecting` (just lost) and `stale` (lost for longer).

import { headers } from "./api.js";

const STALE_AFTER_MS = 6_000;
// longer than the service lets a stream be silent by default; then it is asked whether it lives
const SILENT_MS = 35_000;
const POLL_MS = 5_000;
const RETRY_MS = [500, 1_000, 2_000];

/** Reads the stream for as long as the page is open; tells by events `state`, `change`, `refresh`, `denied`. */
export class Live extends EventTarget {
  state = "connecting";
  heardAt = Date.now();
  #place = null;
  #failures = 0;
  #stop = new AbortController();
  #resume = () => {};

  /** Begin, and never end. */
  async start() {
    setInterval(() => this.#look(), 500);
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("pagehide", () => this.#stop.abort());
    addEventListener("pageshow", () => this.retry());
    for (;;) {
      // a browser has six connections to a service of plain HTTP: a page that nobody sees must not hold one
      if (document.hidden) await new Promise((resume) => (this.#resume = resume));
      const waitMs = await this.#read().catch(() => this.#lost());
      await new Promise((resume) => {
        this.#resume = resume;
        setTimeout(resume, waitMs);
      });
    }
  }

  /** Try again at once: there is a token now, or the network is back. */
  retry() {
    this.#failures = 0;
    this.#resume();
  }

  #seen() {
    if (document.hidden) return this.#stop.abort();
    this.heardAt = Date.now();
    this.retry();
  }

  async #read() {
    this.#stop = new AbortController();
    const from = this.#place === null ? "" : `?after=${this.#place}`;
    const answer = await fetch(`/v1/stream${from}`, { headers: headers(), signal: this.#stop.signal, cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) return this.#denied();
    if (!answer.ok) return this.#refused();
    this.#heard("live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return this.#lost();
      this.#heard("live");
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      frames.forEach((frame) => this.#take(frame));
    }
  }

  #take(frame) {
    const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
    if (fields.id === undefined) return; // a heartbeat, or how long to wait
    this.#place = fields.id;
    if (fields.event === "gap") this.#tell("refresh");
    else if (fields.event !== "hello") this.#tell("change", JSON.parse(fields.data));
  }

  #heard(state) {
    this.heardAt = Date.now();
    this.#failures = 0;
    this.#become(state);
  }

  #refused() {
    this.#heard("polling");
    this.#tell("refresh");
    return POLL_MS;
  }

  #denied() {
    this.#become("reconnecting");
    this.#tell("denied");
    return 60_000;
  }

  #lost() {
    if (this.state !== "stale") this.#become("reconnecting");
    return RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)];
  }

  async #look() {
    const silentMs = Date.now() - this.heardAt;
    if (this.state === "live" && silentMs > SILENT_MS) {
      this.heardAt = Date.now();
      const limit = AbortSignal.timeout(POLL_MS);
      const lives = await fetch("/healthz", { signal: limit, cache: "no-store" }).then((one) => one.ok, () => false);
      if (!lives) this.#stop.abort();
    } else if (this.state === "reconnecting" && silentMs > STALE_AFTER_MS) {
      this.#become("stale");
    }
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.#tell("state");
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
