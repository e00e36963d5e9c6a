// The last terms as bars, a lane for each worker that led; where nobody led there is a band across all lanes.

import { byId, h, hideTip, mark, onWidth, s, say, show, showTip } from "./dom.js";
import { coarse, count, date, hue, minute, moment, now, span, whole } from "./format.js";
import { data, on } from "./live.js";
import { LocalTable, text } from "./table.js";

const RANGES = [["10 min", 600], ["1 h", 3600], ["6 h", 21_600], ["24 h", 86_400], ["7 d", 604_800], ["All", Infinity]];
const MOST_LANES = 6;
const LANES_WITH_ROOM = 3;
const AXIS = 24;
const TERMS_AT_FIRST = 6;

const into = byId("terms-chart");
let width = 0;
let chosen = null;
let bars = [];
let focused = null;
let drawnSecond = 0;
const svg = s("svg", { role: "group", tabindex: "0", "aria-label": "Terms as bars over time; arrow keys go from term to term", class: "timeline" });
let table = null;

/** Terms with an end, and the gaps between them. */
function spans(terms, lease) {
  const at = now();
  const out = terms.map((term, index) => {
    const next = terms[index + 1];
    let end = term.endMs ?? (next ? next.startMs : at);
    if (!next && term.endMs === null && lease && lease.phase !== "leading" && lease.sinceMs && lease.sinceMs > term.startMs) end = lease.sinceMs;
    if (next) end = Math.min(end, next.startMs);
    return { ...term, leader: term.leader ?? "an unknown worker", end: Math.max(term.startMs, end), runs: !next && term.endMs === null && lease?.phase === "leading" };
  });
  const gaps = [];
  out.forEach((term, index) => {
    const until = out[index + 1]?.startMs ?? (term.runs ? term.end : at);
    if (until - term.end > 500) gaps.push({ startMs: term.end, end: until, after: term });
  });
  return { terms: out, gaps };
}

/** The shortest range that shows a handful of terms: an incident should not be a sliver of a quiet week. */
function fitting(terms) {
  const first = terms[Math.max(0, terms.length - TERMS_AT_FIRST)];
  if (!first) return 0;
  const age = (now() - first.startMs) / 1000;
  return RANGES.findIndex(([, seconds]) => seconds >= age);
}

const buttons = RANGES.map(([label], index) => h("button", { type: "button", "aria-pressed": "false", onclick: () => {
  chosen = index;
  draw();
} }, label));

const EVERY = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000];

function ticks(from, to, room) {
  const step = (EVERY.find((seconds) => (to - from) / 1000 / seconds <= room) ?? EVERY.at(-1)) * 1000;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const out = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) out.push(at);
  return { out, label: step >= 86_400_000 ? date : minute };
}

export function draw() {
  if (!width || !data.terms) return;
  const all = data.terms.terms;
  const range = chosen ?? fitting(all);
  buttons.forEach((button, index) => mark(button, "aria-pressed", String(index === range)));
  if (!all.length) {
    bars = [];
    into.replaceChildren(h("p", { class: "empty" }, "No term has begun here yet. Each leadership is shown from its first second."));
    say(byId("terms-summary"), "");
    show(byId("terms-range"), false);
    show(byId("terms-details"), false);
    return;
  }
  show(byId("terms-range"), true);
  show(byId("terms-details"), true);
  const { terms, gaps } = spans(all, data.lease);
  const to = now();
  const seconds = RANGES[range][1];
  // Before the first term on record nothing is known, so that it gets no room.
  const first = Math.min(all[0].startMs, to - 60_000);
  const from = Math.max(first - (to - first) / 50, to - seconds * 1000);
  const shown = terms.filter((term) => term.end >= from);
  const leaders = [];
  for (const term of [...shown].reverse()) if (!leaders.includes(term.leader)) leaders.push(term.leader);
  const lanes = leaders.slice(0, leaders.length > MOST_LANES ? MOST_LANES - 1 : MOST_LANES);
  const others = leaders.length > lanes.length;
  const labels = width < 520 ? 0 : Math.min(200, Math.round(width * 0.24));
  const rows = lanes.length + (others ? 1 : 0);
  const [lane, thick] = rows > LANES_WITH_ROOM ? [32, 20] : [48, 28];
  const laneHeight = labels ? lane : lane + 14;
  const height = rows * laneHeight + AXIS;
  const plot = width - labels - 8;
  const x = (ms) => labels + Math.max(0, Math.min(1, (ms - from) / (to - from))) * plot;
  const laneOf = (leader) => (lanes.includes(leader) ? lanes.indexOf(leader) : lanes.length);
  const nodes = [];
  const marks = ticks(from, to, Math.max(2, Math.floor(plot / 88)));
  for (const at of marks.out) {
    nodes.push(s("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - AXIS }));
    const end = x(at) > width - 28;
    nodes.push(s("text", { class: "tick", x: x(at), y: height - 6, "text-anchor": end ? "end" : x(at) < labels + 20 ? "start" : "middle" }, marks.label(at)));
  }
  for (const gap of gaps) {
    if (gap.end < from) continue;
    const left = x(gap.startMs);
    const band = s("rect", { class: "gap", x: left, y: 0, width: Math.max(2, x(gap.end) - left), height: height - AXIS });
    tipped(band, () => ["Nobody led", `for ${span((gap.end - gap.startMs) / 1000)}, from ${moment(gap.startMs)}`, `after epoch ${gap.after.epoch} of ${gap.after.leader}${gap.after.how ? ` (${gap.after.how})` : ""}`]);
    nodes.push(band);
  }
  for (let row = 0; row < rows; row += 1) {
    const name = lanes[row] ?? `${count(leaders.length - lanes.length, "other")}`;
    const y = labels ? row * laneHeight + laneHeight / 2 + 4 : row * laneHeight + 12;
    nodes.push(s("line", { class: "lane", x1: labels, x2: width - 8, y1: row * laneHeight + laneHeight - lane / 2, y2: row * laneHeight + laneHeight - lane / 2 }));
    nodes.push(s("text", { class: "lane-name", x: 0, y }, cut(name, (labels || width) - 12)));
  }
  bars = shown.map((term) => {
    const left = x(term.startMs);
    const wide = Math.max(3, x(term.end) - left - 1);
    const row = laneOf(term.leader);
    const y = row * laneHeight + laneHeight - lane / 2 - thick / 2;
    const bar = s("rect", { class: `term hue-${hue(term.leader)}`, x: left, y, width: wide, height: thick, rx: 4 });
    const group = s("g", { role: "img", "aria-label": lines(term).join(", "), "data-epoch": term.epoch }, bar);
    const label = String(term.epoch);
    if (wide > label.length * 8 + 12) group.append(s("text", { class: "term-epoch", x: left + wide / 2, y: y + thick / 2 + 4.5, "text-anchor": "middle" }, label));
    if (term.runs) group.append(s("circle", { class: "head", cx: Math.max(left + 4, left + wide - 1), cy: y + thick / 2, r: 4 }));
    tipped(group, () => lines(term));
    nodes.push(group);
    return { term, group, left, wide };
  });
  mark(svg, "width", width);
  mark(svg, "height", height);
  svg.replaceChildren(...nodes);
  if (into.firstChild !== svg) into.replaceChildren(svg);
  showFocus(false);
  const lastHour = terms.filter((term) => term.startMs > to - 3_600_000).length;
  const without = gaps.reduce((sum, gap) => sum + Math.max(0, gap.end - Math.max(gap.startMs, from)), 0) / 1000;
  const none = h("span", null, h("i", { class: "square gap-key", "aria-hidden": "true" }), `Nobody led: ${span(without)}`);
  const some = h("span", null, `${count(shown.length, "term")} of ${count(leaders.length, "worker")} in view, ${whole(lastHour)} begun in the last hour`);
  byId("terms-summary").replaceChildren(some, ...(without > 0 ? [none] : []));
  table.set([...terms].reverse());
}

const measure = document.createElement("canvas").getContext("2d");
function cut(name, room) {
  measure.font = "13px Inter, system-ui, sans-serif";
  if (measure.measureText(name).width <= room) return name;
  let kept = name;
  while (kept.length > 3 && measure.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function lines(term) {
  const out = [`Epoch ${term.epoch}: ${term.leader}`, `${moment(term.startMs)} – ${term.runs ? "now" : moment(term.end)}, ${coarse((term.end - term.startMs) / 1000)}`];
  if (term.runs) out.push("leads now");
  else if (term.how) out.push(`ended: ${term.how}`);
  if (term.unconfirmed) out.push("not confirmed: it may never have led");
  if (term.afterDamage) out.push("followed a damaged lease");
  return out;
}

function tipped(element, of) {
  element.addEventListener("pointermove", (event) => showTip(of(), event.clientX, event.clientY));
  element.addEventListener("pointerleave", hideTip);
}

function showFocus(withTip) {
  bars.forEach(({ group }) => mark(group, "class", null));
  const bar = bars.find(({ term }) => term.epoch === focused);
  if (!bar || document.activeElement !== svg) return;
  mark(bar.group, "class", "focused");
  if (!withTip) return;
  const box = bar.group.getBoundingClientRect();
  showTip(lines(bar.term), box.left + box.width / 2, box.top);
  say(byId("chart-says"), lines(bar.term).join(", "));
}

function move(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || !bars.length) return;
  event.preventDefault();
  const at = bars.findIndex(({ term }) => term.epoch === focused);
  const next = Math.max(0, Math.min(bars.length - 1, (at < 0 ? bars.length - 1 : at) + step));
  focused = bars[next].term.epoch;
  showFocus(true);
}

/** Bars that grow are redrawn when a pixel is due, not each second. */
export function tickTimeline() {
  if (document.body.dataset.stale !== undefined) return; // what leads now is not known, so that its bar must not grow
  if (!bars.length || chosen !== null && RANGES[chosen][1] > 3600 && now() - drawnSecond < 30_000) return;
  if (now() - drawnSecond < 5_000 || document.activeElement === svg) return;
  drawnSecond = now();
  draw();
}

export function startTimeline() {
  byId("terms-range").append(...buttons);
  table = new LocalTable({
    into: byId("terms-table"), caption: "Terms, newest first", key: (term) => term.epoch, nothing: "No term yet.",
    columns: [
      { key: "epoch", label: "Epoch", number: true, heading: true, cell: text((term) => whole(term.epoch)) },
      { key: "leader", label: "Leader", grow: true, cell: text((term) => term.leader) },
      { key: "start", label: "From", cell: text((term) => moment(term.startMs)) },
      { key: "end", label: "Until", cell: text((term) => (term.runs ? "now" : moment(term.end))) },
      { key: "how", label: "How it ended", cell: text((term) => (term.runs ? "" : (term.how ?? ""))) },
    ],
  });
  svg.addEventListener("keydown", move);
  svg.addEventListener("focus", () => {
    focused ??= bars.at(-1)?.term.epoch ?? null;
    showFocus(true);
  });
  svg.addEventListener("blur", () => {
    hideTip();
    showFocus(false);
  });
  onWidth(into, (wide) => {
    width = wide;
    draw();
  });
  on("terms", draw);
  let phase = "";
  on("lease", (lease) => {
    if (phase !== `${lease.phase} ${lease.epoch}`) draw();
    phase = `${lease.phase} ${lease.epoch}`;
  });
}

