// Starts the page: what the server put into it is drawn at once, then the stream takes over.

import { startActions } from "./actions.js";
import { byId, mark } from "./dom.js";
import { startFigures, tickFigures } from "./figures.js";
import { startLatency } from "./latency.js";
import { startLease, tickLease } from "./lease.js";
import { onLinkChange, start, take } from "./live.js";
import { askSession, onSession, openSignIn, session, startSession, takeSession } from "./session.js";
import { startTimeline, tickTimeline } from "./timeline.js";
import { startWork, tickWork } from "./work.js";
import { startWorkers, tickWorkers } from "./workers.js";

const THEMES = ["system", "light", "dark"];

function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // then it holds for this visit
  }
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "system";
  mark(byId("theme"), "aria-label", `Theme: ${theme === "system" ? "as the system" : theme}`);
  mark(byId("theme"), "title", `Theme: ${theme === "system" ? "as the system" : theme}`);
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length];
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  remember("tenure-theme", theme);
  showTheme();
}

const GO = { l: "leader", w: "workers", q: "queues", s: "schedules" };

function key(event) {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape" && typing?.type === "search" && !typing.closest("dialog")) {
    typing.value = "";
    typing.dispatchEvent(new Event("input"));
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!byId("keys-on").checked && event.key !== "?") return;
  if (event.key === "?") byId("help").showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "/") byId("workers-filter")?.focus();
  else if (GO[event.key]) goTo(byId(GO[event.key]));
  else return;
  event.preventDefault();
}

function goTo(section) {
  mark(section, "tabindex", "-1");
  section.focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
}

function tick() {
  if (document.hidden) return;
  tickLease();
  tickTimeline();
  tickWorkers();
  tickWork();
  tickFigures();
}

const initial = JSON.parse(byId("initial").textContent.replace(/^\s*\{\{initial\}\}\s*$/, "null") || "null");

startSession();
startActions();
startLease();
startTimeline();
startLatency();
startWorkers();
startWork();
startFigures();
byId("theme").addEventListener("click", nextTheme);
byId("help-open").addEventListener("click", () => byId("help").showModal());
byId("keys-on").checked = recall("tenure-keys") !== "off";
byId("keys-on").addEventListener("change", () => remember("tenure-keys", byId("keys-on").checked ? "on" : "off"));
document.addEventListener("keydown", key);
showTheme();

async function begin() {
  for (const [name, section] of Object.entries(initial ?? {})) if (name !== "session") take(name, section);
  if (initial?.session) takeSession(initial.session);
  else await askSession();
  if (session.readNeedsToken && !session.signedIn) {
    mark(document.body, "data-locked", true);
    openSignIn();
    return;
  }
  onLinkChange(() => askSession());
  start();
  setInterval(tick, 1000);
}

onSession(({ readNeedsToken, signedIn }) => {
  if (readNeedsToken && !signedIn && document.body.dataset.locked === undefined && initial) openSignIn();
});
begin();
