// @ts-check
import { find, write } from './dom.js';
import { title } from './format.js';
import { key } from './outbox.js';

const grace = 6000; // milliseconds to think again

/**
 * Deletes later than it says: an entry disappears at once, and the edge is asked only when the
 * user did not take it back in time. The clock stops while the pointer or the focus is on the
 * message. A page that goes away does not wait. What can be taken back at any time is done at
 * once, and only told here.
 */
export class Undo {
  /** @type {Map<string, any>} */
  #waiting = new Map();
  #timer = 0;
  /** @type {(() => any) | undefined} */
  #back;
  #toast = find('#toast', HTMLElement);
  #does;

  /** @param {{hide(key: string): void, show(keys: string[]): void, send(records: any[]): Promise<any>}} does */
  constructor(does) {
    this.#does = does;
    find('#undo', HTMLButtonElement).onclick = () => this.undo();
    for (const type of ['pointerenter', 'focusin']) this.#toast.addEventListener(type, () => clearTimeout(this.#timer));
    for (const type of ['pointerleave', 'focusout']) this.#toast.addEventListener(type, () => this.#wait());
    addEventListener('pagehide', () => this.send());
  }

  /** Tells of what was done, and how to take it back. @param {string} text @param {() => any} back */
  async done(text, back) {
    await this.send();
    this.#back = back;
    this.#say(text);
    this.#wait();
  }

  /** @param {any} record */
  delete(record) {
    this.#back = undefined;
    this.#waiting.set(key(record), record);
    this.#does.hide(key(record));
    this.#say(this.#waiting.size === 1 ? `Deleted “${title(record)}”.` : `Deleted ${this.#waiting.size} entries.`);
    this.#wait();
  }

  undo() {
    const keys = [...this.#waiting.keys()];
    const back = this.#back;
    this.#end();
    if (back) back();
    else this.#does.show(keys);
  }

  /** Deletes for good, and ends the message. */
  async send() {
    const records = [...this.#waiting.values()];
    this.#end();
    if (records.length > 0) await this.#does.send(records);
  }

  #wait() {
    clearTimeout(this.#timer);
    if (this.#waiting.size > 0 || this.#back) this.#timer = setTimeout(() => this.send(), grace);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#waiting.clear();
    this.#back = undefined;
    this.#toast.classList.remove('shown');
    this.#toast.inert = true;
    this.#say('');
  }

  /** @param {string} text */
  #say(text) {
    write(find('#toast-text', HTMLElement), text);
    if (!text) return;
    this.#toast.classList.add('shown');
    this.#toast.inert = false;
  }
}
