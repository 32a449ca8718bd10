// Who may use this installation. There is no sign-up: admins make users.

import { all, now, patch, post } from './api.js';
import { ask, menu } from './dialog.js';
import { h, icon } from './dom.js';
import { changed, state } from './store.js';
import { failed, succeeded } from './toast.js';
import { ago } from './words.js';

let users = null;
let problem = '';

export const load = async () => {
  try {
    users = await all('/api/v1/users');
    problem = '';
  } catch (failure) {
    problem = failure.message;
  }
  changed();
};

export const tool = () => h('button.button.primary', { type: 'button', 'data-do': 'new-user' }, icon('plus'), 'New user');

export const render = () => [
  problem ? h('p.problem', { role: 'alert' }, problem) : null,
  h('div.card', null, h('ul.lines', { 'aria-label': 'Users' }, (users ?? []).map(line))),
].filter(Boolean);

export const handlers = {
  'new-user': () => newUser(),
  'user-more': (button) => more(button, users.find((one) => one.id === button.dataset.id)),
};

const line = (user) => h('li', { 'data-key': user.id },
  h('div.grow', null, h('b', null, user.username), user.id === state.session.user.id ? h('span.faint', null, ' (you)') : null,
    h('p.small.faint', null, `Made ${ago(user.created_at, now())}`)),
  h('div.pills', null,
    user.is_admin ? h('span.pill', { 'data-tone': 'accent' }, 'Admin') : null,
    h('span.pill', { 'data-tone': user.disabled_at ? 'cold' : 'good' }, user.disabled_at ? 'Disabled' : 'Active')),
  h('button.button.quiet.square', {
    type: 'button', 'data-do': 'user-more', 'data-id': user.id, 'aria-label': `More for ${user.username}`, 'aria-haspopup': 'menu',
  }, icon('more')));

const more = (button, user) => menu(button, [
  { label: 'Set a new password', icon: icon('key'), choose: () => newPassword(user) },
  { label: user.is_admin ? 'Make an ordinary user' : 'Make admin', icon: icon('user'), choose: () => change(user, { is_admin: !user.is_admin }) },
  null,
  user.disabled_at
    ? { label: 'Enable', icon: icon('check'), choose: () => change(user, { disabled: false }) }
    : { label: 'Disable', icon: icon('close'), danger: true, choose: () => disable(user) },
]);

const change = async (user, body) => {
  try {
    await patch(`/api/v1/users/${user.id}`, body);
  } catch (failure) {
    failed(`${user.username} could not be changed`, failure);
  }
  await load();
};

const newUser = () => ask({
  title: 'New user',
  confirm: 'Make user',
  body: [
    h('div.labelled', null, h('label', { for: 'new-username' }, 'Username'),
      h('input', { id: 'new-username', name: 'username', required: true, maxlength: 63, autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', autofocus: true }),
      h('small', null, 'Of a–z, 0–9, “.”, “_” and “-”.')),
    password('Password', 'Tell it to them; they can change it under Account.'),
    h('label.check', null, h('input', { type: 'checkbox', name: 'admin' }),
      h('span', null, 'Admin', h('small', null, 'Can make users, and see, recover and delete everybody’s workspaces.'))),
  ],
  submit: async (data) => {
    await post('/api/v1/users', { username: data.get('username').trim(), password: data.get('password'), is_admin: data.get('admin') === 'on' });
    await load();
  },
});

const newPassword = (user) => ask({
  title: `New password for ${user.username}`,
  confirm: 'Set password',
  body: [
    password('New password', 'Every session of theirs ends, and any lockout.'),
    h('label.check', null, h('input', { type: 'checkbox', name: 'revoke' }), h('span', null, 'Revoke their API tokens too')),
  ],
  submit: async (data) => {
    await patch(`/api/v1/users/${user.id}`, { password: data.get('password'), revoke_tokens: data.get('revoke') === 'on' });
    succeeded(`${user.username} has a new password`);
  },
});

const disable = (user) => ask({
  title: `Disable ${user.username}?`,
  danger: true,
  confirm: 'Disable user',
  body: [h('p.soft', null, 'Their sessions end, and they can’t log in, nor can their tokens. Their workspaces stay as they are; you can enable them again.')],
  submit: async () => {
    await patch(`/api/v1/users/${user.id}`, { disabled: true });
    await load();
  },
});

const password = (label, hint) => h('div.labelled', null, h('label', { for: 'new-password' }, label),
  h('input', { id: 'new-password', name: 'password', type: 'password', required: true, minlength: 8, maxlength: 1024, autocomplete: 'new-password' }),
  h('small', null, hint));
