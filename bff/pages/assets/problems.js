// @ts-check
import { Problem } from './api.js';
import { find, write } from './dom.js';
import { t } from './language.js';
import { refuse } from './session.js';

/**
 * Shows what failed and has not worked since, with a button to try again: an error is
 * never to be taken for an empty history.
 */
export class Problems {
  /** @type {Map<string, {text: string, again: () => any}>} */
  #open = new Map();

  constructor() {
    find('#again', HTMLButtonElement).onclick = () => {
      for (const { again } of this.#open.values()) again();
    };
  }

  /** Whether the newest attempt at something failed. @param {string} what */
  has(what) {
    return this.#open.has(what);
  }

  /**
   * Does what may fail, and returns whether it did not.
   * @param {string} what failed, if it does @param {() => any} again @param {() => Promise<any>} act
   */
  async attempt(what, again, act) {
    try {
      await act();
      this.#open.delete(what);
    } catch (e) {
      if (!(e instanceof Problem)) throw e;
      if (e.status === 401) return refuse(t('The token was refused.'));
      this.#open.set(what, { text: t('{what}: {why}.', { what, why: e.message }), again });
    }
    this.#show();
    return !this.#open.has(what);
  }

  #show() {
    const texts = [...this.#open.values()].map(({ text }) => text);
    find('#problem', HTMLElement).hidden = texts.length === 0;
    write(find('#problem-text', HTMLElement), texts.join(' '));
  }
}
