// @ts-check
import { below } from './browser.js';
import { backoff, longest } from './outbox.js';

const fits = /^[\w.~+-]+$/; // into the name of a subprotocol
const refusedWait = 5_000; // milliseconds until a refused token is tried again
const blocks = 2; // connections in a row that carry nothing, before reports go by POST

/**
 * A connection to the edge: one WebSocket, made again whenever it breaks, after as long as the
 * edge asked for, or after a random part of what doubles with every failure, so that those who
 * lost the same edge do not all come at once. Where something keeps WebSockets out, or what
 * they carry, messages go by POST until one opens.
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
  #answers = false; // the edge does, on it
  #mute = false; // the edge was asked, and does not
  /** @type {WebSocket | null} */
  #closing = null; // one that was seen to be
  #attempt = {}; // the newest; an older one has no say any more
  #wanted = false; // from connect() to leave()
  #connecting = false;
  #posting = false;
  /** @type {AbortController | null} */
  #posted = null; // of the message that is on its way
  #stop = () => {}; // calls off what waits
  #failures = 0;
  #blocked = 0; // connections in a row that carried nothing
  #asked = 0; // until when the edge asked to stay away
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

  /** Whether there shall be one. */
  get wanted() {
    return this.#wanted;
  }

  /** Whether there is a WebSocket. */
  get live() {
    return this.#socket?.readyState === 1;
  }

  /** @param {any} message */
  send(message) {
    if (!this.live) return this.#post(message);
    this.#mute = !this.#answers;
    this.#socket?.send(JSON.stringify(message));
  }

  /** Connects as hurry() does. Any token is good again. */
  connect() {
    this.#wanted = true;
    this.#refused = '';
    this.hurry();
  }

  /** Connects now, or when the time is over that the edge asked for. */
  hurry() {
    if (!this.#wanted || this.#socket || this.#connecting) return;
    const wait = this.#asked - this.#page.elapsed();
    if (wait > 0) this.#later(wait);
    else this.#connect();
  }

  /** Gives the connection up, and makes another one. @param {string} reason */
  drop(reason) {
    if (!this.#wanted) return;
    this.#end();
    this.#lost({ code: 1006, reason });
  }

  /** Gives up what was not answered in time. */
  late() {
    if (this.#posted) this.#posted.abort();
    else this.drop('no answer in time');
  }

  /** Looks whether the connection is closing, of which no event tells: that may never end. */
  look() {
    const socket = this.#socket;
    if (!socket || socket.readyState < 2 || socket === this.#closing) return;
    this.#closing = socket;
    this.#stop();
    this.#stop = this.#page.after(this.#config.patience, () => this.drop('not closed in time'));
  }

  /** Ends the connection, and all attempts at one, until the next connect(). */
  leave() {
    this.#wanted = false;
    this.#end();
  }

  #end() {
    const socket = this.#socket;
    this.#attempt = {};
    this.#socket = null; // the end of a dead one is not waited for
    this.#connecting = this.#posting = false;
    this.#forget();
    this.#stop();
    socket?.close(1000);
  }

  /** Connects after so long. @param {number} ms */
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

  /** @returns {Promise<string>} '' where none comes in time */
  newToken() {
    return new Promise((resolve) => {
      const stop = this.#page.after(this.#config.patience, () => resolve(''));
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
    socket.onmessage = (e) => mine() && this.#hear(e.data); // one that was left may still have some
    socket.onclose = (e) => mine() && this.#ended(e, opened, token);
    this.#stop = this.#page.after(this.#config.patience, () => {
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
    if (!message.push || message.push.items || message.push.removed) this.#failures = 0; // each connection begins with a resync
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
    if (e.code === 4401 && !lasted) this.#refuse(token); // else it was good, and has ended
    else if (opened) this.#lost(e, hint(e.reason));
    else this.#whyNot(e, token);
  }

  /** A connection that was open is gone. @param {{code: number, reason: string}} e @param {number} [asked] milliseconds */
  #lost(e, asked) {
    const said = [1007, 1009, 4401].includes(e.code); // the edge said something
    if (this.#mute && !said && asked === undefined) this.#blocked++;
    this.#mute = false;
    this.#retry(e, asked, this.#blocked < blocks ? 0 : this.#config.maxWait);
    this.#fallBack();
  }

  /** Asks over HTTP why there is no connection, which a WebSocket keeps to itself. @param {{code: number, reason: string}} e @param {string} token */
  async #whyNot(e, token) {
    const mine = this.#attempt;
    const abort = new AbortController();
    const stop = this.#page.after(this.#config.patience, () => abort.abort());
    const answer = await this.#ask(token, { heartbeats: [] }, abort.signal);
    stop();
    if (mine !== this.#attempt || this.#socket || this.#connecting) return;
    if (answer?.status === 401) return this.#refuse(token);
    this.#blocked = answer?.ok ? this.#blocked + 1 : 0;
    this.#retry(e, wait(answer));
    this.#fallBack();
  }

  /** Goes on by POST, where WebSockets carry nothing. */
  #fallBack() {
    if (this.#blocked < blocks || this.#posting || !this.#wanted) return;
    this.#posting = true;
    this.#listener.opened();
  }

  /** @param {string} token @param {any} message @param {AbortSignal} signal @returns {Promise<Response | null>} null without an answer */
  #ask(token, message, signal) {
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    const request = { method: 'POST', headers, body: JSON.stringify(message), signal };
    return this.#page.fetch(below(this.#config.url, '/v1/heartbeats'), request).catch(() => null);
  }

  /** Sends a message without a WebSocket; late() ends it. @param {any} message */
  async #post({ seq, records, ...body }) {
    const mine = (this.#posted = new AbortController());
    const answer = await this.#ask(this.token, body, mine.signal);
    const said = await answer?.json().catch(() => null); // such as the page of a proxy
    if (mine !== this.#posted) return;
    this.#posted = null;
    if (answer) this.#failures = 0;
    if (answer?.status === 401) {
      this.#end();
      return this.#refuse(this.token);
    }
    this.#listener.heard(answer?.ok && said?.results ? { ...said, seq } : { seq, error: failure(answer, said?.detail) });
  }

  /** Gives up the POST that is on its way: its answer does not count any more. */
  #forget() {
    this.#posted?.abort();
    this.#posted = null;
  }

  /** The token is not valid, or not yet. @param {string} token */
  #refuse(token) {
    const known = token === this.#refused;
    this.#refused = token;
    this.#retry({ code: 4401, reason: 'the token was refused' }, undefined, refusedWait);
    if (!known) this.#listener.unauthorized(); // the page may leave, or connect with a better one
  }

  /** @param {{code: number, reason: string}} why @param {number} [asked] milliseconds @param {number} [least] milliseconds */
  #retry({ code, reason }, asked, least = this.#posting ? this.#config.maxWait : 0) {
    if (this.#socket || this.#connecting) return;
    const now = this.#page.elapsed();
    const random = this.#page.random();
    const pause = backoff(this.#config, this.#failures++, random);
    if (asked !== undefined) this.#asked = now + Math.min(asked, longest) + random * this.#config.minWait;
    const wait = Math.max(this.#asked - now, asked === undefined ? least + pause : 0);
    this.#later(wait);
    if (!this.#posting) this.#listener.closed({ code, reason, wait });
  }
}

/** When to come back, at the end of a reason. @param {string} reason */
function hint(reason) {
  const found = /; retry_after_ms=(\d+)$/.exec(reason);
  return found ? Number(found[1]) : undefined;
}

/** When to come back, as an answer says. @param {Response | null | undefined} answer */
function wait(answer) {
  const text = answer?.headers.get('Retry-After') ?? '';
  const ms = Number(text) * 1000 || Date.parse(text) - Date.parse(answer?.headers.get('Date') ?? ''); // a time is by the clock of whoever says it
  return ms > 0 ? ms : undefined;
}

/** Turns the answer to a POST into an error of the stream. @param {Response | null | undefined} answer @param {string} [detail] what the edge says, and a proxy does not */
function failure(answer, detail = '') {
  const code = (detail && { 400: 'invalid', 413: 'too_large', 422: 'invalid' }[answer?.status ?? 0]) || 'unavailable';
  return { code, detail, retry_after_ms: wait(answer) };
}
