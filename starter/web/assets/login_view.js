// The way in.

import { post } from './api.js';
import { busy } from './dialog.js';
import { h } from './dom.js';

export const title = () => 'Log in';

let ended = false;
let problem = '';

// Said where somebody was logged in and is not any more.
export const sessionEnded = () => { ended = true; };

export const render = () => [h('div.login', null, h('form.card.form', { 'data-submit': 'login', 'aria-labelledby': 'login-title' },
  h('h1', { id: 'login-title' }, 'Log in to codehub'),
  ended ? h('p.soft', null, 'Your session has ended. Log in to go on where you were.') : null,
  h('div.labelled', null, h('label', { for: 'username' }, 'Username'),
    h('input', { id: 'username', name: 'username', required: true, autocomplete: 'username', autocapitalize: 'none', spellcheck: 'false', autofocus: true })),
  h('div.labelled', null, h('label', { for: 'password' }, 'Password'),
    h('input', { id: 'password', name: 'password', type: 'password', required: true, autocomplete: 'current-password' })),
  h('p.problem', { role: 'alert' }, problem),
  h('button.button.primary', { type: 'submit' }, 'Log in'),
  h('p.small.faint', null, 'No account? Ask an admin for one.')))];

export const submitted = {
  login: async (form, { entered, redraw }) => {
    const button = form.querySelector('button');
    const data = new FormData(form);
    problem = '';
    busy(button, true);
    try {
      const session = await post('/api/v1/login', { username: data.get('username').trim(), password: data.get('password') });
      ended = false;
      await entered(session);
    } catch (failure) {
      problem = failure.message;
      redraw();
      const password = form.querySelector('#password');
      password.value = '';
      password.focus();
    } finally {
      busy(button, false);
    }
  },
};
