// Health, limits and counts.

import { Failure, get, now } from './api.js';
import { h } from './dom.js';
import { changed } from './store.js';
import { PHASES, ago, plural, since } from './words.js';

const PARTS = { postgresql: 'PostgreSQL', temporal: 'Temporal', redis: 'Redis', s3: 'Object storage (S3)' };

let counts = null;
let parts = null;
let coordinator = null;
let engines = [];
let problem = '';

export const load = async () => {
  const [found, health, leader, watched] = await Promise.allSettled([
    get('/api/v1/admin/overview'), get('/health/ready'), get('/health/coordinator'), get('/api/v1/admin/health'),
  ]);
  problem = found.status === 'rejected' ? found.reason.message : '';
  if (found.status === 'fulfilled') counts = found.value;
  // Not ready is an answer too, with the same parts.
  parts = health.value?.parts ?? (health.reason instanceof Failure ? health.reason.body?.parts : null) ?? null;
  if (parts && watched.value) parts = { ...parts, ...watched.value.parts };
  engines = watched.value?.engines ?? [];
  coordinator = leader.status === 'fulfilled' ? leader.value : null;
  changed();
};

export const render = () => [
  problem ? h('p.problem', { role: 'alert' }, problem) : null,
  tiles(),
  h('div.columns.even', null, healthCard(), limitsCard()),
].filter(Boolean);

const tiles = () => h('ul.tiles', { 'aria-label': 'Workspaces by phase' }, Object.entries(PHASES).map(([phase, { label, tone }]) => h('li.card', { 'data-tone': tone },
  h('b', null, counts ? String(counts.phases[phase] ?? 0) : '–'), h('span', null, label))));

const healthCard = () => h('section.card', { 'aria-labelledby': 'health' },
  h('header', null, h('h2', { id: 'health' }, 'Health')),
  h('ul.lines', { 'aria-labelledby': 'health' },
    parts
      ? Object.entries(parts).map(([name, part]) => line(PARTS[name] ?? name, part.ready ? 'Answers' : part.message ?? 'Does not answer', part.ready))
      : line('API', 'Does not answer', false),
    leader(),
    engines.map(engine)));

const leader = () => {
  const holder = coordinator?.leader;
  if (!holder) return line('Coordinator', 'No worker leads: start one with “codehub worker”', false);
  const words = holder.alive ? `${holder.holder_id} leads, ${since(holder.since, now())}` : `${holder.holder_id} has gone; another one takes over`;
  return line('Coordinator', words, holder.alive);
};

const engine = ({ node, answers, seen_at: seen }) => line(
  `Docker on ${node}`, answers ? `Answered ${ago(seen, now())}` : `Last answered ${ago(seen, now())}: is the host up, and “codehub worker” on it?`, answers);

const line = (name, words, good) => h('li', { 'data-key': name },
  h('div.grow', null, h('b', null, name), h('p.small.faint', null, words)),
  h('span.pill', { 'data-tone': good ? 'good' : 'danger' }, good ? 'OK' : 'Down'));

const limitsCard = () => h('section.card', { 'aria-labelledby': 'limits' },
  h('header', null, h('h2', { id: 'limits' }, 'Limits')),
  h('div.body.told', null, counts ? [
    h('p', null, h('b', null, `${counts.running} of ${counts.limits.max_running_global}`), ' places for running workspaces are taken.'),
    h('progress', { max: counts.limits.max_running_global, value: counts.running, 'aria-label': 'Places taken' }),
    h('p.soft', null, `${plural(counts.limits.max_running_per_user, 'workspace')} at once per user, ${plural(counts.operating, 'operation')} under way.`),
    h('p.small.faint', null, 'Set by LIMITS_MAX_RUNNING_GLOBAL and LIMITS_MAX_RUNNING_PER_USER.'),
  ] : h('p.faint', null, '…')));
