// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { below } from './browser.js';
import { locale, t } from './language.js';
import { key } from './outbox.js';

const most = 1000; // objects per request
const parting = 60_000; // bytes that a browser sends for an unloading page
const patience = 10; // retries after "too many requests"

/** A failed request (application/problem+json). */
export class Problem extends Error {
  /** @param {number} status 0 when there was no answer @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
    this.dates = false; // the order of a file's dates is asked for
  }
}

/** URL of the edge that served the page, with its path prefix. */
export const home = () => new URL('.', location.href).href;

/** The edge's HTTP API, as one user. */
export class Api {
  #token;
  #url;

  /** @param {string} token @param {string} [url] of the edge; the page's own by default */
  constructor(token, url = home()) {
    this.#token = token;
    this.#url = url;
  }

  /**
   * @param {string} path @param {Record<string, string | number | undefined>} [query] empty values are left out
   * @param {() => boolean} [wanted] false ends the retries
   */
  get(path, query, wanted) {
    return this.#ask('GET', path, { query, wanted });
  }

  /** @param {string} path @param {any} body */
  put(path, body) {
    return this.#ask('PUT', path, { body });
  }

  /** Clears the history or one type; also while the page unloads. @param {number} type 0 for all */
  clear(type) {
    return this.#ask('DELETE', '/v1/history', { query: { type }, keepalive: true });
  }

  /**
   * Reads the record of an object, null if missing. The lookup covers only the newest records; older ones need their listed time.
   * @param {{id: string, type: number}} object @param {string | null} [at] event time of the listed record @returns {Promise<any>}
   */
  async point(object, at) {
    const [record] = await this.lookup([object]);
    if (record || !at) return record;
    const { items: listed } = await this.get('/v1/history', { type: object.type, since: at, until: at, limit: 100 });
    return listed.find((/** @type {any} */ one) => key(one) === key({ object })) ?? null;
  }

  /** Reads the records of at most 100 objects, null if missing. @param {{id: string, type: number}[]} objects @returns {Promise<any[]>} */
  async lookup(objects) {
    const { items } = await this.#ask('POST', '/v1/history/lookup', { body: { objects } });
    return items.map((/** @type {any} */ { record }) => record ?? null);
  }

  /**
   * Reads the sessions of an object, newest first.
   * @param {{id: string, type: number}} object
   * @returns {Promise<{begin?: string, end: string, from_ms?: number, to_ms?: number, device?: string, state?: string}[]>}
   */
  async viewings({ id, type }) {
    return (await this.get(`/v1/history/${type}/${encodeURIComponent(id)}/viewings`)).items;
  }

  /** Deletes records; also while the page unloads, as far as the browser allows. @param {any[]} records */
  remove(records) {
    return this.#each('/v1/history/delete', records, (objects) => ({ objects }));
  }

  /** Dismisses records from "continue watching"; also while the page unloads. @param {any[]} records */
  dismiss(records) {
    return this.#each('/v1/continue/dismiss', records, (objects) => ({ objects, dismissed: true }));
  }

  /**
   * Marks records; also while the page unloads. Deleted ones stay deleted. Marking several as "watched" skips completed ones.
   * @param {any[]} records @param {'watched' | 'unwatched' | 'reset'} mark
   * @returns {Promise<{status: string, record?: any}[]>} one result for each record
   */
  async mark(records, mark) {
    const unless = records.length > 1 && mark === 'watched';
    const answers = await this.#each('/v1/history/mark', records, (objects) => ({ objects, mark, only_recorded: true, unless_completed: unless }));
    return answers.flatMap(({ results }) => results);
  }

  /** Sends one request per 1,000 records and waits for all responses. @param {string} path @param {any[]} records @param {(objects: any[]) => any} bodyOf */
  async #each(path, records, bodyOf) {
    const parts = [];
    for (let i = 0, bytes = 0; i < records.length; i += most) {
      const body = bodyOf(records.slice(i, i + most).map(({ object }) => object));
      bytes += JSON.stringify(body).length;
      parts.push(this.#ask('POST', path, { body, keepalive: bytes <= parting }));
    }
    await Promise.allSettled(parts);
    return Promise.all(parts);
  }

  /** Reads the whole history as a backup. @returns {Promise<Blob>} */
  async export() {
    return (await this.#fetch('GET', '/v1/export', {})).blob().catch(lost);
  }

  /**
   * Restores a backup.
   * @param {Blob} file @param {boolean} restore also restore deleted records
   * @returns {Promise<{rows: number, statuses: Record<string, number>, refused: any[]}>}
   */
  import(file, restore) {
    return this.#ask('POST', '/v1/import', { query: { restore: restore ? 'true' : '' }, body: file });
  }

  /**
   * Imports a file of another program, with the progress of its upload. A dates problem asks for the order of its dates.
   * @param {Blob} file @param {Record<string, string>} query @param {{signal: AbortSignal, progress: (part: number) => void}} on
   * @returns {Promise<any>}
   */
  async importFile(file, query, { signal, progress }) {
    const address = below(this.#url, '/v1/import');
    for (const [name, value] of Object.entries(query)) if (value) address.searchParams.set(name, value);
    const request = new XMLHttpRequest(); // fetch does not tell of an upload's progress
    const ended = new Promise((resolve) => { request.onloadend = resolve; });
    request.upload.onprogress = ({ loaded, total }) => progress(total ? loaded / total : 0);
    request.open('POST', address);
    request.setRequestHeader('Authorization', `Bearer ${this.#token}`);
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    signal.onabort = () => request.abort();
    request.send(file);
    await ended;
    if (request.status === 200) return JSON.parse(request.responseText);
    if (request.status === 0) lost();
    const failed = await problem(new Response(request.responseText, { status: request.status }));
    failed.dates = request.responseText.includes('query.dates');
    throw failed;
  }

  /** @param {string} method @param {string} path @param {{query?: any, body?: any, keepalive?: boolean, wanted?: () => boolean}} [more] */
  async #ask(method, path, more = {}) {
    return (await this.#fetch(method, path, more)).json().catch(lost);
  }

  /**
   * Retries after 429, when Retry-After allows.
   * @param {string} method @param {string} path @param {{query?: any, body?: any, keepalive?: boolean, wanted?: () => boolean}} more
   */
  async #fetch(method, path, { query = {}, body, keepalive, wanted = () => true }) {
    const address = below(this.#url, path);
    for (const [name, value] of Object.entries(query)) if (value) address.searchParams.set(name, value);
    const headers = new Headers({ Authorization: `Bearer ${this.#token}` });
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

/** @returns {never} */
function lost() {
  throw new Problem(0, t('no connection'));
}

/** Statuses in words. */
const meanings = /** @type {Record<number, string>} */ ({
  400: t('what was sent was not understood'),
  408: t('it took too long to arrive'),
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

/** The edge's text on an English page, else its translation. @param {string | undefined} english @param {string} meaning */
export function said(english, meaning) {
  return english && locale.startsWith('en') ? english : meaning;
}
