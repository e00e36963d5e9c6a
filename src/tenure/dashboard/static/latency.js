// Heartbeat latency over the last minutes: percentiles of the leader's heartbeats, its last one, and the dashboard's own looks.

import { byId, h, hideTip, isInView, keepInView, mark, onWidth, s, say, showTip } from "./dom.js";
import { clock, count, millis, minute, span } from "./format.js";
import { data, on } from "./live.js";

const SERIES = [
  { key: "p99", label: "p99", of: (point) => point[4] },
  { key: "p95", label: "p95", of: (point) => point[3] },
  { key: "p50", label: "p50", of: (point) => point[2] },
  { key: "last", label: "last", of: (point) => point[1] },
];
const HEIGHT = 200;
const LEFT = 48;
const BOTTOM = 24;
const TOP = 8;

const into = byId("latency-chart");
const svg = s("svg", { class: "latency", height: HEIGHT, tabindex: "0", role: "img", "aria-label": "Heartbeat latency" });
const cross = s("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
const paths = new Map([["store", s("path", { class: "line store" })], ...SERIES.map(({ key }) => [key, s("path", { class: `line ${key}` })])]);
const grid = s("g");
const legend = new Map();
let width = 0;
let scale = null;
let chosen = null;

const NICE = [1, 2, 2.5, 5, 10];
function step(most) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  return NICE.find((nice) => nice * power >= rough) * power;
}

const finite = (value) => typeof value === "number" && Number.isFinite(value);

function path(points, of, x, y) {
  let out = "";
  let pen = "M";
  let lastX = -Infinity;
  for (const point of points) {
    const value = of(point);
    if (!finite(value)) {
      pen = "M";
      continue;
    }
    const px = x(point[0]);
    // More than one point to a pixel and a half is not seen.
    if (pen === "L" && px - lastX < 1.5) continue;
    out += `${pen}${px.toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    lastX = px;
  }
  return out;
}

function draw() {
  const { leader, store } = data.latency ?? { leader: [], store: [] };
  const all = [...leader, ...store];
  if (!width) return;
  if (!all.length) {
    scale = null;
    into.replaceChildren(h("p", { class: "empty" }, "Nothing measured yet: figures appear within some heartbeats."));
    return;
  }
  let from = Infinity;
  let to = -Infinity;
  let most = 0;
  for (const [ms] of all) {
    if (ms < from) from = ms;
    if (ms > to) to = ms;
  }
  from = Math.min(from, to - 60_000);
  for (const point of leader) for (const { of } of SERIES) if (finite(of(point)) && of(point) > most) most = of(point);
  for (const point of store) if (finite(point[1]) && point[1] > most) most = point[1];
  const by = step(Math.max(1, most));
  const top = Math.ceil(Math.max(1, most) / by) * by;
  const x = (ms) => LEFT + ((ms - from) / (to - from)) * (width - LEFT - 8);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const nodes = [];
  for (let value = 0; value <= top + by / 2; value += by) {
    nodes.push(s("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }));
    nodes.push(s("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value === 0 ? "0" : axis(value)));
  }
  const every = (EVERY.find((seconds) => (to - from) / 1000 / seconds <= Math.max(2, (width - LEFT) / 96)) ?? 3600) * 1000;
  for (let at = Math.ceil(from / every) * every; at <= to; at += every) {
    nodes.push(s("text", { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": x(at) > width - 24 ? "end" : "middle" }, every < 60_000 ? clock(at) : minute(at)));
  }
  grid.replaceChildren(...nodes);
  mark(paths.get("store"), "d", path(store, (point) => point[1], x, y));
  for (const { key, of } of SERIES) mark(paths.get(key), "d", path(leader, of, x, y));
  mark(svg, "width", width);
  if (into.firstChild !== svg) into.replaceChildren(svg);
  scale = { x, y, from, to };
  const last = leader.at(-1);
  for (const { key, of } of SERIES) say(legend.get(key), last ? millis(of(last)) : "–");
  say(legend.get("store"), store.length ? millis(store.at(-1)[1]) : "–");
  mark(svg, "aria-label", summary(leader, store, (to - from) / 1000));
}

const EVERY = [15, 30, 60, 120, 300, 600, 1800, 3600];
const axis = (value) => (value >= 1000 ? `${+(value / 1000).toFixed(2)} s` : `${+value.toFixed(1)} ms`);

function summary(leader, store, seconds) {
  const last = leader.at(-1);
  const own = store.length ? `The dashboard’s own look at the lease took ${millis(store.at(-1)[1])}.` : "";
  if (!last) return `Heartbeat latency: the leader has told none yet. ${own}`;
  const highest = Math.max(...leader.map((point) => point[4]).filter(finite));
  return `Heartbeat latency of the leader over ${span(seconds)}, ${count(leader.length, "reading")}: p50 ${millis(last[2])}, p95 ${millis(last[3])}, p99 ${millis(last[4])}, last ${millis(last[1])}; highest p99 ${millis(Number.isFinite(highest) ? highest : null)}. ${own}`;
}

const nearest = (points, ms) => points.reduce((best, point) => (Math.abs(point[0] - ms) < Math.abs(best[0] - ms) ? point : best), points[0]);

function pointAt(ms, clientX, clientY, aloud) {
  const { leader, store } = data.latency;
  const beat = leader.length ? nearest(leader, ms) : null;
  const look = store.length ? nearest(store, ms) : null;
  const at = (beat ?? look)[0];
  mark(cross, "x1", scale.x(at));
  mark(cross, "x2", scale.x(at));
  mark(cross, "visibility", "visible");
  const lines = [clock(at)];
  if (beat) for (const { label, of } of SERIES) lines.push(`${label}  ${millis(of(beat))}`);
  if (look) lines.push(`dashboard  ${millis(look[1])}`);
  showTip(lines, clientX, clientY);
  if (aloud) say(byId("chart-says"), lines.join(", "));
}

function leave() {
  hideTip();
  mark(cross, "visibility", "hidden");
}

function move(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  const { leader, store } = data.latency ?? {};
  const points = leader?.length ? leader : store;
  if (step === undefined || !scale || !points?.length) return;
  event.preventDefault();
  const at = chosen === null ? points.length - 1 : points.indexOf(nearest(points, chosen));
  const next = points[Math.max(0, Math.min(points.length - 1, at + step))];
  chosen = next[0];
  const box = svg.getBoundingClientRect();
  pointAt(chosen, box.left + scale.x(chosen), box.top + TOP, true);
}

export function startLatency() {
  svg.append(grid, ...paths.values(), cross);
  for (const [key, label] of [...SERIES.map(({ key, label }) => [key, label]), ["store", "dashboard’s look"]]) {
    const value = h("b");
    legend.set(key, value);
    byId("latency-legend").append(h("li", { class: key }, h("span", { class: "swatch", "aria-hidden": "true" }), label, " ", value));
  }
  svg.addEventListener("pointermove", (event) => {
    if (!scale) return;
    const box = svg.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (width - LEFT - 8);
    pointAt(scale.from + Math.max(0, Math.min(1, part)) * (scale.to - scale.from), event.clientX, event.clientY, false);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", move);
  keepInView(into);
  into.addEventListener("comes-into-view", draw);
  on("latency", () => isInView(into) && draw());
  onWidth(into, (wide) => {
    width = wide;
    draw();
  });
}
