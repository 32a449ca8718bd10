// Short messages that come and go. Errors stay until they are read.

import { h, icon } from './dom.js';

const SECONDS = 5;

const place = h('div.toasts', { popover: 'manual', role: 'region', 'aria-label': 'Messages' });

export const succeeded = (title) => show('good', 'check', 'status', title, '');
export const failed = (title, failure) => show('danger', 'alert', 'alert', title, failure.message);

const show = (tone, sign, role, title, text) => {
  if (!place.isConnected) document.body.append(place);
  const close = h('button.button.quiet.square', { type: 'button', 'aria-label': 'Dismiss' }, icon('close'));
  const toast = h('div.toast', { role, 'data-tone': tone }, icon(sign), h('div.grow', null, h('b', null, title), text), close);
  const same = [...place.children].find((other) => other.textContent === toast.textContent);
  same?.remove();
  close.addEventListener('click', () => gone(toast));
  place.append(toast);
  // Above a dialog that is open: the last one shown is on top.
  place.hidePopover();
  place.showPopover();
  if (role === 'status') setTimeout(() => gone(toast), SECONDS * 1000);
};

// What was done elsewhere has been seen: on another view it would only be in the way.
export const moveOn = () => {
  for (const toast of [...place.children].filter((one) => one.getAttribute('role') === 'status')) gone(toast);
};

const gone = (toast) => {
  toast.remove();
  if (!place.children.length && place.matches(':popover-open')) place.hidePopover();
};
