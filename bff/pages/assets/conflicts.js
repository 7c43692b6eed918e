// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { key, viewing } from './outbox.js';

/** @typedef {import('./outbox.js').Heartbeat} Heartbeat */

const most = 500; // reports

/**
 * Reports refused because another device continued, and later ones, until the user chooses a position. They survive a reload if
 * the window's storage has room.
 */
export class Conflicts {
  #storage;
  #name;
  /** Reports that did not fit into the storage. @type {Heartbeat[] | null} */
  #here = null;

  /** @param {Storage} storage @param {string} name */
  constructor(storage, name) {
    this.#storage = storage;
    this.#name = name;
  }

  /** Adds refused reports. @param {Heartbeat[]} beats */
  add(beats) {
    this.#keep([...this.#all, ...beats.map((beat) => ({ ...beat, dated: true }))]);
  }

  /** Adds a report made while the question is open. A progress report replaces the previous one. @param {Heartbeat} beat */
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

  /** Removes and returns the reports of an object. @param {{id: string, type: number}} object */
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
      // full: kept in memory
    }
  }
}
