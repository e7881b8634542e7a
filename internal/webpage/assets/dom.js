// Elements. Text from outside becomes text nodes and attributes only; nothing here, or
// anywhere in the page, makes HTML of strings.

const svgSpace = "http://www.w3.org/2000/svg";

// el makes an element with attributes and children, which are nodes or strings.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// svg is el for drawings.
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(svgSpace, name), attributes, children);
}

function fill(e, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) attr(e, key, value);
  e.append(...children);
  return e;
}

// attr sets an attribute if it is another, or removes it.
export function attr(e, key, value) {
  if (value === undefined || value === null || value === false) {
    if (e.hasAttribute(key)) e.removeAttribute(key);
  } else if (e.getAttribute(key) !== String(value)) {
    e.setAttribute(key, value);
  }
}

// text sets the text of an element that has nothing else, if it is another: writing the
// same again would disturb a selection.
export function text(e, value) {
  const s = String(value);
  if (e.textContent !== s) e.textContent = s;
}

// show shows or hides an element.
export function show(e, on) {
  if (e.hidden === on) e.hidden = !on;
}

// once returns what is kept for an element under a key, made at the first time.
const kept = new WeakMap();
export function once(e, key, make) {
  let all = kept.get(e);
  if (!all) kept.set(e, (all = new Map()));
  let value = all.get(key);
  if (value === undefined) all.set(key, (value = make()));
  return value;
}
