// All of one's workspaces.

import { ACTIONS, run } from './actions.js';
import { now } from './api.js';
import { create } from './create_dialog.js';
import { menu } from './dialog.js';
import { h, icon } from './dom.js';
import { edit } from './edit_dialog.js';
import { errorBox, goal, mainButtons, pill, progress } from './state_parts.js';
import { changed, explanationOf, isBusy, isRunning, needsPerson, running, state } from './store.js';
import { ago, nextStep, plain } from './words.js';

const MOST = 100;

const FILTERS = {
  all: { label: 'All', has: () => true },
  // As many as the heading counts: what starts is there already, what stops is there still.
  running: { label: 'Running', has: isRunning },
  standby: { label: 'Standby', has: (ws) => ws.phase === 'STANDBY' && !isRunning(ws) },
  archived: { label: 'Archived', has: (ws) => ws.phase === 'ARCHIVED' && !isRunning(ws) },
  error: { label: 'Needs you', has: needsPerson },
};

let shown = MOST;

export const title = () => 'Workspaces';

export const render = () => {
  if (!state.loaded) return [heading(), h('div.card', { 'aria-busy': 'true' }, [1, 2, 3].map(() => h('div.row.ghost')))];
  const everything = [...state.workspaces.values()].sort((a, b) => b.created_at.localeCompare(a.created_at));
  if (!everything.length) return [heading(), h('div.card', null, welcome())];
  const found = everything.filter(FILTERS[state.filter].has).filter(matches);
  return [heading(), tools(everything), found.length ? list(found) : h('div.card', null, nothing())];
};

export const handlers = {
  create: () => create(),
  filter: (button) => {
    state.filter = button.dataset.filter;
    changed();
  },
  'all-again': () => {
    state.filter = 'all';
    state.search = '';
    document.querySelector('#search').value = '';
    changed();
  },
  'show-more': () => {
    shown += MOST;
    changed();
  },
  more: (button) => more(button, state.workspaces.get(button.dataset.id)),
  ...Object.fromEntries(Object.keys(ACTIONS).map((name) => [name, (button) => run(name, button.dataset.id)])),
};

export const typed = {
  search: (input) => {
    state.search = input.value;
    changed();
  },
};

// What else can be done, here and in the workspace's own view.
export const more = (button, ws) => {
  if (!ws) return;
  const item = (name) => ({
    label: ACTIONS[name].label(ws),
    icon: icon(ACTIONS[name].icon),
    disabled: !ACTIONS[name].can(ws) || state.pending.has(ws.id),
    danger: name === 'delete',
    choose: () => run(name, ws.id),
  });
  menu(button, [
    { label: 'Rename, memo, idle times', icon: icon('edit'), disabled: ws.phase === 'DELETING', choose: () => edit(ws) },
    { label: 'Details and log', icon: icon('history'), choose: () => { location.hash = `#/workspaces/${ws.id}`; } },
    null,
    ...(ws.phase === 'ERROR' ? [] : [item('archive')]),
    item('delete'),
  ]);
};

const heading = () => h('div.heading', null,
  h('div.grow', null, h('h1', null, 'Workspaces'), quota()),
  h('button.button.primary', { type: 'button', 'data-do': 'create' }, icon('plus'), 'New workspace'));

const quota = () => {
  const most = state.installation?.limits.max_running_per_user;
  if (!state.loaded || most === undefined) return h('p.soft', null, ' ');
  return h('p.soft', { 'data-quota': '' }, `${running().length} running, ${most} allowed`);
};

const tools = (everything) => h('div.tools', null,
  h('div.chips', { role: 'group', 'aria-label': 'Show' }, Object.entries(FILTERS).map(([name, { label, has }]) => {
    const count = everything.filter(has).length;
    if (!count && name !== 'all' && name !== state.filter) return null;
    return h('button.chip', {
      type: 'button', 'data-do': 'filter', 'data-filter': name, 'data-key': name, 'aria-pressed': String(state.filter === name),
    }, label, h('b', null, String(count)));
  })),
  h('div.search', null, icon('search'),
    h('input', { id: 'search', type: 'search', 'data-type': 'search', placeholder: 'Search', 'aria-label': 'Search workspaces' })));

const matches = (ws) => {
  const wanted = state.search.trim().toLowerCase();
  return !wanted || [ws.name, ws.description, ws.memo, ws.image_ref, ws.id].some((text) => text.toLowerCase().includes(wanted));
};

const list = (found) => h('div.card', null,
  h('ul', { 'aria-label': 'Workspaces' }, found.slice(0, shown).map(row)),
  found.length > shown
    ? h('div.rest', null, h('button.button', { type: 'button', 'data-do': 'show-more' }, `Show more of ${found.length}`))
    : null);

const row = (ws) => {
  const explained = explanationOf(ws);
  return h('li.row', { 'data-key': ws.id, 'data-workspace': ws.id },
    h('div.what', null,
      h('div.line', null,
        h('a.name', { href: `#/workspaces/${ws.id}`, 'data-row': '', dir: 'auto', title: ws.name }, ws.name), pill(ws), goal(ws)),
      h('p.small.faint.clip', null, ws.description || ws.image_ref)),
    h('div.how', null, isBusy(ws) ? progress(ws) : resting(ws, explained)),
    h('div.actions', null, ...mainButtons(ws), moreButton(ws)),
    errorBox(ws, explained));
};

const resting = (ws, explained) => {
  const used = state.explanations.get(ws.id)?.last_activity?.at ?? ws.last_access_at;
  return [
    h('p', { 'data-next': '' }, explained ? next(ws, explained) : '\u00a0'),
    h('p.small.faint', null, used ? `Last used ${ago(used, now())}` : `Created ${ago(ws.created_at, now())}`),
  ];
};

const next = (ws, explained) => {
  const step = nextStep(explained.next_step, now());
  if (step || !explained.waiting_for || ws.phase === 'ERROR') return step || rest(ws);
  // The workspace's own view has the rest of it: here, rows keep their height.
  return plain(explained.waiting_for.split('. ')[0]);
};

const rest = (ws) => ({
  RUNNING: 'Stays running', STANDBY: 'Stays in standby', ARCHIVED: 'Kept in the archive', ERROR: 'Waits for you', PENDING: 'Not started yet',
}[ws.phase] ?? '');

const moreButton = (ws) => h('button.button.quiet.square', {
  type: 'button', 'data-do': 'more', 'data-id': ws.id, 'data-key': 'more', 'aria-label': `More for ${ws.name}`, 'aria-haspopup': 'menu',
}, icon('more'));

const welcome = () => h('div.empty', null,
  h('div.mark', null, icon('box')),
  h('h2', null, 'Your first workspace'),
  h('p', null, 'A workspace is a home directory with an IDE on top. It falls asleep when you are away, moves to the archive '
    + 'when it is not used for long, and is back, with every file, when you open it.'),
  h('div.actions', null, h('button.button.primary', { type: 'button', 'data-do': 'create' }, icon('plus'), 'Create a workspace')));

const nothing = () => h('div.empty', null,
  h('h2', null, 'Nothing here'),
  h('p', null, state.search ? `No workspace matches “${state.search}”.` : 'No workspace is in this state just now.'),
  h('div.actions', null, h('button.button', { type: 'button', 'data-do': 'all-again' }, 'Show all')));
