// @ts-check
import { t } from './language.js';

const pageSize = 40;
const what = t('The history could not be read');

/** Reads the history a page at a time. */
export class Reader {
  busy = false;
  #api;
  #loaded;
  #problems;
  #changed;
  #newest = 0; // names the newest read of all

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

  /** Reads as much again as there is, or the first page. The old entries stay until then. */
  refresh() {
    const first = this.#loaded.fresh && this.#loaded.words !== ''; // a search goes on when it is asked to
    const wanted = Math.max(this.#loaded.fresh ? 0 : this.#loaded.size, this.#loaded.words ? 1 : pageSize);
    return this.#read(++this.#newest, async (current) => {
      /** @type {any[]} */
      const records = [];
      let page = { items: [], cursor: '', has_more: true };
      while (page.has_more && records.length < wanted && current()) {
        page = await this.#page(page.cursor, wanted - records.length);
        records.push(...page.items);
        if (first) break;
      }
      if (current()) this.#loaded.replace(records, page);
    });
  }

  /** Reads the next page. */
  async older() {
    if (this.busy || this.failed || !this.#loaded.more) return;
    await this.#read(this.#newest, async (current) => {
      const page = await this.#page(this.#loaded.cursor, pageSize);
      if (current()) this.#loaded.append(page.items, page);
    });
  }

  /** @param {number} mine @param {(current: () => boolean) => Promise<void>} act */
  async #read(mine, act) {
    const current = () => mine === this.#newest;
    this.busy = true;
    this.#changed();
    await this.#problems.attempt(what, () => this.refresh(), () => act(current));
    if (!current()) return;
    this.busy = false;
    this.#changed();
  }

  /** @param {string} cursor @param {number} limit */
  #page(cursor, limit) {
    const { words, type, until } = this.#loaded;
    if (words) return this.#api.get('/v1/history/search', { q: words, limit: pageSize, cursor, type });
    return this.#api.get('/v1/history', { limit: Math.min(limit, 100), cursor, type, until: until ? new Date(until).toISOString() : '' });
  }
}
