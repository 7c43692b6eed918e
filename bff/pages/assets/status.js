// @ts-check
import { find, write } from './dom.js';

/** Shows whether the page is connected. @param {import('./playhead.js').Playhead} client */
export function follow(client) {
  const status = find('#connection', HTMLElement);
  const show = (/** @type {string} */ state, /** @type {string} */ text) => {
    status.dataset.state = state;
    write(status, text);
  };
  client.addEventListener('open', () => show('open', 'Live'));
  client.addEventListener('close', () => show('closed', navigator.onLine ? 'Reconnecting…' : 'Offline'));
}
