// One's own password and API tokens.

import { all, now, post, remove } from './api.js';
import { ask, tell } from './dialog.js';
import { h, icon } from './dom.js';
import { changed, state } from './store.js';
import { failed, succeeded } from './toast.js';
import { ago, exactly } from './words.js';

let tokens = null;
let problem = '';
let sending = false;

export const title = () => 'Account';

export const enter = () => {
  problem = '';
  load();
};

export const render = () => [
  h('div.heading', null, h('div.grow', null, h('h1', null, 'Account'), h('p.soft', null, `Logged in as ${state.session.user.username}`))),
  h('div.columns.even', null, tokenCard(), passwordCard()),
];

export const handlers = {
  'new-token': () => newToken(),
  'revoke-token': (button) => revoke(tokens.find((one) => one.id === button.dataset.id)),
};

export const submitted = {
  password: async (form) => {
    const data = new FormData(form);
    problem = data.get('new') === data.get('again') ? '' : 'The new password was not typed twice the same.';
    if (problem) {
      changed();
      return;
    }
    sending = true;
    changed();
    try {
      await post('/api/v1/password', {
        old_password: data.get('old'), new_password: data.get('new'), revoke_tokens: data.get('revoke') === 'on',
      });
      form.reset();
      succeeded('Password changed. Every other session has ended.');
      load();
    } catch (failure) {
      problem = failure.message;
    } finally {
      sending = false;
      changed();
    }
  },
};

const load = async () => {
  try {
    tokens = await all('/api/v1/tokens');
  } catch (failure) {
    if (failure.status !== 401) failed('Your API tokens could not be read', failure);
  }
  changed();
};

const tokenCard = () => h('section.card', { 'aria-labelledby': 'tokens' },
  h('header', null, h('h2', { id: 'tokens' }, 'API tokens'),
    h('button.button', { type: 'button', 'data-do': 'new-token' }, icon('plus'), 'New token')),
  tokens?.length
    ? h('ul.lines', { 'aria-labelledby': 'tokens' }, tokens.map((one) => h('li', { 'data-key': one.id },
      h('div.grow', null, h('b', null, one.name),
        h('p.small.faint', null, `Made ${ago(one.created_at, now())} · `, h('span', { title: exactly(one.last_used_at) },
          one.last_used_at ? `last used ${ago(one.last_used_at, now())}` : 'never used'))),
      h('button.button', { type: 'button', 'data-do': 'revoke-token', 'data-id': one.id, 'aria-label': `Revoke ${one.name}` }, 'Revoke'))))
    : h('div.body', null, h('p.faint.small', null, tokens
      ? 'No tokens. The command line makes one for itself: codehub login. Scripts send one as “Authorization: Bearer …”.' : '…')));

const passwordCard = () => h('section.card', { 'aria-labelledby': 'password-title' },
  h('header', null, h('h2', { id: 'password-title' }, 'Password')),
  h('form.body.form', { 'data-submit': 'password', 'aria-labelledby': 'password-title' },
    field('old', 'Old password', 'current-password'),
    field('new', 'New password', 'new-password', 8),
    field('again', 'New password again', 'new-password', 8),
    h('label.check', null, h('input', { type: 'checkbox', name: 'revoke' }),
      h('span', null, 'Revoke all API tokens too', h('small', null, 'Every other session ends in any case.'))),
    h('p.problem', { role: 'alert' }, problem),
    h('div.actions', null, h('button.button.primary', { type: 'submit', disabled: sending, 'aria-busy': sending ? 'true' : null }, 'Change password'))));

const field = (name, label, autocomplete, least) => h('div.labelled', null, h('label', { for: name }, label),
  h('input', { id: name, name, type: 'password', required: true, autocomplete, minlength: least, maxlength: 1024 }));

const newToken = async () => {
  const made = await ask({
    title: 'New API token',
    confirm: 'Make token',
    body: [h('div.labelled', null, h('label', { for: 'token-name' }, 'Name'),
      h('input', { id: 'token-name', name: 'name', required: true, maxlength: 100, autocomplete: 'off', autofocus: true, placeholder: 'deploy script' }),
      h('small', null, 'It can do everything that you can, except make other tokens.'))],
    submit: (data) => post('/api/v1/tokens', { name: data.get('name').trim() }),
  });
  if (!made) return;
  load();
  await reveal(made);
};

const reveal = (made) => {
  const secret = h('input', { readonly: true, value: made.token, 'aria-label': 'The token' });
  const copy = h('button.button', { type: 'button' }, icon('copy'), 'Copy');
  copy.addEventListener('click', async () => {
    secret.select();
    try {
      await navigator.clipboard.writeText(made.token);
      succeeded('Copied');
    } catch {
      // Without HTTPS a page may not: it is selected, Ctrl-C does it.
    }
  });
  return tell({
    title: `Token ${made.name}`,
    body: [h('p.soft', null, 'Copy it now: it is shown this once, and only its hash is kept.'), h('div.secret', null, secret, copy)],
  });
};

const revoke = (token) => ask({
  title: `Revoke ${token.name}?`,
  danger: true,
  confirm: 'Revoke token',
  body: [h('p.soft', null, 'Whatever uses it is refused from its next request on.')],
  submit: async () => {
    await remove(`/api/v1/tokens/${token.id}`);
    await load();
  },
});
