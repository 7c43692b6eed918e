// @ts-check
import { key, viewing } from './outbox.js';

/** @typedef {import('./outbox.js').Heartbeat} Heartbeat */

const most = 500; // reports

/**
 * The reports of which nothing was stored because another device had gone on, and those that were made since, until the user has said where
 * to go on. The window keeps them over a reload, as far as its storage takes them.
 */
export class Aside {
  #storage;
  #name;
  /** @type {Heartbeat[] | null} what the storage did not take */
  #here = null;

  /** @param {Storage} storage @param {string} name */
  constructor(storage, name) {
    this.#storage = storage;
    this.#name = name;
  }

  /** Adds what was answered. @param {Heartbeat[]} beats */
  add(beats) {
    this.#keep([...this.#all, ...beats.map((beat) => ({ ...beat, dated: true }))]);
  }

  /** Adds what is said while the user is asked, which goes on from what was not stored. A progress takes the place of the one before. @param {Heartbeat} beat */
  hold(beat) {
    const all = this.#all;
    const last = all.at(-1);
    const goesOn = beat.kind === 'progress' && last?.kind === 'progress' && viewing(last) === viewing(beat) && last.position_ms <= beat.position_ms;
    const guard = all.findLast((one) => key(one) === key(beat))?.if_match;
    this.#keep([...(goesOn ? all.slice(0, -1) : all), { ...beat, if_match: guard }]);
  }

  /** @param {{id: string, type: number}} object */
  of(object) {
    return this.#all.filter((beat) => key(beat) === key({ object }));
  }

  /** Removes those of an object, and returns them. @param {{id: string, type: number}} object */
  take(object) {
    const beats = this.of(object);
    if (beats.length > 0) this.#keep(this.#all.filter((beat) => key(beat) !== key({ object })));
    return beats;
  }

  /** @returns {Heartbeat[]} */
  get #all() {
    return this.#here ?? JSON.parse(this.#storage.getItem(this.#name) ?? '[]');
  }

  /** @param {Heartbeat[]} beats */
  #keep(beats) {
    this.#here = beats.slice(-most);
    try {
      this.#storage.setItem(this.#name, JSON.stringify(this.#here));
      this.#here = null;
    } catch {
      // it is full: they are here as long as the page is
    }
  }
}
