// @ts-check
import { below } from './browser.js';
import { locale, t } from './language.js';
import { key } from './outbox.js';

const most = 1000; // objects that the edge removes at once
const parting = 60_000; // bytes that a page which goes away can send
const patience = 10; // times that a request which is one too many is made again

/** An answer other than the one hoped for (application/problem+json). */
export class Problem extends Error {
  /** @param {number} status 0 when there was no answer @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Where the edge is that a page came from: all pages lie beside each other, on some sites below a path. */
export const home = () => new URL('.', location.href).href;

/** The edge's HTTP API, as one user. */
export class Api {
  #token;
  #url;

  /** @param {string} token @param {string} [url] the edge's, by default the page's own */
  constructor(token, url = home()) {
    this.#token = token;
    this.#url = url;
  }

  /**
   * @param {string} path @param {Record<string, string | number | undefined>} [query]
   * those that are undefined or empty are left out
   * @param {() => boolean} [wanted] whether the answer is still wanted
   */
  get(path, query, wanted) {
    return this.#ask('GET', path, { query, wanted });
  }

  /** @param {string} path @param {any} body */
  put(path, body) {
    return this.#ask('PUT', path, { body });
  }

  /** Removes the history, or all of a type; also while the page goes away. @param {number} type 0 for all */
  clear(type) {
    return this.#ask('DELETE', '/v1/history', { query: { type }, keepalive: true });
  }

  /**
   * Reads the record of an object, null where there is none. One that is not of the newest is found where it was listed.
   * @param {{id: string, type: number}} object @param {string | null} [at] the time of the record that the user has seen @returns {Promise<any>}
   */
  async point(object, at) {
    const { items } = await this.#ask('POST', '/v1/history/lookup', { body: { objects: [object] } });
    if (items[0] || !at) return items[0];
    const { items: listed } = await this.get('/v1/history', { type: object.type, since: at, until: at, limit: 100 });
    return listed.find((/** @type {any} */ record) => key(record) === key({ object })) ?? null;
  }

  /**
   * Reads the sessions of an object, newest first.
   * @param {{id: string, type: number}} object
   * @returns {Promise<{begin?: string, end: string, from_ms?: number, to_ms?: number, device?: string, state?: string}[]>}
   */
  async viewings({ id, type }) {
    return (await this.get(`/v1/history/${type}/${encodeURIComponent(id)}/viewings`)).items;
  }

  /**
   * Removes records; also while the page goes away, as far as browsers let it. One by itself is removed only as it is known, and stays where it
   * was played since. Of several, so many are removed at once as the edge takes.
   * @param {any[]} records @param {() => boolean} [wanted] whether that still is @returns {Promise<any[]>} those that stay
   */
  async remove(records, wanted) {
    if (records.length === 1) return this.#removeKnown(records[0], wanted);
    const parts = [];
    for (let i = 0, bytes = 0; i < records.length; i += most) {
      const body = { objects: records.slice(i, i + most).map(({ object }) => object) };
      bytes += JSON.stringify(body).length;
      parts.push(this.#ask('POST', '/v1/history/delete', { body, keepalive: bytes <= parting, wanted }));
    }
    await whole(parts);
    return [];
  }

  /** @param {any} record @param {() => boolean} [wanted] @returns {Promise<any[]>} the record where it is another one by now, and stays */
  async #removeKnown(record, wanted) {
    const { object: { type, id }, etag } = record;
    const known = this.#ask('DELETE', `/v1/history/${type}/${encodeURIComponent(id)}`, { match: etag, keepalive: true, wanted });
    return known.then(() => [], (e) => {
      if (e.status === 412) return [record];
      throw e;
    });
  }

  /**
   * Takes some objects out of what to go on with, or offers them again; also while the page goes away.
   * @param {{id: string, type: number}[]} objects @param {boolean} dismissed
   */
  dismiss(objects, dismissed) {
    return this.#ask('POST', '/v1/continue/dismiss', { body: { objects, dismissed }, keepalive: true });
  }

  /**
   * Says of some objects that they were watched or not, or puts them back to the start; also while the page goes away. What has no record is
   * left alone, and of several what has been completed, where they are marked as watched.
   * @param {{id: string, type: number}[]} objects @param {'watched' | 'unwatched' | 'reset'} mark
   * @returns {Promise<{results: {status: string, record?: any}[]}>}
   */
  mark(objects, mark) {
    return this.#ask('POST', '/v1/history/mark', { body: { objects, mark, only_recorded: true, unless_completed: objects.length > 1 && mark === 'watched' }, keepalive: true });
  }

  /** Reads all of the history, as a backup. @returns {Promise<Blob>} */
  async export() {
    return (await this.#fetch('GET', '/v1/export', {})).blob().catch(lost);
  }

  /**
   * Reads of some records all that a backup has.
   * @param {any[]} records @returns {Promise<string>} lines, '' where that could not be read
   */
  lines(records) {
    return this.#lines(records).catch(() => '');
  }

  /** @param {any[]} records */
  async #lines(records) {
    const times = records.map((record) => record.event_time).sort();
    const wanted = new Set(records.map(key));
    let lines = /** @type {string[]} */ ([]);
    for (const until of [times.at(-1), '']) { // some may have been played since
      const answer = await this.#fetch('GET', '/v1/export', { query: { since: times[0], until } });
      const text = await answer.text().catch(lost);
      lines = text.split('\n').filter((line) => line && wanted.has(key(parsed(line))));
      if (lines.length >= wanted.size) break;
    }
    return lines.join('\n');
  }

  /** Reads which records are still there, as they were. @param {any[]} records @returns {Promise<any[]>} */
  async left(records) {
    const lines = (await this.#lines(records)).split('\n').filter(Boolean);
    const now = new Map(lines.map((line) => JSON.parse(line)).map((record) => [key(record), record.event_time]));
    return records.filter((record) => now.get(key(record)) === record.event_time);
  }

  /**
   * Takes a backup in.
   * @param {Blob} file @param {boolean} restore whether what was removed since comes back
   * @returns {Promise<{rows: number, statuses: Record<string, number>, refused: any[]}>}
   */
  import(file, restore) {
    return this.#ask('POST', '/v1/import', { query: { restore: restore ? 'true' : '' }, body: file });
  }

  /** @param {string} method @param {string} path @param {{query?: any, body?: any, match?: string, keepalive?: boolean, wanted?: () => boolean}} [more] */
  async #ask(method, path, more = {}) {
    return (await this.#fetch(method, path, more)).json().catch(lost);
  }

  /**
   * A request that is one too many was not done, and is sent again when the edge says so.
   * @param {string} method @param {string} path @param {{query?: any, body?: any, match?: string, keepalive?: boolean, wanted?: () => boolean}} more
   */
  async #fetch(method, path, { query = {}, body, match, keepalive, wanted = () => true }) {
    const address = below(this.#url, path);
    for (const [name, value] of Object.entries(query)) if (value) address.searchParams.set(name, value);
    const headers = new Headers({ Authorization: `Bearer ${this.#token}` });
    if (match) headers.set('If-Match', `"${match}"`);
    const lines = body instanceof Blob;
    if (body) headers.set('Content-Type', lines ? 'application/x-ndjson' : 'application/json');
    for (let tries = 0; ; tries++) {
      const answer = await fetch(address, { method, headers, keepalive, body: lines ? body : body && JSON.stringify(body) }).catch(lost);
      if (answer.ok) return answer;
      const seconds = Number(answer.headers.get('Retry-After'));
      if (answer.status !== 429 || !(seconds > 0) || tries === patience) throw await problem(answer);
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      if (!wanted()) throw await problem(answer);
    }
  }
}

/** Waits until nothing is under way any more, and fails then if anything has. @template T @param {Promise<T>[]} parts @returns {Promise<T[]>} */
async function whole(parts) {
  await Promise.allSettled(parts);
  return Promise.all(parts);
}

/** @param {string} line of an answer, which may have been cut off @returns {any} */
function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return lost();
  }
}

/** @returns {never} */
function lost() {
  throw new Problem(0, t('no connection'));
}

/** The meaning of a status, in words for people. */
const meanings = /** @type {Record<number, string>} */ ({
  400: t('what was sent was not understood'),
  408: t('it took too long to arrive'),
  412: t('the record is another one, or gone'),
  413: t('it is too large'),
  415: t('what was sent was not understood'),
  421: t('this server has other names'),
  422: t('what was sent was not understood'),
  429: t('too many requests'),
  500: t('internal error'),
  503: t('the history is unavailable at the moment'),
  504: t('no answer in time; what was sent may or may not be stored'),
});

/** @param {Response} answer */
async function problem(answer) {
  const { detail } = await answer.json().catch(() => ({}));
  const meaning = meanings[answer.status] ?? t('status {status}', { status: answer.status });
  return new Problem(answer.status, said(detail, meaning));
}

/**
 * The edge's own words in a page in English, and their meaning in a page in another language.
 * @param {string | undefined} english @param {string} meaning
 */
export function said(english, meaning) {
  return english && locale.startsWith('en') ? english : meaning;
}
