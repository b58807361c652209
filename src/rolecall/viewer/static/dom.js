// Elements and words. All text enters the page as text nodes; nothing here, or elsewhere, parses markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "open" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

export function put(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => build(document.createElementNS(SVG, tag), props, children);

export function replace(element, ...children) {
  element.replaceChildren();
  return put(element, ...children);
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(1).replace("-", "−");
  if (Number.isInteger(value)) return value.toLocaleString("en-US").replace("-", "−");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.01 ? 3 : 5;
  return value.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits }).replace("-", "−");
}

export function fixed(value, digits = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
}

export function signed(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 0.5 * 10 ** -digits) return "0";
  return (value > 0 ? "+" : "") + fixed(value, digits);
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function ago(time) {
  const seconds = Math.max(0, Date.now() / 1000 - time);
  return seconds < 5 ? "just now" : `${seconds < 86400 ? duration(seconds) : `${Math.round(seconds / 86400)} d`} ago`;
}

export function plural(count, word) {
  return `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;
}

// The colour of a role or run by its place in an order: eight hues that stay apart for colour-blind readers.
export const hue = (index) => `var(--hue-${((index % 8) + 8) % 8})`;

export const roleHue = (roles, role) => hue(Math.max(0, roles.indexOf(role)));

// Right, wrong, not graded: a shape and a word beside the colour.
export function mark(score, title) {
  const kind = score === null || score === undefined ? "none" : score >= 1 ? "right" : "wrong";
  const sign = { right: "✓", wrong: "✗", none: "?" }[kind];
  const word = title ?? { right: "right", wrong: "wrong", none: "not graded" }[kind];
  return h("span", { class: `mark ${kind}`, title: word, role: "img", "aria-label": word }, sign);
}

export function debounce(use, wait = 200) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => use(...given), wait);
  };
}
