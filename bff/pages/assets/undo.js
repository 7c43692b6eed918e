// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { find, write } from './dom.js';
import { t } from './language.js';
import { key } from './outbox.js';
import { reason } from './problems.js';

const grace = 6000; // milliseconds to undo a change

/**
 * A change to some records: a delete, a dismissal or a mark.
 * @typedef {object} Change
 * @property {string} [kind] open changes of one kind are undone together
 * @property {any[]} records
 * @property {(records: any[]) => string} text text of the message
 * @property {string} failed text after a refusal by the edge
 * @property {'list' | 'cards'} where the user made it
 * @property {(record: any) => any} list the record as the list shows it; null hides it
 * @property {(records: any[]) => Promise<any>} send also returns after it has updated the page
 */

/**
 * Shows a change at once and sends it after six seconds, unless the user undoes it. Leaving the page sends it. A failed change is
 * reverted, and its first row shows the reason. The timer pauses while the message has the pointer or the focus.
 */
export class Undo {
  /** @type {Change | null} */
  #open = null;
  /** Changes without an answer yet. @type {Map<Change, Promise<void>>} */
  #sent = new Map();
  /** Failures, by place and key. @type {Map<string, string>} */
  #failures = new Map();
  #timer = 0;
  #toast = find('#toast', HTMLElement);
  #button = find('#undo', HTMLButtonElement);
  #render;
  #focus;

  /** @param {() => void} render @param {(where: string, key: string) => void} focus moves the focus to a row or a card */
  constructor(render, focus) {
    this.#render = render;
    this.#focus = focus;
    this.#button.onclick = () => this.takeBack();
    for (const type of ['pointerenter', 'pointerleave', 'focusin', 'focusout']) this.#toast.addEventListener(type, () => this.#wait());
    addEventListener('pagehide', () => this.send());
    addEventListener('keydown', (e) => {
      const typing = e.target instanceof HTMLElement && e.target.matches('input:not([type=checkbox]), select');
      if (e.key.toLowerCase() !== 'z' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || typing || !this.#open) return;
      e.preventDefault();
      this.takeBack();
    });
  }

  /** @param {Change} change */
  add(change) {
    const before = this.#open;
    if (before && change.kind && before.kind === change.kind) change = { ...change, records: [...before.records, ...change.records] };
    else this.send();
    for (const record of change.records) this.forget(key(record));
    this.#open = change;
    this.#say(change.text(change.records), true);
    this.#render();
  }

  takeBack() {
    const change = this.#open;
    if (!change) return;
    this.#open = null;
    this.#hide();
    this.#render();
    this.#focus(change.where, key(change.records[0]));
  }

  /** Sends the open change. @returns {Promise<any>} ends when all changes are answered */
  send() {
    const change = this.#open;
    this.#open = null;
    this.#hide();
    if (change) this.#sent.set(change, this.#do(change));
    return Promise.all(this.#sent.values());
  }

  /** Drops the failure of a record that has changed since. @param {string} name */
  forget(name) {
    for (const where of ['list', 'cards']) this.#failures.delete(`${where} ${name}`);
  }

  /** A function from a record to its shown version, null if hidden. @param {'list' | 'cards'} where @returns {(record: any) => any} */
  shown(where) {
    /** @type {Map<string, (record: any) => any>} */
    const views = new Map();
    for (const change of [...this.#sent.keys(), ...(this.#open ? [this.#open] : [])]) {
      for (const record of change.records) views.set(key(record), where === 'list' ? change.list : () => null);
    }
    return (record) => {
      const name = key(record);
      const problem = this.#failures.get(`${where} ${name}`);
      if (views.has(name)) return /** @type {(record: any) => any} */ (views.get(name))(record);
      return problem ? { ...record, problem } : record;
    };
  }

  /** @param {Change} change */
  async #do(change) {
    try {
      await change.send(change.records);
    } catch (e) {
      const text = t('{what}: {why}.', { what: change.failed, why: await reason(e) });
      this.#failures.set(`${change.where} ${key(change.records[0])}`, text);
      if (!this.#open) this.#say(text, false);
    } finally {
      this.#sent.delete(change);
      this.#render();
    }
  }

  /** @param {string} text @param {boolean} offers whether it can be undone */
  #say(text, offers) {
    write(find('#toast-text', HTMLElement), text);
    this.#button.hidden = !offers;
    this.#toast.classList.add('shown');
    this.#toast.inert = false;
    this.#wait();
  }

  #wait() {
    clearTimeout(this.#timer);
    const shown = this.#toast.classList.contains('shown') && !this.#toast.matches(':hover, :focus-within');
    if (shown) this.#timer = setTimeout(() => this.send(), grace);
  }

  #hide() {
    clearTimeout(this.#timer);
    this.#toast.classList.remove('shown');
    this.#toast.inert = true;
    write(find('#toast-text', HTMLElement), '');
  }
}
