// The page: connects to the daemon, keeps what it says, and shows it.

import { counters, domains, regions } from "./counters.js";
import { attr, el, show, text } from "./dom.js";
import { errors } from "./errors.js";
import { clock, span } from "./format.js";
import { lanes } from "./lanes.js";
import { links } from "./links.js";
import { Model } from "./model.js";
import { overview } from "./overview.js";
import { recall, remember } from "./memory.js";
import { services } from "./services.js";
import { Stream } from "./stream.js";
import { workers } from "./workers.js";

const at = (id) => document.getElementById(id);
const model = new Model();
const parts = [overview(), links(), lanes(), services(), workers(), errors(), counters(), domains(), regions()];

// The state of the connection: "connecting", "live", "lost" or "paused", and why it is lost.
let state = "connecting", why = "";
// edition is that of the files that this page is made of.
let edition = null;

function build() {
  at("main").append(...parts.map((p) => p.element));
  at("nav").append(...parts.map((p) => {
    p.badge = el("span", { class: "trouble" });
    const link = el("a", { href: "#" + p.id }, p.title, p.badge);
    link.addEventListener("click", () => (p.element.querySelector("details").open = true));
    return el("li", {}, link);
  }));
}

// draw shows the latest sample.
function draw() {
  const s = model.status;
  text(at("node"), s.node);
  const words = s.drain ? "out of service" : s.draining ? "draining" : "running";
  text(at("state"), words);
  attr(at("state"), "data-level", s.draining ? "warn" : "good");
  document.title = `${s.node} – rdmad`;
  for (const p of parts) {
    const { trouble } = p.update(model) ?? {};
    text(p.badge, trouble > 0 ? String(trouble) : "");
    attr(p.badge, "title", trouble > 0 ? `${trouble} need a look` : null);
  }
  text(at("footer"), `rdmad ${s.version}, node ${s.node}, core ${s.pids?.core}. Times are by the clock of this browser.`);
}

// announce says a change of state to screen readers, and only that.
function announce(words) {
  text(at("announcer"), words);
}

// become changes the state of the connection.
function become(next, reason = "") {
  why = reason;
  if (next === state) return;
  const before = state;
  state = next;
  if (next === "lost") announce("No data from the daemon: " + reason);
  else if (next === "live") announce(before === "connecting" ? "Live" : "The daemon answers again");
  freshness();
}

// freshness says how old the data are. Old ones are never shown as if they were new.
function freshness() {
  const data = model.at ? `data of ${clock(model.at)}` : "no data yet";
  const age = model.at ? (Date.now() - model.at.getTime()) / 1000 : 0;
  const old = model.at ? ` (${span(age)} ago)` : "";
  const lines = {
    connecting: `Connecting; ${data}${old}`,
    live: `Live, ${data}`,
    lost: model.at ? `No ${data.replace("data of", "data since")}${old}` : "No data yet",
    paused: `Paused, ${data}${old}`,
  };
  text(at("freshness-text"), lines[state]);
  attr(at("freshness"), "data-state", state);
  attr(at("freshness"), "title", lines[state]);
  show(at("notice"), state === "lost");
  if (state === "lost") {
    text(at("notice"), `${why}. Trying again.`);
    text(at("state"), "no answer");
    attr(at("state"), "data-level", "bad");
  }
  attr(document.body, "data-stale", state !== "live" && model.at ? "" : null);
}

const stream = new Stream("events", {
  state(name, reason) {
    if (name === "lost") become("lost", reason);
  },
  event(name, data) {
    if (name === "hello") {
      if (edition !== null && edition !== data.edition) location.reload();
      edition = data.edition;
    } else if (name === "sample") {
      model.add(data);
      draw();
      become("live");
      freshness();
    } else if (name === "trouble") {
      become("lost", data.error);
      freshness();
    }
  },
});

// Nobody looks at a page that is hidden or paused, so it gets no data.
let paused = false;
function follow() {
  if (paused || document.hidden) {
    stream.close();
    become("paused");
  } else {
    if (state === "paused") become("connecting");
    stream.open();
  }
  freshness();
}

function pause() {
  paused = !paused;
  attr(at("pause"), "aria-pressed", paused);
  text(at("pause"), paused ? "Go on" : "Pause");
  follow();
}

// The colours: as the system has it, light or dark.
const themes = ["auto", "light", "dark"];
function theme(next) {
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  text(at("theme-name"), next[0].toUpperCase() + next.slice(1));
  attr(at("theme"), "aria-label", "Colours: " + next);
}

build();
theme(themes.includes(recall("theme", "auto")) ? recall("theme", "auto") : "auto");
at("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(recall("theme", "auto")) + 1) % themes.length];
  remember("theme", next);
  theme(next);
});
at("pause").addEventListener("click", pause);
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => stream.close());
addEventListener("pageshow", follow);
setInterval(freshness, 1000);
