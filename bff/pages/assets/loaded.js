// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { key } from './outbox.js';

/** Letters that Unicode does not decompose; same as in the edge. */
const unaccented = /** @type {Record<string, string>} */ ({ ς: 'σ', æ: 'ae', œ: 'oe', ø: 'o', ł: 'l', đ: 'd', ð: 'd', þ: 'th', ß: 'ss' });

/** The loaded records: the newest ones down to a cursor. */
export class LoadedHistory {
  /** A record as the list shows it, null for hidden. @type {(record: any) => any} */
  shown = (record) => record;
  words = '';
  type = 0;
  until = 0; // upper bound of event times, Unix ms; 0 for none
  cursor = '';
  more = true;
  /** Whether the shown list is outdated and about to be replaced. */
  fresh = true;
  /** Number of records that the search has scanned. */
  searched = 0;
  /** Whether series are collapsed, and the keys of expanded ones. */
  grouped = true;
  open = new Set();
  /** Pushes during a read; its response may be older. @type {{items: any[], removed: any[]}[] | undefined} */
  pushes;
  #records = new Map();
  #read = 0; // event time of the oldest record read, Unix ms
  /** The records, newest first; undefined after a change. @type {any[] | undefined} */
  #sorted;

  get size() {
    return this.#records.size;
  }

  /** Whether no filter is set. */
  get whole() {
    return !this.words && !this.type && !this.until;
  }

  /** @param {any[]} records @param {{cursor: string, has_more: boolean, searched?: number}} end */
  replace(records, end) {
    this.#records = new Map();
    this.#sorted = undefined;
    this.#read = 0;
    this.searched = 0;
    this.fresh = false;
    this.append(records, end);
  }

  /** @param {any[]} records @param {{cursor: string, has_more: boolean, searched?: number}} end */
  append(records, end) {
    for (const record of records) this.#put(record);
    if (records.length > 0) this.#read = Math.min(this.#read || Infinity, time(records.at(-1))); // newly played records come last
    this.cursor = end.cursor;
    this.more = end.has_more;
    this.searched += end.searched ?? 0;
    for (const push of this.pushes ?? []) this.#take(push);
  }

  /** Applies a change, unless it is below the loaded records or outside the filter. @param {{items: any[], removed: any[]}} push */
  change(push) {
    this.pushes?.push(push);
    this.#take(push);
  }

  /** @param {{items: any[], removed: any[]}} push */
  #take({ items, removed }) {
    for (const object of removed) this.#remove(key({ object }));
    for (const record of items) {
      const below = this.more && !this.words && time(record) < this.#read; // a search reads beyond its matches
      const later = this.until && !this.words && time(record) > this.until;
      if ((this.type && record.object.type !== this.type) || later || !this.#matches(record)) this.#remove(key(record));
      else if (this.#records.has(key(record)) || !below) this.#put(record);
    }
  }

  clear() {
    this.pushes = undefined;
    this.replace([], { cursor: '', has_more: false });
    this.fresh = true;
  }

  /** Keeps the shown list until the next one is loaded. */
  restart() {
    this.cursor = '';
    this.more = false;
    this.searched = 0;
    this.fresh = true;
  }

  /** The shown records, newest first. An unsent mark counts as newest. */
  visible() {
    const records = this.sorted().filter((record) => !this.fresh || this.#matches(record)).map(this.shown).filter(Boolean);
    return [...records.filter(({ marked }) => marked), ...records.filter(({ marked }) => !marked)];
  }

  /** Groups records into series. @param {any[]} records */
  entries(records) {
    return this.grouped && !this.words ? series(records, this.open) : records;
  }

  /** All records in the edge's order. At equal times, ended ones come first unless restored; then the name decides. */
  sorted() {
    this.#sorted ??= [...this.#records.values()]
      .map((record) => ({ record, at: time(record), ended: !record.played_at && /stopped|finished/.test(record.state), name: `${record.object.id}_${record.object.type}` }))
      .sort((a, b) => b.at - a.at || Number(b.ended) - Number(a.ended) || (a.name < b.name ? 1 : -1)).map(({ record }) => record);
    return this.#sorted;
  }

  /** Whether the search would find a record. @param {any} record */
  #matches(record) {
    const texts = [record.object.id, ...Object.values(record.meta ?? {})].map(plain);
    return plain(this.words).split(/\s+/).every((word) => texts.some((text) => text.includes(word)));
  }

  /** @param {any} record */
  #put(record) {
    const known = this.#records.get(key(record));
    if (known && time(known) > time(record)) return;
    this.#records.set(key(record), record);
    this.#sorted = undefined;
  }

  /** @param {string} name */
  #remove(name) {
    if (this.#records.delete(name)) this.#sorted = undefined;
  }
}

/**
 * Groups the parts of a series, all of one type, at the newest part. A series has its records in "parts"; if expanded, they
 * follow as entries.
 * @param {any[]} records newest first @param {Set<string>} open keys of entries of series @returns {any[]}
 */
function series(records, open) {
  /** @type {Map<string, any[]>} */
  const parts = new Map();
  for (const record of records) {
    const name = nameOf(record);
    const known = parts.get(name);
    if (known) known.push(record);
    else if (name) parts.set(name, [record]);
  }
  return records.flatMap((record) => {
    const name = nameOf(record);
    const all = (name && parts.get(name)) || [];
    if (all.length < 2) return [record];
    if (all[0] !== record) return [];
    const { series: title, image } = record.meta;
    const head = { ...record, object: { id: `series ${title}`, type: record.object.type }, meta: { title, image }, parts: all };
    head.open = open.has(key(head));
    return head.open ? [head, ...all.map((/** @type {any} */ part) => ({ ...part, within: title }))] : [head];
  });
}

/** Type and name of a record's series, '' for none. @param {any} record */
function nameOf({ object, meta }) {
  return meta?.series ? `${object.type} ${meta.series}` : '';
}

/** @param {any} record */
function time(record) {
  return Date.parse(record.event_time);
}

/** Folds case, width and accents, as the edge does. @param {string} text */
function plain(text) {
  const letters = text.normalize('NFKD').replace(/[\u0300-\u036f]/g, '').normalize();
  return letters.toUpperCase().toLowerCase().replace(/[ςæœøłđðþß]/g, (letter) => unaccented[letter]);
}
