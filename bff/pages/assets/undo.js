// @ts-check
import { find, write } from './dom.js';
import { title } from './format.js';
import { keep, kept } from './kept.js';
import { counted, t } from './language.js';
import { key } from './outbox.js';

const grace = 6000; // milliseconds to think again
const life = 60_000; // milliseconds in which that can be done over a reload, too

/**
 * Deletes later than it says: an entry disappears at once, and the edge is asked only when the
 * user did not take it back in time. The clock stops while the pointer or the focus is on the
 * message. A page that goes away does not wait, once it keeps what brings back the entries; when it is loaded again soon, or
 * comes back, it offers that. Before, the entries stay, and are deleted when it comes back. An action that can be taken back at any time is done at once, and only told here.
 */
export class Undo {
  /** @type {Map<string, any>} */
  #waiting = new Map();
  #timer = 0;
  /** Whether what waits could be brought back after it was deleted. */
  #safe = false;
  #newest = 0; // names the newest read of what would bring it back
  /** @type {(() => any) | undefined} */
  #back;
  /** The lines of what was deleted before the page was loaded, and is offered. */
  #offered = '';
  /** @type {[string, string]} the list and the key of what the message is about, or of the first of it */
  #about = ['', ''];
  #typed = false; // since the message is there
  /** What is on the message. @type {Set<string>} */
  #on = new Set();
  #toast = find('#toast', HTMLElement);
  #place;
  #does;

  /**
   * @param {string} uid @param {{hide(keys: string[]): void, show(keys: string[]): void, send(records: any[]): Promise<any>,
   *   left(lines: string): Promise<any[]>,
   *   lines(records: any[]): Promise<string>, restore(lines: string): any, offer(objects: any[]): any,
   *   focus(list: string, key: string): void}} does
   */
  constructor(uid, does) {
    this.#place = `playhead.undo.${uid}`;
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
      this.#leave();
      kept.setItem(`${this.#place}.left`, 'yes');
    });
    addEventListener('input', () => (this.#typed = true));
    addEventListener('keydown', (e) => {
      const typing = e.target instanceof HTMLInputElement && e.target.type !== 'checkbox' && this.#typed;
      if (e.key.toLowerCase() !== 'z' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || typing || document.querySelector('dialog[open]')) return;
      if (this.#waiting.size === 0 && !this.#back) return;
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
    const { text, at, about, objects, lines, waiting } = JSON.parse(kept.getItem(this.#place) ?? '{}');
    const left = kept.getItem(`${this.#place}.left`);
    kept.removeItem(`${this.#place}.left`);
    const undone = this.#undone.join('\n');
    if (undone) this.#does.restore(undone);
    if (!left || !(Math.abs(Date.now() - at) < life)) return kept.removeItem(this.#place);
    const finished = lines && this.#finish(lines);
    if (waiting) {
      kept.removeItem(this.#place);
      this.#offered = lines ?? '';
      if (lines) this.#back = () => finished.then(() => this.#does.restore(lines));
      return this.delete(waiting);
    }
    this.#about = about;
    this.#back = () => (objects ? this.#does.offer(objects) : finished.then(() => this.#does.restore(lines)));
    this.#offered = lines ?? '';
    this.#say(text);
    this.#wait();
  }

  /** Deletes what the page could not delete when it went away, since it was too much, or the edge did not take it. @param {string} lines */
  async #finish(lines) {
    const left = await this.#does.left(lines);
    if (left.length > 0) await this.#does.send(left);
  }

  /** Deletes before the page goes away; what could not be brought back stays until it is here again. */
  #leave() {
    const records = [...this.#waiting.values()];
    if (records.length === 0 || this.#safe) return this.send();
    this.#keep({ waiting: records, lines: this.#offered });
    this.#end();
    this.#does.show(records.map(key));
  }

  /** Tells of what was dismissed, and lets it be offered again, unless something was deleted since. @param {any} record @param {string} text */
  dismissed(record, text) {
    if (this.#waiting.size > 0) return;
    this.#about = ['#cards', key(record)];
    this.#back = () => this.#does.offer([record.object]);
    this.#keep({ text, objects: [record.object] });
    this.#say(text);
    this.#wait();
  }

  /** @param {any[]} records */
  async delete(records) {
    if (!this.#offered) this.#back = undefined;
    this.#about = ['#list', records.map(key)[0] ?? ''];
    for (const record of records) this.#waiting.set(key(record), record);
    this.#does.hide(records.map(key));
    this.#say(this.#text());
    this.#wait();
    await this.#prepare();
  }

  /** Takes what has become of records: a backup that was read before would not bring it back. @param {any[]} records */
  async changed(records) {
    const waiting = records.filter((record) => this.#waiting.has(key(record)));
    for (const record of waiting) this.#waiting.set(key(record), record);
    if (waiting.length > 0) await this.#prepare();
  }

  /** Whether an entry is about to be deleted. @param {string} name */
  waits(name) {
    return this.#waiting.has(name);
  }

  /** Reads again what would bring back what waits, where it may have changed unnoticed. */
  async reread() {
    if (this.#waiting.size > 0) await this.#prepare();
  }

  /** Reads what would bring back all that waits, and keeps it. */
  async #prepare() {
    const mine = ++this.#newest;
    this.#safe = false;
    const lines = await this.#does.lines([...this.#waiting.values()]);
    if (lines && mine === this.#newest) this.#safe = this.#keep({ text: this.#text(), lines: [this.#offered, lines].filter(Boolean).join('\n') });
  }

  /** The message about the entries that are deleted. */
  #text() {
    const all = [...this.#waiting.values(), ...this.#offered.split('\n').filter(Boolean).map((line) => JSON.parse(line))];
    return all.length === 1 ? t('Deleted “{title}”.', { title: title(all[0]) }) : counted(all.length, 'Deleted one entry.', 'Deleted {n} entries.');
  }

  /**
   * Takes it back. The focus goes from the message to what came back, unless the user moved it meanwhile.
   * @param {boolean} [byKey] whether a key did it: the focus goes there, too
   */
  async undo(byKey = false) {
    const keys = [...this.#waiting.keys()];
    const back = this.#back;
    const before = document.activeElement;
    const focused = byKey || this.#toast.contains(before);
    if (this.#offered) this.#remember([...this.#undone, ...this.#offered.split('\n')]); // until it is there again
    this.#end();
    kept.removeItem(this.#place);
    if (keys.length > 0) this.#does.show(keys);
    if (back) await back();
    const now = document.activeElement;
    if (focused && (now === before || now === document.body || this.#toast.contains(now))) this.#does.focus(...this.#about);
  }

  /** What was taken back is there again, or was deleted since: it needs no other try after a reload. @param {(record: any, line: string) => boolean} which */
  forget(which) {
    const left = this.#undone.filter((line) => !which(JSON.parse(line), line));
    if (left.length < this.#undone.length) this.#remember(left);
  }

  /** The lines that the edge has not taken back yet. @returns {string[]} */
  get #undone() {
    const { lines = [], at = 0 } = JSON.parse(kept.getItem(`${this.#place}.undone`) ?? '{}');
    return Math.abs(Date.now() - at) < life ? lines : [];
  }

  /** @param {string[]} lines */
  #remember(lines) {
    if (lines.length > 0) keep(`${this.#place}.undone`, { lines, at: Date.now() });
    else kept.removeItem(`${this.#place}.undone`);
  }

  /** Deletes for good, and ends the message. */
  async send() {
    const records = [...this.#waiting.values()];
    this.forget((record) => records.some((one) => key(one) === key(record)));
    this.#end();
    if (records.length > 0) await this.#does.send(records);
  }

  /** @param {{text?: string, lines?: string, objects?: any[], waiting?: any[]}} what @returns {boolean} whether it can be brought back over a reload */
  #keep(what) {
    return keep(this.#place, { ...what, about: this.#about, at: Date.now() });
  }

  /** Begins the time in which it can be taken back anew, if nothing is on the message. */
  #wait() {
    clearTimeout(this.#timer);
    if (this.#on.size === 0 && (this.#waiting.size > 0 || this.#back)) this.#timer = setTimeout(() => this.send(), grace);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#on.clear();
    this.#newest++;
    this.#waiting.clear();
    this.#back = undefined;
    this.#offered = '';
    this.#toast.classList.remove('shown');
    this.#toast.inert = true;
    this.#say('');
  }

  /** @param {string} text */
  #say(text) {
    write(find('#toast-text', HTMLElement), text);
    if (!text) return;
    this.#typed = false;
    this.#toast.classList.add('shown');
    this.#toast.inert = false;
  }
}
