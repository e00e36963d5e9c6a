// The stream of sections: what came last of each, who wants to know, and whether it still flows.
//
// Sections are drawn at the next frame, each once however often it came meanwhile; nothing is drawn while the tab is hidden.
// After five minutes out of sight the stream is closed: then the dashboard may stop asking the bucket.

import { now, setClock } from "./format.js";

const SECTIONS = ["meta", "lease", "terms", "workers", "latency", "usage", "queues", "schedules", "counters", "children", "changes"];
const SILENCE_MS = 20_000;
const ANSWER_MS = 5_000;
const HIDDEN_MS = 300_000;
const SETTLED_MS = 4_000;
const LONGEST_RETRY_MS = 10_000;

export const data = {};
const drawers = new Map();
const dirty = new Set();
const onLink = new Set();
let asked = false;
let source = null;
let lastHeard = 0;
let retry = 0;
let retryTimer = 0;
let hiddenTimer = 0;
let checking = false;
let settling = 0;

let settled = false;
/** False at first: that nothing is there may mean that nothing was looked at yet. */
export const isSettled = () => settled;

function settle() {
  settled = true;
  for (const name of SECTIONS) redraw(name);
}

export const link = { state: "connecting", sinceMs: null };

/** `draw(section)` at the next frame whenever `name` came; several may want the same. */
export function on(name, draw) {
  if (!drawers.has(name)) drawers.set(name, []);
  drawers.get(name).push(draw);
}

export const onLinkChange = (told) => onLink.add(told);

function setLink(state) {
  if (link.state === state) return;
  link.state = state;
  link.sinceMs = now();
  onLink.forEach((told) => told(link));
}

export function take(name, section) {
  if (section === null || section === undefined) return;
  data[name] = section;
  if (name === "meta") setClock(section.nowMs);
  redraw(name);
}

export function redraw(name) {
  dirty.add(name);
  if (asked || document.hidden) return;
  asked = true;
  requestAnimationFrame(draw);
}

function draw() {
  asked = false;
  const names = [...dirty];
  dirty.clear();
  for (const name of names) if (data[name]) for (const drawer of drawers.get(name) ?? []) drawer(data[name]);
}

function heard(name) {
  return (event) => {
    lastHeard = Date.now();
    retry = 0;
    settling ||= setTimeout(settle, SETTLED_MS);
    setLink("live");
    take(name, JSON.parse(event.data));
    if (document.hidden) onHidden.forEach((told) => told(name));
  };
}

const onHidden = new Set();
/** For the title of the tab, which is read while the page is not. */
export const onWhileHidden = (told) => onHidden.add(told);

export function open() {
  close();
  source = new EventSource("events");
  for (const name of SECTIONS) source.addEventListener(name, heard(name));
  source.onopen = () => {
    lastHeard = Date.now();
  };
  source.onerror = () => again();
}

function close() {
  source?.close();
  source = null;
  clearTimeout(retryTimer);
}

/** The browser's own attempts end for good at the first refusal, so these are ours. */
function again() {
  close();
  setLink("lost");
  const pause = Math.min(LONGEST_RETRY_MS, 500 * 2 ** retry);
  retry += 1;
  retryTimer = setTimeout(open, pause);
}

/** A stream may be silent because nothing changes, or because the dashboard hangs: it is asked which. */
async function check() {
  if (!source || checking || link.state !== "live" || Date.now() - lastHeard < SILENCE_MS) return;
  checking = true;
  try {
    const answer = await fetch("healthz", { signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    lastHeard = Date.now();
  } catch {
    again();
  } finally {
    checking = false;
  }
}

export function start() {
  open();
  setInterval(check, 5_000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) {
      hiddenTimer = setTimeout(() => {
        close();
        setLink("paused");
      }, HIDDEN_MS);
      return;
    }
    if (link.state === "paused") open();
    if (dirty.size) redraw([...dirty][0]);
  });
}
