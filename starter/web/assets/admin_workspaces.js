// Everybody's workspaces, to look after: why one is where it is, out of ERROR, and away. Where else they should be stays
// with their owners.

import { ACTIONS, confirmDelete, recover } from './actions.js';
import { get, lastMessage, now, pathOf } from './api.js';
import { menu, tell } from './dialog.js';
import { h, icon } from './dom.js';
import { explanation } from './explanation.js';
import { actionButton, errorBox, goal, pill } from './state_parts.js';
import { changed, needsPerson, state } from './store.js';
import { failed } from './toast.js';
import { PHASES, ago, exactly, plural, since, titled } from './words.js';

const PAGE = 50;

let page = null;
let offset = 0;
let phase = '';
let problem = '';

export const load = async () => {
  const asked = `${phase} ${offset}`;
  try {
    const found = await get(`/api/v1/admin/workspaces?limit=${PAGE}&offset=${offset}${phase ? `&phase=${phase}` : ''}`);
    if (asked === `${phase} ${offset}`) page = found;
    problem = '';
  } catch (failure) {
    problem = failure.message;
  }
  changed();
};

export const render = () => [
  problem ? h('p.problem', { role: 'alert' }, problem) : null,
  h('div.card', null,
    h('header', null, h('h2', null, page ? plural(page.total, 'workspace') : 'Workspaces'),
      h('select', { 'data-type': 'phase', 'aria-label': 'Phase', class: 'narrow' }, h('option', { value: '' }, 'Every phase'),
        Object.entries(PHASES).map(([name, { label }]) => h('option', { value: name }, label)))),
    page?.items.length ? table() : h('div.empty', null, h('p', null, page ? 'There are none.' : '…')),
    pages()),
].filter(Boolean);

export const typed = {
  phase: (select) => {
    phase = select.value;
    offset = 0;
    load();
  },
};

export const handlers = {
  older: () => turn(PAGE),
  newer: () => turn(-PAGE),
  why: (button) => why(button, find(button)),
  recover: (button) => recover(find(button), SHOWN),
  more: (button) => more(button, find(button)),
};

const SHOWN = { put: load, again: load };

const find = (button) => page.items.find((ws) => ws.id === button.dataset.id);

const more = (button, ws) => {
  const histories = state.installation?.temporal_ui_url;
  menu(button, [
    ...(histories
      ? [{ label: 'Temporal history', icon: icon('history'), choose: () => { open(`${histories}/ws-${ws.id}`, '_blank', 'noopener,noreferrer'); } }, null]
      : []),
    { label: 'Delete', icon: icon('trash'), danger: true, disabled: !ACTIONS.delete.can(ws), choose: () => confirmDelete(ws, SHOWN) },
  ]);
};

const why = async (button, ws) => {
  try {
    // As it is now, which the list may not show yet.
    const [current, told] = await Promise.all([get(pathOf(ws)), get(`${pathOf(ws)}/explain`)]);
    const message = needsPerson(current) ? await lastMessage(ws).catch(() => null) : null;
    // Meanwhile they may have asked twice, or gone elsewhere.
    if (!button.isConnected || document.querySelector('dialog[open]')) return;
    tell({
      title: titled(current),
      body: [
        h('p.line', null, pill(current), goal(current)),
        h('p.small.faint.mono', null, current.id),
        errorBox(current, { ...told, message }),
        h('div.told', null, ...explanation(current, told)),
      ].filter(Boolean),
    });
  } catch (failure) {
    failed(`${titled(ws)} could not be explained`, failure);
    load();
  }
};

const turn = (by) => {
  offset = Math.max(0, offset + by);
  load();
};

const table = () => h('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'All workspaces' }, h('table.stacked', null,
  h('thead', null, h('tr', null, ['Workspace', 'Owner', 'State', 'Last used', 'Node', ''].map((name) => h('th', { scope: 'col' }, name)))),
  h('tbody', null, page.items.map(row))));

const row = (ws) => h('tr', { 'data-key': ws.id },
  h('td.what', null, h('b', { dir: 'auto' }, ws.name), h('p.small.faint.mono', null, ws.id)),
  h('td', null, ws.owner),
  h('td.fit.state', null, pill(ws), ' ', goal(ws),
    ws.error_reason ? h('p.small.said', null, ws.error_reason) : null,
    h('p.small.faint.since', { title: exactly(ws.phase_changed_at) }, since(ws.phase_changed_at, now()))),
  h('td.fit.soft.used', { title: exactly(ws.last_access_at) }, ago(ws.last_access_at, now())),
  h(ws.node ? 'td.soft' : 'td.faint.none', null, ws.node ?? '–'),
  h('td.fit.do', null, h('div.actions', null,
    actionButton('recover', ws),
    h('button.button', { type: 'button', 'data-do': 'why', 'data-id': ws.id, 'data-key': 'why', 'aria-label': `Why ${titled(ws)} is where it is` },
      icon('info'), 'Why'),
    h('button.button.quiet.square', {
      type: 'button', 'data-do': 'more', 'data-id': ws.id, 'data-key': 'more', 'aria-label': `More for ${titled(ws)}`, 'aria-haspopup': 'menu',
    }, icon('more')))));

const pages = () => (page && page.total > PAGE ? h('div.rest', null,
  h('button.button', { type: 'button', 'data-do': 'newer', disabled: offset === 0 }, 'Newer'),
  h('span.small.faint.numbers', null, `${offset + 1} to ${Math.min(page.total, offset + PAGE)}`),
  h('button.button', { type: 'button', 'data-do': 'older', disabled: offset + PAGE >= page.total }, 'Older')) : null);
