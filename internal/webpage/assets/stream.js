// The connection to the daemon: Server-Sent Events, read by fetch, which other than
// EventSource says why a connection is refused and lets the page decide when to try
// again.

// patience is how long a connection may be silent; the daemon's hello says better.
const patience = 10000;
// pauses are how long to wait before each next try, in milliseconds; the last one counts
// for all that follow.
const pauses = [500, 1000, 2000, 3000];

// Stream calls what it was given: event(name, data) for each event, and state(name, why)
// with "connecting", "open" or "lost".
export class Stream {
  #url;
  #handlers;
  #abort = null;
  #timer = 0;
  #failures = 0;
  #silence = patience;

  constructor(url, handlers) {
    this.#url = url;
    this.#handlers = handlers;
  }

  // open connects, and connects again when the connection is lost, until close.
  open() {
    if (this.#abort) return;
    const abort = (this.#abort = new AbortController());
    this.#handlers.state("connecting", "");
    this.#read(abort).catch((e) => e).then((why) => {
      if (this.#abort !== abort) return; // closed
      abort.abort();
      this.#abort = null;
      this.#handlers.state("lost", why instanceof TypeError ? "the daemon does not answer" : why.message);
      const pause = pauses[Math.min(this.#failures++, pauses.length - 1)];
      this.#timer = setTimeout(() => this.open(), pause * (0.8 + 0.4 * Math.random()));
    });
  }

  close() {
    clearTimeout(this.#timer);
    const abort = this.#abort;
    this.#abort = null;
    abort?.abort();
  }

  // read reads events until the connection ends, and returns or throws why.
  async #read(abort) {
    let watchdog = 0, silent = false;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => {
        silent = true;
        abort.abort();
      }, this.#silence);
    };
    try {
      alive();
      const answer = await fetch(this.#url, { headers: { Accept: "text/event-stream" }, cache: "no-store", signal: abort.signal });
      if (!answer.ok) return new Error(((await answer.text()).trim() || "status " + answer.status).slice(0, 200));
      this.#handlers.state("open", "");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new Parser((name, data) => {
        this.#failures = 0;
        if (name === "hello") this.#silence = 2 * data.interval_ms + 2 * data.patience_ms;
        this.#handlers.event(name, data);
      });
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return new Error("the daemon has ended the connection");
        alive();
        parser.add(value);
      }
    } catch (e) {
      return silent ? new Error("the daemon is silent") : e;
    } finally {
      clearTimeout(watchdog);
    }
  }
}

// Parser cuts a stream of text into events. Each has a name and one or several lines of
// JSON.
export class Parser {
  #rest = "";
  #emit;

  constructor(emit) {
    this.#emit = emit;
  }

  add(chunk) {
    this.#rest += chunk;
    for (let end; (end = this.#rest.indexOf("\n\n")) >= 0; ) {
      const lines = this.#rest.slice(0, end).split("\n");
      this.#rest = this.#rest.slice(end + 2);
      let name = "message", data = "";
      for (const line of lines) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data !== "") this.#emit(name, JSON.parse(data));
    }
  }
}
