// Name, description, memo and idle times of a workspace.

import { patch } from './api.js';
import { ask } from './dialog.js';
import { h } from './dom.js';
import { putAnswer, state } from './store.js';
import { succeeded } from './toast.js';
import { ttlFields, ttlOf } from './ttl_field.js';

export const edit = (ws) => ask({
  title: `Edit ${ws.name}`,
  confirm: 'Save',
  body: [
    h('div.labelled', null, h('label', { for: 'name' }, 'Name'),
      h('input', { id: 'name', name: 'name', required: true, maxlength: 100, autocomplete: 'off', autofocus: true, value: ws.name })),
    h('div.labelled', null, h('label', { for: 'description' }, 'Description'),
      h('input', { id: 'description', name: 'description', maxlength: 1000, autocomplete: 'off', value: ws.description })),
    h('div.labelled', null, h('label', { for: 'memo' }, 'Memo'),
      h('textarea', { id: 'memo', name: 'memo', maxlength: 10000, placeholder: 'What you want to find here when you come back' }, ws.memo)),
    ...ttlFields(ws, state.installation?.ttl),
  ],
  submit: async (data) => {
    const change = changes(ws, data);
    if (!Object.keys(change).length) return;
    const asked = performance.now();
    putAnswer(await patch(`/api/v1/workspaces/${ws.id}`, change), asked);
    succeeded('Saved');
  },
});

// Only what was changed here: what somebody else changed meanwhile stays.
const changes = (ws, data) => {
  const filled = {
    name: data.get('name').trim(),
    description: data.get('description').trim(),
    memo: data.get('memo').replaceAll('\r\n', '\n'),
    standby_ttl_seconds: ttlOf(data, 'standby'),
    archive_ttl_seconds: ttlOf(data, 'archive'),
  };
  return Object.fromEntries(Object.entries(filled).filter(([name, value]) => value !== ws[name]));
};
