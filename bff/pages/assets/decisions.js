// @ts-check
import { played } from './format.js';
import { keep, kept, recall } from './kept.js';
import { key } from './outbox.js';

const life = 60_000; // milliseconds in which a decision is kept once the page has gone away
const glance = 1000; // milliseconds in which nobody has read that something failed: a page that goes away loses its requests before it is told so

/** Whether what was decided then is still to be kept. @param {number} at Unix milliseconds */
export const lasts = (at) => Math.abs(Date.now() - at) < life;

/**
 * What the user wants of an entry, and how far that is. It is "held" as long as nothing was asked of the edge, then "due", "asked", and "done" or
 * "failed". One that is "offered" is taken back with the next undo.
 * @typedef {object} Decision
 * @property {any} record
 * @property {'gone' | 'back'} want
 * @property {'held' | 'due' | 'asked' | 'done' | 'failed'} is
 * @property {boolean} offered
 * @property {boolean} tried whether the edge was asked to delete the entry, and may have
 * @property {boolean} unsure whether a page before this one asked, so that the entry is deleted only as it was then
 * @property {boolean} moved whether the entry was played since the edge was asked
 * @property {boolean} final whether something else follows that makes it of no account, so that nothing is to bring the entry back
 * @property {string} etag of the record that the lines bring back: no other is deleted, but where it is final
 * @property {string[]} older lines of a backup that bring back what was deleted before
 * @property {string[]} lines those that bring back the entry as it is
 * @property {boolean} complete whether they are there, and of the entry as the page knows it
 * @property {number} reads names the newest read of them
 * @property {boolean} reading whether that is under way
 * @property {number} at Unix milliseconds
 * @property {string} why it failed
 * @property {number} failed when, in Unix milliseconds
 */

/**
 * What the user has decided about entries: each is to be gone, or to be back. The newest decision about an entry counts, over a reload as well. The
 * edge is asked for one thing about an entry at a time: what is decided before its answer is asked for after it.
 */
export class Decisions {
  /** @type {Map<string, Decision>} */
  #all = new Map();
  /** Those that the edge is asked for, decided otherwise since or not. @type {Map<string, Decision>} */
  #asked = new Map();
  /** The last of what else the edge is asked about entries, which is to be done before they are deleted. @type {Map<string, Promise<void>>} */
  #others = new Map();
  /** What is asked of the edge, and what is read from it. @type {Set<Promise<void>>} */
  #answers = new Set();
  /** @type {Set<Promise<void>>} */
  #readings = new Set();
  #reads = 0;
  #away = false; // since the page went away: what is kept is another page's
  #leaving = new AbortController(); // whose signal says that it goes away
  #place;
  #does;

  /**
   * @param {string} place where they are kept
   * @param {{few: number, lines(records: any[]): Promise<string>, left(records: any[]): Promise<any[]>,
   *   remove(records: any[], wanted: () => boolean): Promise<any[]>, restore(lines: string): Promise<any>, removed(objects: any[]): void, reread(): Promise<any>, why(error: any): Promise<string>,
   *   listed(record: any): any, lacks(record: any): boolean, changed(): void}} does
   * as many as "few" are deleted one by one; "lines" answers '' where they could not be read, "left" which records are still as they were, and
   * "remove" which are others by now, and stay; "why" puts an error into words; "listed" is a record as the list has it now, and "lacks" whether that shows it to be gone
   */
  constructor(place, does) {
    this.#place = place;
    this.#does = does;
  }

  /** Takes what the page before has kept; from one that is still there only what was to be back. @param {boolean} left whether it went away */
  resume(left) {
    this.#away = false;
    this.#leaving = new AbortController();
    this.#all.clear();
    for (const { want, held, record, lines, at } of recall(this.#place, /** @type {any[]} */ ([]))) {
      if (!lasts(at) || (want === 'gone' && !left)) continue;
      const is = held ? 'held' : 'due';
      const known = held || lines.length > 0; // enough to take it back
      this.#put(record, { want, is, offered: want === 'gone' && known, tried: !held || lines.length > 0, unsure: want === 'gone' && !held, older: lines, complete: lines.length > 0 && !held, at });
    }
    this.reread();
    this.#ask();
  }

  /** Deletes before the page goes away what could be brought back later. The rest stays until it is here again. */
  leave() {
    for (const decision of this.#all.values()) if (decision.offered || decision.is !== 'done') decision.at = Date.now();
    const kept = this.#save() || this.#saveWithoutLines();
    for (const decision of this.#all.values()) {
      if ((decision.is !== 'held' && decision.is !== 'due') || (kept && this.#waits(decision))) continue;
      Object.assign(decision, { is: 'due', reading: false }); // what is being read comes too late
    }
    this.#away = true;
    this.#leaving.abort();
    this.#ask();
  }

  /** Hides entries, and deletes them when "send" says so. @param {any[]} records */
  delete(records) {
    const first = this.offered.length === 0;
    const decisions = records.map((record) => {
      const before = this.#all.get(key(record));
      return this.#put(record, { want: 'gone', is: 'held', offered: true, tried: before?.tried ?? false, older: before ? linesOf(before) : [] });
    });
    if (first) this.forget();
    this.#read(decisions);
    this.#changed();
  }

  /**
   * Deletes what is held, so that it cannot be taken back any more on this page.
   * @param {(record: any) => boolean} [final] of which entries all that was decided is over with that: nothing brings them back, and nothing
   * of it is tried again @returns {Promise<void>} until there are answers
   */
  send(final = () => false) {
    for (const decision of [...this.#all.values()]) {
      decision.offered = false;
      if (decision.is === 'held') decision.is = 'due';
      if (!final(decision.record)) continue;
      if (decision.is === 'done' || decision.is === 'failed') this.#all.delete(key(decision.record));
      else if (decision.want === 'gone') this.#forget(decision);
      Object.assign(decision, { final: true, etag: '' }); // whatever record it is
    }
    this.#ask();
    return this.#answered();
  }

  /** Takes back what is offered. @returns {Promise<void>} until it is there again */
  takeBack() {
    for (const decision of this.#all.values()) {
      if (!decision.offered) continue;
      const older = linesOf(decision);
      if (decision.tried && older.length > 0) this.#put(decision.record, { want: 'back', is: 'due', tried: true, older });
      else this.#all.delete(key(decision.record));
    }
    this.#ask();
    return this.#answered();
  }

  /** Tries again what failed. */
  again() {
    for (const decision of this.#all.values()) if (decision.is === 'failed') decision.is = 'due';
    this.#ask();
  }

  /** Offers no more what is not on the message. */
  forget() {
    for (const [name, decision] of this.#all) {
      if (decision.want === 'back' || decision.offered) continue;
      if (decision.is === 'done') this.#all.delete(name);
      else this.#forget(decision);
    }
    this.#save();
  }

  /** Whoever brings back a backup wants no more to be gone. */
  restored() {
    for (const [name, { want, is }] of this.#all) if (want === 'gone' && (is === 'done' || is === 'failed')) this.#all.delete(name);
    this.#changed();
  }

  /** Takes what has become of entries, before the list does. @param {{items: any[], removed: any[]}} push */
  changed({ items, removed }) {
    const news = [];
    for (const record of items) {
      const [decision, asked] = [this.#all, this.#asked].map((of) => of.get(key(record)));
      if (asked) asked.moved = true; // after it was deleted, or before
      if (!decision || !this.#waitsForNews(decision)) continue;
      if (decision.is === 'failed') decision.older = linesOf(decision); // that may have been deleted
      Object.assign(decision, { record, complete: false });
      news.push(decision);
    }
    this.#read(news);
    const gone = removed.map((object) => this.#all.get(key({ object })));
    for (const decision of gone) if (decision?.is === 'held') decision.tried = true; // by another one
    this.#end(gone, (decision) => decision.want === 'gone' || this.#does.listed(decision.record));
  }

  /** Reads again what would bring entries back, where they may have changed unnoticed. */
  reread() {
    return this.#read([...this.#all.values()]);
  }

  /**
   * Asks the edge for something else about an entry, one after the other as long as the page is there. It is deleted after that, unless that
   * has failed by now.
   * @template T @param {string} name @param {() => Promise<T>} act @returns {Promise<T>}
   */
  async during(name, act) {
    const before = this.#all.get(name);
    const failed = before?.want === 'gone' && before.is === 'failed' ? before : undefined;
    const left = new Promise((resolve) => { this.#leaving.signal.addEventListener('abort', resolve); });
    const doing = Promise.race([this.#others.get(name), left]).then(act);
    const over = doing.then(() => {}, () => {});
    this.#others.set(name, over);
    until(over, this.#answers);
    try {
      return await doing;
    } finally {
      if (this.#others.get(name) === over) this.#others.delete(name);
      if (failed?.is === 'failed' && this.#stands(failed) && !this.#does.lacks(failed.record)) this.#all.delete(name); // else it was done without an answer
      this.#read([this.#all.get(name)]); // which is another record now
      this.#ask();
    }
  }

  /** Takes what the list shows: what is held as it is now, and what is as it is wanted. */
  settle() {
    const all = [...this.#all.values()];
    this.changed({ items: all.map((decision) => this.#newer(decision)).filter(Boolean), removed: [] });
    for (const decision of all) if (decision.is === 'held' && this.#does.lacks(decision.record)) decision.tried = true; // by another one
    this.#end(all, (decision) => {
      const [line, ...more] = linesOf(decision);
      return decision.want === 'gone' ? this.#does.lacks(decision.record) : more.length === 0 && this.#isBack(JSON.parse(line));
    });
  }

  /** The records that an undo would bring back. @returns {any[]} */
  get offered() {
    return [...this.#all.values()].filter(({ offered }) => offered).map(({ record }) => record);
  }

  /** Whether an entry is not to be shown. @param {string} name */
  hides(name) {
    const { want, is, unsure } = this.#all.get(name) ?? {};
    return want === 'gone' && (is === 'held' || (!unsure && (is === 'due' || is === 'asked')));
  }

  /** Why something is not as it is wanted, '' where nothing failed. @param {'gone' | 'back'} want */
  why(want) {
    return [...this.#all.values()].find((decision) => decision.want === want && decision.is === 'failed')?.why ?? '';
  }

  /** @param {any} record @param {Partial<Decision>} as */
  #put(record, as) {
    /** @type {Decision} */
    const decision = { record, want: 'gone', is: 'held', offered: false, tried: false, unsure: false, moved: false, final: false, etag: record.etag, older: [], lines: [], complete: false, reads: 0, reading: false, at: Date.now(), why: '', failed: 0, ...as };
    this.#all.delete(key(record)); // the newest comes last
    this.#all.set(key(record), decision);
    return decision;
  }

  /** Whether an entry may still change before it is deleted. @param {Decision} decision */
  #waitsForNews({ want, is, unsure, final }) {
    return want === 'gone' && !unsure && !final && (is === 'held' || is === 'due' || is === 'failed');
  }

  /** Reads what would bring entries back as they are, before they are deleted. @param {(Decision | undefined)[]} decisions */
  async #read(decisions) {
    const due = decisions.flatMap((decision) => (decision && this.#waitsForNews(decision) ? [decision] : []));
    if (due.length > 0) await until(this.#readLines(due), this.#readings);
  }

  /** @param {Decision[]} decisions */
  async #readLines(decisions) {
    const mine = ++this.#reads;
    for (const decision of decisions) Object.assign(decision, { reads: mine, reading: true });
    /** @type {Map<string, {line: string, record: any}[]>} */
    const read = new Map();
    for (const line of (await this.#does.lines(decisions.map(({ record }) => record))).split('\n').filter(Boolean)) {
      const record = JSON.parse(line);
      read.set(key(record), [...read.get(key(record)) ?? [], { line, record }]);
    }
    for (const decision of decisions) {
      if (decision.reads !== mine) continue;
      const own = read.get(key(decision.record)) ?? [];
      const { event_time, etag } = own.at(-1)?.record ?? decision.record;
      decision.reading = false;
      if (own.length > 0) Object.assign(decision, { lines: own.map(({ line }) => line), complete: true, etag, record: { ...decision.record, event_time, etag } });
      else if (!decision.complete) decision.etag = etag;
    }
    this.#ask();
  }

  /** Asks the edge for what is due, but for entries of which an answer is still to come. */
  #ask() {
    const due = [...this.#all.values()].filter(({ record, is, reading }) => is === 'due' && !reading && !this.#busy(record));
    for (const want of /** @type {const} */ (['gone', 'back'])) {
      const decisions = due.filter((decision) => decision.want === want);
      const apart = want === 'gone' && decisions.length <= this.#does.few; // each has an answer of its own
      for (const together of apart ? decisions.map((decision) => [decision]) : [decisions]) {
        if (together.length > 0) until(this.#do(want, together), this.#answers);
      }
    }
    this.#changed();
  }

  /** Whether an answer about an entry is still to come. @param {any} record */
  #busy(record) {
    return this.#asked.has(key(record)) || this.#others.has(key(record));
  }

  /** Waits until nothing is due any more, and all is answered. */
  async #answered() {
    for (;;) {
      const due = [...this.#all.values()].some(({ is, reading }) => is === 'due' && reading);
      const left = [...this.#answers, ...(due ? this.#readings : [])];
      if (left.length === 0) return;
      await Promise.all(left);
    }
  }

  /** @param {'gone' | 'back'} want @param {Decision[]} decisions */
  async #do(want, decisions) {
    for (const decision of decisions) {
      Object.assign(decision, { is: 'asked', moved: false });
      this.#asked.set(key(decision.record), decision);
    }
    if (want === 'back') this.#does.removed(decisions.map(({ record }) => record.object)); // where it is listed from now on, it is there
    let why = '';
    try {
      await (want === 'gone' ? this.#remove(decisions) : this.#does.restore(decisions.flatMap(linesOf).join('\n')));
    } catch (e) {
      why = await this.#does.why(e);
    }
    const stand = decisions.filter((decision) => this.#stands(decision));
    if (want === 'back') this.#read(decisions.map(({ record }) => this.#all.get(key(record)))); // which is another record now
    for (const decision of decisions) this.#asked.delete(key(decision.record));
    for (const decision of stand) {
      if (!why || decision.final) this.#over(decision);
      else if (stand.length < decisions.length) decision.is = 'due'; // it may be for the others that it was given up
      else Object.assign(decision, { is: 'failed', why, failed: Date.now() });
    }
    this.settle(); // it may be done without an answer
    this.#ask();
    if (want === 'back' || decisions.some(({ moved }) => moved)) await this.#does.reread();
  }

  /** @param {Decision[]} decisions */
  async #remove(decisions) {
    const unsure = decisions.filter((decision) => decision.unsure);
    const left = new Set(unsure.length > 0 ? (await this.#does.left(unsure.flatMap(recordsOf))).map(key) : []);
    const there = decisions.filter((decision) => this.#stands(decision) && (!decision.unsure || left.has(key(decision.record))));
    if (there.length === 0) return;
    const first = there.filter(({ tried }) => !tried);
    for (const decision of there) Object.assign(decision, { unsure: false, tried: true });
    this.#changed();
    const known = there.map(({ record: { object }, etag }) => ({ object, etag }));
    const others = new Set((await this.#does.remove(known, () => there.every((decision) => this.#stands(decision)))).map(key));
    for (const decision of there) {
      const stays = others.has(key(decision.record)); // it was played since
      if (stays && first.includes(decision)) Object.assign(decision, { lines: [], complete: false, tried: false });
      decision.moved ||= stays || this.#newer(decision) !== undefined;
    }
    this.#does.removed(there.filter(({ moved }) => !moved).map(({ record }) => record.object)); // the rest was played since, if not before
  }

  /** The record of an entry where the list has a newer one than was decided about. @param {Decision} decision */
  #newer({ record }) {
    const now = this.#does.listed(record);
    return now && Date.parse(now.event_time) > Date.parse(record.event_time) ? now : undefined;
  }

  /** Whether a record is listed as it was. @param {any} record */
  #isBack(record) {
    const now = this.#does.listed(record);
    return now && Number(played(now)) === Number(played(record));
  }

  /** Whether the user has not decided otherwise since the edge was asked. @param {Decision} decision */
  #stands(decision) {
    return this.#all.get(key(decision.record)) === decision;
  }

  /** Ends what failed, and needs no other try. @param {(Decision | undefined)[]} decisions @param {(decision: Decision) => boolean} which */
  #end(decisions, which) {
    const over = decisions.filter((decision) => decision?.is === 'failed' && which(decision));
    for (const decision of over) if (decision) this.#over(decision);
    if (over.length > 0) this.#changed();
  }

  /** The entry is as it is wanted. What is gone may still be wanted back. @param {Decision} decision */
  #over(decision) {
    if (decision.want === 'gone' && linesOf(decision).length > 0) decision.is = 'done';
    else this.#all.delete(key(decision.record));
  }

  #changed() {
    this.#save();
    this.#does.changed();
  }

  /** Keeps all for the next page, and returns whether there was room. */
  #save() {
    if (this.#away) return true;
    const lasting = [...this.#all.values()].filter(({ want, is, failed }) => want === 'back' || is !== 'failed' || Date.now() - failed < glance); // of the rest the user knows that it is there
    const all = lasting.map((decision) => {
      const { want, record: { object, meta, event_time }, etag, complete, at } = decision;
      const held = this.#waits(decision);
      return { want, held, record: { object, meta, event_time, etag }, lines: held || complete || want === 'back' ? linesOf(decision) : [], at }; // all that is offered, or nothing
    });
    if (all.length > 0) return keep(this.#place, all);
    kept.removeItem(this.#place);
    return true;
  }

  /**
   * Whether the next page is to delete an entry, if this one goes away now: what would bring it back is not known, or an answer about it is
   * still to come.
   * @param {Decision} decision
   */
  #waits({ record, want, is, unsure, complete }) {
    return want === 'gone' && !unsure && (is === 'held' || is === 'due') && !(complete && !this.#busy(record));
  }

  /** Keeps, where there is no room, only what is to be gone and to be back, and returns whether there was room for that. */
  #saveWithoutLines() {
    for (const [name, decision] of this.#all) {
      if (decision.is === 'done') this.#all.delete(name);
      else if (decision.want === 'gone') this.#forget(decision);
    }
    return this.#save();
  }

  /** Forgets what would bring an entry back. @param {Decision} decision */
  #forget(decision) {
    Object.assign(decision, { older: [], lines: [], complete: false, reads: ++this.#reads, reading: false });
  }
}

/** Has a set contain a promise until it is settled. @param {Promise<void>} promise @param {Set<Promise<void>>} set */
function until(promise, set) {
  set.add(promise);
  return promise.finally(() => set.delete(promise));
}

/** All lines that bring back an entry. @param {Decision} decision @returns {string[]} */
function linesOf({ older, lines }) {
  return [...new Set([...older, ...lines])];
}

/** An entry as it was deleted, at any time. @param {Decision} decision @returns {any[]} */
function recordsOf(decision) {
  const lines = linesOf(decision);
  return lines.length > 0 ? lines.map((line) => JSON.parse(line)) : [decision.record];
}
