// @ts-check
import { lasts } from './decisions.js';
import { find, write } from './dom.js';
import { title } from './format.js';
import { keep, kept, recall } from './kept.js';
import { counted, t } from './language.js';
import { key } from './outbox.js';

const grace = 6000; // milliseconds to think again

/**
 * Lets the user think again: an entry disappears at once, and the edge is asked only when the user did not take it back in time. The clock stops
 * while the pointer or the focus is on the message. A page that is loaded again soon, or comes back, offers again what it offered before.
 * What is dismissed can be taken back at any time: it is done at once, and only told here.
 */
export class Undo {
  #timer = 0;
  /** The record that was dismissed last, where that can be taken back. @type {any} */
  #dismissed;
  #first = ''; // of what was deleted last, where the focus goes
  #typed = false; // since the message is there
  /** What is on the message. @type {Set<string>} */
  #on = new Set();
  #toast = find('#toast', HTMLElement);
  #place;
  #decisions;
  #does;

  /**
   * @param {string} place where the window keeps what may be offered again @param {import('./decisions.js').Decisions} decisions
   * @param {{offer(object: any): any, focus(list: string, key: string): void}} does
   */
  constructor(place, decisions, does) {
    this.#place = place;
    this.#decisions = decisions;
    this.#does = does;
    find('#undo', HTMLButtonElement).onclick = () => this.undo();
    for (const [what, comes, goes] of [['pointer', 'pointerenter', 'pointerleave'], ['focus', 'focusin', 'focusout']]) {
      this.#toast.addEventListener(comes, () => {
        this.#on.add(what);
        this.#wait();
      });
      this.#toast.addEventListener(goes, () => {
        this.#on.delete(what);
        this.#wait();
      });
    }
    addEventListener('pagehide', () => {
      keep(`${this.#place}.left`, true);
      this.#decisions.leave();
      this.#end();
    });
    addEventListener('input', () => (this.#typed = true));
    addEventListener('keydown', (e) => {
      const typing = e.target instanceof HTMLInputElement && e.target.type !== 'checkbox' && this.#typed;
      if (e.key.toLowerCase() !== 'z' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || typing || document.querySelector('dialog[open]')) return;
      if (!this.#offers()) return;
      e.preventDefault();
      this.undo(true);
    });
    addEventListener('pageshow', (e) => e.persisted && this.resume());
  }

  /**
   * Offers again what the page offered before it went away. A window that another one has opened, or its duplicate, begins with all
   * that this one keeps, while this one is still there.
   */
  resume() {
    const left = kept.getItem(`${this.#place}.left`) !== null;
    kept.removeItem(`${this.#place}.left`);
    this.#decisions.resume(left);
    const { record, at } = recall(`${this.#place}.dismissed`, { record: undefined, at: NaN });
    if (left && lasts(at)) this.#dismissed = record;
    else kept.removeItem(`${this.#place}.dismissed`);
    this.#first = this.#decisions.offered.map(key)[0] ?? '';
    this.#tell();
  }

  /** Deletes what is held, and keeps for the next page what is being dismissed. @param {any} record */
  dismissing(record) {
    this.send();
    this.#decisions.forget();
    keep(`${this.#place}.dismissed`, { record, at: Date.now() });
  }

  /** Tells of what was dismissed, and lets it be offered again, unless something was deleted since. @param {any} record */
  dismissed(record) {
    if (this.#decisions.offered.length > 0) return;
    this.#dismissed = record;
    keep(`${this.#place}.dismissed`, { record, at: Date.now(), done: true });
    this.#tell();
  }

  /** Ends the offer where what was dismissed is offered again, in what was read since. @param {(record: any) => boolean} offered */
  read(offered) {
    const { record, done } = recall(`${this.#place}.dismissed`, { record: this.#dismissed, done: true });
    if (!record || !done || !offered(record)) return;
    this.forget();
    this.changed();
  }

  /** @param {any[]} records */
  delete(records) {
    this.#first = records.map(key)[0] ?? '';
    this.forget();
    this.#decisions.delete(records);
    this.#tell();
  }

  /** Ends the message where nothing of it is left to be taken back. */
  changed() {
    if (this.#toast.classList.contains('shown') && !this.#offers()) this.#end();
  }

  /** Lets what was dismissed be taken back no more. @param {(record: any) => boolean} [which] */
  forget(which = () => true) {
    const { record } = recall(`${this.#place}.dismissed`, { record: this.#dismissed });
    if (!record || !which(record)) return;
    this.#dismissed = undefined;
    kept.removeItem(`${this.#place}.dismissed`);
  }

  /**
   * Takes it back. The focus goes from the message to what came back, unless the user moved it meanwhile.
   * @param {boolean} [byKey] whether a key did it: the focus goes there, too
   */
  async undo(byKey = false) {
    const before = document.activeElement;
    const focused = byKey || this.#toast.contains(before);
    const dismissed = this.#decisions.offered.length > 0 ? undefined : this.#dismissed;
    this.forget();
    const back = dismissed ? this.#does.offer(dismissed.object) : this.#decisions.takeBack();
    this.#end();
    await back;
    const now = document.activeElement;
    if (!focused || !(now === before || now === document.body || this.#toast.contains(now))) return;
    if (dismissed) this.#does.focus('#cards', key(dismissed));
    else this.#does.focus('#list', this.#first);
  }

  /** Deletes for good, and ends the message. @param {(record: any) => boolean} [final] what will not be offered again either */
  send(final) {
    this.#end();
    return this.#decisions.send(final);
  }

  #offers() {
    return this.#decisions.offered.length > 0 || Boolean(this.#dismissed);
  }

  /** Tells what can be taken back, and begins the time for that anew. */
  #tell() {
    const deleted = this.#decisions.offered;
    if (!this.#offers()) return;
    if (deleted.length === 0) this.#say(t('“{title}” removed from continue watching.', { title: title(this.#dismissed) }));
    else if (deleted.length === 1) this.#say(t('Deleted “{title}”.', { title: title(deleted[0]) }));
    else this.#say(counted(deleted.length, 'Deleted one entry.', 'Deleted {n} entries.'));
    this.#wait();
  }

  /** Begins the time in which it can be taken back anew, if nothing is on the message. */
  #wait() {
    clearTimeout(this.#timer);
    if (this.#on.size === 0 && this.#offers()) this.#timer = setTimeout(() => this.send(), grace);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#on.clear();
    this.#dismissed = undefined;
    this.#toast.classList.remove('shown');
    this.#toast.inert = true;
    write(find('#toast-text', HTMLElement), '');
  }

  /** @param {string} text */
  #say(text) {
    write(find('#toast-text', HTMLElement), text);
    this.#typed = false;
    this.#toast.classList.add('shown');
    this.#toast.inert = false;
  }
}
