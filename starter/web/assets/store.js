// What this page knows, and who is told when it changes. Views are drawn from this and from nothing else.

import { now } from './api.js';

export const state = {
  session: null,
  installation: null,
  workspaces: new Map(),
  loaded: false,
  explanations: new Map(),
  // What was asked for and not answered yet, by workspace: buttons wait for it.
  pending: new Map(),
  live: 'connecting',
  filter: 'all',
  search: '',
};

const MAPS = [state.workspaces, state.explanations, state.pending];
const EXPLAINED = ['phase', 'desired_state', 'operation', 'error_reason'];
// When the last event of each workspace came.
const heard = new Map();
const told = new Set();
let due = false;

export const onChange = (listener) => { told.add(listener); };

// Many changes in one go are drawn once.
export const changed = () => {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    for (const listener of told) listener();
  });
};

// Events come in order, and each is newer than the one before.
export const putEvent = (ws) => {
  heard.set(ws.id, performance.now());
  put(ws);
};

export const dropEvent = (id) => {
  heard.set(id, performance.now());
  drop(id);
};

// An answer to what was asked at `asked` (performance.now()): an event that came since then is newer.
export const putAnswer = (ws, asked) => {
  if ((heard.get(ws.id) ?? -1) <= asked) put(ws);
};

export const dropAnswer = (id, asked) => {
  if ((heard.get(id) ?? -1) <= asked) drop(id);
};

// The whole list: what is not in it is gone.
export const replaceAll = (items, asked) => {
  const there = new Set(items.map((ws) => ws.id));
  for (const id of [...state.workspaces.keys()]) if (!there.has(id)) dropAnswer(id, asked);
  for (const ws of items) putAnswer(ws, asked);
  state.loaded = true;
  changed();
};

export const forget = () => {
  for (const map of [...MAPS, heard]) map.clear();
  Object.assign(state, { session: null, installation: null, loaded: false, live: 'connecting', filter: 'all', search: '' });
  changed();
};

// Why it is where it is and what comes next, unless that was told of another state than the one which is shown.
export const explanationOf = (ws) => {
  const told = state.explanations.get(ws.id);
  return EXPLAINED.every((field) => told?.[field] === ws[field]) ? told : undefined;
};

export const isBusy = (ws) => ws.operation !== 'NONE';
export const isResting = (ws) => !isBusy(ws) && ws.phase === ws.desired_state;
export const needsPerson = (ws) => ws.phase === 'ERROR' && ws.error_reason !== null;

// Whether it takes up one of the places for those that run at once: from when it is asked to until it has stopped.
export const isRunning = (ws) => (ws.phase === 'RUNNING' || ws.desired_state === 'RUNNING') && !ws.error_reason
  && ws.phase !== 'DELETING';
export const running = () => [...state.workspaces.values()].filter(isRunning);

// How far the operation under way is. What is told of another one comes too late, or too early: the next one will do.
export const putProgress = ({ id, operation, ...progress }) => {
  const ws = state.workspaces.get(id);
  if (ws?.operation === operation) put({ ...ws, progress });
};

// Its time left is less by what has passed since then.
const put = (ws) => {
  state.workspaces.set(ws.id, { ...ws, progress: ws.progress && { ...ws.progress, at: now() } });
  changed();
};

const drop = (id) => {
  for (const map of MAPS) map.delete(id);
  changed();
};
