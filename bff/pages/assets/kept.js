// @ts-check

/** A storage that ends with the page. */
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

/** Whether the browser denies storage to the window, as its user may have told it to, or has hardly any left. */
export const forgets = !keeps();

/** The values that the window keeps. */
export const kept = forgets ? /** @type {Storage} */ (/** @type {unknown} */ (new Memory())) : sessionStorage;

/** Keeps a value for the window, or no value where there is no room. @param {string} name @param {any} value @returns {boolean} whether there was room */
export function keep(name, value) {
  try {
    kept.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    kept.removeItem(name);
    return false;
  }
}

/** What the window keeps, and what else there is where it keeps nothing, or what cannot be read. @template T @param {string} name @param {T} other @returns {T} */
export function recall(name, other) {
  try {
    const value = JSON.parse(kept.getItem(name) ?? 'null');
    return value && Array.isArray(value) === Array.isArray(other) ? value : other;
  } catch {
    return other;
  }
}

function keeps() {
  try {
    sessionStorage.setItem('playhead.kept', ' '.repeat(4096));
    sessionStorage.removeItem('playhead.kept');
    return true;
  } catch {
    return false;
  }
}
