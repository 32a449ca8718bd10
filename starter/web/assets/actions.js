// What a person can do with a workspace, when, and what it costs.

import { get, patch, pathOf, post, remove } from './api.js';
import { ask } from './dialog.js';
import { h, icon } from './dom.js';
import { refresh } from './live.js';
import { inContext } from './refusals.js';
import { changed, isBusy, putAnswer, state } from './store.js';
import { failed } from './toast.js';
import { titled } from './words.js';

// Where an answer is shown, and what is asked for again when none came: in one's own list, unless told otherwise.
const OWN = { put: putAnswer, again: refresh };

// In the order in which they are offered. `can` mirrors the rules of the API, which has the last word.
export const ACTIONS = {
  start: {
    label: (ws) => (ws.phase === 'ARCHIVED' ? 'Restore' : 'Start'),
    icon: 'play',
    can: (ws) => settled(ws) && ws.desired_state !== 'RUNNING' && ws.phase !== 'RUNNING',
    run: (ws) => want(ws, 'RUNNING'),
  },
  stop: {
    label: () => 'Stop',
    icon: 'stop',
    can: (ws) => settled(ws) && (ws.phase === 'RUNNING' || ws.desired_state === 'RUNNING') && ws.phase !== 'ARCHIVED',
    run: (ws) => want(ws, 'STANDBY'),
  },
  archive: {
    label: () => 'Archive',
    icon: 'archive',
    can: (ws) => settled(ws) && ws.phase !== 'ARCHIVED' && ws.desired_state !== 'ARCHIVED',
    run: (ws) => want(ws, 'ARCHIVED'),
  },
  recover: {
    label: () => 'Recover',
    icon: 'recover',
    can: (ws) => ws.phase === 'ERROR' && ws.error_reason !== null && ws.desired_state !== 'DELETED',
    run: (ws) => recover(ws),
  },
  delete: {
    label: () => 'Delete',
    icon: 'trash',
    can: (ws) => !isBusy(ws) && ws.phase !== 'DELETING' && ws.desired_state !== 'DELETED',
    run: (ws) => confirmDelete(ws),
  },
};

// One that sleeps is woken by it.
export const canOpen = (ws) => !isBusy(ws) && ['RUNNING', 'STANDBY'].includes(ws.phase)
  && ['RUNNING', ws.phase].includes(ws.desired_state);

export const run = (name, id) => {
  const ws = state.workspaces.get(id);
  if (ws && ACTIONS[name].can(ws) && !state.pending.has(id)) ACTIONS[name].run(ws);
};

const settled = (ws) => !isBusy(ws) && !['ERROR', 'DELETING'].includes(ws.phase) && ws.desired_state !== 'DELETED';

const want = (ws, desired) => {
  const verb = { RUNNING: 'start', STANDBY: 'stop', ARCHIVED: 'archive' }[desired];
  return during(ws, verb, `${ws.name} could not be ${{ start: 'started', stop: 'stopped', archive: 'archived' }[verb]}`,
    () => patch(pathOf(ws), { desired_state: desired }));
};

// What it goes on with is asked for now: what was lost may have been brought back, and no event tells of that.
export const recover = async (ws, shown = OWN) => {
  const send = () => post(`${pathOf(ws)}/recover`);
  let told = null;
  await during(ws, 'recover', `${titled(ws)} could not be recovered`, async () => {
    told = await get(`${pathOf(ws)}/explain`);
    return told.recovering ? null : send();
  }, shown);
  if (!told?.recovering || document.querySelector('dialog[open]')) return;
  const { goes_on: goesOn, gives_up: givesUp } = told.recovering;
  await ask({
    title: `Recover ${titled(ws)}?`,
    danger: givesUp !== null,
    confirm: givesUp ? 'Accept the loss and recover' : 'Recover',
    body: [
      h('p.soft', null, told.because, givesUp ? ' If it can still be brought back, do that first.' : ''),
      h('p', null, goesOn),
      ...(givesUp ? [losses([givesUp])] : []),
    ],
    submit: () => answered(send, shown),
  });
};

export const confirmDelete = (ws, shown = OWN) => ask({
  title: `Delete ${titled(ws)}?`,
  danger: true,
  confirm: 'Delete workspace',
  body: [
    h('p.soft', null, 'This can’t be undone. ', !ws.owner && ACTIONS.archive.can(ws) ? 'To keep its files without taking up a disk, archive it instead.' : ''),
    losses(lossesOf(ws)),
  ],
  submit: async () => {
    await remove(pathOf(ws));
    await shown.again();
  },
});

const lossesOf = (ws) => {
  const lost = [];
  if (ws.phase === 'RUNNING') lost.push('It is running: open terminals and unsaved work end at once.');
  if (['RUNNING', 'STANDBY', 'ERROR'].includes(ws.phase)) lost.push('Its home: every file in it is removed at once.');
  if (ws.archive_key) lost.push('Its archive: it is removed later, and can’t be restored from here any more.');
  if (!lost.length) lost.push('Nothing but its name and settings: it has no home yet.');
  // An admin is not shown what people write into theirs.
  if (ws.memo || ws.owner) lost.push('Its memo, and the log of its operations.');
  else lost.push('The log of its operations.');
  return lost;
};

const losses = (items) => h('ul.losses', { 'aria-label': 'What will be lost' },
  items.map((item) => h('li', null, icon('trash'), h('span', null, item))));

// The button waits until the server has answered; what it then shows is what the server said.
const during = async (ws, verb, title, send, shown = OWN) => {
  state.pending.set(ws.id, verb);
  changed();
  try {
    await answered(send, shown);
  } catch (failure) {
    failed(title, inContext(failure, ws));
    // What was shown may have been out of date, or the answer of something that was done is lost.
    shown.again();
  } finally {
    state.pending.delete(ws.id);
    changed();
  }
};

const answered = async (send, shown) => {
  const asked = performance.now();
  const answer = await send();
  if (answer) await shown.put(answer, asked);
};
