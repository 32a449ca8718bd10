// The whole installation, for admins: what there is, whether it is well, and who may use it.

import { get } from './api.js';
import { h } from './dom.js';
import { changed, state } from './store.js';
import * as nodes from './admin_nodes.js';
import * as overview from './admin_overview.js';
import * as users from './admin_users.js';
import * as workspaces from './admin_workspaces.js';

// Live events tell each person of what is theirs; there are none of everybody's. So this view looks again and again.
const EVERY = 5000;
const SECTIONS = { '': overview, workspaces, users, nodes };

let name = '';
let timer = null;
// An API that knows no nodes has none to show.
let hasNodes = false;

export const title = () => 'Admin';

export const enter = (section) => {
  name = section in SECTIONS ? section : '';
  leave();
  SECTIONS[name].load();
  timer = setInterval(() => { if (document.visibilityState !== 'hidden') SECTIONS[name].load(); }, EVERY);
  get('/api/v1/nodes?limit=1').then(() => { hasNodes = true; changed(); }, () => {});
};

export const leave = () => clearInterval(timer);

export const render = () => [
  h('div.heading', null, h('div.grow', null, h('h1', null, 'Admin'),
    h('p.soft', null, `codehub ${state.installation?.version ?? ''}`)), SECTIONS[name].tool?.() ?? null),
  h('nav.tools', { 'aria-label': 'Admin' }, h('div.chips', null,
    link('', 'Overview'), link('workspaces', 'Workspaces'), link('users', 'Users'), hasNodes ? link('nodes', 'Nodes') : null)),
  ...SECTIONS[name].render(),
];

// Whichever section is shown answers.
const section = (kind) => new Proxy({}, { get: (_, key) => SECTIONS[name][kind]?.[key] });
export const handlers = section('handlers');
export const typed = section('typed');

const link = (to, label) => h('a.chip.plain', {
  href: to ? `#/admin/${to}` : '#/admin', 'aria-pressed': name === to ? 'true' : null, 'aria-current': name === to ? 'page' : null,
}, label);
