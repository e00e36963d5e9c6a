// Who leads, at a glance: the top of the page, the title of the tab, and the sentence that is read out when it changes.

import { stepDown, transfer } from "./actions.js";
import { byId, h, mark, say, show } from "./dom.js";
import { coarse, count, moment, now, relative, span, whole } from "./format.js";
import { data, link, on, onLinkChange, onWhileHidden } from "./live.js";
import { onSession, session } from "./session.js";

const hero = byId("leader");
const facts = new Map();
let announced = null;

function fact(label) {
  if (!facts.has(label)) {
    const value = h("dd");
    const row = h("div", null, h("dt", null, label), value);
    byId("leader-facts").append(row);
    facts.set(label, { row, value });
  }
  return facts.get(label);
}

function setFact(label, text) {
  const { row, value } = fact(label);
  show(row, text !== null);
  if (text !== null) say(value, text);
}

/** What is so, as a large word, and the sentence below it. */
function told(lease) {
  const who = lease.leader ?? "the last leader";
  const ago = lease.sinceMs === null ? "" : ` for ${coarse((now() - lease.sinceMs) / 1000)}`;
  switch (lease.phase) {
    case "leading":
      return { name: lease.leader, says: `leads${ago}, in epoch ${whole(lease.epoch)}`, tone: "ok" };
    case "lapsed":
      return { name: "Nobody leads", says: `${ago ? ago.slice(1).replace(/^for/, "For") + ": the" : "The"} lease of ${who} (epoch ${whole(lease.epoch)}) ran out without a renewal.`, tone: "bad" };
    case "released":
      return { name: "Nobody leads", says: `${ago ? ago.slice(1).replace(/^for/, "For") + ": " : ""}${who} (epoch ${whole(lease.epoch)}) stepped down, and nobody has taken over yet.`, tone: "warn" };
    case "empty":
      return { name: "Nobody has led yet", says: "There is no lease in this namespace. It appears when the first process stands: tenure run URL -- COMMAND, or coordinator.start() in a program.", tone: "plain" };
    case "damaged":
      return { name: "The lease is damaged", says: lease.problem ?? "What lies in its place cannot be read; tenure doctor looks at it.", tone: "bad" };
    case "too-new":
      return { name: "The lease cannot be read", says: lease.problem ?? "It was written by a newer tenure than this dashboard: upgrade the dashboard.", tone: "warn" };
    default:
      return { name: "Looking…", says: "The lease has not been read yet.", tone: "plain" };
  }
}

function drawLease(lease) {
  const { name, says, tone } = told(lease);
  mark(hero, "data-phase", lease.phase);
  mark(hero, "data-tone", tone);
  say(byId("leader-name"), name);
  mark(byId("leader-name"), "class", name && lease.phase === "leading" ? "hero-name id" : "hero-name");
  say(byId("leader-says"), says);
  drawBar(lease);
  setFact("Epoch", lease.epoch ? whole(lease.epoch) : null);
  setFact("Next in line", lease.phase === "leading" ? lease.successor : null);
  drawWorkers();
  setFact("Renewals", lease.phase === "leading" ? whole(lease.renewals) : null);
  setFact("Mandate ends", lease.mandateEndsMs && lease.phase === "leading" ? relative(lease.mandateEndsMs) : null);
  setFact("Handover", lease.handoff ? `${lease.handoff.by} asked${lease.handoff.to ? `, to ${lease.handoff.to}` : ""}` : null);
  setFact("Last renewal", lease.phase !== "leading" && lease.lastRenewalMs ? moment(lease.lastRenewalMs) : null);
  show(byId("leader-facts"), [...facts.values()].some(({ row }) => !row.hidden));
  drawActions();
  drawTitle();
  announce(lease, name, says);
}

function drawWorkers() {
  const workers = data.workers;
  const text = workers?.total ? `${whole(workers.active)} active${workers.silent ? `, ${whole(workers.silent)} silent` : ""}` : null;
  setFact("Workers", text);
}

const isStale = () => link.state === "lost" || Boolean(data.meta?.problem);

function drawBar(lease) {
  const held = !isStale() && lease.phase === "leading" && lease.leaseSeconds && lease.lastRenewalMs;
  show(byId("lease"), Boolean(held));
  if (!held) return;
  const since = Math.max(0, (now() - lease.lastRenewalMs) / 1000);
  const left = Math.max(0, lease.leaseSeconds - since);
  byId("lease-fill").style.transform = `scaleX(${(left / lease.leaseSeconds).toFixed(4)})`;
  // Renewals come several to a lease: past half of it at least one was missed.
  const late = since > lease.leaseSeconds / 2;
  mark(byId("lease"), "data-late", late);
  say(byId("lease-text"), late
    ? `Not renewed for ${span(since)}; the lease of ${span(lease.leaseSeconds)} runs out in ${span(left)}`
    : `Renewed ${since < 1 ? "just now" : `${span(since)} ago`}; ${span(left)} of ${span(lease.leaseSeconds)} left`);
}

function drawActions() {
  const leads = data.lease?.phase === "leading";
  show(byId("leader-actions"), session.signedIn && leads);
}

export function drawTitle() {
  const lease = data.lease;
  const place = data.meta?.namespace ?? "tenure";
  let text = "tenure";
  if (link.state === "lost") text = `✕ no connection · ${place}`;
  else if (link.state === "paused") text = `paused · ${place}`;
  else if (data.meta?.problem) text = `✕ store does not answer · ${place}`;
  else if (lease) text = lease.phase === "leading" ? `${lease.leader} leads · ${place}` : `✕ ${told(lease).name} · ${place}`;
  if (document.title !== text) document.title = text;
}

/** Read out: another leader, or none; never the ticking of a clock. */
function announce(lease, name, says) {
  const key = `${lease.phase} ${lease.leader} ${lease.epoch}`;
  if (announced !== null && announced !== key) {
    say(byId("announce"), lease.phase === "leading" ? `${name} leads now, epoch ${lease.epoch}` : `${name}. ${says}`);
  }
  if (lease.phase !== "starting") announced = key;
}

let problemTold = null;

/** What is shown may be old: then it is greyed, and a banner says since when and why. */
function drawTroubles() {
  const lost = byId("lost");
  const store = byId("store-problem");
  const problem = data.meta?.problem ?? null;
  show(lost, link.state === "lost");
  if (link.state === "lost") say(lost, `No connection to the dashboard since ${moment(link.sinceMs)} (${coarse((now() - link.sinceMs) / 1000)}). Trying again; what you see is as of then.`);
  const asksStore = problem !== null && link.state !== "lost";
  show(store, asksStore);
  if (asksStore) say(store, `The store does not answer since ${moment(problem.sinceMs)} (${coarse((now() - problem.sinceMs) / 1000)}); what you see is as of then. ${problem.text}`);
  mark(document.body, "data-stale", isStale());
  say(byId("leader-title"), isStale() ? "Leader when last seen" : "Leader");
  if (data.lease) drawBar(data.lease);
  const words = { live: problem ? "Store silent" : "Live", lost: "Disconnected", connecting: "Connecting", paused: "Paused" };
  mark(byId("link"), "data-state", problem && link.state === "live" ? "problem" : link.state);
  say(byId("link-text"), words[link.state]);
  const key = link.state === "lost" ? "lost" : problem ? "store" : "";
  if (problemTold !== null && problemTold !== key) {
    say(byId("announce"), key === "lost" ? "No connection to the dashboard" : key === "store" ? "The store does not answer" : "Connected again");
  }
  problemTold = key;
  drawTitle();
}

function drawMeta(meta) {
  say(byId("place"), meta.place);
  show(byId("namespace"), true);
  say(byId("namespace"), meta.namespace);
  drawTroubles();
}

function drawFoot() {
  const meta = data.meta;
  if (!meta) return;
  const allowed = session.signedIn ? "signed in: actions are shown" : session.actions ? "read-only until you sign in" : "read-only: start it with --token-file FILE to allow actions";
  say(byId("foot"), `tenure ${meta.version} · looks every ${span(meta.intervalSeconds)} · ${count(data.usage?.dashboard?.requests ?? 0, "request")} since ${moment(meta.startedMs)} · ${allowed}`);
}

export function tickLease() {
  if (data.lease && !isStale()) {
    const { says } = told(data.lease);
    say(byId("leader-says"), says);
    if (data.lease.mandateEndsMs && data.lease.phase === "leading") setFact("Mandate ends", relative(data.lease.mandateEndsMs));
  }
  drawTroubles();
}

export function startLease() {
  on("lease", drawLease);
  on("workers", () => data.lease && drawLease(data.lease));
  on("meta", drawMeta);
  on("meta", drawFoot);
  on("usage", drawFoot);
  onLinkChange(drawTroubles);
  onWhileHidden((name) => (name === "lease" || name === "meta") && drawTitle());
  onSession(() => {
    drawActions();
    drawFoot();
  });
  byId("step-down").addEventListener("click", () => data.lease && stepDown(data.lease));
  byId("transfer").addEventListener("click", () => data.lease && transfer(data.lease));
}
