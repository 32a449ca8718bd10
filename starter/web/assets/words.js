// What things are called, and times and sizes as people say them.

export const PHASES = {
  PENDING: { label: 'Pending', tone: 'warn' },
  ARCHIVED: { label: 'Archived', tone: 'cold' },
  STANDBY: { label: 'Standby', tone: 'rest' },
  RUNNING: { label: 'Running', tone: 'good' },
  ERROR: { label: 'Error', tone: 'danger' },
  DELETING: { label: 'Deleting', tone: 'cold' },
};

export const OPERATIONS = {
  PROVISIONING: 'Making its home',
  RESTORING: 'Restoring its home',
  STARTING: 'Starting',
  STOPPING: 'Stopping',
  ARCHIVING: 'Archiving',
  CREATE_EMPTY_ARCHIVE: 'Archiving',
  DELETING: 'Deleting',
};

export const OUTCOMES = {
  SUCCEEDED: { label: 'Succeeded', tone: 'good' },
  FAILED: { label: 'Failed', tone: 'danger' },
  null: { label: 'Under way', tone: 'accent' },
};

export const CONDITIONS = {
  'storage.volume_ready': 'Volume is ready',
  'storage.archive_ready': 'Archive is ready',
  'infra.container_ready': 'Container is ready',
  'policy.healthy': 'Healthy',
};

// What the API says of phases, which it writes as programs do, in the words of this page.
export const plain = (text) => text.replace(/\b(PENDING|ARCHIVED|STANDBY|RUNNING|ERROR)\b/g, (phase) => PHASES[phase].label)
  .replace(/\bDELETED\b/g, 'Deleted');

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

// One unit, or two where one would be too rough.
export const span = (seconds) => {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 90) return `${rounded} s`;
  if (rounded < 90 * MINUTE) return `${Math.round(rounded / MINUTE)} min`;
  if (rounded < 36 * HOUR) {
    const hours = Math.floor(rounded / HOUR);
    const minutes = Math.round((rounded % HOUR) / MINUTE);
    return hours < 6 && minutes && minutes < 60 ? `${hours} h ${minutes} min` : `${Math.round(rounded / HOUR)} h`;
  }
  return `${Math.round(rounded / DAY)} days`;
};

export const ago = (text, now) => {
  if (!text) return 'never';
  const seconds = (now - Date.parse(text)) / 1000;
  return seconds < 5 ? 'just now' : `${past(seconds)} ago`;
};

export const since = (text, now) => `for ${past((now - Date.parse(text)) / 1000)}`;

// Of what is over, nobody counts the seconds of the second minute.
const past = (seconds) => (seconds >= MINUTE && seconds < 1.5 * MINUTE ? '1 min' : span(seconds));

// Whole minutes that are left: what sleeps after ten minutes never says eleven for the seconds that are added.
export const ahead = (text, now) => {
  const seconds = (Date.parse(text) - now) / 1000;
  if (seconds < 5) return 'any moment';
  return `in ${span(seconds < 90 ? seconds : seconds - (seconds % MINUTE))}`;
};

// What happens by itself: "Sleeps in 7 min". Without a desired_state, it is the operation's timeout.
export const nextStep = (step, now) => {
  if (!step) return '';
  const verb = { STANDBY: 'Sleeps', ARCHIVED: 'Archived' }[step.desired_state] ?? step.desired_state ?? 'Given up';
  return `${verb} ${ahead(step.at, now)}`;
};

export const took = (seconds) => {
  if (seconds < 0.05) return 'under 0.1 s';
  return seconds < MINUTE ? `${seconds.toFixed(1)} s` : span(seconds);
};

export const size = (bytes) => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let count = bytes;
  let unit = 0;
  for (; count >= 1000 && unit < units.length - 1; unit += 1) count /= 1000;
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
};

export const amount = (done, total) => {
  if (done === null || done === undefined) return '';
  return total === null || total === undefined || total === done ? size(done) : `${size(done)} of ${size(total)}`;
};

// For a person who wants to know exactly.
export const exactly = (text) => (text ? new Date(text).toLocaleString() : '');

export const ttl = (seconds, fallback) => {
  if (seconds === 0) return 'never';
  if (seconds !== null && seconds !== undefined) return `after ${span(seconds)}`;
  if (fallback === undefined) return 'as the installation says';
  return fallback === 0 ? 'never (default)' : `after ${span(fallback)} (default)`;
};

// For an admin, who must not take it for one of their own.
export const titled = (ws) => (ws.owner ? `${ws.owner}’s ${ws.name}` : ws.name);

export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
