// How times, spans and numbers read. The dashboard's clock counts, not the browser's: `setClock` learns the difference.

let ahead = 0;
export const setClock = (serverMs) => {
  ahead = serverMs - Date.now();
};
export const now = () => Date.now() + ahead;

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const MINUTE = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

export const whole = (value) => (known(value) ? WHOLE.format(value) : UNKNOWN);

/** 12,034 stays; a million is 1M: for columns that must not grow. */
export const compact = (value) => (!known(value) ? UNKNOWN : Math.abs(value) < 100_000 ? WHOLE.format(value) : SHORT.format(value));

export const count = (value, one, many = `${one}s`) => `${whole(value)} ${value === 1 ? one : many}`;

/** Two units at most: 3 h 12 min, 14 s, 0.8 s. */
export function span(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const value = Math.max(0, seconds);
  if (value < 9.95) return `${+value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return coarse(value);
}

/** The same without tenths, for what ticks once a second. */
export function coarse(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const value = Math.max(0, Math.floor(seconds));
  if (value < 60) return `${value} s`;
  if (value < 600) return two(Math.floor(value / 60), "min", value % 60, "s");
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  if (value < 86_400) return two(Math.floor(value / 3600), "h", Math.floor((value % 3600) / 60), "min");
  return two(Math.floor(value / 86_400), "d", Math.floor((value % 86_400) / 3600), "h");
}

const two = (most, unit, rest, small) => (rest ? `${most} ${unit} ${rest} ${small}` : `${most} ${unit}`);

export function millis(value) {
  if (!known(value)) return UNKNOWN;
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function usd(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "$0";
  if (value < 0.001) return "< $0.001";
  return `$${value < 1 ? value.toFixed(3) : value < 100 ? value.toFixed(2) : WHOLE.format(value)}`;
}

export function rate(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0/s";
  return `${value < 0.1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : WHOLE.format(value)}/s`;
}

export const clock = (ms) => (known(ms) ? CLOCK.format(ms) : UNKNOWN);
export const minute = (ms) => MINUTE.format(ms);
export const date = (ms) => DATE.format(ms);

/** A time of day for what is of today, with its date otherwise. */
export const moment = (ms) => (!known(ms) ? UNKNOWN : Math.abs(now() - ms) < 12 * 3_600_000 ? CLOCK.format(ms) : DAY.format(ms));

/** "in 3 min", "2 h ago", "now". */
export function relative(ms) {
  if (!known(ms)) return UNKNOWN;
  const seconds = (ms - now()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const size = Math.abs(seconds);
  const text = size < 60 ? `${Math.floor(size)} s` : size < 3600 ? `${Math.floor(size / 60)} min` : coarse(size);
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** One of the eight colours of workers: the same for the same id, today and tomorrow, here and elsewhere. */
export function hue(id) {
  let hash = 2166136261;
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 16777619);
  return (hash >>> 0) % 8;
}
