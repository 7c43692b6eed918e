// @ts-check
import { find } from './dom.js';
import { forgets, kept } from './kept.js';
import { localize, t } from './language.js';

const place = 'playhead.token';
const channel = new BroadcastChannel('playhead.token');

/**
 * Returns the token to work with. One that came in the address, after the #, is moved out of
 * sight, where the window keeps it; another window of these pages is asked for its own. Without any there is a form, and
 * the promise stays open: the form loads the page again. Whether a token is valid the edge says: the device's clock may be wrong.
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
 * Forgets the token and asks for another one.
 * @param {string} why @returns {Promise<never>}
 */
export function refuse(why) {
  const never = /** @type {Promise<never>} */ (new Promise(() => {}));
  if (document.body.classList.contains('signed-out')) return never; // it was refused already
  kept.removeItem(place);
  const form = find('#sign-in', HTMLFormElement);
  const input = find('#token', HTMLInputElement);
  find('#sign-in-problem', HTMLElement).textContent = why;
  document.body.classList.add('signed-out');
  for (const dialog of document.querySelectorAll('dialog')) dialog.close(); // it would lie over the form
  form.onsubmit = (e) => {
    e.preventDefault();
    if (forgets) location.hash = new URLSearchParams({ token: input.value.trim() }).toString();
    else kept.setItem(place, input.value.trim());
    location.reload();
  };
  input.focus();
  return never;
}

/** The user that the token names: for display and for keys only, since the edge decides. @param {string} token */
export function user(token) {
  return String(claims(token).sub ?? '');
}

/** Takes a token out of the address. */
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
