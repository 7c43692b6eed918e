// @ts-check

const fits = /^[\w.~+-]+$/; // into the name of a subprotocol
const longest = 3_600_000; // milliseconds to stay away because the edge said so
const refusedWait = 5_000; // milliseconds until a refused token is tried again
const blocks = 2; // handshakes that fail beside a working HTTP, before reports go that way

/**
 * A connection to the edge: one WebSocket, made again whenever it breaks, after as long as the
 * edge asked for, or after a random part of what doubles with every failure, so that those who
 * lost the same edge do not all come at once. Where something keeps WebSockets out, messages
 * go by POST until one opens.
 *
 * @typedef {{url: string, push: boolean, token: () => string | Promise<string>, patience: number, minWait: number, maxWait: number}} Config
 * @typedef {{opened(): void, heard(message: any): void, unauthorized(): void,
 *   closed(detail: {code: number, reason: string, wait: number}): void}} Listener
 */
export class Link {
  #config;
  #listener;
  #page;
  /** @type {WebSocket | null} */
  #socket = null;
  #attempt = {}; // the newest; an older one has no say any more
  #life = {}; // ends with leave()
  #connecting = false;
  #posting = false;
  #stop = () => {}; // calls off what waits
  #failures = 0;
  #blocked = 0; // handshakes in a row
  #asked = false; // by the edge, to wait
  #refused = ''; // a token
  /** The one of the last connection. */
  token = '';
  /** When the edge said something, by the page's clock that only goes forward. */
  heardAt = 0;

  /** @param {Config} config @param {Listener} listener @param {typeof import('./browser.js').browser} page */
  constructor(config, listener, page) {
    this.#config = config;
    this.#listener = listener;
    this.#page = page;
  }

  get open() {
    return this.live || this.#posting;
  }

  /** Whether there is a WebSocket. */
  get live() {
    return this.#socket?.readyState === 1;
  }

  /** @param {any} message */
  send(message) {
    if (this.live) this.#socket?.send(JSON.stringify(message));
    else this.#post(message);
  }

  /** Connects now, unless it is connected or about to be. Any token is good again. */
  connect() {
    this.#refused = '';
    return this.#connect();
  }

  /** Connects now, unless the edge asked for some time. */
  hurry() {
    if (!this.#asked) this.#connect();
  }

  /** Gives the connection up, and makes another one. @param {string} reason */
  drop(reason) {
    this.leave();
    this.#retry({ code: 1006, reason });
  }

  /** Ends the connection, and all attempts at one, until the next connect(). */
  leave() {
    const socket = this.#socket;
    this.#attempt = {};
    this.#life = {};
    this.#socket = null; // the end of a dead one is not waited for
    this.#connecting = this.#posting = false;
    this.#stop();
    socket?.close(1000);
  }

  async #connect() {
    if (this.#socket || this.#connecting) return;
    this.#stop();
    this.#asked = false;
    const mine = (this.#attempt = {});
    this.#connecting = true;
    const token = await this.#newToken();
    if (mine !== this.#attempt) return;
    this.#connecting = false;
    this.token = token;
    if (!token) this.#retry({ code: 1006, reason: 'no token' });
    else if (!fits.test(token)) this.#refuse(token);
    else this.#dial(token);
  }

  /** @returns {Promise<string>} */
  #newToken() {
    return new Promise((resolve) => {
      const stop = this.#page.after(this.#config.patience, () => resolve(''));
      Promise.resolve().then(() => this.#config.token()).catch(() => '').then(resolve).then(stop);
    });
  }

  /** @param {string} token */
  #dial(token) {
    const address = new URL(`/v1/stream${this.#config.push ? '?push=true' : ''}`, this.#config.url);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = this.#page.socket(address, ['playhead.v1.json', `bearer.${token}`]);
    const mine = () => socket === this.#socket;
    let opened = 0;
    this.#socket = socket;
    socket.onopen = () => {
      if (!mine()) return socket.close(1000);
      opened = this.#page.elapsed();
      this.#stop();
      this.#blocked = 0;
      this.#posting = false;
      this.heardAt = opened;
      this.#listener.opened();
    };
    socket.onmessage = (e) => mine() && this.#hear(e.data);
    socket.onclose = (e) => mine() && this.#ended(e, opened, token);
    this.#stop = this.#page.after(this.#config.patience, () => {
      this.#ended({ code: 1006, reason: 'no connection in time' }, 0, token);
      socket.close();
    });
  }

  /** @param {string} text */
  #hear(text) {
    this.heardAt = this.#page.elapsed();
    let message;
    try {
      message = Object(JSON.parse(text));
    } catch {
      return this.drop('no JSON');
    }
    this.#failures = 0;
    this.#listener.heard(message);
  }

  /** @param {{code: number, reason: string}} e @param {number} opened @param {string} token */
  #ended(e, opened, token) {
    this.#stop();
    this.#socket = null;
    if (opened && this.#page.elapsed() - opened > 10_000) this.#failures = 0;
    if (e.code === 4401) this.#refuse(token);
    else if (opened) this.#retry(e, hint(e.reason));
    else this.#whyNot(e, token);
  }

  /** Asks over HTTP why there is no connection, which a WebSocket keeps to itself. @param {{code: number, reason: string}} e @param {string} token */
  async #whyNot(e, token) {
    const mine = this.#attempt;
    const answer = await this.#ask('/v1/history?limit=1', token);
    if (mine !== this.#attempt || this.#socket || this.#connecting) return;
    if (answer?.status === 401) return this.#refuse(token);
    this.#blocked = answer?.ok ? this.#blocked + 1 : 0;
    this.#retry(e, wait(answer));
    if (this.#blocked < blocks || this.#posting) return;
    this.#posting = true;
    this.#listener.opened();
  }

  /** @param {string} path @param {string} token @param {any} [body] @returns {Promise<Response | null>} null without an answer */
  async #ask(path, token, body) {
    const abort = new AbortController();
    const stop = this.#page.after(this.#config.patience, () => abort.abort());
    const headers = { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': 'application/json' }) };
    try {
      return await this.#page.fetch(new URL(path, this.#config.url), {
        method: body ? 'POST' : 'GET', headers, signal: abort.signal, body: body && JSON.stringify(body),
      });
    } catch {
      return null;
    } finally {
      stop();
    }
  }

  /** Sends a message without a WebSocket. @param {any} message */
  async #post({ seq, records, ...body }) {
    const mine = this.#life;
    const answer = await this.#ask('/v1/heartbeats', this.token, body);
    const said = await answer?.json().catch(() => null);
    if (mine !== this.#life) return;
    if (!answer || !said) return this.drop('no answer');
    if (answer.status === 401) {
      this.leave();
      return this.#refuse(this.token);
    }
    this.heardAt = this.#page.elapsed();
    this.#failures = 0;
    this.#listener.heard(answer.ok ? { seq, ...said } : { seq, error: failure(answer, said.detail) });
  }

  /** The token is not valid, or not yet. @param {string} token */
  #refuse(token) {
    const known = token === this.#refused;
    this.#refused = token;
    if (!known) this.#listener.unauthorized(); // who may connect with a better one
    this.#retry({ code: 4401, reason: 'the token was refused' }, undefined, refusedWait);
  }

  /** @param {{code: number, reason: string}} why @param {number} [asked] milliseconds @param {number} [least] milliseconds */
  #retry({ code, reason }, asked, least = this.#posting ? this.#config.maxWait : 0) {
    if (this.#socket || this.#connecting) return;
    const { minWait, maxWait } = this.#config;
    const random = this.#page.random();
    const backoff = random * Math.min(minWait * 2 ** Math.min(this.#failures++, 16), maxWait);
    const wait = asked === undefined ? least + backoff : Math.min(asked, longest) + random * minWait;
    this.#asked = asked !== undefined;
    this.#stop();
    this.#stop = this.#page.after(wait, () => this.#connect());
    if (!this.#posting) this.#listener.closed({ code, reason, wait });
  }
}

/** When to come back, at the end of a reason. @param {string} reason */
function hint(reason) {
  const found = /; retry_after_ms=(\d+)$/.exec(reason);
  return found ? Number(found[1]) : undefined;
}

/** When to come back, as an answer says. @param {Response | null} answer */
function wait(answer) {
  const seconds = Number(answer?.headers.get('Retry-After'));
  return seconds > 0 ? seconds * 1000 : undefined;
}

/** What a WebSocket would say of it. @param {Response} answer @param {string} detail */
function failure(answer, detail) {
  const code = { 400: 'invalid', 413: 'too_large', 415: 'invalid', 422: 'invalid' }[answer.status] ?? 'unavailable';
  return { code, detail, retry_after_ms: wait(answer) };
}
