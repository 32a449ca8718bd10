// Building and updating the page. Everything that is shown is text: there is no way from data to markup.

const SVG = 'http://www.w3.org/2000/svg';

// h('button.button.primary', { 'data-do': 'start' }, 'Start')
export const h = (name, attributes, ...children) => {
  const [tag, ...classes] = name.split('.');
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(key, value === true ? '' : String(value));
  }
  node.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

export const icon = (name) => {
  const node = document.createElementNS(SVG, 'svg');
  node.setAttribute('viewBox', '0 0 24 24');
  node.setAttribute('class', `icon icon-${name}`);
  node.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  node.append(path);
  return node;
};

// Makes what is there look like what was built, and keeps what is alike: focus, scrolling and animations go on.
export const morph = (parent, children) => {
  const kept = keyed(parent);
  let place = parent.firstChild;
  for (const wanted of children.map((child) => (typeof child === 'string' ? document.createTextNode(child) : child))) {
    const found = match(wanted, place, kept);
    if (!found) {
      parent.insertBefore(wanted, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else parent.insertBefore(found, place);
    update(found, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
};

const keyed = (parent) => new Map(
  [...parent.childNodes].filter((child) => child.dataset?.key).map((child) => [child.dataset.key, child]),
);

const match = (wanted, place, kept) => {
  const key = wanted.dataset?.key;
  if (key) return kept.get(key) ?? null;
  if (!place || place.dataset?.key) return null;
  return place.nodeType === wanted.nodeType && place.nodeName === wanted.nodeName ? place : null;
};

const update = (node, wanted) => {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
    return;
  }
  for (const { name } of [...node.attributes]) {
    // Whether details are open is the person's business.
    if (!wanted.hasAttribute(name) && name !== 'open') node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  morph(node, [...wanted.childNodes]);
};

const ICONS = {
  activity: 'M3 12h4l3-8 4 16 3-8h4',
  alert: 'M12 8v5M12 16.5v.01M10.3 3.9 2.4 17.5A2 2 0 0 0 4.1 20.5h15.8a2 2 0 0 0 1.7-3L13.7 3.9a2 2 0 0 0-3.4 0Z',
  archive: 'M4 8v11a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1V8M3 4h18v4H3zM10 12h4',
  back: 'M19 12H5M11 6l-6 6 6 6',
  box: 'M12 3 4 7.2v9.6L12 21l8-4.2V7.2zM4 7.2l8 4.3 8-4.3M12 11.5V21',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  close: 'M6 6l12 12M18 6 6 18',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  dark: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z',
  edit: 'M4 20h4L19.5 8.5a2.8 2.8 0 0 0-4-4L4 16zM14 6l4 4',
  history: 'M3.5 12a8.5 8.5 0 1 0 2.6-6.1L3.5 8.4M3.5 3.5v5h5M12 7.5V12l3 2',
  info: 'M12 11v6M12 7.5v.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z',
  key: 'M14.5 13.5a5 5 0 1 0-4-4L3 17v4h4v-2.5h2.5V16h2.5zM16 8v.01',
  light: 'M12 16.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4',
  logout: 'M14 4h5a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1h-5M10 8l-4 4 4 4M6 12h9',
  more: 'M5 12v.01M12 12v.01M19 12v.01',
  open: 'M13 5h6v6M19 5l-8 8M17 14v4a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1h4',
  play: 'M8 5v14l11-7z',
  plus: 'M12 5v14M5 12h14',
  recover: 'M20.5 12a8.5 8.5 0 1 1-2.6-6.1l2.6 2.5M20.5 3.5v5h-5',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4',
  stop: 'M7 7h10v10H7z',
  system: 'M3 5h18v11H3zM8 20h8M12 16v4',
  trash: 'M4 7h16M9 7V4h6v3M6.5 7l.8 12a1 1 0 0 0 1 1h7.4a1 1 0 0 0 1-1l.8-12M10 11v5M14 11v5',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4.5 20.5a7.5 7.5 0 0 1 15 0',
};
