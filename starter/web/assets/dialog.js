// Dialogs and the menu: the browser's own, so that Esc, focus and the background do what people expect. The focus goes
// back when a dialog closes; its `close` event comes later, when a person may have moved on.

import { h } from './dom.js';

// A form in a dialog. `submit(data, form)` is called with what was filled in; it closes when that succeeded, and says
// what was wrong when it threw. Resolves to what `submit` returned, or undefined when it was dismissed.
export const ask = ({ title, body, confirm, danger = false, cancel = 'Cancel', submit }) => new Promise((resolve) => {
  const problem = h('p.problem', { role: 'alert' });
  const yes = h(danger ? 'button.button.danger' : 'button.button.primary', { type: 'submit' }, confirm);
  const no = h('button.button', { type: 'button' }, cancel);
  const form = h('form.form', { novalidate: true }, h('h2', { id: 'dialog-title' }, title), ...body, problem,
    h('div.actions', null, no, yes));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  let answer;

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (!form.reportValidity()) return;
    problem.textContent = '';
    busy(yes, true);
    try {
      answer = await submit(new FormData(form), form);
      dialog.close();
    } catch (failure) {
      problem.textContent = failure.message;
      busy(yes, false);
    }
  });
  no.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => {
    dialog.remove();
    resolve(answer);
  });
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector('[autofocus]') ?? (danger ? no : yes)).focus();
});

// Something to read, and one button.
export const tell = ({ title, body, done = 'Done' }) => new Promise((resolve) => {
  const close = h('button.button.primary', { type: 'button' }, done);
  const content = h('div.form', null, h('h2', { id: 'dialog-title' }, title), ...body, h('div.actions', null, close));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, content);
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => {
    dialog.remove();
    resolve();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
});

// `items`: { label, icon, choose, danger?, disabled? } or null for a line between them.
export const menu = (button, items, head) => {
  const entries = items.map((item) => (item ? entry(item, () => list.hidePopover()) : h('hr')));
  const list = h('div.menu', { popover: 'auto', role: 'menu', 'aria-label': button.getAttribute('aria-label') }, head, ...entries);
  list.addEventListener('keydown', (event) => {
    const usable = entries.filter((node) => node.localName === 'button' && !node.disabled);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    usable.at((usable.indexOf(document.activeElement) + step) % usable.length).focus();
  });
  list.addEventListener('toggle', (event) => {
    if (event.newState !== 'closed') return;
    list.remove();
    if (document.activeElement === document.body && button.isConnected) button.focus();
  });
  document.body.append(list);
  list.showPopover();
  beside(button, list);
  entries.find((node) => node.localName === 'button' && !node.disabled)?.focus();
};

export const busy = (button, waiting) => {
  button.disabled = waiting;
  button.setAttribute('aria-busy', String(waiting));
};

const entry = ({ label, icon, choose, danger, disabled }, close) => {
  const made = h(danger ? 'button.dangerous' : 'button', { type: 'button', role: 'menuitem', disabled }, icon, label);
  made.addEventListener('click', () => {
    close();
    choose();
  });
  return made;
};

const beside = (button, list) => {
  const at = button.getBoundingClientRect();
  const { width, height } = list.getBoundingClientRect();
  const below = at.bottom + 6 + height <= innerHeight;
  list.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
  list.style.top = `${Math.max(8, below ? at.bottom + 6 : at.top - 6 - height)}px`;
};
