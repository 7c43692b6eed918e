// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { t } from './language.js';

const pageSize = 40;
const what = t('The history could not be read');

/** Reads the history by pages. */
export class Reader {
  busy = false;
  #asked = false; // the next page is wanted
  #api;
  #loaded;
  #problems;
  #changed;
  #newest = 0; // number of the newest read

  /**
   * @param {import('./api.js').Api} api @param {import('./loaded.js').LoadedHistory} loaded
   * @param {import('./problems.js').Problems} problems @param {() => void} changed
   */
  constructor(api, loaded, problems, changed) {
    this.#api = api;
    this.#loaded = loaded;
    this.#problems = problems;
    this.#changed = changed;
  }

  get failed() {
    return this.#problems.has(what);
  }

  /** Reloads the loaded entries, or the first page. The old ones stay meanwhile. */
  refresh() {
    const { fresh, words, size } = this.#loaded;
    const first = fresh && words !== ''; // a search continues on request
    const wanted = Math.max(fresh ? 0 : size, words ? 1 : pageSize);
    if (fresh) this.#asked = false;
    ++this.#newest;
    return this.#read(async (page, current) => {
      /** @type {any[]} */
      const records = [];
      let last = { items: [], cursor: '', has_more: true };
      while (last.has_more && records.length < wanted && current()) {
        last = await page(last.cursor, wanted - records.length);
        records.push(...last.items);
        if (first) break;
      }
      if (current()) this.#loaded.replace(records, last);
    });
  }

  /** Reads the next page, after the current read. */
  async older() {
    if (this.failed || !this.#loaded.more) return;
    this.#asked = true;
    if (this.busy) return;
    await this.#read(async (page, current) => {
      const next = await page(this.#loaded.cursor, pageSize);
      if (!current()) return;
      this.#asked = false;
      this.#loaded.append(next.items, next);
    });
  }

  /**
   * @param {(page: (cursor: string, limit: number) => Promise<any>, current: () => boolean) => Promise<void>} act reads pages
   * of the list as it was at the start; it must discard them once current() is false
   */
  async #read(act) {
    const mine = this.#newest;
    const { words, type, until } = this.#loaded;
    const current = () => mine === this.#newest && words === this.#loaded.words;
    const page = (/** @type {string} */ cursor, /** @type {number} */ limit) => (words
      ? this.#api.get('/v1/history/search', { q: words, limit: pageSize, cursor, type }, current)
      : this.#api.get('/v1/history', { limit: Math.min(limit, 100), cursor, type, until: until ? new Date(until).toISOString() : '' }, current));
    this.busy = true;
    this.#loaded.pushes = [];
    this.#changed();
    const read = act(page, current);
    await read.catch(() => {});
    if (!current()) return; // outdated
    await this.#problems.attempt(what, () => this.refresh(), () => read);
    this.#loaded.pushes = undefined;
    this.busy = false;
    this.#changed();
    if (this.#asked) await this.older();
  }
}
