// @ts-check

/** An answer other than the one hoped for (application/problem+json). */
export class Problem extends Error {
  /** @param {number} status 0 when there was no answer @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The edge's HTTP API, as one user. */
export class Api {
  #token;
  #url;

  /** @param {string} token @param {string} [url] the edge's, by default the page's own */
  constructor(token, url = location.origin) {
    this.#token = token;
    this.#url = url;
  }

  /**
   * @param {string} path @param {Record<string, string | number | undefined>} [query]
   * those that are undefined or empty are left out
   */
  get(path, query) {
    return this.#ask('GET', path, { query });
  }

  /** @param {string} path @param {any} body */
  put(path, body) {
    return this.#ask('PUT', path, { body });
  }

  /** @param {string} path @param {Record<string, string | number | undefined>} [query] */
  delete(path, query) {
    return this.#ask('DELETE', path, { query });
  }

  /**
   * Reads the record of an object, null where there is none.
   * @param {{id: string, type: number}} object @returns {Promise<any>}
   */
  async point(object) {
    const { items } = await this.#ask('POST', '/v1/history/lookup', { body: { objects: [object] } });
    return items[0];
  }

  /**
   * Removes some objects; also while the page goes away.
   * @param {{id: string, type: number}[]} objects
   */
  remove(objects) {
    return this.#ask('POST', '/v1/history/delete', { body: { objects }, keepalive: true });
  }

  /** @param {string} method @param {string} path @param {{query?: any, body?: any, keepalive?: boolean}} [more] */
  async #ask(method, path, { query = {}, body, keepalive } = {}) {
    const address = new URL(path, this.#url);
    for (const [name, value] of Object.entries(query)) if (value) address.searchParams.set(name, value);
    const headers = new Headers({ Authorization: `Bearer ${this.#token}` });
    if (body) headers.set('Content-Type', 'application/json');
    const answer = await fetch(address, { method, headers, keepalive, body: body && JSON.stringify(body) }).catch((e) => {
      throw new Problem(0, `no connection (${e.message})`);
    });
    if (!answer.ok) throw await problem(answer);
    return answer.json();
  }
}

/** @param {Response} answer */
async function problem(answer) {
  const { detail } = await answer.json().catch(() => ({}));
  return new Problem(answer.status, detail ?? `status ${answer.status}`);
}
