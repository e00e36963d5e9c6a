// The one place that makes elements. Text from the bucket is only ever text: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}

/** An element with attributes (`onclick` and the like are listeners) and children (nodes, or text). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same in SVG. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets text where it differs: what is the same causes no layout. */
export function say(element, text) {
  const wanted = text ?? "";
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : String(value));
}

export const show = (element, shown) => {
  if (element.hidden === shown) element.hidden = !shown;
};

/** Calls `draw(width)` at first and whenever the width of `element` changes. */
export function onWidth(element, draw) {
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== last) {
      last = width;
      draw(width);
    }
  }).observe(element);
}

const inView = new WeakMap();
const watcher = new IntersectionObserver(
  (entries) => entries.forEach((entry) => {
    const before = inView.get(entry.target);
    inView.set(entry.target, entry.isIntersecting);
    if (entry.isIntersecting && before === false) entry.target.dispatchEvent(new Event("comes-into-view"));
  }),
  { rootMargin: "160px" },
);

/** From here on `isInView(element)` is kept; the element is sent `comes-into-view` when it does. */
export const keepInView = (element) => watcher.observe(element);
export const isInView = (element) => inView.get(element) !== false;

const tip = byId("tip");

/** Shows lines of text near a point of the page, kept inside it. */
export function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line, at) => h("p", { class: at ? null : "tip-head" }, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x - box.width / 2), document.documentElement.clientWidth - box.width - 8);
  const above = y - box.height - 12;
  tip.style.left = `${Math.round(left)}px`;
  tip.style.top = `${Math.round(above > 8 ? above : y + 16)}px`;
}

export const hideTip = () => {
  tip.hidden = true;
};
