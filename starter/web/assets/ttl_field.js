// A TTL as people choose one: the installation's default, never, or a time of their own.

import { h } from './dom.js';
import { span } from './words.js';

const UNITS = { minutes: 60, hours: 3600, days: 86400 };

export const ttlField = ({ name, label, hint, value, fallback }) => {
  const own = typeof value === 'number' && value > 0;
  const unit = own ? Object.keys(UNITS).reverse().find((one) => value % UNITS[one] === 0) ?? 'minutes' : 'minutes';
  const kind = h('select', { id: name, name: `${name}-kind` },
    h('option', { value: 'default', selected: value === null || value === undefined },
      fallback === undefined ? 'Default' : `Default (${fallback === 0 ? 'never' : span(fallback)})`),
    h('option', { value: 'own', selected: own }, 'After…'),
    h('option', { value: 'never', selected: value === 0 }, 'Never'));
  const number = h('input', {
    type: 'number', name: `${name}-number`, min: 1, max: 5256000, step: 'any', required: own, value: own ? value / UNITS[unit] : '',
    'aria-label': `${label}: how many`,
  });
  const units = h('select', { name: `${name}-unit`, 'aria-label': `${label}: unit` },
    Object.keys(UNITS).map((one) => h('option', { value: one, selected: one === unit }, one)));
  const time = h('div.together', { hidden: !own }, number, units);
  kind.addEventListener('change', () => {
    time.hidden = kind.value !== 'own';
    number.required = kind.value === 'own';
    if (!time.hidden) number.focus();
  });
  return h('div.labelled', null, h('label', { for: name }, label), kind, time, h('small', null, hint));
};

// Seconds; 0 is never, null the default.
export const ttlOf = (data, name) => {
  const kind = data.get(`${name}-kind`);
  if (kind === 'default') return null;
  if (kind === 'never') return 0;
  return Math.max(1, Math.round(Number(data.get(`${name}-number`)) * UNITS[data.get(`${name}-unit`)]));
};

export const ttlFields = (ws, defaults) => [
  ttlField({
    name: 'standby', label: 'Sleep when idle', value: ws?.standby_ttl_seconds, fallback: defaults?.standby_ttl_seconds,
    hint: 'The container goes, every file stays. Opening it wakes it.',
  }),
  ttlField({
    name: 'archive', label: 'Archive after sleeping', value: ws?.archive_ttl_seconds, fallback: defaults?.archive_ttl_seconds,
    hint: 'The home moves to object storage. Restoring brings it back as it was.',
  }),
];
