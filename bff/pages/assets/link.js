// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { below } from './browser.js';
import { backoff, longest } from './outbox.js';

const fits = /^[\w.~+-]+$/; // a subprotocol's name
const refusedWait = 5_000; // milliseconds until a refused token is retried
export const soon = 1_500; // milliseconds between attempts to reach an edge that is away, at most
const blocks = 2; // consecutive dead connections before the fallback to POST

/**
 * A connection to the edge: one WebSocket that reconnects with backoff, or at the edge's Retry-After. If WebSockets are blocked,
 * messages are sent by POST.
 *
 * @typedef {{url: string, push: boolean, token: () => string | Promise<string>, timeoutMs: number, minWaitMs: number, maxWaitMs: number}} Config
 * @typedef {{opened(): void, heard(message: any): void, unauthorized(): void,
 *   closed(detail: {code: number, reason: string, wait_ms: number}): void}} Listener
 */
export class Link {
  #config;
  #listener;
  #page;
  /** @type {WebSocket | null} */
  #socket = null;
  #answers = false; // the edge has answered on it
  #mute = false; // waiting for an answer
  /** Seen closing. @type {WebSocket | null} */
  #closing = null;
  #attempt = {}; // identifies the newest attempt
  #wanted = false; // from connect() to leave()
  #connecting = false;
  #posting = false;
  /** @type {AbortController | null} */
  #posted = null; // of the POST in flight
  #stop = () => {}; // cancels the timer
  #failures = 0;
  #blocked = 0; // consecutive dead connections
  #asked = 0; // end of the edge's Retry-After
  #refused = ''; // a token
  /** Token of the last connection. */
  token = '';
  /** Time of the edge's last message, steady clock. */
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

  /** Whether a connection is wanted. */
  get wanted() {
    return this.#wanted;
  }

  /** Whether the WebSocket is open. */
  get live() {
    return this.#socket?.readyState === 1;
  }

  /** @param {any} message */
  send(message) {
    if (!this.live) return this.#post(message);
    this.#mute = !this.#answers;
    this.#socket?.send(JSON.stringify(message));
  }

  /** Connects like hurry(), and retries a refused token. */
  connect() {
    this.#wanted = true;
    this.#refused = '';
    this.hurry();
  }

  /** Connects now, or after the edge's Retry-After. */
  hurry() {
    if (!this.#wanted || this.#socket || this.#connecting) return;
    const wait = this.#asked - this.#page.elapsed();
    if (wait > 0) this.#later(wait);
    else this.#connect();
  }

  /** Connects at once, unless connected: ignores waits, and replaces an attempt that takes long. */
  reconnect() {
    this.#asked = 0;
    if (this.live) return;
    this.#end();
    this.connect();
  }

  /** Replaces the connection. @param {string} reason */
  drop(reason) {
    if (!this.#wanted) return;
    this.#end();
    this.#lost({ code: 1006, reason });
  }

  /** Aborts a message without an answer in time. */
  late() {
    if (this.#posted) this.#posted.abort();
    else this.drop('no answer in time');
  }

  /** Detects a connection that is closing, which fires no event and may never end. */
  look() {
    const socket = this.#socket;
    if (!socket || socket.readyState < 2 || socket === this.#closing) return;
    this.#closing = socket;
    this.#stop();
    this.#stop = this.#page.after(this.#config.timeoutMs, () => this.drop('not closed in time'));
  }

  /** Ends the connection and all attempts until connect(). */
  leave() {
    this.#wanted = false;
    this.#end();
  }

  #end() {
    const socket = this.#socket;
    this.#attempt = {};
    this.#socket = null; // does not wait for its close event
    this.#connecting = this.#posting = false;
    this.#forget();
    this.#stop();
    socket?.close(1000);
  }

  /** Connects after a delay. @param {number} ms */
  #later(ms) {
    this.#stop();
    this.#stop = this.#page.after(ms, () => this.#connect());
  }

  async #connect() {
    this.#stop();
    const mine = (this.#attempt = {});
    this.#connecting = true;
    const token = await this.newToken();
    if (mine !== this.#attempt) return;
    this.#connecting = false;
    if (token) this.token = token;
    if (!token) this.#retry({ code: 1006, reason: 'no token' });
    else if (!fits.test(token)) this.#refuse(token);
    else this.#dial(token);
  }

  /** @returns {Promise<string>} '' for none in time */
  newToken() {
    return new Promise((resolve) => {
      const stop = this.#page.after(this.#config.timeoutMs, () => resolve(''));
      Promise.resolve().then(() => this.#config.token()).catch(() => '').then(resolve).then(stop);
    });
  }

  /** @param {string} token */
  #dial(token) {
    const address = below(this.#config.url, `/v1/stream${this.#config.push ? '?push=true' : ''}`);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = this.#make(address, token);
    if (!socket) return this.#whyNot({ code: 1006, reason: 'the page must not connect' }, token);
    const mine = () => socket === this.#socket;
    let opened = 0;
    this.#socket = socket;
    this.#answers = this.#mute = false;
    socket.onopen = () => {
      opened = this.#page.elapsed();
      this.#stop();
      this.#posting = false;
      this.heardAt = opened;
      this.#listener.opened();
    };
    socket.onmessage = (e) => mine() && this.#hear(e.data); // an old one may still deliver
    socket.onclose = (e) => mine() && this.#ended(e, opened, token);
    this.#stop = this.#page.after(this.#config.timeoutMs, () => {
      this.#ended({ code: 1006, reason: 'no connection in time' }, 0, token);
      socket.close();
    });
  }

  /** @param {URL} address @param {string} token */
  #make(address, token) {
    try {
      return this.#page.socket(address, ['playhead.v1.json', `bearer.${token}`]);
    } catch {
      return null;
    }
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
    if (!message.push || message.push.items || message.push.removed) this.#failures = 0; // not the initial resync
    if (message.seq) {
      this.#answers = true;
      this.#mute = false;
    }
    if (!this.#mute) this.#blocked = 0;
    this.#listener.heard(message);
  }

  /** @param {{code: number, reason: string}} e @param {number} opened @param {string} token */
  #ended(e, opened, token) {
    this.#stop();
    this.#socket = null;
    if (opened) this.#forget();
    const lasted = opened && this.#page.elapsed() - opened > 10_000;
    if (lasted) this.#failures = 0;
    if (e.code === 4401 && !lasted) this.#refuse(token); // else the token was good and has expired
    else if (opened) this.#lost(e, hint(e.reason));
    else this.#whyNot(e, token);
  }

  /** Handles the end of an open connection. @param {{code: number, reason: string}} e @param {number} [asked] milliseconds */
  #lost(e, asked) {
    const said = [1007, 1009, 4401].includes(e.code); // the edge's own codes
    if (this.#mute && !said && asked === undefined) this.#blocked++;
    this.#mute = false;
    this.#retry(e, asked, this.#blocked < blocks ? 0 : this.#config.maxWaitMs);
    this.#fallBack();
  }

  /** Asks over HTTP why connecting failed: a WebSocket hides the reason. @param {{code: number, reason: string}} e @param {string} token */
  async #whyNot(e, token) {
    const mine = this.#attempt;
    const abort = new AbortController();
    const stop = this.#page.after(this.#config.timeoutMs, () => abort.abort());
    const answer = await this.#ask(token, { heartbeats: [] }, abort.signal);
    stop();
    if (mine !== this.#attempt || this.#socket || this.#connecting) return;
    if (answer?.status === 401) return this.#refuse(token);
    this.#blocked = answer?.ok ? this.#blocked + 1 : 0;
    this.#retry(e, wait(answer), undefined, !answer || answer.status >= 500);
    this.#fallBack();
  }

  /** Falls back to POST. */
  #fallBack() {
    if (this.#blocked < blocks || this.#posting || !this.#wanted) return;
    this.#posting = true;
    this.#listener.opened();
  }

  /** @param {string} token @param {any} message @param {AbortSignal} signal @returns {Promise<Response | null>} null for no answer */
  #ask(token, message, signal) {
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    const request = { method: 'POST', headers, body: JSON.stringify(message), signal };
    return this.#page.fetch(below(this.#config.url, '/v1/heartbeats'), request).catch(() => null);
  }

  /** Sends a message by POST; late() aborts it. @param {any} message */
  async #post({ seq, records, ...body }) {
    const mine = (this.#posted = new AbortController());
    const answer = await this.#ask(this.token, body, mine.signal);
    const said = await answer?.json().catch(() => null); // a proxy's page
    if (mine !== this.#posted) return;
    this.#posted = null;
    if (answer) this.#failures = 0;
    if (answer?.status === 401) {
      this.#end();
      return this.#refuse(this.token);
    }
    this.#listener.heard(answer?.ok && said?.results ? { ...said, seq } : { seq, error: failure(answer, said?.detail) });
  }

  /** Aborts the POST in flight. */
  #forget() {
    this.#posted?.abort();
    this.#posted = null;
  }

  /** Handles a token refused by the edge. @param {string} token */
  #refuse(token) {
    const known = token === this.#refused;
    this.#refused = token;
    this.#retry({ code: 4401, reason: 'the token was refused' }, undefined, refusedWait);
    if (!known) this.#listener.unauthorized(); // the page may leave or connect with another token
  }

  /** @param {{code: number, reason: string}} why @param {number} [asked] milliseconds @param {number} [least] milliseconds @param {boolean} [away] the edge did not answer */
  #retry({ code, reason }, asked, least = this.#posting ? this.#config.maxWaitMs : 0, away = false) {
    if (this.#socket || this.#connecting) return;
    const now = this.#page.elapsed();
    const random = this.#page.random();
    const pause = away ? random * Math.min(soon, this.#config.maxWaitMs) : backoff(this.#config, this.#failures++, random);
    if (asked !== undefined) this.#asked = now + Math.min(asked, longest) + random * this.#config.minWaitMs;
    const wait = Math.max(this.#asked - now, asked === undefined ? least + pause : 0);
    this.#later(wait);
    if (!this.#posting) this.#listener.closed({ code, reason, wait_ms: wait });
  }
}

/** Retry-after at the end of a close reason. @param {string} reason */
function hint(reason) {
  const found = /; retry_after_ms=(\d+)$/.exec(reason);
  return found ? Number(found[1]) : undefined;
}

/** Retry-After of an answer, milliseconds. @param {Response | null | undefined} answer */
function wait(answer) {
  const text = answer?.headers.get('Retry-After') ?? '';
  const ms = Number(text) * 1000 || Date.parse(text) - Date.parse(answer?.headers.get('Date') ?? ''); // both by the server's clock
  return ms > 0 ? ms : undefined;
}

/** Turns a failed POST into an error of the stream. @param {Response | null | undefined} answer @param {string} [detail] only the edge has one */
function failure(answer, detail = '') {
  const code = !answer ? 'unreachable' : (detail && { 400: 'invalid', 413: 'too_large', 422: 'invalid' }[answer?.status ?? 0]) || 'unavailable';
  return { code, detail, retry_after_ms: wait(answer) };
}
