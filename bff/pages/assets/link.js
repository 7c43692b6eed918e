// @ts-check

const fits = /^[\w.~+-]+$/; // into the name of a subprotocol

/**
 * One WebSocket, made again whenever it breaks: after as long as the edge asked for, or
 * after a random part of what doubles with every failure, so that those who lost the same
 * edge do not all come at once.
 *
 * @typedef {{url: string, push: boolean, token: () => string | Promise<string>, minWait: number, maxWait: number}} Config
 * @typedef {{opened(): void, heard(message: any): void, unauthorized(): void,
 *   closed(detail: {code: number, reason: string, wait: number}): void}} Listener
 */
export class Link {
  #config;
  #listener;
  /** @type {WebSocket | null} */
  #socket = null;
  #connecting = false;
  #timer = 0;
  #failures = 0;
  #refused = ''; // a token
  /** The one of the last connection. */
  token = '';

  /** @param {Config} config @param {Listener} listener */
  constructor(config, listener) {
    this.#config = config;
    this.#listener = listener;
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** @param {any} message */
  send(message) {
    this.#socket?.send(JSON.stringify(message));
  }

  /** Connects now, unless it is connected or about to be. */
  async connect() {
    if (this.#socket || this.#connecting) return;
    clearTimeout(this.#timer);
    this.#connecting = true;
    this.token = await Promise.resolve().then(() => this.#config.token()).catch(() => '');
    this.#connecting = false;
    if (!this.token) this.#retry({ code: 1006, reason: 'no token' });
    else if (this.token === this.#refused || !fits.test(this.token)) this.#listener.unauthorized();
    else this.#open(this.token);
  }

  /** Gives the connection up, and makes another one. @param {string} reason */
  drop(reason) {
    this.leave();
    this.#retry({ code: 1006, reason });
  }

  /** Ends the connection until the next connect(). */
  leave() {
    const socket = this.#socket;
    this.#socket = null; // the end of a dead one is not waited for
    clearTimeout(this.#timer);
    socket?.close(1000);
  }

  /** @param {string} token */
  #open(token) {
    const address = new URL(`/v1/stream${this.#config.push ? '?push=true' : ''}`, this.#config.url);
    address.protocol = address.protocol.replace('http', 'ws');
    const socket = new WebSocket(address, ['playhead.v1.json', `bearer.${token}`]);
    const mine = () => socket === this.#socket;
    let opened = 0;
    this.#socket = socket;
    socket.onopen = () => {
      opened = Date.now();
      if (mine()) this.#listener.opened();
    };
    socket.onmessage = (e) => {
      this.#failures = 0;
      if (mine()) this.#listener.heard(JSON.parse(e.data));
    };
    socket.onclose = (e) => {
      if (mine()) this.#closed(e, opened, token);
    };
  }

  /** @param {CloseEvent} e @param {number} opened @param {string} token */
  async #closed(e, opened, token) {
    this.#socket = null;
    if (opened && Date.now() - opened > 10_000) this.#failures = 0;
    let wait = hint(e.reason);
    if (e.code === 4401) this.#refused = token;
    else if (!opened) wait = await this.#whyNot(token);
    this.#retry(e, wait);
  }

  /**
   * Asks over HTTP why there is no connection, which a WebSocket keeps to itself, and
   * returns when to come back, if that is said.
   * @param {string} token
   */
  async #whyNot(token) {
    try {
      const answer = await fetch(new URL('/v1/history?limit=1', this.#config.url), { headers: { Authorization: `Bearer ${token}` } });
      if (answer.status === 401) this.#refused = token;
      const seconds = Number(answer.headers.get('Retry-After'));
      return seconds > 0 ? seconds * 1000 + Math.random() * this.#config.minWait : undefined;
    } catch {
      return undefined; // nobody there
    }
  }

  /** @param {{code: number, reason: string}} why @param {number} [asked] milliseconds */
  #retry({ code, reason }, asked) {
    if (this.#socket || this.#connecting) return;
    const { minWait, maxWait } = this.#config;
    const backoff = Math.random() * Math.min(minWait * 2 ** Math.min(this.#failures++, 16), maxWait);
    const wait = Math.min(asked ?? backoff, maxWait);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.connect(), wait);
    this.#listener.closed({ code, reason, wait });
  }
}

/** When to come back, at the end of a reason. @param {string} reason */
function hint(reason) {
  const found = /; retry_after_ms=(\d+)$/.exec(reason);
  return found ? Number(found[1]) : undefined;
}
