// @ts-check
// SPDX-License-Identifier: Apache-2.0

const most = 500; // remembered sessions
const lease = 180_000; // milliseconds after which a silent tab counts as closed; hidden tabs renew once a minute

/** @typedef {import('./outbox.js').Heartbeat} Heartbeat */

/**
 * Stores a tab's queue over a reload. Tabs share the storage, each with its own key. Another tab, or the next page, adopts the
 * queue of a closed tab. A storage whose keys cannot be listed supports one tab.
 */
export class Store {
  #storage;
  #key;
  #slot;
  #loaded = false;
  /** Sessions reported by this page. @type {Set<string>} */
  #sessions = new Set();
  /** Sessions not stored yet. @type {string[]} */
  #added = [];
  /** Adopted queues, not yet stored under the own key. @type {{name: string, text: string, damaged: boolean}[]} */
  #adopted = [];

  /** @param {Storage | undefined} storage @param {string} key @param {string} tab unique name */
  constructor(storage, key, tab) {
    this.#storage = storage;
    this.#key = key;
    this.#slot = storage && 'length' in storage ? `${key}#${tab}` : key;
  }

  /** Adopts the queues of closed tabs. @param {number} now Unix milliseconds @returns {Heartbeat[]} */
  adopt(now) {
    try {
      return this.#names().flatMap((name) => this.#take(name, now));
    } catch {
      return []; // no access
    } finally {
      this.#loaded = true;
    }
  }

  /** Newest event time of the device's reports, Unix ms. */
  get last() {
    try {
      return Number(this.#storage?.getItem(`${this.#key}.time`)) || 0;
    } catch {
      return 0;
    }
  }

  /**
   * Stores the queue. Other tabs may adopt it at once if this tab left.
   * @param {string} heartbeats as JSON, '' for none @param {number} now @param {boolean} left
   * @param {number} last newest event time
   * @returns {boolean} false if the storage is full or forbidden
   */
  save(heartbeats, now, left, last) {
    let kept = false;
    try {
      if (heartbeats) this.#storage?.setItem(this.#slot, `{"alive":${left ? null : now},"of":${JSON.stringify(this.#key)},"heartbeats":${heartbeats}}`);
      else this.#remove(this.#slot);
      kept = true;
      this.#clear();
      if (this.#added.length > 0) this.#storage?.setItem(`${this.#key}.sessions`, JSON.stringify([...new Set([...this.#kept(), ...this.#added])].slice(-most)));
      this.#added = [];
      if (last > this.last) this.#storage?.setItem(`${this.#key}.time`, String(last));
    } catch {
      // Still in memory; adopted queues stay where they were.
    }
    return kept;
  }

  /** Removes adopted queues once stored. That makes room for a damaged one. */
  #clear() {
    for (const { name, text } of this.#adopted) {
      if (name !== this.#slot && this.#storage?.getItem(name) === text) this.#remove(name);
    }
    const damaged = this.#adopted.find((slot) => slot.damaged);
    this.#adopted = [];
    if (damaged) this.#storage?.setItem(`${this.#key}.damaged`, damaged.text);
  }

  /** The default device name, shared by all tabs. @param {string} made new name */
  device(made) {
    const name = `${this.#key}.device`;
    try {
      const kept = this.#storage?.getItem(name);
      if (!kept) this.#storage?.setItem(name, made);
      return kept || made;
    } catch {
      return made;
    }
  }

  /** Adds a session of this page. The next save shares it. @param {string} session */
  add(session) {
    if (this.#sessions.has(session)) return;
    this.#sessions.add(session);
    this.#added.push(session);
    const [oldest] = this.#sessions;
    if (this.#sessions.size > most) this.#sessions.delete(oldest);
  }

  /** Whether this device has reported a session. @param {string} session */
  has(session) {
    return this.#sessions.has(session) || this.#kept().includes(session);
  }

  /** @returns {string[]} */
  #kept() {
    try {
      const kept = JSON.parse(this.#storage?.getItem(`${this.#key}.sessions`) ?? '[]');
      return Array.isArray(kept) ? kept : [];
    } catch {
      return []; // no access, or damaged
    }
  }

  #names() {
    if (this.#slot === this.#key) return this.#loaded ? [] : [this.#key];
    const { length } = /** @type {Storage} */ (this.#storage);
    const names = Array.from({ length }, (_, i) => this.#storage?.key(i) ?? '');
    return names.filter((name) => name === this.#key || (name.startsWith(`${this.#key}#`) && name !== this.#slot));
  }

  /** @param {string} name @param {number} now @returns {Heartbeat[]} */
  #take(name, now) {
    const text = this.#storage?.getItem(name);
    if (!text || this.#adopted.some((other) => other.name === name)) return [];
    if (name !== this.#slot && Math.abs(now - alive(text)) < lease) return [];
    const slot = parse(text);
    if (slot?.of !== undefined && slot.of !== this.#key) return []; // another user's
    const found = slot?.heartbeats.filter(sound) ?? [];
    this.#adopted.push({ name, text, damaged: found.length !== slot?.heartbeats.length });
    return found;
  }

  /** @param {string} name */
  #remove(name) {
    if (this.#storage?.removeItem) this.#storage.removeItem(name);
    else this.#storage?.setItem(name, '');
  }
}

/** When a tab was last alive, NaN if it left. @param {string} text */
function alive(text) {
  return Number(/^{"alive":(-?\d+),/.exec(text)?.[1]);
}

/** @param {string} text @returns {{of?: string, heartbeats: any[]} | null} null if damaged */
function parse(text) {
  try {
    const slot = JSON.parse(text);
    if (Array.isArray(slot)) return { heartbeats: slot };
    return Array.isArray(slot.heartbeats) ? slot : null;
  } catch {
    return null;
  }
}

/** @param {any} beat */
function sound(beat) {
  return typeof beat?.object === 'object' && beat.object !== null;
}
