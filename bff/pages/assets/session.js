// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { find } from './dom.js';
import { forgets, kept } from './kept.js';
import { localize, t } from './language.js';

const place = 'playhead.token';
const channel = new BroadcastChannel('playhead.token');

/**
 * Returns the token from the URL fragment, the window's storage, or another window. Without one it shows the form, which reloads
 * the page, and never resolves. Only the edge validates tokens: the device's clock may be wrong.
 * @returns {Promise<string>}
 */
export async function signIn() {
  localize();
  take();
  addEventListener('hashchange', () => take() && location.reload());
  channel.addEventListener('message', ({ data }) => {
    const token = kept.getItem(place);
    if (data === 'wanted' && token) channel.postMessage({ token });
  });
  const token = kept.getItem(place) ?? (await askOthers());
  if (token) {
    kept.setItem(place, token);
    return token;
  }
  return refuse('');
}

/**
 * Discards the token and shows the form.
 * @param {string} why @returns {Promise<never>}
 */
export function refuse(why) {
  const never = /** @type {Promise<never>} */ (new Promise(() => {}));
  if (document.body.classList.contains('signed-out')) return never; // already refused
  kept.removeItem(place);
  const form = find('#sign-in', HTMLFormElement);
  const input = find('#token', HTMLInputElement);
  find('#sign-in-problem', HTMLElement).textContent = why;
  document.body.classList.add('signed-out');
  for (const dialog of document.querySelectorAll('dialog')) dialog.close(); // they would cover the form
  form.onsubmit = (e) => {
    e.preventDefault();
    if (forgets) location.hash = new URLSearchParams({ token: input.value.trim() }).toString();
    else kept.setItem(place, input.value.trim());
    location.reload();
  };
  input.focus();
  return never;
}

/** The token's user, for display and keys only. @param {string} token */
export function user(token) {
  return String(claims(token).sub ?? '');
}

/** Moves the token from the URL to the storage. */
function take() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return false;
  kept.setItem(place, token);
  if (!forgets) history.replaceState(null, '', location.pathname + location.search);
  return true;
}

/** @returns {Promise<string | null>} */
function askOthers() {
  return new Promise((resolve) => {
    channel.addEventListener('message', ({ data }) => data?.token && resolve(data.token), { once: false });
    channel.postMessage('wanted');
    setTimeout(() => resolve(null), 300);
  });
}

/** @param {string} token @returns {any} */
function claims(token) {
  try {
    const text = atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  } catch {
    return {}; // the edge will refuse it
  }
}
