// @ts-check
// SPDX-License-Identifier: Apache-2.0

/** A storage in memory. */
class Memory {
  /** @type {Map<string, string>} */
  #items = new Map();

  get length() {
    return this.#items.size;
  }

  /** @param {number} i */
  key(i) {
    return [...this.#items.keys()][i] ?? null;
  }

  /** @param {string} name */
  getItem(name) {
    return this.#items.get(name) ?? null;
  }

  /** @param {string} name @param {string} text */
  setItem(name, text) {
    this.#items.set(name, text);
  }

  /** @param {string} name */
  removeItem(name) {
    this.#items.delete(name);
  }
}

/** Whether storage is denied or full. */
export const forgets = !keeps();

/** The window's storage. */
export const kept = forgets ? /** @type {Storage} */ (/** @type {unknown} */ (new Memory())) : sessionStorage;

function keeps() {
  try {
    sessionStorage.setItem('playhead.kept', ' '.repeat(4096));
    sessionStorage.removeItem('playhead.kept');
    return true;
  } catch {
    return false;
  }
}
