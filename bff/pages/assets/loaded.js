// @ts-check
import { key } from './outbox.js';
import { title } from './format.js';

/** The part of the history that the page knows: the newest records down to where it has read. */
export class LoadedHistory {
  /** Objects of records that are about to be deleted. */
  hidden = new Set();
  words = '';
  type = 0;
  cursor = '';
  more = true;
  #records = new Map();

  get size() {
    return this.#records.size;
  }

  /** @param {any[]} records @param {{cursor: string, has_more: boolean}} end */
  replace(records, end) {
    this.#records = new Map();
    this.append(records, end);
  }

  /** @param {any[]} records @param {{cursor: string, has_more: boolean}} end */
  append(records, end) {
    for (const record of records) this.#put(record);
    this.cursor = end.cursor;
    this.more = end.has_more;
  }

  /** Takes what others have changed, unless it belongs further down. @param {{items: any[], removed: any[]}} push */
  change({ items, removed }) {
    for (const object of removed) this.#records.delete(key({ object }));
    const last = this.sorted().at(-1);
    for (const record of items) {
      const below = this.more && last && time(record) < time(last);
      if (this.type && record.object.type !== this.type) continue;
      if (!below || this.#records.has(key(record))) this.#put(record);
    }
  }

  /** @param {any} record */
  has(record) {
    return this.#records.has(key(record));
  }

  clear() {
    this.replace([], { cursor: '', has_more: false });
  }

  /** Those to be shown, newest first. */
  visible() {
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    return this.sorted().filter((record) => !this.hidden.has(key(record)) && matches(record, words));
  }

  sorted() {
    return [...this.#records.values()].sort((a, b) => time(b) - time(a) || (key(a) < key(b) ? 1 : -1));
  }

  /** @param {any} record */
  #put(record) {
    const known = this.#records.get(key(record));
    if (!known || time(known) <= time(record)) this.#records.set(key(record), record);
  }
}

/** @param {any} record */
function time(record) {
  return Date.parse(record.event_time);
}

/** @param {any} record @param {string[]} words */
function matches(record, words) {
  const text = `${title(record)} ${record.object.id} ${record.meta?.series ?? ''}`.toLowerCase();
  return words.every((word) => text.includes(word));
}
