// @ts-check
import { played } from './format.js';
import { keep, kept } from './kept.js';
import { key } from './outbox.js';

const life = 60_000; // milliseconds in which a decision is kept once the page has gone away

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
 * @property {string[]} older lines of a backup that bring back what was deleted before
 * @property {string[]} lines those that bring back the entry as it is, none before they are read
 * @property {number} reads names the newest read of them; 0 once they are there
 * @property {number} at Unix milliseconds
 * @property {string} why it failed
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
  /** @type {Set<Promise<void>>} */
  #answers = new Set();
  #reads = 0;
  #away = false; // since the page went away: what is kept is another page's
  #place;
  #does;

  /**
   * @param {string} place where they are kept
   * @param {{lines(records: any[]): Promise<string>, left(records: any[]): Promise<any[]>, remove(objects: any[], wanted: () => boolean): Promise<any>,
   *   restore(lines: string): Promise<any>, removed(objects: any[]): void, reread(): Promise<any>, why(error: any): Promise<string>,
   *   listed(record: any): any, lacks(record: any): boolean, changed(): void}} does
   * "lines" answers '' where they could not be read, "left" which records are still as they were; "why" puts an error into words; "listed" is a
   * record as the list has it now, and "lacks" whether that shows it to be gone
   */
  constructor(place, does) {
    this.#place = place;
    this.#does = does;
  }

  /** Takes what the page before has kept; from one that is still there only what was to be back. @param {boolean} left whether it went away */
  resume(left) {
    this.#away = false;
    this.#all.clear();
    /** @type {any[]} */
    const all = JSON.parse(kept.getItem(this.#place) ?? '[]');
    for (const { want, held, record, lines, at } of all) {
      if (!(Math.abs(Date.now() - at) < life) || (want === 'gone' && !left)) continue;
      const is = held ? 'held' : 'due';
      const known = held || lines.length > 0; // enough to take it back
      this.#put(record, { want, is, offered: want === 'gone' && known, tried: !held || lines.length > 0, unsure: want === 'gone' && !held, older: lines, at });
    }
    this.#read([...this.#all.values()].filter(({ is }) => is === 'held'));
    this.#ask();
  }

  /** Deletes before the page goes away what could be brought back later. The rest stays until it is here again. */
  leave() {
    for (const decision of this.#all.values()) if (decision.offered || decision.is !== 'done') decision.at = Date.now();
    if (!this.#save()) this.#saveWithoutLines();
    for (const decision of this.#all.values()) if (decision.is === 'held' && !this.#waits(decision)) decision.is = 'due';
    this.#away = true;
    this.#ask();
  }

  /** Hides entries, and deletes them when "send" says so. @param {any[]} records */
  delete(records) {
    if (this.offered.length === 0) this.forgetDone();
    const decisions = records.map((record) => {
      const before = this.#all.get(key(record));
      return this.#put(record, { want: 'gone', is: 'held', offered: true, tried: before?.tried ?? false, older: before ? linesOf(before) : [] });
    });
    const read = this.#read(decisions);
    this.#changed();
    return read;
  }

  /** Deletes what is held, so that it cannot be taken back any more on this page. @returns {Promise<void>} until there are answers */
  send() {
    for (const decision of this.#all.values()) {
      decision.offered = false;
      if (decision.is === 'held') decision.is = 'due';
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

  /** Offers no more what is done. */
  forgetDone() {
    for (const [name, { is }] of this.#all) if (is === 'done') this.#all.delete(name);
    this.#save();
  }

  /** Everything is gone, and only a backup brings it back. @param {(record: any) => boolean} which */
  cleared(which) {
    for (const [name, { record }] of this.#all) if (which(record)) this.#all.delete(name);
    this.#changed();
  }

  /** Takes what has become of entries, before the list does. @param {{items: any[], removed: any[]}} push */
  changed({ items, removed }) {
    const held = [];
    for (const record of items) {
      const [decision, asked] = [this.#all, this.#asked].map((of) => of.get(key(record)));
      if (asked) asked.moved = true; // after it was deleted, or before
      if (decision?.is !== 'held') continue;
      decision.record = record;
      held.push(decision);
    }
    this.#read(held);
    this.#end(removed.map((object) => this.#all.get(key({ object }))), (decision) => decision.want === 'gone' || this.#does.listed(decision.record));
  }

  /** Reads again what would bring back what is held, where it may have changed unnoticed. */
  reread() {
    return this.#read([...this.#all.values()].filter(({ is }) => is === 'held'));
  }

  /** Takes what the list shows: what is held as it is now, and what is as it is wanted. */
  settle() {
    this.changed({ items: [...this.#all.values()].map((decision) => this.#newer(decision)).filter(Boolean), removed: [] });
    this.#end([...this.#all.values()], (decision) => {
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

  /** Whether the edge is asked to delete an entry. @param {string} name */
  deletes(name) {
    return this.#asked.get(name)?.want === 'gone';
  }

  /** Why something is not as it is wanted, '' where nothing failed. @param {'gone' | 'back'} want */
  why(want) {
    return [...this.#all.values()].find((decision) => decision.want === want && decision.is === 'failed')?.why ?? '';
  }

  /** @param {any} record @param {Partial<Decision>} as */
  #put(record, as) {
    /** @type {Decision} */
    const decision = { record, want: 'gone', is: 'held', offered: false, tried: false, unsure: false, moved: false, older: [], lines: [], reads: 0, at: Date.now(), why: '', ...as };
    this.#all.delete(key(record)); // the newest comes last
    this.#all.set(key(record), decision);
    return decision;
  }

  /** Reads what would bring entries back as they are. @param {Decision[]} decisions */
  async #read(decisions) {
    if (decisions.length === 0) return;
    const mine = ++this.#reads;
    for (const decision of decisions) decision.reads = mine;
    const lines = (await this.#does.lines(decisions.map(({ record }) => record))).split('\n').filter(Boolean);
    for (const decision of decisions) {
      const own = lines.filter((line) => key(JSON.parse(line)) === key(decision.record));
      if (decision.reads === mine && own.length > 0) Object.assign(decision, { lines: own, reads: 0 });
    }
    this.#save();
  }

  /** Asks the edge for what is due, but for entries of which an answer is still to come. */
  #ask() {
    const due = [...this.#all.values()].filter(({ record, is }) => is === 'due' && !this.#asked.has(key(record)));
    for (const want of /** @type {const} */ (['gone', 'back'])) {
      const decisions = due.filter((decision) => decision.want === want);
      if (decisions.length === 0) continue;
      const answer = this.#do(want, decisions).finally(() => this.#answers.delete(answer));
      this.#answers.add(answer);
    }
    this.#changed();
  }

  async #answered() {
    while (this.#answers.size > 0) await Promise.all(this.#answers);
  }

  /** @param {'gone' | 'back'} want @param {Decision[]} decisions */
  async #do(want, decisions) {
    for (const decision of decisions) {
      Object.assign(decision, { is: 'asked', moved: false, tried: true });
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
    for (const decision of decisions) this.#asked.delete(key(decision.record));
    for (const decision of stand) {
      if (!why) this.#over(decision);
      else if (stand.length < decisions.length) decision.is = 'due'; // it may be for the others that it was given up
      else Object.assign(decision, { is: 'failed', why });
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
    for (const decision of there) decision.unsure = false;
    this.#changed();
    await this.#does.remove(there.map(({ record }) => record.object), () => there.every((decision) => this.#stands(decision)));
    for (const decision of there) decision.moved ||= this.#newer(decision) !== undefined;
    this.#does.removed(there.filter(({ moved }) => !moved).map(({ record }) => record.object)); // the rest was played since, if not before
  }

  /** The record of an entry where the list has another one than was decided about. @param {Decision} decision */
  #newer({ record }) {
    const now = this.#does.listed(record);
    return now && now.event_time !== record.event_time ? now : undefined;
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
    const all = [...this.#all.values()].map((decision) => {
      const { want, record: { object, meta, event_time }, reads, at } = decision;
      const held = this.#waits(decision);
      return { want, held, record: { object, meta, event_time }, lines: held || reads === 0 ? linesOf(decision) : [], at }; // all that is offered, or nothing
    });
    if (all.length > 0) return keep(this.#place, all);
    kept.removeItem(this.#place);
    return true;
  }

  /** Whether nothing can be asked for before the page goes away: what would bring the entry back is not known, or an answer about it is still to come. @param {Decision} decision */
  #waits({ record, want, is, unsure, reads }) {
    return want === 'gone' && !unsure && (is === 'held' || is === 'due') && (reads !== 0 || this.#asked.has(key(record)));
  }

  /** Where there is no room, what is held stays so, and is all that is kept of what is to be gone. */
  #saveWithoutLines() {
    for (const [name, decision] of this.#all) {
      if (decision.is === 'held') Object.assign(decision, { older: [], lines: [], reads: ++this.#reads });
      else if (decision.want === 'gone') this.#all.delete(name);
    }
    this.#save();
  }
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
