// What makes elements. Texts of nodes come in as children and become text nodes: nothing that
// a node tells is ever read as markup.

const svgNamespace = 'http://www.w3.org/2000/svg';

// el makes an HTML element with attributes and children, which are texts or elements.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// shape makes an SVG element.
export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNamespace, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ''));
  return element;
}

// at is an element of the page.
export function at(id) {
  return document.getElementById(id);
}

// tell replaces the content of an element of the page.
export function tell(id, ...children) {
  at(id).replaceChildren(...children.filter((child) => child !== null && child !== ''));
}

// say changes a text that readers of screens are told of, once for each change.
export function say(id, text) {
  if (at(id).textContent !== text) {
    at(id).textContent = text;
  }
}

// bar is parts of a whole side by side: of each its share, its class and its name.
export function bar(label, parts) {
  const line = el('span', { class: 'bar', role: 'img', 'aria-label': label, title: label });
  for (const [share, kind] of parts) {
    const part = el('span', { class: kind });
    part.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    line.append(part);
  }
  return line;
}
