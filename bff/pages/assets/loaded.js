// @ts-check
import { key } from './outbox.js';

/** Letters that Unicode does not make of a plain one and an accent: the edge has the same. */
const unaccented = /** @type {Record<string, string>} */ ({ ς: 'σ', æ: 'ae', œ: 'oe', ø: 'o', ł: 'l', đ: 'd', ð: 'd', þ: 'th', ß: 'ss' });

/** The part of the history that the page knows: the newest records down to where it has read. */
export class LoadedHistory {
  /** Whether an entry is about to be deleted. @type {(name: string) => boolean} */
  hides = () => false;
  words = '';
  type = 0;
  until = 0; // nothing later than this is listed, in Unix milliseconds; 0 for no bound
  cursor = '';
  more = true;
  /** Whether what is shown is of another list than the one to be read. */
  fresh = true;
  /** How many records a search has looked at. */
  searched = 0;
  /** Whether the parts of a series are one entry, and the keys of the series of which all parts are listed. */
  grouped = true;
  open = new Set();
  /** Changes by others while the list is read: an answer may be older. @type {{items: any[], removed: any[]}[] | undefined} */
  pushes;
  #records = new Map();
  /** What was removed, as far as the page was told. @type {Set<string>} */
  #gone = new Set();
  #read = 0; // down to when the list was read, in Unix milliseconds: the edge goes on below
  /** The records, newest first; undefined where they have changed since. @type {any[] | undefined} */
  #sorted;

  get size() {
    return this.#records.size;
  }

  /** Whether it lists nothing but the newest. */
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
    if (records.length > 0) this.#read = Math.min(this.#read || Infinity, time(records.at(-1))); // what was played meanwhile comes last
    this.cursor = end.cursor;
    this.more = end.has_more;
    this.searched += end.searched ?? 0;
    for (const push of this.pushes ?? []) this.#take(push);
  }

  /** Takes what others have changed, unless it belongs further down, or not into the list. @param {{items: any[], removed: any[]}} push */
  change(push) {
    this.pushes?.push(push);
    this.#take(push);
  }

  /** @param {{items: any[], removed: any[]}} push */
  #take({ items, removed }) {
    for (const object of removed) {
      this.#remove(key({ object }));
      this.#gone.add(key({ object }));
    }
    for (const record of items) {
      this.#gone.delete(key(record));
      const below = this.more && !this.words && time(record) < this.#read; // a search has looked further than what it found
      const later = this.until && !this.words && time(record) > this.until;
      if ((this.type && record.object.type !== this.type) || later || !this.#matches(record)) this.#remove(key(record));
      else if (this.#records.has(key(record)) || !below) this.#put(record);
    }
  }

  /** A record as it is listed. @param {any} record */
  listed(record) {
    return this.#records.get(key(record));
  }

  /** Whether a record is gone: it was removed, or would be listed, and is not. @param {any} record */
  lacks(record) {
    if (this.#gone.has(key(record))) return true;
    return this.#lists(record.object.type) && !this.listed(record) && (!this.more || time(record) > this.#read);
  }

  /** Whether the list shows that nothing of a type is left. @param {number} type 0 for all */
  cleared(type) {
    return this.#lists(type) && !this.more && !this.sorted().some((record) => !type || record.object.type === type);
  }

  /** Whether all of a type would be listed, as far down as the list was read. @param {number} type 0 for all */
  #lists(type) {
    return !this.fresh && !this.words && !this.until && (!this.type || this.type === type);
  }

  clear() {
    this.pushes = undefined;
    this.replace([], { cursor: '', has_more: false });
    this.fresh = true;
  }

  /** Keeps what is shown until another list is read. */
  restart() {
    this.cursor = '';
    this.more = false;
    this.searched = 0;
    this.fresh = true;
  }

  /** Those to be shown, newest first. */
  visible() {
    return this.sorted().filter((record) => !this.hides(key(record)) && (!this.fresh || this.#matches(record)));
  }

  /** The entries of the list: records, and series with their records. @param {any[]} records */
  entries(records) {
    return this.grouped && !this.words ? series(records, this.open) : records;
  }

  /** In the order of the edge: of one moment what has ended comes first, unless it was brought back, and then what has the later name. */
  sorted() {
    this.#sorted ??= [...this.#records.values()]
      .map((record) => ({ record, at: time(record), ended: !record.played_at && /stopped|finished/.test(record.state), name: `${record.object.id}_${record.object.type}` }))
      .sort((a, b) => b.at - a.at || Number(b.ended) - Number(a.ended) || (a.name < b.name ? 1 : -1)).map(({ record }) => record);
    return this.#sorted;
  }

  /** Whether the edge would find it. @param {any} record */
  #matches(record) {
    const texts = [record.object.id, ...Object.values(record.meta ?? {})].map(plain);
    return plain(this.words).split(/\s+/).every((word) => texts.some((text) => text.includes(word)));
  }

  /** @param {any} record */
  #put(record) {
    const known = this.#records.get(key(record));
    if (known && time(known) > time(record)) return;
    this.#records.set(key(record), record);
    this.#gone.delete(key(record));
    this.#sorted = undefined;
  }

  /** @param {string} name */
  #remove(name) {
    if (this.#records.delete(name)) this.#sorted = undefined;
  }
}

/**
 * Puts the parts of a series together, which are of one type, where its newest one stands. An entry of a series has its
 * records in "parts"; they follow it as entries of their own where the series is open.
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

/** The type and the name of a record's series, '' for none. @param {any} record */
function nameOf({ object, meta }) {
  return meta?.series ? `${object.type} ${meta.series}` : '';
}

/** @param {any} record */
function time(record) {
  return Date.parse(record.event_time);
}

/** A text without case, width and accents, as the edge compares it. @param {string} text */
function plain(text) {
  const letters = text.normalize('NFKD').replace(/[\u0300-\u036f]/g, '').normalize();
  return letters.toUpperCase().toLowerCase().replace(/[ςæœøłđðþß]/g, (letter) => unaccented[letter]);
}
