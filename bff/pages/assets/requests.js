// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { below } from './browser.js';

/** @typedef {{id: string, type: number}} PlayheadObject */

const most = 1000; // objects of a request
const page = 100; // records of a page
const body = 1 << 20; // characters of an import's request
const marks = ['watched', 'unwatched', 'reset'];

/** @type {Record<number, string>} */
const codes = { 0: 'unreachable', 400: 'invalid', 401: 'unauthorized', 408: 'timeout', 413: 'too_large', 422: 'invalid', 429: 'rate_limited', 500: 'internal', 502: 'unavailable', 503: 'unavailable', 504: 'timeout' };

/** A failed request: the HTTP `status`, 0 without an answer, and a `code` that names the kind of failure. */
export class PlayheadError extends Error {
  /** @param {string} request @param {number} status @param {string} detail @param {string} [code] */
  constructor(request, status, detail, code = codes[status] ?? 'refused') {
    super(`${request}: ${status ? `${status} ` : ''}${detail}`);
    this.name = 'PlayheadError';
    this.status = status;
    this.code = code;
  }
}

/** One user's history by requests: each is sent once, and fails with a PlayheadError. Writes may have succeeded then. */
export class Requests extends EventTarget {
  #url;
  #token;
  #timeoutMs;
  #page;

  /** @param {{url: string, token: () => Promise<string>, timeoutMs: number, page: typeof import('./browser.js').browser}} config `token` resolves to '' for none in time */
  constructor({ url, token, timeoutMs, page }) {
    super();
    this.#url = url;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#page = page;
  }

  /** Where the user stopped in an object: its record, or null. @param {PlayheadObject} object @returns {Promise<any>} */
  async point(object) {
    if (dots(object)) return (await this.lookup([object]))[0];
    return (await this.#call('GET', pathOf(object), { missing: true })) ?? null;
  }

  /** The records of objects, null where there is none. @param {PlayheadObject[]} objects @returns {Promise<any[]>} */
  async lookup(objects) {
    return (await this.#each('POST /v1/history/lookup', objects, {}, page)).flatMap(({ items }) => items).map(({ record }) => record ?? null);
  }

  /**
   * All records, newest first, read page by page. What is played meanwhile comes last, if it has not come before.
   * @param {{type?: number, since?: Date | string, until?: Date | string}} [options] @returns {AsyncGenerator<any>}
   */
  list({ type, since, until } = {}) {
    return this.#walk('/v1/history', { ...whole({ type }), since: time(since), until: time(until) });
  }

  /** Records with all words of a text in id or metadata, newest first. @param {string} text @param {{type?: number}} [options] @returns {AsyncGenerator<any>} */
  search(text, { type } = {}) {
    if (typeof text !== 'string') throw new TypeError(`search ${text}: want a text`);
    return this.#walk('/v1/history/search', { q: text, ...whole({ type }) });
  }

  /** What is begun and unfinished, newest first, one record per series. @param {{limit?: number, type?: number}} [options] @returns {Promise<any[]>} */
  async continueWatching({ limit = 20, type } = {}) {
    return (await this.#call('GET', '/v1/continue', { query: whole({ limit, type }) })).items;
  }

  /**
   * The newest 128 sessions of an object, newest first.
   * @param {PlayheadObject} object
   * @returns {Promise<{begin?: string, end: string, from_ms?: number, to_ms?: number, state?: any, device?: string, watched_ms?: number, completed_at?: string}[]>}
   */
  async viewings(object) {
    if (dots(object)) return []; // dot segments of a URL
    return (await this.#call('GET', `${pathOf(object)}/viewings`, { missing: true }))?.items ?? [];
  }

  /**
   * Time watched, plays and viewings per day of a zone such as Europe/Berlin, per type or per object.
   * @param {{by?: 'day' | 'type' | 'object', since?: Date | string, until?: Date | string, zone?: string, limit?: number}} [options]
   * @returns {Promise<any>}
   */
  async stats({ by, since, until, zone, limit } = {}) {
    for (const text of [by, zone]) if (text !== undefined && typeof text !== 'string') throw new TypeError(`stats ${text}: want a text`);
    return this.#call('GET', '/v1/stats', { query: { by, since: time(since), until: time(until), zone, ...whole({ limit }) } });
  }

  /** Removes objects. Resolves to how many had a record. @param {PlayheadObject[]} objects @returns {Promise<number>} */
  async delete(objects) {
    return sum(await this.#each('POST /v1/history/delete', objects), 'deleted');
  }

  /** Removes everything up to a time, by default now, of one type or of all. @param {{until?: Date | string, type?: number}} [options] */
  async clear({ until, type } = {}) {
    await this.#call('DELETE', '/v1/history', { query: { until: time(until), ...whole({ type }) } });
  }

  /**
   * Marks objects, such as a season.
   * @param {(PlayheadObject & {meta?: Record<string, string>})[]} objects @param {'watched' | 'unwatched' | 'reset'} mark
   * @param {{event_time?: string, only_recorded?: boolean, unless_completed?: boolean}} [options]
   * @returns {Promise<{status: any, record?: any}[]>} one result for each object
   */
  async mark(objects, mark, options = {}) {
    if (!marks.includes(mark)) throw new TypeError(`mark ${mark}: want one of ${marks.join(', ')}`);
    return (await this.#each('POST /v1/history/mark', objects, { ...options, event_time: time(options.event_time), mark })).flatMap(({ results }) => results);
  }

  /** Takes objects out of continueWatching() until they are played again, or back. Resolves to how many had a record. @param {PlayheadObject[]} objects @param {boolean} [dismissed] @returns {Promise<number>} */
  async dismiss(objects, dismissed = true) {
    if (typeof dismissed !== 'boolean') throw new TypeError(`dismissed ${dismissed}: want true or false`);
    return sum(await this.#each('POST /v1/continue/dismiss', objects, { dismissed }), 'found');
  }

  /** Whether what is played is kept; an argument switches it. @param {boolean} [on] @returns {Promise<boolean>} */
  async recording(on) {
    if (on !== undefined && typeof on !== 'boolean') throw new TypeError(`recording ${on}: want true or false`);
    const settings = on === undefined ? this.#call('GET', '/v1/settings') : this.#call('PUT', '/v1/settings', { body: { recording: on } });
    return (await settings).recording;
  }

  /**
   * All changes and removals since a token, with the next token and the settings. On `resync`, as without a token: read
   * everything, then the changes since the returned token.
   * @param {string} [since] @returns {Promise<{items: any[], removed: {id: string, type: number}[], resync: boolean, token: string, settings: any}>}
   */
  async changes(since) {
    if (since && typeof since !== 'string') throw new TypeError(`since ${since}: want the token of the changes before`);
    /** @type {Map<string, {record?: any, removed?: any}>} */
    const latest = new Map();
    for (;;) {
      const { items, removed, has_more: more, ...rest } = await this.#call('GET', '/v1/changes', { query: { since: since || undefined } });
      for (const record of items) latest.set(pathOf(record.object), { record });
      for (const one of removed) latest.set(pathOf(one), { removed: one });
      if (rest.resync) return { items: [], removed: [], ...rest };
      const all = [...latest.values()];
      if (!more) return { items: all.flatMap(({ record }) => record ?? []), removed: all.flatMap(({ removed: one }) => one ?? []), ...rest };
      since = rest.token;
    }
  }

  /** All of the history, as lines of NDJSON. An export that fails halfway is no backup. @returns {AsyncGenerator<string>} */
  async* export() {
    const { answer, fail } = await this.#open('GET', '/v1/export', {});
    const decoder = new TextDecoder();
    let rest = '';
    try {
      for (const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader(); ;) {
        const { done, value } = await reader.read();
        const lines = (rest + decoder.decode(value, { stream: !done })).split('\n');
        rest = lines.pop() ?? '';
        yield* lines;
        if (done) break;
      }
    } catch (e) {
      throw fail(0, `the answer broke off: ${e}`);
    }
    if (rest) throw fail(0, 'the answer broke off');
  }

  /**
   * Folds exported lines in. They count once, however often that is done. `restore` brings removed records back.
   * @param {Iterable<string> | AsyncIterable<string>} lines @param {{restore?: boolean}} [options]
   * @returns {Promise<{rows: number, statuses: Record<string, number>, refused: any[]}>} `refused` has the first of the refused lines
   */
  async importLines(lines, { restore = false } = {}) {
    if (Object(lines) !== lines) throw new TypeError('importLines: want a list of lines'); // of a text one would take its letters
    const total = { rows: 0, statuses: /** @type {Record<string, number>} */ ({}), refused: /** @type {any[]} */ ([]) };
    let [text, read, sent] = ['', 0, 0];
    const flush = async () => {
      if (!text) return;
      const { rows, statuses, refused } = await this.#call('POST', '/v1/import', { query: { restore: restore || undefined }, lines: text });
      total.rows += rows;
      for (const [status, n] of Object.entries(statuses)) total.statuses[status] = (total.statuses[status] ?? 0) + n;
      total.refused.push(...refused.map((/** @type {any} */ row) => ({ ...row, line: row.line + sent })));
      [text, sent] = ['', read];
    };
    for await (const line of lines) {
      if (text.length + line.length > body) await flush();
      text += `${line.replace(/\r?\n$/, '')}\n`;
      read++;
    }
    await flush();
    return total;
  }

  /** @param {string} path @param {Record<string, any>} query */
  #walk(path, query) {
    const read = (/** @type {string | undefined} */ cursor) => this.#call('GET', path, { query: { ...query, limit: page, cursor } });
    return (async function* () {
      const told = new Set();
      for (let cursor, more = true; more;) {
        const { items, cursor: next, has_more: rest } = await read(cursor);
        for (const record of items) {
          const name = pathOf(record.object);
          if (!told.has(name)) yield record;
          told.add(name);
        }
        [cursor, more] = [next, rest];
      }
    })();
  }

  /** Sends one request per part of the objects. @param {string} what @param {PlayheadObject[]} objects @param {object} [more] @param {number} [limit] @returns {Promise<any[]>} */
  async #each(what, objects, more = {}, limit = most) {
    if (!Array.isArray(objects)) throw new TypeError(`${what}: want a list of objects`);
    objects.forEach(pathOf);
    const [method, path] = what.split(' ');
    const answers = [];
    for (let i = 0; i < objects.length; i += limit) answers.push(await this.#call(method, path, { body: { ...more, objects: objects.slice(i, i + limit) } }));
    return answers;
  }

  /** @param {string} method @param {string} path @param {{query?: Record<string, any>, body?: any, lines?: string, missing?: boolean}} [more] `missing`: 404 means undefined @returns {Promise<any>} */
  async #call(method, path, more = {}) {
    const { answer, fail, stop } = await this.#open(method, path, more);
    if (!answer.ok) return stop();
    return answer.json().catch(() => {
      throw fail(0, 'the answer broke off');
    }).finally(stop);
  }

  /** Opens an answer within the timeout; stop() ends that. @param {string} method @param {string} path @param {{query?: Record<string, any>, body?: any, lines?: string, missing?: boolean}} more */
  async #open(method, path, { query = {}, body: json, lines, missing }) {
    const fail = (/** @type {number} */ status, /** @type {string} */ detail, /** @type {string | undefined} */ code = undefined) => new PlayheadError(`${method} ${path}`, status, detail, code);
    const token = await this.#token();
    if (!token) throw fail(0, 'token() gave none in time', 'unauthorized');
    const url = below(this.#url, path);
    for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value));
    const abort = new AbortController();
    const stop = this.#page.after(this.#timeoutMs, () => abort.abort());
    const type = lines ? 'application/x-ndjson' : 'application/json';
    const headers = { Authorization: `Bearer ${token}`, ...(json || lines ? { 'Content-Type': type } : {}) };
    const answer = await this.#page.fetch(url, { method, body: lines ?? (json && JSON.stringify(json)), headers, signal: abort.signal }).catch((e) => {
      stop();
      throw abort.signal.aborted ? fail(0, `no answer in ${this.#timeoutMs} ms`, 'timeout') : fail(0, `no answer: ${e.message}`);
    });
    if (answer.ok && path === '/v1/export') stop(); // a long answer; the reader may be slow
    if (answer.ok || (missing && answer.status === 404)) return { answer, fail, stop };
    const { detail, title } = await answer.json().catch(() => ({}));
    stop();
    throw fail(answer.status, detail ?? title ?? 'no detail');
  }
}

/** The path of an object; it throws for another value. @param {PlayheadObject} object */
export function pathOf(object) {
  if (typeof object?.id !== 'string' || !Number.isInteger(object.type)) throw new TypeError(`object ${JSON.stringify(object)}: want {id: text, type: whole number}`);
  return `/v1/history/${object.type}/${encodeURIComponent(object.id)}`;
}

/** Whether the path of an object would have dot segments. @param {PlayheadObject} object */
function dots(object) {
  return pathOf(object) && /^\.\.?$/.test(object.id);
}

/** @param {Date | string | undefined} at */
function time(at) {
  if (at !== undefined && typeof at !== 'string' && !(at instanceof Date)) throw new TypeError(`time ${at}: want a Date, or a text such as 2026-11-20T18:00:15Z`);
  return at instanceof Date ? at.toISOString() : at;
}

/** Returns the parameters, which are whole numbers or missing. @param {Record<string, number | undefined>} query */
function whole(query) {
  for (const [name, value] of Object.entries(query)) if (value !== undefined && !Number.isInteger(value)) throw new TypeError(`${name} ${value}: want a whole number`);
  return query;
}

/** @param {any[]} answers @param {string} name */
function sum(answers, name) {
  return answers.reduce((all, answer) => all + answer[name], 0);
}
