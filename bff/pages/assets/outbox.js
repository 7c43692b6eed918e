// @ts-check

/**
 * Reports that the edge has not answered yet, oldest first. At most `limit` of them are
 * kept: a full outbox gives up a progress that a later report of the same viewing makes
 * superfluous, or else the oldest. With a storage they survive a reload of the page.
 *
 * @typedef {{object: {id: string, type: number}, kind: string, position_ms: number,
 *   event_time: string, session?: string, [more: string]: any}} Heartbeat
 */
export class Outbox {
  /** How many reports found no room. */
  dropped = 0;
  /** How many of the oldest are on their way. @type {number} */
  sent = 0;
  #items;
  #limit;
  #storage;
  #key;

  /**
   * @param {number} limit
   * @param {{getItem(key: string): string | null, setItem(key: string, text: string): void}} [storage]
   * @param {string} [key] under which they are stored; another one for each user.
   */
  constructor(limit, storage, key = 'playhead.outbox') {
    this.#limit = limit;
    this.#storage = storage;
    this.#key = key;
    this.#items = this.#load();
  }

  get length() {
    return this.#items.length;
  }

  /** @param {Heartbeat} beat */
  push(beat) {
    if (this.#items.length >= this.#limit) this.#shed();
    this.#items.push(beat);
    this.#save();
  }

  /**
   * The reports of the next message. One that asks for a match with what the device knows
   * is the first of its object there, so that the match is with what came before.
   * @param {number} most
   */
  head(most) {
    const objects = new Set();
    const beats = [];
    for (const beat of this.#items.slice(0, most)) {
      const object = key(beat);
      if (beat.if_match !== undefined && objects.has(object)) break;
      objects.add(object);
      beats.push(beat);
    }
    this.sent = beats.length;
    return beats;
  }

  /** The newest report of an object that waits, if any does. @param {{id: string, type: number}} object */
  last(object) {
    return this.#items.findLast((beat) => key(beat) === key({ object }));
  }

  /** Removes those for which `done` says so. @param {(beat: Heartbeat) => boolean} done */
  settle(done) {
    this.#items = this.#items.filter((beat) => !done(beat));
    this.sent = 0;
    this.#save();
  }

  #shed() {
    const furthest = new Map(); // of the later reports of a viewing
    let victim = this.sent;
    let superfluous = false;
    for (let i = this.#items.length - 1; i >= this.sent; i--) {
      const beat = this.#items[i];
      const later = furthest.get(viewing(beat)) ?? -1;
      if (beat.kind === 'progress' && beat.position_ms <= later) {
        victim = i;
        superfluous = true;
      }
      furthest.set(viewing(beat), Math.max(later, beat.position_ms));
    }
    this.#items.splice(victim, 1);
    if (!superfluous) this.dropped++;
  }

  /** @returns {Heartbeat[]} */
  #load() {
    try {
      return JSON.parse(this.#storage?.getItem(this.#key) ?? '[]');
    } catch {
      return []; // somebody else's, or no access
    }
  }

  #save() {
    try {
      this.#storage?.setItem(this.#key, JSON.stringify(this.#items));
    } catch {
      // It is full, or forbidden: they are still in memory.
    }
  }
}

/** Names the object of a report or of a record. @param {{object: {id: string, type: number}}} of */
export function key({ object }) {
  return `${object.type}/${object.id}`;
}

/** Names the viewing of a report or of a record. @param {{object: {id: string, type: number}, session?: string}} of */
export function viewing(of) {
  return `${key(of)} ${of.session ?? ''}`;
}
