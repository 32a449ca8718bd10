// How the state of a workspace looks: alike in the list, in its own view and for admins.

import { ACTIONS, canOpen } from './actions.js';
import { now } from './api.js';
import { h, icon } from './dom.js';
import { isBusy, needsPerson, state } from './store.js';
import { OPERATIONS, PHASES, amount, plain, size, span, titled } from './words.js';

export const pill = (ws) => {
  if (isBusy(ws)) return h('span.pill.busy', { 'data-tone': 'accent' }, OPERATIONS[ws.operation]);
  if (ws.phase === 'ERROR' && !ws.error_reason) return h('span.pill.busy', { 'data-tone': 'warn' }, 'Recovering');
  const { label, tone } = PHASES[ws.phase];
  return h('span.pill', { 'data-tone': tone }, label);
};

// Where it is going, when that is not where it is.
export const goal = (ws) => {
  if (ws.desired_state === ws.phase || ws.phase === 'DELETING') return null;
  const wanted = ws.desired_state === 'DELETED' ? 'Deleted' : PHASES[ws.desired_state].label;
  return h('span.goal', { title: 'Desired state' }, '→ ', h('span', null, wanted));
};

export const progress = (ws) => {
  const moved = ws.progress;
  const known = moved?.bytes_total > 0;
  const label = `${OPERATIONS[ws.operation]}: progress of ${ws.name}`;
  const percent = known ? Math.min(100, Math.floor((100 * moved.bytes_done) / moved.bytes_total)) : null;
  const bar = known
    ? h('progress', { max: 100, value: percent, 'aria-label': label })
    : h('div.moving', { role: 'progressbar', 'aria-label': label });
  return h('div.progress', null, bar, h('p.small.faint.numbers', null, apart(details(ws, moved, percent))));
};

export const openButton = (ws) => (canOpen(ws)
  ? h(ws.phase === 'RUNNING' ? 'a.button.primary' : 'a.button', {
    href: `/w/${ws.id}/`, target: '_blank', rel: 'noopener', 'data-key': 'open', 'aria-label': `Open ${ws.name} in the IDE`,
  }, icon('open'), 'Open')
  : null);

export const actionButton = (name, ws, style = 'button.button') => {
  const { label, icon: sign, can } = ACTIONS[name];
  const waiting = state.pending.get(ws.id) === name;
  if (!waiting && !can(ws)) return null;
  return h(style, {
    type: 'button',
    'data-do': name,
    'data-id': ws.id,
    'data-key': `do-${name}`,
    disabled: state.pending.has(ws.id),
    'aria-busy': waiting ? 'true' : null,
    'aria-label': `${label(ws)} ${titled(ws)}`,
  }, icon(sign), label(ws));
};

// The one thing that a person most likely wants next is the button that stands out.
export const mainButtons = (ws) => [
  openButton(ws),
  actionButton('recover', ws, 'button.button.primary'),
  actionButton('start', ws),
  actionButton('stop', ws),
];

export const errorBox = (ws, explained) => {
  if (!needsPerson(ws)) return null;
  return h('div.error', { role: 'note', 'aria-label': `Error of ${titled(ws)}` },
    icon('alert'),
    h('div.grow', null,
      h('p', null, h('b', null, ws.error_reason), ' ', plain(explained?.because ?? 'It stopped and waits for a person.')),
      explained?.message ? h('p.small.mono', null, explained.message) : null,
      explained?.what_to_do ? h('p.soft', null, plain(explained.what_to_do)) : null));
};

// In one line, which is broken between the texts where it has to be, and never within one.
const apart = (texts) => texts.map((text, number) => [number ? ' · ' : '', h('span.whole', null, text)]);

const sofar = (ws) => `${span((now() - Date.parse(ws.op_started_at)) / 1000)} so far`;

const attempt = (ws) => {
  const most = state.installation?.max_retries ?? Infinity;
  // After the last one, it takes a moment until the operation is given up.
  return ws.error_count < most ? `attempt ${ws.error_count + 1}${most === Infinity ? '' : ` of ${most}`}` : 'gave up';
};

const details = (ws, moved, percent) => {
  const verifying = moved?.stage === 'VERIFYING';
  // Every byte is where it should be, and something still goes on.
  if (percent === 100 && (verifying || ws.operation === 'RESTORING')) return ['Finishing', sofar(ws)];
  const said = verifying ? ['Verifying the stored copy'] : [];
  if (percent !== null) said.push(`${percent} %`);
  // What is read back is what was stored: how much that is was said.
  if (moved?.bytes_done && !verifying) said.push(amount(moved.bytes_done, moved.bytes_total));
  if (moved?.bytes_per_second) said.push(`${size(moved.bytes_per_second)}/s`);
  if (moved?.eta_seconds) said.push(`${span(Math.max(1, moved.eta_seconds - (now() - moved.at) / 1000))} left`);
  else if (ws.op_started_at) said.push(sofar(ws));
  if (ws.error_count) said.push(attempt(ws));
  return said;
};
