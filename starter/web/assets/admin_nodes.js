// The Docker hosts that workspaces run on.

import { all, now, post } from './api.js';
import { ask, menu } from './dialog.js';
import { h, icon } from './dom.js';
import { changed } from './store.js';
import { failed } from './toast.js';
import { ago, plural, size } from './words.js';

const STATES = {
  ready: { label: 'Ready', tone: 'good' },
  cordoned: { label: 'Cordoned', tone: 'warn' },
  draining: { label: 'Draining', tone: 'accent' },
  drained: { label: 'Drained', tone: 'cold' },
  lost: { label: 'Lost', tone: 'danger' },
};

let nodes = null;
let problem = '';

export const load = async () => {
  try {
    nodes = await all('/api/v1/nodes');
    problem = '';
  } catch (failure) {
    problem = failure.message;
  }
  changed();
};

export const render = () => [
  problem ? h('p.problem', { role: 'alert' }, problem) : null,
  h('div.card', null, nodes?.length === 0
    ? h('div.empty', null, h('h2', null, 'No node has registered yet'),
      h('p', null, 'A node is a Docker host with a worker on it: “codehub worker --node NAME” adds one.'))
    : h('ul.lines', { 'aria-label': 'Nodes' }, (nodes ?? []).map(line))),
].filter(Boolean);

export const handlers = {
  'node-more': (button) => more(button, nodes.find((one) => one.name === button.dataset.id)),
};

const line = (node) => {
  const { label, tone } = STATES[node.state] ?? { label: node.state, tone: 'cold' };
  const moved = node.drain ? node.drain.homes - node.drain.left : 0;
  return h('li', { 'data-key': node.name },
    h('div.grow', null, h('b', null, node.name),
      h('p.small.faint', null, facts(node).join(' · ')),
      node.state === 'draining'
        ? h('div.progress', null, h('progress', { max: node.drain.homes, value: moved, 'aria-label': `Drain of ${node.name}` }),
          h('p.small.faint', null, `${moved} of ${plural(node.drain.homes, 'home')} moved`))
        : null,
      node.drain?.message ? h('p.small.said', null, node.drain.message) : null),
    h('span.pill', { 'data-tone': tone }, label),
    h('button.button.quiet.square', {
      type: 'button', 'data-do': 'node-more', 'data-id': node.name, 'aria-label': `More for ${node.name}`, 'aria-haspopup': 'menu',
    }, icon('more')));
};

const facts = (node) => [
  `${node.homes}${node.capacity === null ? '' : ` of ${node.capacity}`} homes`,
  `${node.running} running`,
  node.in_error ? `${node.in_error} in error` : '',
  `${plural(node.cpus, 'CPU')}, ${size(node.memory)}`,
  node.address,
  `seen ${ago(node.seen_at, now())}`,
].filter(Boolean);

const more = (button, node) => menu(button, [
  { label: 'Drain', icon: icon('archive'), disabled: ['draining', 'drained'].includes(node.state), choose: () => drain(node) },
  { label: 'Uncordon', icon: icon('check'), disabled: node.state === 'ready', choose: () => uncordon(node) },
]);

const drain = (node) => ask({
  title: `Drain ${node.name}?`,
  confirm: 'Drain node',
  danger: true,
  body: [h('p.soft', null, `Nothing new is placed on it, and its ${plural(node.homes, 'home')} move to other nodes through `
    + 'the archive. Running workspaces stop, and run again elsewhere. No file is lost.')],
  submit: async () => {
    await post(`/api/v1/nodes/${node.name}/drain`);
    await load();
  },
});

const uncordon = async (node) => {
  try {
    await post(`/api/v1/nodes/${node.name}/uncordon`);
  } catch (failure) {
    failed(`${node.name} could not be uncordoned`, failure);
  }
  await load();
};
