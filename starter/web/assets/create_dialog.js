// A new workspace.

import { newKey, post } from './api.js';
import { ask } from './dialog.js';
import { h } from './dom.js';
import { inContext } from './refusals.js';
import { putAnswer, state } from './store.js';
import { ttlFields, ttlOf } from './ttl_field.js';

export const create = () => {
  // Of this dialog: sent again after a lost answer, it makes no second workspace.
  let key = newKey();
  let sent = '';
  return ask({
    title: 'New workspace',
    confirm: 'Create',
    body: fields(),
    submit: async (data) => {
      const body = wanted(data);
      if (sent && sent !== JSON.stringify(body)) key = newKey();
      sent = JSON.stringify(body);
      const asked = performance.now();
      const ws = await post('/api/v1/workspaces', body, { 'Idempotency-Key': key }).catch((failure) => { throw inContext(failure); });
      state.filter = 'all';
      putAnswer(ws, asked);
    },
  });
};

const fields = () => [
  h('div.labelled', null, h('label', { for: 'name' }, 'Name'),
    h('input', { id: 'name', name: 'name', required: true, maxlength: 100, autocomplete: 'off', autofocus: true, placeholder: 'my-project' })),
  h('div.labelled', null, h('label', { for: 'description' }, 'Description'),
    h('input', { id: 'description', name: 'description', maxlength: 1000, autocomplete: 'off', placeholder: 'Optional' })),
  h('label.check', null, h('input', { type: 'checkbox', name: 'start', checked: true }),
    h('span', null, 'Start it right away', h('small', null, 'Otherwise its home is made, and it waits in standby.'))),
  h('details', null, h('summary', null, 'Image and idle times'), h('div.form', null,
    h('div.labelled', null, h('label', { for: 'image' }, 'Image'),
      h('input.mono', { id: 'image', name: 'image', maxlength: 512, autocomplete: 'off', spellcheck: 'false', placeholder: state.installation?.default_image }),
      h('small', null, 'It has to serve HTTP on port 8080. Empty: the IDE of this installation.')),
    ...ttlFields(null, state.installation?.ttl))),
];

const wanted = (data) => {
  const body = {
    name: data.get('name').trim(),
    description: data.get('description').trim(),
    desired_state: data.get('start') ? 'RUNNING' : 'STANDBY',
    standby_ttl_seconds: ttlOf(data, 'standby'),
    archive_ttl_seconds: ttlOf(data, 'archive'),
  };
  const image = data.get('image').trim();
  return image ? { ...body, image_ref: image } : body;
};
