// What the server refuses, told with what this person can do about it here.

import { Failure } from './api.js';
import { running, state } from './store.js';

const MOST = 5;

// `ws` is what was to run; one that is only about to be made is not there yet.
export const inContext = (failure, ws) => {
  // What others have running is not told here.
  if (failure.code !== 'limit_per_user' || ws?.owner) return failure;
  const names = running().filter((other) => other.id !== ws?.id).map((other) => other.name);
  const most = state.installation?.limits.max_running_per_user;
  if (!names.length || !most) return failure;
  const rest = names.length > MOST ? ` and ${names.length - MOST} more` : '';
  const taken = `${names.slice(0, MOST).join(', ')}${rest}`;
  return new Failure(failure.status, failure.code, `You can have ${most} running at once. Stop one of these first: ${taken}.`);
};
