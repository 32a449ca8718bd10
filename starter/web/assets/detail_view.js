// One workspace: where it is and why, what was done with it, and what was observed.

import { run, ACTIONS } from './actions.js';
import { Failure, get, now } from './api.js';
import { h, icon } from './dom.js';
import { edit } from './edit_dialog.js';
import { explanation } from './explanation.js';
import { more } from './list_view.js';
import { explain } from './live.js';
import { errorBox, goal, mainButtons, pill, progress } from './state_parts.js';
import { changed, isBusy, needsPerson, state } from './store.js';
import { CONDITIONS, OPERATIONS, OUTCOMES, PHASES, ago, amount, exactly, nextStep, plain, since, took, ttl } from './words.js';

const PAGE = 20;

let id = null;
let log = null;
let wanted = PAGE;
let drawn = '';
let questions = 0;
let answered = 0;
let gone = false;

export const title = () => state.workspaces.get(id)?.name ?? 'Workspace';

export const enter = (workspaceId) => {
  id = workspaceId;
  log = null;
  wanted = PAGE;
  drawn = '';
  gone = false;
  explain(id);
};

export const render = () => {
  const ws = state.workspaces.get(id);
  if (!ws) return state.loaded ? missing() : [back()];
  follow(ws);
  const explained = state.explanations.get(ws.id);
  return [
    back(),
    header(ws),
    errorBox(ws, explained),
    h('div.columns', null,
      h('div.column', null, why(ws, explained), operations(ws)),
      h('div.column', null, memo(ws), facts(ws, explained), conditions(ws))),
  ].filter(Boolean);
};

export const handlers = {
  edit: () => edit(state.workspaces.get(id)),
  more: (button) => more(button, state.workspaces.get(id)),
  'log-more': () => {
    wanted = Math.min(200, wanted + 3 * PAGE);
    load();
  },
  ...Object.fromEntries(Object.keys(ACTIONS).map((name) => [name, () => run(name, id)])),
};

// Log and reasons change when the workspace does, also from one operation to the next.
const follow = (ws) => {
  const now_ = `${ws.id} ${ws.updated_at} ${ws.operation} ${ws.error_count} ${state.live}`;
  if (now_ === drawn) return;
  drawn = now_;
  load();
  explain(ws.id);
};

const load = async () => {
  const asked = id;
  questions += 1;
  const question = questions;
  try {
    const page = await get(`/api/v1/workspaces/${asked}/operations?limit=${wanted}`);
    // An answer that comes after that to a later question is not shown.
    if (asked === id && question > answered) {
      log = page;
      answered = question;
    }
  } catch (failure) {
    if (failure instanceof Failure && failure.status === 404 && asked === id) gone = true;
    else drawn = '';
  }
  changed();
};

const back = () => h('a.back', { href: '#/', 'data-key': 'back' }, icon('back'), 'Workspaces');

const missing = () => [back(), h('div.card', null, h('div.empty', null,
  h('h2', null, gone || id ? 'There is no such workspace' : ''),
  h('p', null, 'It was deleted, or it is not yours, or the address is not right.')))];

const header = (ws) => h('div.heading', { 'data-key': 'heading' },
  h('div.grow', null,
    h('div.line', null, h('h1', { dir: 'auto' }, ws.name), pill(ws), goal(ws)),
    ws.description ? h('p.soft', null, ws.description) : null),
  h('div.actions', null, ...mainButtons(ws), h('button.button', {
    type: 'button', 'data-do': 'edit', 'data-key': 'edit', disabled: ws.phase === 'DELETING',
  }, icon('edit'), 'Edit'), h('button.button.quiet.square', {
    type: 'button', 'data-do': 'more', 'data-key': 'more', 'aria-label': `More for ${ws.name}`, 'aria-haspopup': 'menu',
  }, icon('more'))));

const why = (ws, explained) => h('section.card', { 'aria-labelledby': 'why' },
  h('header', null, h('h2', { id: 'why' }, 'What is going on')),
  h('div.body.told', null, ...explanation(ws, explained)));

const facts = (ws, explained) => {
  const used = explained?.last_activity;
  const defaults = state.installation?.ttl;
  const when = (text) => h('time', { datetime: text, title: exactly(text) }, ago(text, now()));
  const lines = [
    ['Phase', `${PHASES[ws.phase].label} `, h('time', { datetime: ws.phase_changed_at, title: exactly(ws.phase_changed_at) }, since(ws.phase_changed_at, now()))],
    ['Desired state', ws.desired_state === 'DELETED' ? 'Deleted' : PHASES[ws.desired_state].label],
    ['Last activity', used ? when(used.at) : 'never', used?.kind ? ` (${used.kind})` : ''],
    ['Sleeps', ttl(ws.standby_ttl_seconds, defaults?.standby_ttl_seconds)],
    ['Archived', ttl(ws.archive_ttl_seconds, defaults?.archive_ttl_seconds)],
    ['Image', h('code', null, ws.image_ref)],
    ['Created', when(ws.created_at)],
    ...(ws.node ? [['Node', ws.node]] : []),
    ...(ws.archive_key ? [['Archive', h('code', null, ws.archive_key)]] : []),
    ['Id', h('code', null, ws.id)],
  ];
  const histories = state.installation?.temporal_ui_url;
  return h('section.card', { 'aria-labelledby': 'facts' },
    h('header', null, h('h2', { id: 'facts' }, 'Facts'), histories
      ? h('a.button.quiet', { href: `${histories}/ws-${ws.id}`, target: '_blank', rel: 'noopener noreferrer' }, icon('history'), 'Temporal history')
      : null),
    h('dl.body.facts', null, lines.map(([name, ...value]) => [h('dt', null, name), h('dd', null, ...value)])));
};

const memo = (ws) => h('section.card', { 'aria-labelledby': 'memo-title', 'data-key': 'memo' },
  h('header', null, h('h2', { id: 'memo-title' }, 'Memo')),
  h('div.body', null, ws.memo
    ? h('p.memo', null, ws.memo)
    : h('p.faint.small', null, 'Nothing noted. Edit the workspace to leave yourself a note.')));

const conditions = (ws) => h('section.card', { 'aria-labelledby': 'conditions' },
  h('header', null, h('h2', { id: 'conditions' }, 'Conditions')),
  Object.keys(ws.conditions).length
    ? h('ul.conditions', null, Object.entries(ws.conditions).map(([name, one]) => h('li', { 'data-key': name },
      h('div.grow', null, h('b', null, CONDITIONS[name] ?? name),
        h('p.small.faint', { title: exactly(one.last_transition_time) }, [one.reason, one.message].filter(Boolean).join(': '), changedApart(ws, one))),
      h('span.pill', { 'data-tone': one.status === 'True' ? 'good' : name === 'policy.healthy' ? 'danger' : 'cold' }, one.status === 'True' ? 'Yes' : 'No'))))
    : h('div.body', null, h('p.faint.small', null, 'Nothing was observed yet.')));

// What changed with the phase has its time; that is told among the facts.
const changedApart = (ws, { last_transition_time: at }) => (
  Math.abs(Date.parse(at) - Date.parse(ws.phase_changed_at)) < 60_000 ? '' : ` · ${ago(at, now())}`);

const operations = () => h('section.card', { 'aria-labelledby': 'log' },
  h('header', null, h('h2', { id: 'log' }, 'Operation log'), log ? h('span.small.faint', null, `${log.total} in all`) : null),
  log?.items.length
    ? h('ol.log', { 'aria-labelledby': 'log' }, log.items.map(line))
    : h('div.body', null, h('p.faint.small', null, log ? 'No operation yet.' : '…')),
  log && log.items.length < log.total && wanted < 200
    ? h('div.rest', null, h('button.button', { type: 'button', 'data-do': 'log-more' }, 'Show older ones'))
    : null);

const line = (one) => {
  const outcome = OUTCOMES[one.outcome];
  const parts = [
    took(one.outcome ? one.duration_seconds : Math.max(0, now() - Date.parse(one.started_at)) / 1000),
    one.attempts > 1 ? `${one.attempts} attempts` : '',
    one.outcome ? amount(one.bytes_done, one.bytes_total) : '',
    plain(one.cause?.words ?? ''),
  ].filter(Boolean);
  return h('li', { 'data-key': one.id },
    h('div.grow', null,
      h('b', { title: one.operation }, OPERATIONS[one.operation] ?? one.operation),
      h('p.small.faint.numbers', null, parts.join(' · ')),
      one.error_message ? h('p.small.said', null, h('b', null, one.error_reason), ` ${one.error_message}`) : null),
    h('div.end', null,
      h(one.outcome ? 'span.pill' : 'span.pill.busy', { 'data-tone': outcome.tone }, outcome.label),
      h('time.small.faint', { datetime: one.started_at, title: exactly(one.started_at) }, ago(one.started_at, now()))));
};
