// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { find, write } from './dom.js';
import { t } from './language.js';

/** Shows whether the page is connected, and offers to try at once. @param {import('./playhead.js').Playhead} client */
export function follow(client) {
  const status = find('#connection', HTMLElement);
  const now = find('#try-now', HTMLButtonElement);
  now.onclick = () => client.reconnect();
  const show = (/** @type {string} */ state, /** @type {string} */ text) => {
    status.dataset.state = state;
    now.hidden = client.live;
    write(status, text);
  };
  client.addEventListener('open', () => (client.live ? show('open', t('Live')) : show('closed', t('No live updates'))));
  client.addEventListener('close', () => show('closed', navigator.onLine ? t('Reconnecting…') : t('Offline')));
}
