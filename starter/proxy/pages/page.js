'use strict';
(() => {
  const main = document.querySelector('main');
  const id = main.dataset.workspace;
  const api = '/api/v1/workspaces/';
  const $ = (selector) => document.querySelector(selector);

  const say = (words) => { const place = $('[role=alert]'); if (place) place.textContent = words; };
  const call = async (method, path, body) => {
    const answer = await fetch(path, {
      method, body: body && JSON.stringify(body), cache: 'no-store',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    });
    const json = answer.status === 204 ? null : await answer.json().catch(() => null);
    return { status: answer.status, json };
  };
  // Not faster than once a second: what this page has heard of may not have reached the proxy yet.
  let left = false;
  const reload = () => {
    if (left) return;
    left = true;
    const last = Number(sessionStorage.getItem('codehub.reloaded') || 0);
    setTimeout(() => {
      sessionStorage.setItem('codehub.reloaded', String(Date.now()));
      location.reload();
    }, Math.max(0, Math.min(1000, last + 1000 - Date.now())));
  };

  // What the server answers now is all that the page knows: it loads again instead of guessing.
  const act = async (button, method, path, body) => {
    button.disabled = true;
    say('');
    try {
      const { status, json } = await call(method, path, body);
      if (status < 300 || status === 404 || status === 401 || status === 409) return true;
      say(json && json.error ? json.error.message : `That did not work (${status}).`);
    } catch {
      say('codehub does not answer. Try again in a moment.');
    }
    button.disabled = false;
    return false;
  };

  const words = {
    PROVISIONING: 'Making its home', RESTORING: 'Restoring its home', STARTING: 'Starting', STOPPING: 'Stopping',
    ARCHIVING: 'Archiving', CREATE_EMPTY_ARCHIVE: 'Archiving', DELETING: 'Deleting',
  };
  const size = (bytes) => {
    const units = ['B', 'KB', 'MB', 'GB', 'TB'];
    let unit = 0;
    for (; bytes >= 1000 && unit < units.length - 1; unit += 1) bytes /= 1000;
    return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
  };

  const span = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);

  let since = null;
  const show = (ws) => {
    const badge = $('.badge');
    const idle = ws.operation === 'NONE';
    badge.textContent = idle ? (ws.phase === 'RUNNING' ? 'Opening' : 'About to begin') : words[ws.operation];
    since = idle ? null : Date.parse(ws.op_started_at);
    step(ws);
    progress(ws.progress);
  };
  const step = (ws) => {
    const order = { home: 0, start: 1, open: 2 };
    const now = ws.phase === 'RUNNING' ? 'open' : ws.phase === 'STANDBY' ? 'start' : 'home';
    for (const item of document.querySelectorAll('ol.steps li')) {
      const at = order[item.dataset.step];
      item.className = at < order[now] ? 'done' : at === order[now] ? 'now' : '';
    }
  };
  const progress = (done) => {
    const bar = $('.bar');
    if (!bar) return;
    const known = done && done.bytes_total > 0;
    bar.classList.toggle('unknown', !known);
    bar.firstElementChild.style.width = known ? `${Math.min(100, 100 * done.bytes_done / done.bytes_total)}%` : '';
    $('#bytes').textContent = done ? told(done, known).join(', ') : '';
  };
  const told = (done, known) => {
    const said = done.stage === 'VERIFYING' ? ['Verifying the stored copy'] : [];
    if (done.bytes_done) said.push(known ? `${size(done.bytes_done)} of ${size(done.bytes_total)}` : size(done.bytes_done));
    if (done.bytes_per_second) said.push(`${size(done.bytes_per_second)}/s`);
    if (done.eta_seconds >= 1) said.push(`${span(done.eta_seconds)} left`);
    return said;
  };

  const look = (ws) => {
    const idle = ws.operation === 'NONE';
    if (idle && ws.phase === 'RUNNING') { reload(); return; }
    const waits = ws.phase === 'STANDBY' && ws.desired_state === 'ARCHIVED';
    const failed = ws.phase === 'ERROR' && ws.error_reason;
    const settled = idle && (failed || ws.phase === ws.desired_state || waits);
    // Loading again may wake it: only for somebody who looks.
    if (settled && document.visibilityState === 'visible') { reload(); return; }
    show(ws);
  };
  // For a page that waits for a person, who may have decided elsewhere.
  const compare = (ws) => {
    const state = `${ws.phase} ${ws.operation} ${ws.desired_state} ${ws.error_reason || ''}`;
    if (state !== main.dataset.state) reload();
  };
  const ask = async (react) => {
    try {
      const { status, json } = await call('GET', api + id);
      if (status === 200) react(json);
      if (status === 404 || status === 401) reload();
    } catch { /* asked again soon */ }
  };

  const follow = (react) => {
    let heard = 0;
    const source = new EventSource('/api/v1/events');
    const on = (name, handle) => source.addEventListener(name, (event) => {
      heard = Date.now();
      try { handle(JSON.parse(event.data)); } catch { /* not for us */ }
    });
    on('workspace_updated', (ws) => { if (ws.id === id) react(ws); });
    on('workspace_deleted', (ws) => { if (ws.id === id) reload(); });
    on('workspace_progress', (ws) => { if (ws.id === id) progress(ws.progress || ws); });
    on('heartbeat', () => {});
    // Events may not come; asking always works.
    setInterval(() => { if (source.readyState !== 1 || Date.now() - heard > 5000) ask(react); }, 1500);
    document.addEventListener('visibilitychange', () => ask(react));
    setInterval(() => {
      const place = $('#since');
      if (place) place.textContent = since ? `${Math.max(0, Math.round((Date.now() - since) / 1000))} s` : '';
    }, 500);
    ask(react);
  };

  const retry = () => {
    let pause = 1000;
    const again = async () => {
      try {
        const answer = await fetch(location.href, { headers: { 'X-Codehub-No-Activity': '1' }, cache: 'no-store' });
        if (answer.status !== 502 || !/workspace_unreachable/.test(await answer.text())) { reload(); return; }
      } catch { /* codehub itself is away */ }
      pause = Math.min(pause * 1.5, 10000);
      setTimeout(again, pause);
    };
    setTimeout(again, pause);
  };

  // Its place is free once it is not RUNNING any more.
  const freed = async (other) => {
    for (;;) {
      const { status, json } = await call('GET', api + other).catch(() => ({ status: 0 }));
      if (status === 404 || (status === 200 && json.phase !== 'RUNNING' && json.desired_state !== 'RUNNING')) return;
      await new Promise((resolve) => { setTimeout(resolve, 700); });
    }
  };

  // Loading this page again, also because of the event, would wake one that is wanted asleep: recovering does nothing else.
  const recover = async (button) => {
    const opens = main.dataset.state.split(' ')[2] === 'RUNNING';
    left = !opens;
    const done = await act(button, 'POST', `${api}${id}/recover`);
    if (opens && done) reload();
    else if (done) location.assign(`/#/workspaces/${id}`);
    else left = false;
  };

  document.addEventListener('click', async (event) => {
    const button = event.target.closest('button[data-do]');
    if (!button) return;
    switch (button.dataset.do) {
      case 'start':
        if (await act(button, 'PATCH', api + id, { desired_state: 'RUNNING' })) reload();
        break;
      case 'recover':
        await recover(button);
        break;
      case 'stop':
        button.textContent = 'Stopping…';
        if (await act(button, 'PATCH', api + button.dataset.id, { desired_state: 'STANDBY' })) {
          await freed(button.dataset.id);
          reload();
        } else {
          button.textContent = 'Stop';
        }
        break;
      default:
        reload();
    }
  });

  switch (main.dataset.page) {
    case 'following': follow(look); break;
    case 'restore_needed': case 'start_needed': case 'error': follow(compare); break;
    case 'unreachable': retry(); break;
    default:
  }
})();
