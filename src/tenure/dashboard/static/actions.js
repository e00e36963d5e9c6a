// What may be asked of the fleet. Each is confirmed in a dialog that says what will happen; the server's own sentence is the
// result: in a toast where it was done, in the dialog where it was refused.

import { byId, h, mark, say, show } from "./dom.js";
import { UNKNOWN } from "./format.js";
import { post } from "./session.js";

const dialog = byId("confirm");
const go = byId("confirm-go");
const problem = byId("confirm-error");
const force = byId("confirm-force");
const filter = byId("confirm-filter");
const workers = byId("confirm-workers");
const MOST_CHOICES = 8;
const TOAST_MS = 10_000;
let current = null;

export function toast(says, tone = "ok") {
  const close = h("button", { type: "button", class: "quiet icon", "aria-label": "Dismiss" }, h("span", { "aria-hidden": "true" }, "×"));
  const element = h("div", { class: `toast ${tone}` }, h("p", null, says), close);
  close.addEventListener("click", () => element.remove());
  const all = byId("toasts");
  while (all.children.length >= 4) all.firstChild.remove();
  all.append(element);
  if (tone === "ok") setTimeout(() => element.remove(), TOAST_MS);
}

/** `{title, says, button, path, body, force, choose}` */
function ask(what) {
  current = what;
  say(byId("confirm-title"), what.title);
  say(byId("confirm-says"), what.says);
  say(go, what.button);
  say(problem, "");
  force.checked = false;
  show(byId("confirm-force-label"), Boolean(what.force));
  say(byId("confirm-force-says"), what.force ?? "");
  show(byId("confirm-choice"), Boolean(what.choose));
  go.disabled = false;
  mark(go, "class", what.danger ? "primary danger" : "primary");
  dialog.showModal();
  if (what.choose) {
    filter.value = "";
    workers.querySelectorAll("label, p").forEach((each) => each.remove());
    findWorkers();
    filter.focus();
  } else {
    go.focus();
  }
}

async function confirm(event) {
  event.preventDefault();
  const what = current;
  const body = { ...what.body };
  if (what.force) body.force = force.checked;
  if (what.choose) {
    body.to = workers.querySelector("input:checked")?.value;
    if (!body.to) {
      say(problem, "Choose a worker first.");
      return;
    }
  }
  say(problem, "");
  go.disabled = true;
  say(go, "Asking…");
  const { ok, says } = await post(`api/actions/${what.path}`, body);
  if (current !== what) {
    toast(says, ok ? "ok" : "bad");
    return;
  }
  go.disabled = false;
  say(go, what.button);
  if (ok) {
    dialog.close();
    toast(says);
  } else if (dialog.open) {
    say(problem, says);
    go.focus();
  } else {
    toast(says, "bad");
  }
}

let search = 0;
async function findWorkers() {
  search += 1;
  const mine = search;
  const asked = new URLSearchParams({ offset: 0, limit: MOST_CHOICES + 1, state: "active", sort: "rank", filter: filter.value.trim() });
  let found;
  try {
    found = await (await fetch(`api/workers?${asked}`)).json();
  } catch {
    found = { rows: [] };
  }
  if (mine !== search) return;
  const kept = workers.querySelector("input:checked")?.value;
  const rows = found.rows.filter((row) => !row.isLeader).slice(0, MOST_CHOICES);
  workers.querySelectorAll("label, p").forEach((each) => each.remove());
  rows.forEach((row) => {
    const button = h("input", { type: "radio", name: "to", value: row.id });
    button.checked = row.id === kept;
    const about = [row.rank === null ? null : `rank ${row.rank}`, row.healthy === false ? "unhealthy" : null, row.eligible === false ? "never stands" : null];
    workers.append(h("label", { class: "check" }, button, h("span", { class: "mono" }, row.id), h("span", { class: "note" }, about.filter(Boolean).join(", "))));
  });
  if (!rows.length) workers.append(h("p", { class: "note" }, "No active worker matches."));
  else if (found.matched > rows.length + 1) workers.append(h("p", { class: "note" }, `${found.matched - rows.length} more: write a part of its id.`));
}

export function startActions() {
  byId("confirm-form").addEventListener("submit", confirm);
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(findWorkers, 200);
  });
  dialog.addEventListener("close", () => {
    search += 1;
    current = null;
  });
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
}

const HARD = "Force: even inside its min_epoch_duration, where it would refuse";

export const stepDown = (lease) => ask({
  title: "Ask the leader to step down?",
  says: `${lease.leader ?? UNKNOWN} (epoch ${lease.epoch}) finishes its work and lets another worker lead` +
    `${lease.successor ? `; ${lease.successor} is next in line` : ""}. It answers at its next renewal.`,
  button: "Step down", path: "step-down", body: {}, force: HARD, danger: true,
});

export const transfer = (lease) => ask({
  title: "Hand over to a worker of your choice?",
  says: `${lease.leader ?? UNKNOWN} (epoch ${lease.epoch}) finishes its work and lets the chosen worker lead.`,
  button: "Transfer", path: "transfer", body: {}, force: `${HARD}, or to a worker that is on no record`, choose: true, danger: true,
});

export const pauseQueue = (queue) => ask({
  title: `Pause the queue ${queue}?`,
  says: "No further message is given to a worker until it is resumed. Messages that are being handled are finished, and new ones are still accepted.",
  button: "Pause", path: "queue-pause", body: { queue },
});

export const resumeQueue = (queue) => ask({
  title: `Resume the queue ${queue}?`, says: "Its messages are given to workers again.", button: "Resume", path: "queue-resume", body: { queue },
});

export const redriveQueue = (queue, dead) => ask({
  title: `Redrive the dead letters of ${queue}?`,
  says: `All of its dead letters (${dead} when last looked at) become ready again, each with a fresh count of attempts.`,
  button: "Redrive all", path: "queue-redrive", body: { queue },
});

export const pauseSchedule = (schedule, job) => ask({
  title: job === null ? `Pause the whole schedule ${schedule}?` : `Pause the job ${job}?`,
  says: `${job === null ? "None of its jobs fires" : "It does not fire"} until resumed. What is running goes on.`,
  button: "Pause", path: "schedule-pause", body: { schedule, job },
});

export const resumeSchedule = (schedule, job) => ask({
  title: job === null ? `Resume the schedule ${schedule}?` : `Resume the job ${job}?`,
  says: "It fires again at its next time; what was missed meanwhile follows its policy.",
  button: "Resume", path: "schedule-resume", body: { schedule, job },
});

export const runJob = (schedule, job) => ask({
  title: `Run the job ${job} now?`, says: "It runs once, beside its ordinary times, which stay as they are.",
  button: "Run now", path: "schedule-run", body: { schedule, job },
});
