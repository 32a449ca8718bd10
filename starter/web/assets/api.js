// The API, as this page uses it. Every failure is a Failure that says what happened and what to do.

import { plain } from './words.js';

export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let ahead = 0;
let leave = () => {};

// The server's time: a clock that is wrong on this machine makes nothing "in 3 hours".
export const now = () => Date.now() + ahead;
export const onUnauthenticated = (handler) => { leave = handler; };

export const get = (path) => call('GET', path);
export const post = (path, body, headers) => call('POST', path, body, headers);
export const patch = (path, body) => call('PATCH', path, body);
export const remove = (path) => call('DELETE', path);

// Where a workspace is: one's own, or anybody's that an admin was shown, which says whose it is.
export const pathOf = (ws) => `/api/v1/${ws.owner ? 'admin/' : ''}workspaces/${ws.id}`;

// What the operation that failed last had to say.
export const lastMessage = async (ws) => {
  const { items } = await get(`${pathOf(ws)}/operations?limit=1`);
  return items[0]?.outcome === 'FAILED' ? items[0].error_message : null;
};

// Every page of a list.
export const all = async (path) => {
  const found = [];
  for (let total = 1; found.length < total;) {
    const mark = path.includes('?') ? '&' : '?';
    const page = await get(`${path}${mark}limit=200&offset=${found.length}`);
    found.push(...page.items);
    total = page.items.length ? page.total : 0;
  }
  return found;
};

// For requests that must not be carried out twice when their answer was lost.
export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))]
  .map((byte) => byte.toString(16).padStart(2, '0')).join('');

const call = async (method, path, body, headers = {}) => {
  const answer = await send(method, path, {
    method,
    cache: 'no-store',
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { Accept: 'application/json', ...(method === 'GET' ? {} : { 'Content-Type': 'application/json' }), ...headers },
  });
  const date = Date.parse(answer.headers.get('Date') ?? '');
  // The header counts whole seconds: small differences are its own.
  if (date && Math.abs(date - Date.now()) > 2000) ahead = date - Date.now();
  else ahead = 0;
  const json = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (answer.ok) return json;
  const { code = 'unknown', message = `The server answered ${answer.status}. Try again in a moment.` } = json?.error ?? {};
  const failure = new Failure(answer.status, code, plain(message));
  failure.body = json;
  if (code === 'unauthenticated') leave();
  throw failure;
};

// A browser gives up what is under way when its network changes, say on another Wi-Fi. What can be asked twice is.
const send = async (method, path, options) => {
  const repeatable = method === 'GET' || method === 'PATCH' || 'Idempotency-Key' in options.headers;
  for (let left = repeatable ? AGAIN.length : 0; ; left -= 1) {
    try {
      return await fetch(path, options);
    } catch {
      if (!left) throw new Failure(0, 'unreachable', 'codehub does not answer. Check your connection; this page goes on by itself.');
      await new Promise((resolve) => { setTimeout(resolve, AGAIN.at(-left)); });
    }
  }
};

const AGAIN = [150, 600];
