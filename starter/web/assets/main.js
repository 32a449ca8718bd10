// Boots the dashboard: who is there, which view is asked for, and what clicks and keys do.

import * as account from './account_view.js';
import * as admin from './admin_view.js';
import { get, onUnauthenticated, post } from './api.js';
import * as detail from './detail_view.js';
import { menu, tell } from './dialog.js';
import { h, icon, morph } from './dom.js';
import * as list from './list_view.js';
import * as live from './live.js';
import * as login from './login_view.js';
import { changed, forget, isBusy, onChange, state } from './store.js';
import { failed, moveOn } from './toast.js';
import { PHASES } from './words.js';

const top = h('header.top');
const main = h('main.page', { id: 'main', tabindex: '-1' });
const news = h('p.visually-hidden', { 'aria-live': 'polite', role: 'status' });

let view = login;
let shown = '';

const boot = async () => {
  document.body.replaceChildren(h('a.skip.button', { href: '#main' }, 'Skip to content'), top, main, news);
  document.addEventListener('click', clicked);
  document.addEventListener('submit', submit);
  document.addEventListener('input', type);
  document.addEventListener('keydown', pressed);
  addEventListener('hashchange', route);
  onChange(draw);
  onUnauthenticated(left);
  setInterval(tick, 1000);
  try {
    await entered(await get('/api/v1/session'));
  } catch (failure) {
    if (failure.status !== 401) failed('codehub can’t be reached', failure);
    route();
  }
};

const entered = async (session) => {
  if (forward()) return;
  state.session = session;
  live.start();
  get('/api/v1/installation').then((installation) => {
    state.installation = installation;
    changed();
  }, () => {});
  route();
};

const left = () => {
  if (!state.session) return;
  live.stop();
  forget();
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  login.sessionEnded();
  route();
};

const logout = async () => {
  try {
    await post('/api/v1/logout');
  } catch (failure) {
    failed('Not logged out', failure);
    return;
  }
  live.stop();
  forget();
  location.hash = '#/';
  route();
};

// To where the proxy sent somebody away from, to log in first. Only within this site, and not in circles.
const forward = () => {
  const next = new URLSearchParams(location.search).get('next');
  if (!next) return false;
  const target = new URL(next, location.origin);
  const last = Number(sessionStorage.getItem('codehub.forwarded') ?? 0);
  history.replaceState(null, '', location.pathname + location.hash);
  if (target.origin !== location.origin || target.pathname === '/' || Date.now() - last < 10_000) return false;
  sessionStorage.setItem('codehub.forwarded', String(Date.now()));
  location.replace(target.href);
  return true;
};

const route = () => {
  const [, name = '', argument = ''] = location.hash.split('/');
  view.leave?.();
  view = asked(name, argument);
  view.enter?.(argument);
  draw();
  const place = `${view.title()} ${location.hash}`;
  if (place === shown) return;
  shown = place;
  moveOn();
  scrollTo(0, 0);
  // Whoever listens instead of looking is told where they are.
  if (view === login) main.querySelector('[autofocus]')?.focus();
  else main.focus({ preventScroll: true });
};

const asked = (name, argument) => {
  if (!state.session) return login;
  if (name === 'workspaces' && argument) return detail;
  if (name === 'account') return account;
  if (name === 'admin' && state.session.user.is_admin) return admin;
  return list;
};

const draw = () => {
  document.title = view === login ? 'codehub' : `${view.title()} · codehub`;
  top.hidden = !state.session;
  morph(top, [bar()]);
  morph(main, view.render());
  announce();
};

// Times pass: every second where seconds count, every few elsewhere.
let ticks = 0;
const tick = () => {
  ticks += 1;
  if (!state.session || document.visibilityState === 'hidden') return;
  if (ticks % 10 === 0 || [...state.workspaces.values()].some(isBusy)) changed();
};

const bar = () => h('div.inner', null,
  h('a.brand', { href: '#/', 'aria-label': 'codehub' }, h('img', { src: new URL('logo.svg', import.meta.url).pathname, alt: '' }), h('span', null, 'codehub')),
  h('nav', { 'aria-label': 'Main' },
    tab('#/', 'Workspaces', view === list || view === detail),
    state.session?.user.is_admin ? tab('#/admin', 'Admin', view === admin) : null),
  h('div.grow'),
  h('span.live', { 'data-live': state.live, title: 'Whether this page hears of changes as they happen' }, liveWords()),
  h('button.button.quiet.square', { type: 'button', 'data-do': 'theme', 'aria-label': `Theme: ${window.codehubTheme.now()}`, title: 'Theme' },
    icon(window.codehubTheme.now())),
  h('button.button.quiet.square', { type: 'button', 'data-do': 'me', 'aria-label': 'Your account', 'aria-haspopup': 'menu' }, icon('user')));

const LIVE = { live: 'Live', connecting: 'Connecting…', lost: 'Reconnecting…' };

// On a phone it says more, in a line of its own: a dot alone is overlooked.
const liveWords = () => h('span.word', null, LIVE[state.live], h('span.stale', null, state.live === 'lost' ? ' What you see may be out of date.' : ''));

const tab = (href, label, here) => h('a.tab', { href, 'aria-current': here ? 'page' : null }, label);

const everywhere = {
  theme: () => {
    window.codehubTheme.next();
    changed();
  },
  me: (button) => menu(button, [
    { label: 'Password and API tokens', icon: icon('key'), choose: () => { location.hash = '#/account'; } },
    { label: 'Keyboard shortcuts', icon: icon('info'), choose: shortcuts },
    null,
    { label: 'Log out', icon: icon('logout'), choose: logout },
  ], h('p.who', null, state.session.user.username)),
};

const clicked = (event) => {
  const button = event.target.closest('[data-do]');
  if (!button || button.disabled) return;
  (view.handlers?.[button.dataset.do] ?? everywhere[button.dataset.do])?.(button);
};

const submit = (event) => {
  const name = event.target.dataset.submit;
  if (!name) return;
  event.preventDefault();
  view.submitted[name](event.target, { entered, redraw: draw });
};

const type = (event) => view.typed?.[event.target.dataset.type]?.(event.target);

const pressed = (event) => {
  const typing = event.target.closest?.('input, textarea, select, dialog, [popover]');
  if (event.ctrlKey || event.metaKey || event.altKey || !state.session) return;
  if (event.key === 'Escape' && event.target.id === 'search') {
    list.handlers['all-again']();
    event.target.blur();
    return;
  }
  // A dialog that waits for its answer has nothing to focus: keys would then go to the page behind it.
  if (typing || document.querySelector('dialog[open]')) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
};

const KEYS = {
  n: () => list.handlers.create(),
  '/': () => {
    location.hash = '#/';
    // Now, not when the browser tells of it: that would take the focus away again.
    route();
    main.querySelector('#search')?.focus();
  },
  j: () => step(1),
  k: () => step(-1),
  g: () => { location.hash = '#/'; },
  '?': () => shortcuts(),
};

const step = (by) => {
  const rows = [...main.querySelectorAll('[data-row]')];
  const here = rows.findIndex((row) => row.closest('li').contains(document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, here + by))]?.focus();
};

const shortcuts = () => tell({
  title: 'Keyboard shortcuts',
  body: [h('dl.facts', null, [
    ['n', 'New workspace'], ['/', 'Search'], ['j', 'Next workspace'], ['k', 'Previous workspace'], ['Enter', 'Details'],
    ['g', 'All workspaces'], ['Esc', 'Close, or clear the search'], ['?', 'This list'],
  ].map(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)]))],
});

// For whoever does not see the list: what changed its phase.
const phases = new Map();
const announce = () => {
  for (const ws of state.workspaces.values()) {
    const before = phases.get(ws.id);
    phases.set(ws.id, ws.phase);
    if (before && before !== ws.phase) news.textContent = `${ws.name}: ${PHASES[ws.phase].label}`;
  }
};

boot();
