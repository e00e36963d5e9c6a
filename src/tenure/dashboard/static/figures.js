// The smaller parts: requests and cost, counters, supervised children, and the log of what changed.

import { byId, h, mark, say, show } from "./dom.js";
import { coarse, compact, now, span, usd, whole } from "./format.js";
import { on } from "./live.js";
import { LocalTable, advice, badge, built, swap, text } from "./table.js";

const tiles = new Map();

function tile(label, value, unit, more) {
  if (!tiles.has(label)) {
    const parts = { value: h("b"), unit: h("span", { class: "unit" }), more: h("span", { class: "sub" }) };
    tiles.set(label, parts);
    byId("usage-tiles").append(h("div", { class: "tile" }, h("dt", null, label), h("dd", null, parts.value, parts.unit, parts.more)));
  }
  const parts = tiles.get(label);
  say(parts.value, value);
  say(parts.unit, value === "–" ? "" : unit);
  say(parts.more, more);
}

function drawUsage(usage) {
  const own = usage.dashboard;
  const known = usage.requestsPerHour !== null;
  const from = !known ? "told by no worker yet" : usage.sampled >= usage.workers ? `as told by ${usage.workers === 1 ? "its worker" : `all ${whole(usage.workers)} workers`}` : `from ${whole(usage.sampled)} of ${whole(usage.workers)} workers`;
  tile("Fleet", compact(usage.requestsPerHour), "requests/h", from);
  tile("Fleet cost", usd(usage.usdPerDay), "a day", known && usage.usdPerDay !== null ? `${usd(usage.usdPerDay * 30)} in 30 days` : "");
  tile("This dashboard", compact(own.requestsPerHour), "requests/h", Object.entries(own.byVerb ?? {}).sort(([, a], [, b]) => b - a).slice(0, 4).map(([verb, times]) => `${compact(times)} ${verb}`).join(", "));
  tile("Dashboard cost", usd(own.usdPerDay), "a day", "while somebody looks");
}

const counterColumns = [
  { key: "name", label: "Counter", sort: "up", heading: true, grow: true, cell: built(() => ({ id: h("span", { class: "id" }), more: h("span", { class: "sub" }) }), ({ id, more }, row) => {
    say(id, row.name);
    const fields = Object.keys(row.fields ?? {});
    say(more, row.problem ?? fields.slice(0, 6).join(", "));
    mark(more, "class", row.problem ? "sub bad" : "sub");
    show(more, more.textContent !== "");
  }) },
  { key: "lag", label: "Lag", sort: "down", number: true, cell: (td, row) => {
    say(td, span(row.lagSeconds));
    td.classList.toggle("alarm", row.lagSeconds > 60);
  } },
  { key: "pending", label: "Pending", sort: "down", number: true, cell: text((row) => compact(row.pending)) },
  { key: "inbox", label: "Inbox", sort: "down", number: true, minor: true, cell: text((row) => compact(row.inbox)) },
  { key: "records", label: "Records behind", sort: "down", number: true, minor: true, cell: text((row) => compact(row.records)) },
];

const CHILD_TONES = { running: "ok", completed: "ok", failed: "bad", overran: "bad", "backing-off": "warn", starting: "accent", stopping: "plain", stopped: "plain", waiting: "plain" };

const since = (row) => (row.sinceMs === null ? "" : coarse((now() - row.sinceMs) / 1000));

const childColumns = [
  { key: "child", label: "Child", sort: "up", heading: true, grow: true, cell: built(() => ({ id: h("span", { class: "id" }), more: h("span", { class: "sub" }), error: h("span", { class: "sub bad" }) }), ({ id, more, error }, row) => {
    say(id, row.child);
    say(more, `${row.supervisor} on ${row.node}${row.current ? "" : `, in epoch ${row.epoch}: what was`}`);
    say(error, row.lastError ?? "");
    show(error, Boolean(row.lastError));
  }) },
  { key: "state", label: "State", sort: "up", cell: built(() => ({ word: h("span") }), ({ word }, row) => badge(word, row.state, row.current ? (CHILD_TONES[row.state] ?? "plain") : "plain")) },
  { key: "since", label: "For", number: true, minor: true, cell: text(since), tick: text(since) },
  { key: "failures", label: "Failures", sort: "down", number: true, cell: (td, row) => {
    say(td, whole(row.failures));
    td.classList.toggle("alarm", row.failures > 0);
  } },
];

/** A panel that holds a table, or what to do where there is nothing. */
function panel(id, options, empty) {
  const element = byId(id);
  const frame = h("div", { class: "frame" });
  const table = new LocalTable({ into: frame, ...options });
  return {
    table,
    set(rows) {
      swap(element, rows.length > 0, [frame], empty);
      if (rows.length) table.set(rows);
    },
  };
}

const CHANGE_TONES = {
  elected: "accent", renewed: "ok", lapsed: "bad", "stepped-down": "warn", asked: "plain", refused: "warn", damaged: "bad", "lease-gone": "bad",
  "worker-joined": "ok", "worker-back": "ok", "worker-healthy": "ok", "worker-left": "plain", "worker-silent": "warn", "worker-unhealthy": "warn",
  "worker-unreadable": "bad", "worker-restarted": "plain", "store-error": "bad", "store-back": "ok", watching: "plain",
};

const CHANGE_WORDS = { "worker-joined": "joined", "worker-left": "left", "worker-silent": "silent", "worker-back": "back", "worker-restarted": "restarted", "worker-unhealthy": "unhealthy", "worker-healthy": "healthy", "worker-unreadable": "unreadable" };

const list = h("ol", { class: "changes", reversed: true });
let newest = [];

const keyOf = (row) => JSON.stringify([row.at, row.kind, row.epoch, row.detail, row.worker]);

/** `at` is the dashboard's time of day, or a whole timestamp: the time of day is what is shown. */
const timeOf = (at) => /\d\d:\d\d:\d\d/.exec(at)?.[0] ?? at;

function drawChanges({ rows }) {
  const keys = rows.map(keyOf);
  // New ones are at the end: what is in front of them stays as it is.
  const known = newest.length ? keys.lastIndexOf(newest.at(-1)) : -1;
  const fresh = known < 0 ? rows : rows.slice(known + 1);
  if (known < 0) list.replaceChildren();
  newest = keys;
  for (const row of fresh) {
    list.prepend(h("li", { class: CHANGE_TONES[row.kind] ?? "plain" },
      h("time", { title: row.at }, timeOf(row.at)),
      h("span", { class: `badge ${CHANGE_TONES[row.kind] ?? "plain"}` }, CHANGE_WORDS[row.kind] ?? row.kind),
      h("span", { class: "detail" }, row.detail || row.worker || row.leader || "")));
  }
  while (list.children.length > rows.length) list.lastChild.remove();
  if (!rows.length) byId("changes-log").replaceChildren(h("p", { class: "empty" }, "Nothing has changed since this dashboard was started."));
  else if (list.parentElement === null) byId("changes-log").replaceChildren(list);
}

let counters = null;
let children = null;

export function tickFigures() {
  children.table.tick();
}

export function startFigures() {
  counters = panel("counters-panel", {
    caption: "Counters", columns: counterColumns, key: (row) => `${row.namespace} ${row.name}`, sort: { key: "name", direction: "up" },
    values: { name: (row) => row.name, lag: (row) => row.lagSeconds, pending: (row) => row.pending, inbox: (row) => row.inbox, records: (row) => row.records },
  }, () => advice("No counters in this bucket yet. A program declares them with EventualConsistencyPlugin."));
  children = panel("children-panel", {
    caption: "Supervised children", columns: childColumns, key: (row) => JSON.stringify([row.supervisor, row.node, row.child]), sort: { key: null },
    values: { child: (row) => row.child, state: (row) => row.state, failures: (row) => row.failures },
  }, () => advice("Nothing is supervised here. CoordinatorCandidate(children) runs services on the leader, and only there."));
  on("usage", drawUsage);
  on("counters", (section) => counters.set(section.rows));
  on("children", (section) => children.set(section.rows));
  on("changes", drawChanges);
}
