// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Problem } from './api.js';
import { find, write } from './dom.js';
import { t } from './language.js';
import { refuse } from './session.js';

/** Shows unresolved failures with a retry button. An error never looks like an empty history. */
export class Problems {
  /** Failures by action. @type {Map<string, {text: string, again: () => any}>} */
  #open = new Map();

  constructor() {
    find('#again', HTMLButtonElement).onclick = () => {
      for (const { again } of [...this.#open.values()]) again();
    };
  }

  /** Whether the last attempt failed. @param {string} what */
  has(what) {
    return this.#open.has(what);
  }

  /** Runs act() and returns whether it succeeded. @param {string} what failed, if it does @param {() => any} again @param {() => Promise<any>} act */
  async attempt(what, again, act) {
    let text = '';
    try {
      await act();
    } catch (e) {
      text = t('{what}: {why}.', { what, why: await reason(e) });
    }
    this.#open.delete(what);
    if (text) this.#open.set(what, { text, again });
    this.#show();
    return !text;
  }

  /** @param {string} what */
  forget(what) {
    this.#open.delete(what);
    this.#show();
  }

  #show() {
    find('#problem', HTMLElement).hidden = this.#open.size === 0;
    write(find('#problem-text', HTMLElement), [...this.#open.values()].map(({ text }) => text).join(' '));
  }
}

/** The reason of a failure, in words. A refused token shows the sign-in form instead. @param {any} e @returns {Promise<string>} */
export async function reason(e) {
  if (!(e instanceof Problem)) throw e;
  return e.status === 401 ? refuse(t('The token was refused.')) : e.message;
}
