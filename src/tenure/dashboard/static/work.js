// What the leaders do for others: queues and schedules, with what may be done to them by those who are signed in.

import { pauseQueue, pauseSchedule, redriveQueue, resumeQueue, resumeSchedule, runJob } from "./actions.js";
import { byId, h, mark, say, show } from "./dom.js";
import { coarse, compact, count, moment, now, rate, relative, whole } from "./format.js";
import { data, on } from "./live.js";
import { onSession, session } from "./session.js";
import { LocalTable, Toolbar, advice, badge, built, swap, text } from "./table.js";

const BACKLOG = ["ready", "delayed", "inFlight", "dead"];
const WORDS = { ready: "ready", delayed: "delayed", inFlight: "in flight", dead: "dead" };

const act = (label, does) => h("button", { type: "button", class: "small", onclick: does }, label);

/** Names one thing out of many for whoever hears only the button. */
function name(button, verb, of) {
  say(button, verb);
  mark(button, "aria-label", `${verb} ${of}`);
}

const actionColumn = (make, update) => ({ key: "actions", label: "Actions", hiddenLabel: true, cell: built(make, update) });

let longest = 1;

/**
 * The parts of a backlog as one bar, its length by the logarithm of the whole: three messages beside a million are still a
 * bar. Of a thousand the dead four must be seen, so each part has a least width.
 */
function drawBar(bar, row) {
  const total = BACKLOG.reduce((sum, part) => sum + (row[part] ?? 0), 0);
  bar.style.width = `${Math.round((100 * Math.log10(total + 1)) / Math.log10(longest + 1))}%`;
  BACKLOG.forEach((part, at) => {
    const value = row[part] ?? 0;
    bar.children[at].style.flexGrow = total ? String(value / total) : "0";
    mark(bar.children[at], "data-some", value > 0);
  });
  mark(bar, "title", BACKLOG.map((part) => `${whole(row[part])} ${WORDS[part]}`).join(", "));
}

function queueColumns() {
  const columns = [
    {
      key: "name", label: "Queue", sort: "up", heading: true, grow: true,
      cell: built(
        () => ({ id: h("span", { class: "id" }), paused: h("span"), more: h("span", { class: "sub bad" }) }),
        ({ id, paused, more }, row) => {
          say(id, row.name);
          badge(paused, row.paused ? "paused" : "", "warn");
          say(more, row.problem ?? "");
          show(more, Boolean(row.problem));
        },
      ),
    },
    { key: "bar", label: "Backlog", hiddenLabel: true, minor: true, wide: true, cell: built(() => ({ track: h("span", { class: "backlog-track", "aria-hidden": "true" }, h("span", { class: "backlog" }, ...BACKLOG.map((part) => h("i", { class: part })))) }), ({ track }, row) => drawBar(track.firstChild, row)) },
    { key: "ready", label: "Ready", sort: "down", number: true, cell: text((row) => compact(row.ready)) },
    { key: "delayed", label: "Delayed", sort: "down", number: true, minor: true, cell: text((row) => compact(row.delayed)) },
    { key: "inFlight", label: "In flight", sort: "down", number: true, minor: true, cell: text((row) => compact(row.inFlight)) },
    { key: "dead", label: "Dead", sort: "down", number: true, cell: (td, row) => {
      say(td, compact(row.dead));
      td.classList.toggle("alarm", row.dead > 0);
    } },
    { key: "oldest", label: "Oldest", sort: "down", number: true, cell: text((row) => coarse(row.oldestAgeSeconds)) },
    { key: "in", label: "In", number: true, minor: true, cell: text((row) => rate(row.enqueueRate)) },
    { key: "out", label: "Done", number: true, minor: true, cell: text((row) => rate(row.doneRate)) },
    { key: "workers", label: "Workers", number: true, minor: true, sort: "down", cell: text((row) => whole(row.workers)) },
  ];
  if (session.signedIn) {
    columns.push(actionColumn(
      (row) => {
        const pause = act("Pause", () => (pause.paused ? resumeQueue(row.name) : pauseQueue(row.name)));
        const redrive = act("Redrive", () => redriveQueue(row.name, redrive.dead));
        return { pause, redrive };
      },
      ({ pause, redrive }, row) => {
        pause.paused = row.paused;
        redrive.dead = whole(row.dead);
        name(pause, row.paused ? "Resume" : "Pause", row.name);
        name(redrive, "Redrive", `the dead letters of ${row.name}`);
        say(redrive, "Redrive");
        show(redrive, row.dead > 0);
      },
    ));
  }
  return columns;
}

const QUEUE_VALUES = {
  name: (row) => row.name, ready: (row) => row.ready, delayed: (row) => row.delayed, inFlight: (row) => row.inFlight,
  dead: (row) => row.dead, oldest: (row) => row.oldestAgeSeconds, workers: (row) => row.workers,
};

function jobColumns() {
  const columns = [
    {
      key: "id", label: "Job", sort: "up", heading: true, grow: true,
      cell: built(
        () => ({ id: h("span", { class: "id" }), state: h("span"), more: h("span", { class: "sub" }) }),
        ({ id, state, more }, row) => {
          say(id, row.id);
          badge(state, ...jobState(row));
          say(more, data.schedules.schedules.length > 1 ? `${row.schedule} · ${row.target}` : row.target);
        },
      ),
    },
    { key: "when", label: "When", minor: true, cell: built(() => ({ when: h("span"), zone: h("span", { class: "sub" }) }), ({ when, zone }, row) => {
      say(when, row.when);
      say(zone, row.timezone);
      show(zone, Boolean(row.timezone) && row.timezone !== "UTC");
    }) },
    { key: "next", label: "Next", sort: "up", cell: next, tick: next },
    { key: "last", label: "Last", sort: "down", wrap: true, cell: last, tick: last },
  ];
  if (session.signedIn) {
    columns.push(actionColumn(
      (row) => {
        const run = act("Run now", () => runJob(row.schedule, row.id));
        const pause = act("Pause", () => (pause.paused ? resumeSchedule(row.schedule, row.id) : pauseSchedule(row.schedule, row.id)));
        return { run, pause };
      },
      ({ run, pause }, row) => {
        pause.paused = row.paused;
        mark(run, "aria-label", `Run now: ${row.id}`);
        name(pause, row.paused ? "Resume" : "Pause", row.id);
      },
    ));
  }
  return columns;
}

function jobState(row) {
  if (row.paused) return ["paused", "warn"];
  if (row.enabled === false) return ["disabled", "plain"];
  if (row.running) return [row.running > 1 ? `${row.running} running` : "running", "accent"];
  if (row.waiting) return ["waiting", "plain"];
  return ["", "plain"];
}

const next = built(() => ({ when: h("span"), at: h("span", { class: "sub" }) }), ({ when, at }, row) => {
  const late = row.nextMs !== null && row.nextMs < now() - 60_000;
  say(when, row.nextMs === null ? "never" : row.paused ? "when resumed" : late ? `due ${relative(row.nextMs)}` : relative(row.nextMs));
  say(at, row.nextMs === null ? "" : moment(row.nextMs));
});

const TONES = { fired: "ok", done: "ok", succeeded: "ok", ok: "ok", failed: "bad", interrupted: "warn", "missed-window": "warn", "skipped-overlap": "warn", coalesced: "plain" };

const last = built(() => ({ word: h("span"), at: h("span"), error: h("span", { class: "sub bad" }) }), ({ word, at, error }, row) => {
  const run = row.last;
  const outcome = run === null ? "" : run.outcome || run.state;
  badge(word, run?.error && TONES[outcome] === "ok" ? "failed" : outcome, run?.error && TONES[outcome] === "ok" ? "bad" : (TONES[outcome] ?? "plain"));
  say(at, run === null ? "not yet" : ` ${relative(run.finishedMs || run.scheduledMs)}`);
  say(error, run?.error ?? "");
  show(error, Boolean(run?.error));
});

const JOB_VALUES = { id: (row) => row.id, next: (row) => row.nextMs, last: (row) => row.last?.finishedMs ?? null };

/** A part of the page with a toolbar and a table; made anew when somebody signs in or out. */
class Part {
  constructor({ panel, label, id, choices, accepts, make, values, key, sort, caption, nothing, empty }) {
    Object.assign(this, { panel: byId(panel), accepts, empty });
    this.note = h("p", { class: "note" });
    this.frame = h("div", { class: "frame" });
    this.extra = h("div");
    this.make = () => {
      const page = this.table ? { all: this.table.all, page: this.table.page, sort: this.table.sort, accepts: this.table.accepts } : null;
      this.table = new LocalTable({ into: this.frame, caption, columns: make(), values, key, sort, nothing });
      if (page) Object.assign(this.table, page);
      if (page) this.table.draw();
    };
    this.toolbar = new Toolbar({ label, id, choices, onChange: ({ filter, choice }) => {
      const part = filter.toLowerCase();
      this.table.accept((row) => accepts(row, part, choice));
    } });
    this.make();
  }

  set(rows) {
    swap(this.panel, rows.length > 0, [this.toolbar.element, this.note, this.extra, this.frame], this.empty);
    if (rows.length) this.table.set(rows);
  }
}

let queues = null;
let jobs = null;
const sums = new Map([...BACKLOG, "more"].map((part) => [part, h("span")]));

function drawQueues(section) {
  const rows = section.rows;
  longest = Math.max(9, ...rows.map((row) => BACKLOG.reduce((sum, part) => sum + (row[part] ?? 0), 0)));
  queues.set(rows);
  const sum = (part) => rows.reduce((total, row) => total + (row[part] ?? 0), 0);
  queues.toolbar.count("all", section.total);
  queues.toolbar.count("dead", rows.filter((row) => row.dead > 0).length);
  queues.toolbar.count("paused", rows.filter((row) => row.paused).length);
  queues.toolbar.count("busy", rows.filter(isBusy).length);
  const more = section.total > rows.length ? `the first ${whole(rows.length)} are shown` : "";
  for (const part of BACKLOG) say(sums.get(part), `${compact(sum(part))} ${WORDS[part]}`);
  say(sums.get("more"), more);
}

const isBusy = (row) => (row.ready ?? 0) + (row.inFlight ?? 0) + (row.inbox ?? 0) > 0;

function drawSchedules(section) {
  jobs.set(section.rows);
  jobs.toolbar.count("all", section.total);
  jobs.toolbar.count("failed", section.rows.filter(hasFailed).length);
  jobs.toolbar.count("paused", section.rows.filter((row) => row.paused).length);
  jobs.toolbar.count("running", section.rows.filter((row) => row.running > 0).length);
  const troubled = section.schedules.filter((each) => each.problem);
  say(jobs.note, troubled.map((each) => `${each.name}: ${each.problem}`).join(" · "));
  show(jobs.note, troubled.length > 0);
  drawWhole(section.schedules);
}

const hasFailed = (row) => Boolean(row.last?.error) || row.last?.outcome === "failed";

/** Each schedule as a whole, with its own pause: shown where there is something to say or to do. */
let wholeKey = "";
function drawWhole(schedules) {
  const key = JSON.stringify([session.signedIn, schedules]);
  if (key === wholeKey) return;
  wholeKey = key;
  const lines = schedules.slice(0, 100).filter((each) => session.signedIn || each.paused || schedules.length > 1);
  jobs.extra.replaceChildren(...(lines.length ? [h("ul", { class: "wholes" }, ...lines.map((each) => h("li", null,
    h("span", { class: "id" }, each.name),
    each.paused ? h("span", { class: "badge warn" }, "paused") : null,
    h("span", { class: "note" }, `${count(each.jobs, "job")}${each.running ? `, ${whole(each.running)} running` : ""}`),
    session.signedIn ? h("button", { type: "button", class: "small", "aria-label": `${each.paused ? "Resume" : "Pause"} all of ${each.name}`, onclick: () => (each.paused ? resumeSchedule : pauseSchedule)(each.name, null) }, each.paused ? "Resume all" : "Pause all") : null)))] : []));
}

export const tickWork = () => jobs.table.tick();

export function startWork() {
  const place = () => data.meta?.place ?? "URL";
  queues = new Part({
    panel: "queues-panel", label: "Filter queues", id: "queues-filter", caption: "Queues", nothing: "No queue matches.",
    choices: [{ key: "all", text: "All" }, { key: "busy", text: "Busy" }, { key: "dead", text: "Dead letters" }, { key: "paused", text: "Paused" }],
    accepts: (row, part, choice) => row.name.toLowerCase().includes(part) &&
      (choice === "all" || (choice === "dead" && row.dead > 0) || (choice === "paused" && row.paused) || (choice === "busy" && isBusy(row))),
    make: queueColumns, values: QUEUE_VALUES, key: (row) => row.name, sort: { key: "name", direction: "up" },
    empty: () => advice("No queues in this bucket yet. The first message makes one:", `tenure queue put ${place()} emails '{"to": "ada@example.org"}'`),
  });
  jobs = new Part({
    panel: "schedules-panel", label: "Filter jobs", id: "schedules-filter", caption: "Jobs", nothing: "No job matches.",
    choices: [{ key: "all", text: "All" }, { key: "running", text: "Running" }, { key: "failed", text: "Failed" }, { key: "paused", text: "Paused" }],
    accepts: (row, part, choice) => `${row.schedule} ${row.id} ${row.target}`.toLowerCase().includes(part) &&
      (choice === "all" || (choice === "failed" && hasFailed(row)) || (choice === "paused" && row.paused) || (choice === "running" && row.running > 0)),
    make: jobColumns, values: JOB_VALUES, key: (row) => JSON.stringify([row.schedule, row.id]), sort: { key: "next", direction: "up" },
    empty: () => advice("No jobs are scheduled in this bucket yet. A program declares them:", `scheduler = SchedulerPlugin()\nscheduler.declare("digest", every(3600), queue="emails", body={"kind": "digest"})\nawait db.use_plugin(scheduler)`),
  });
  queues.note.className = "legend";
  queues.note.append(...BACKLOG.map((part) => h("span", { class: part }, h("i", { class: `square ${part}`, "aria-hidden": "true" }), sums.get(part))), sums.get("more"));
  on("queues", drawQueues);
  on("schedules", drawSchedules);
  onSession(() => {
    queues.make();
    jobs.make();
    if (data.schedules) drawWhole(data.schedules.schedules);
  });
}
