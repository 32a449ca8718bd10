// The workspaces, live: events while they come, and the whole list whenever something may have been missed.

import { all, get, lastMessage } from './api.js';
import { changed, dropEvent, isBusy, putEvent, putProgress, replaceAll, state } from './store.js';

const QUIET = 75_000;
const HIDDEN = 60_000;
const EXPLAIN_EVERY = 30_000;
const POLL = 4_000;

let source = null;
let heard = 0;
let attempts = 0;
let retry = null;
let hiding = null;
let watching = null;
let explained = 0;
let polled = 0;
// The last change that each workspace was explained after.
const asOf = new Map();
// Questions are numbered: an answer that comes after that to a later question is not shown.
let questions = 0;
const answered = new Map();

export const start = () => {
  stop();
  watching = setInterval(watch, 1000);
  document.addEventListener('visibilitychange', visible);
  refresh();
  connect();
};

export const stop = () => {
  clearInterval(watching);
  clearTimeout(retry);
  clearTimeout(hiding);
  document.removeEventListener('visibilitychange', visible);
  disconnect();
};

// Everything, now. Whoever lost an answer, or was away, sees what is true.
export const refresh = async () => {
  polled = Date.now();
  const asked = performance.now();
  try {
    replaceAll(await all('/api/v1/workspaces'), asked);
    await explainAll();
  } catch {
    // Said by the state of the connection; the next one may succeed.
  }
};

// Why, what next, what to do: of one workspace, after it changed.
export const explain = async (id) => {
  questions += 1;
  const question = questions;
  try {
    await keep({ id, ...await get(`/api/v1/workspaces/${id}/explain`) }, question);
  } catch {
    // It is gone, or the next round will tell.
  }
};

const explainAll = async () => {
  explained = Date.now();
  questions += 1;
  const question = questions;
  await Promise.all((await all('/api/v1/explain')).map((told) => keep(told, question)));
};

// With an error comes what the operation that failed had to say.
const keep = async (told, question) => {
  const message = told.phase === 'ERROR' && told.error_reason ? await lastMessage(told).catch(() => null) : null;
  if (!state.workspaces.has(told.id) || (answered.get(told.id) ?? 0) > question) return;
  answered.set(told.id, question);
  state.explanations.set(told.id, { ...told, message });
  changed();
};

const connect = () => {
  disconnect();
  heard = Date.now();
  source = new EventSource('/api/v1/events');
  source.onopen = () => {
    heard = Date.now();
    // The first list is on its way already; after a gap it has to be asked for.
    if (state.live === 'lost') refresh();
    attempts = 0;
    show('live');
  };
  source.onerror = () => {
    show('lost');
    // A refused stream does not come back by itself.
    if (source?.readyState === EventSource.CLOSED) again();
  };
  on('workspace_updated', (ws) => {
    putEvent(ws);
    // Not "if it is news": the answer to what was asked here may have brought the same before.
    if (state.loaded && !isBusy(ws) && asOf.get(ws.id) !== ws.updated_at) {
      asOf.set(ws.id, ws.updated_at);
      explain(ws.id);
    }
  });
  on('workspace_deleted', ({ id }) => {
    asOf.delete(id);
    answered.delete(id);
    dropEvent(id);
  });
  on('workspace_progress', putProgress);
  on('heartbeat', () => {});
};

const on = (name, handle) => source.addEventListener(name, (event) => {
  heard = Date.now();
  show('live');
  handle(JSON.parse(event.data));
});

const disconnect = () => {
  source?.close();
  source = null;
};

const again = () => {
  clearTimeout(retry);
  attempts += 1;
  retry = setTimeout(connect, Math.min(10_000, 500 * 2 ** Math.min(attempts, 5)) * (0.75 + Math.random() / 2));
};

const show = (live) => {
  if (state.live === live) return;
  state.live = live;
  changed();
};

const watch = () => {
  if (document.visibilityState === 'hidden') return;
  // A connection that broke without a word.
  if (source && Date.now() - heard > QUIET) {
    show('lost');
    connect();
  }
  // Events may be out of order for long; asking works as soon as the server does.
  if (state.live !== 'live' && Date.now() - polled > POLL) refresh();
  // Use of a workspace makes no event, and puts off its sleep.
  if (state.live === 'live' && Date.now() - explained > EXPLAIN_EVERY) explainAll().catch(() => {});
};

// A browser keeps few connections to one host: a tab that nobody looks at gives its own back.
const visible = () => {
  clearTimeout(hiding);
  if (document.visibilityState === 'hidden') {
    hiding = setTimeout(disconnect, HIDDEN);
    return;
  }
  if (!source) {
    refresh();
    connect();
  } else {
    explainAll().catch(() => {});
  }
};
