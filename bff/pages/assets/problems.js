// @ts-check
import { Problem } from './api.js';
import { find, write } from './dom.js';
import { t } from './language.js';
import { refuse } from './session.js';

/** @typedef {Map<string, any>} About what an attempt is about, by name: such as records, which may be gone before it works */
/** @typedef {{what: string, text: string, about: About, again: (about: About) => any}} Failure */

/**
 * Shows what failed and has not worked since, with a button to try again: an error is
 * never to be taken for an empty history. A failure with one record is not made good by a success with another.
 */
export class Problems {
  /** @type {Set<Failure>} */
  #open = new Set();

  constructor() {
    find('#again', HTMLButtonElement).onclick = () => {
      for (const { again, about } of [...this.#open]) again(new Map(about));
    };
  }

  /** Whether the newest attempt at something failed. @param {string} what */
  has(what) {
    return [...this.#open].some((failure) => failure.what === what);
  }

  /**
   * Does what may fail, and returns whether it did not.
   * @param {string} what failed, if it does @param {(about: About) => any} again is given what has not worked since
   * @param {() => Promise<any>} act @param {About} [about]
   */
  async attempt(what, again, act, about = new Map([['', undefined]])) {
    /** @type {Failure | undefined} */
    let failure;
    try {
      await act();
    } catch (e) {
      failure = { what, text: t('{what}: {why}.', { what, why: await reason(e) }), about: new Map(about), again };
    }
    this.forget((name, _, of) => of === what && about.has(name)); // this attempt is the newest
    if (failure) this.#open.add(failure);
    this.#show();
    return !failure;
  }

  /** Shows why something is not as it is wanted, '' once it is. @param {string} what @param {string} why @param {() => any} again */
  set(what, why, again) {
    for (const failure of this.#open) if (failure.what === what) this.#open.delete(failure);
    if (why) this.#open.add({ what, text: t('{what}: {why}.', { what, why }), about: new Map([['', undefined]]), again });
    this.#show();
  }

  /** Ends what has become good, or does not matter any more. @param {(name: string, value: any, what: string) => boolean} over */
  forget(over) {
    for (const failure of this.#open) {
      for (const [name, value] of failure.about) if (over(name, value, failure.what)) failure.about.delete(name);
      if (failure.about.size === 0) this.#open.delete(failure);
    }
    this.#show();
  }

  #show() {
    const texts = [...new Set([...this.#open].map(({ text }) => text))];
    find('#problem', HTMLElement).hidden = texts.length === 0;
    write(find('#problem-text', HTMLElement), texts.join(' '));
  }
}

/**
 * Puts into words why something failed. Where the token was refused, another one is asked for instead.
 * @param {any} e @returns {Promise<string>}
 */
export async function reason(e) {
  if (!(e instanceof Problem)) throw e;
  return e.status === 401 ? refuse(t('The token was refused.')) : e.message;
}
