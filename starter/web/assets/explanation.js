// Why a workspace is where it is, and what comes next, in words: in its own view, and of anybody's for admins.

import { now } from './api.js';
import { h } from './dom.js';
import { progress } from './state_parts.js';
import { isBusy, needsPerson } from './store.js';
import { ago, exactly, nextStep, plain } from './words.js';

// Beside the box of an error, which has the reason for it.
export const explanation = (ws, explained) => [
  needsPerson(ws) ? null : h('p.because', null, plain(explained?.because ?? '…')),
  isBusy(ws) ? progress(ws) : null,
  explained?.waiting_for ? h('p.soft', null, h('b', null, 'Waits for '), plain(explained.waiting_for)) : null,
  comes(explained) ? h('p.soft', { 'data-next': '' }, comes(explained)) : null,
  explained?.last_change ? h('p.small.faint', null, plain(explained.last_change.words), ` · ${ago(explained.last_change.at, now())}`) : null,
];

const comes = (explained) => {
  const step = nextStep(explained?.next_step, now());
  const unless = explained?.next_step?.error_reason ? 'done by then' : 'used';
  if (step) return `${step}, unless it is ${unless}. (${exactly(explained.next_step.at)})`;
  return explained && !explained.waiting_for ? 'Nothing happens by itself.' : '';
};
