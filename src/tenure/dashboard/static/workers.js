// Who takes part. The counts come with the stream; rows are asked for a page at a time, only while they can be seen.

import { byId, h, isInView, keepInView, say, show } from "./dom.js";
import { coarse, compact, count, hue, millis, usd, whole } from "./format.js";
import { data, on } from "./live.js";
import { PAGE, Table, Toolbar, advice, badge, built, swap, text } from "./table.js";

const LEAST_PAUSE_MS = 5_000;
const panel = byId("workers-panel");
const asked = { offset: 0, filter: "", state: "all", sort: "rank" };
let table = null;
let toolbar = null;
let fetchedAt = 0;
let revision = null;
let turn = 0;
let timer = 0;
let note = null;
let frame = null;

const age = (row) => row.ageSeconds + (Date.now() - fetchedAt) / 1000;

/** What is wrong with a worker comes first; all is well is one quiet word. */
function stateOf(row) {
  if (row.isLeader) return ["leads", "accent"];
  if (row.state === "silent") return ["silent", "bad"];
  if (row.healthy === false) return ["unhealthy", "warn"];
  return ["active", "ok"];
}

function troubles(row) {
  const out = [];
  if (row.isLeader && row.state === "silent") out.push("silent");
  if (row.isLeader && row.healthy === false) out.push("unhealthy");
  if (row.breaker && row.breaker !== "closed") out.push(`breaker ${row.breaker}`);
  if (row.storeErrors) out.push(count(row.storeErrors, "store error"));
  if (row.eligible === false) out.push("never stands");
  return out.join(", ");
}

const columns = [
  {
    key: "id", label: "Worker", sort: "up", heading: true, grow: true,
    cell: built(
      () => ({ dot: h("span", { class: "worker-dot", "aria-hidden": "true" }), id: h("span", { class: "id" }), more: h("span", { class: "sub" }) }),
      ({ dot, id, more }, row) => {
        dot.setAttribute("class", `worker-dot hue-${hue(row.id)}`);
        say(id, row.id);
        say(more, troubles(row));
        show(more, more.textContent !== "");
      },
    ),
  },
  { key: "state", label: "State", cell: built(() => ({ word: h("span") }), ({ word }, row) => badge(word, ...stateOf(row))) },
  { key: "rank", label: "Rank", sort: "up", number: true, cell: text((row) => (row.isLeader ? "" : whole(row.rank))) },
  { key: "age", label: "Age", sort: "down", number: true, cell: text((row) => coarse(age(row))), tick: text((row) => coarse(age(row))) },
  { key: "latency", label: "p95", sort: "down", number: true, minor: true, cell: text((row) => millis(row.latencyP95Ms)) },
  { key: "p99", label: "p99", number: true, minor: true, cell: text((row) => millis(row.latencyP99Ms)) },
  { key: "requests", label: "Requests/h", number: true, minor: true, cell: text((row) => compact(row.requestsPerHour)) },
  { key: "usd", label: "USD/day", number: true, minor: true, cell: text((row) => usd(row.usdPerDay)) },
];

async function fetchRows() {
  clearTimeout(timer);
  timer = 0;
  turn += 1;
  const mine = turn;
  revision = data.workers?.revision ?? null;
  let page;
  try {
    const answer = await fetch(`api/workers?${new URLSearchParams({ ...asked, limit: PAGE })}`);
    if (!answer.ok) return;
    page = await answer.json();
  } catch {
    return; // the banner says that the connection is lost
  }
  if (mine !== turn) return;
  fetchedAt = Date.now();
  if (!page.rows.length && asked.offset > 0 && page.matched > 0) {
    asked.offset = Math.floor((page.matched - 1) / PAGE) * PAGE;
    fetchRows();
    return;
  }
  table.place(page.rows, { offset: page.offset, matched: page.matched, nothing: asked.filter ? `No worker matches “${asked.filter}”.` : "No worker is in this state." });
}

function changed() {
  asked.offset = 0;
  table.sort = { key: asked.sort, direction: columns.find(({ key }) => key === asked.sort).sort };
  fetchRows();
}

function refresh() {
  if (!data.workers || data.workers.revision === revision || timer || document.hidden) return;
  if (fetchedAt && !isInView(panel)) return;
  timer = setTimeout(fetchRows, Math.max(0, fetchedAt + LEAST_PAUSE_MS - Date.now()));
}

function draw(workers) {
  const none = workers.total === 0;
  swap(panel, !none, [toolbar.element, note, frame], nothing);
  for (const key of ["active", "silent", "unhealthy"]) toolbar.count(key, workers[key]);
  toolbar.count("all", workers.total);
  const more = [];
  if (workers.neverStands) more.push(`${whole(workers.neverStands)} never ${workers.neverStands === 1 ? "stands" : "stand"}`);
  if (workers.leftOut) more.push(`${count(workers.leftOut, "more is", "more are")} not shown`);
  if (workers.unreadable) more.push(`${count(workers.unreadable, "object")} among the records ${workers.unreadable === 1 ? "is" : "are"} unreadable`);
  say(note, more.join(" · "));
  show(note, more.length > 0);
  if (!none) refresh();
}

const nothing = () => {
  const meta = data.meta ?? { electionOnly: false, place: "URL" };
  return meta.electionOnly
    ? advice("Those who take part here keep no records, which is cheaper: only the leader can be seen. To list them, give tenure run the option --membership.")
    : advice("No worker is on record yet. A program takes part with coordinator.start(), a command with:", `tenure run ${meta.place} --membership -- COMMAND`);
};

export const tickWorkers = () => {
  table.tick();
  refresh();
};

export function startWorkers() {
  note = h("p", { class: "note" });
  frame = h("div", { class: "frame" });
  toolbar = new Toolbar({
    label: "Filter workers", id: "workers-filter",
    choices: [{ key: "all", text: "All" }, { key: "active", text: "Active" }, { key: "silent", text: "Silent" }, { key: "unhealthy", text: "Unhealthy" }],
    onChange: ({ filter, choice }) => {
      Object.assign(asked, { filter, state: choice });
      changed();
    },
  });
  table = new Table({
    into: frame, caption: "Workers", columns, key: (row) => row.id, sort: { key: "rank", direction: "up" },
    onSort: (column) => {
      asked.sort = column.key;
      changed();
    },
    onPage: (by) => {
      asked.offset = Math.max(0, asked.offset + by * PAGE);
      fetchRows();
    },
  });
  keepInView(panel);
  panel.addEventListener("comes-into-view", refresh);
  on("workers", draw);
}
