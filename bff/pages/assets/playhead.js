// @ts-check
import { Link } from './link.js';
import { Outbox, key, viewing } from './outbox.js';

/** @typedef {import('./outbox.js').Heartbeat} Heartbeat */

const slept = 90_000; // milliseconds without a tick
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/**
 * A player's side of Playhead's stream. What is reported is kept until the edge has answered
 * it, over connections that break; what was not answered is sent again, which counts once.
 * One message is on its way at a time.
 *
 * Events, with their `detail`:
 * - `open`; `close` {code, reason, wait}: it tries again in so many milliseconds
 * - `answered` {heartbeat, result}: what became of a report, once
 * - `conflict` {heartbeat, record}: the first report after a sleep or a lost connection did
 *   not know this newer record; it was not stored. Ask the user where to go on.
 * - `push` {items, removed}: other devices have changed these
 * - `resync`: more may have changed, read again what you show
 * - `day` {date, first}: today in the user's zone, and whether nobody saw the user on it before
 * - `unauthorized`: the token was refused; call connect() when there is a better one
 */
export class Playhead extends EventTarget {
  #config;
  #outbox;
  #link;
  /** @type {{seq: number, beats: Heartbeat[], timer: number} | null} */
  #sent = null;
  #seq = 0;
  #connections = 0;
  #alone = 0; // heartbeats that go alone, because one of them spoils a message
  #rests = false;
  #known = new Map(); // etag by object
  #doubted = new Set(); // objects that may have changed unseen
  #tick = Date.now();
  #day = '';

  /**
   * @param {{token: () => string | Promise<string>, url?: string, push?: boolean, queue?: number,
   *   storage?: Storage, key?: string, patience?: number, minWait?: number, maxWait?: number}} config
   *   `url` is the edge's, by default the page's own; `push` asks for what other devices do;
   *   `storage` keeps the queue over a reload,
   *   under `key`, which names the user; times are milliseconds.
   */
  constructor(config) {
    super();
    this.#config = { url: location.origin, push: true, queue: 500, patience: 10_000, minWait: 500, maxWait: 30_000, ...config };
    this.#outbox = new Outbox(this.#config.queue, config.storage, config.key);
    this.#link = new Link(this.#config, {
      opened: () => this.#opened(),
      heard: (message) => this.#heard(message),
      closed: (detail) => this.#closed(detail),
      unauthorized: () => this.#emit('unauthorized'),
    });
    this.#follow();
  }

  /** How many reports are not answered yet. */
  get waiting() {
    return this.#outbox.length;
  }

  /**
   * Where the user is, as far as this device knows better than a record that was read: a
   * report may still be on its way, from before a reload of the page too.
   * @param {any} record or null, where there is none @param {{id: string, type: number}} object
   */
  newest(record, object) {
    const beat = this.#outbox.last(object);
    const newer = beat && !(Date.parse(beat.event_time) <= Date.parse(record?.event_time ?? ''));
    return newer ? { ...record, ...beat, state: beat.kind === 'finish' ? 'finished' : 'stopped' } : record;
  }

  connect() {
    return this.#link.connect();
  }

  /** Reports what the player does; it is sent as soon as it can be. @param {Heartbeat} beat */
  report(beat) {
    this.#look();
    const object = key(beat);
    const doubtful = this.#doubted.delete(object) && this.#known.has(object);
    this.#outbox.push(doubtful ? { ...beat, if_match: '' } : { ...beat }); // the etag is that of when it is sent
    this.#send();
  }

  /**
   * Takes note of the record that the player goes on from, to find out later whether it is
   * still the one. What is pushed is not: the player may be elsewhere.
   * @param {any} record
   */
  seen(record) {
    this.#known.set(key(record), record.etag);
  }

  /** Ends the connection, and sends what waits as far as a page that goes away still can. */
  leave() {
    const beats = this.#outbox.head(100);
    const headers = { Authorization: `Bearer ${this.#link.token}`, 'Content-Type': 'application/json' };
    this.#link.leave();
    this.#forget();
    if (beats.length === 0) return;
    const body = JSON.stringify(this.#message(beats));
    fetch(new URL('/v1/heartbeats', this.#config.url), { method: 'POST', keepalive: true, headers, body }).catch(() => {}); // they are kept
  }

  #follow() {
    setInterval(() => this.#look(), 15_000);
    document.addEventListener('visibilitychange', () => document.hidden || this.#look());
    addEventListener('offline', () => this.#link.drop('offline'));
    addEventListener('online', () => this.connect());
    addEventListener('pagehide', () => this.leave());
    addEventListener('pageshow', (e) => e.persisted && this.connect());
  }

  /** Looks whether the device slept. */
  #look() {
    const passed = Date.now() - this.#tick;
    this.#tick = Date.now();
    if (passed < slept) return;
    this.#missed();
    this.#send(true); // whether somebody answers
  }

  #missed() {
    for (const object of this.#known.keys()) this.#doubted.add(object);
    this.#resync();
  }

  #resync() {
    setTimeout(() => this.#emit('resync'), Math.random() * 1000); // not everybody at once
  }

  #opened() {
    this.#emit('open');
    if (this.#connections++ > 0) this.#missed();
    this.#send();
  }

  /** @param {any} detail */
  #closed(detail) {
    this.#forget();
    this.#emit('close', detail);
  }

  #forget() {
    clearTimeout(this.#sent?.timer);
    this.#sent = null;
  }

  /** Sends what waits, or even a message of nothing. @param {boolean} [even] */
  #send(even = false) {
    if (!this.#link.open || this.#sent || this.#rests) return;
    const beats = this.#outbox.head(this.#alone > 0 ? 1 : 100);
    if (beats.length === 0 && !even) return;
    this.#alone = Math.max(0, this.#alone - 1);
    const timer = setTimeout(() => this.#link.drop('no answer in time'), this.#config.patience);
    this.#sent = { seq: ++this.#seq, beats, timer };
    this.#link.send({ seq: this.#seq, records: true, ...this.#message(beats) });
  }

  /** @param {Heartbeat[]} beats */
  #message(beats) {
    const heartbeats = beats.map((b) => (b.if_match === undefined ? b : { ...b, if_match: this.#known.get(key(b)) }));
    return { sent_at: new Date().toISOString(), first_flag: this.#day || undefined, time_zone: zone, heartbeats };
  }

  /** @param {any} message */
  #heard({ seq, results, error, push, first_flag: date, first_of_day: first }) {
    if (push) return this.#pushed(push);
    if (seq !== this.#sent?.seq) return this.#link.drop('an answer to nothing');
    const beats = this.#sent?.beats ?? [];
    this.#forget();
    if (date && (first || date !== this.#day)) this.#emit('day', { date, first: Boolean(first) });
    this.#day = date ?? this.#day;
    if (error) this.#failed(error, beats);
    else this.#settle(beats, results);
    this.#send();
  }

  /** @param {{items?: any[], removed?: any[], resync?: boolean}} push */
  #pushed({ items = [], removed = [], resync }) {
    if (items.length + removed.length > 0) this.#emit('push', { items, removed });
    if (resync) this.#resync();
  }

  /** @param {{code: string, detail: string, retry_after_ms?: number}} error @param {Heartbeat[]} beats */
  #failed(error, beats) {
    if (error.retry_after_ms) return this.#rest(error.retry_after_ms);
    if (error.code !== 'invalid' && error.code !== 'too_large') return this.#link.drop(error.detail);
    if (beats.length > 1) this.#alone = beats.length;
    else this.#settle(beats, beats.map(() => ({ status: 'invalid', error })));
  }

  /** @param {number} ms */
  #rest(ms) {
    this.#rests = true;
    setTimeout(() => {
      this.#rests = false;
      this.#send();
    }, Math.min(ms, this.#config.maxWait) + Math.random() * this.#config.minWait);
  }

  /** @param {Heartbeat[]} beats @param {any[]} results */
  #settle(beats, results) {
    const done = new Map();
    const lost = new Set(); // viewings in conflict, of which nothing else is sent either
    beats.forEach((beat, i) => {
      const { status, record } = results[i];
      // What another device has left since is not what this one goes on from.
      if (record && (viewing(record) === viewing(beat) || Date.parse(record.event_time) <= Date.parse(beat.event_time))) this.seen(record);
      // An answer was lost, or the record is gone: there is nothing else to go to.
      const own = status === 'conflict' && (!record || viewing(record) === viewing(beat));
      if (own) delete beat.if_match;
      else if (status === 'conflict') lost.add(viewing(beat));
      if (!own && status !== 'unavailable') done.set(beat, results[i]);
    });
    this.#outbox.settle((beat) => done.has(beat) || lost.has(viewing(beat)));
    if (done.size < beats.length) this.#rest(this.#config.minWait);
    for (const [heartbeat, result] of done) this.#tell(heartbeat, result);
  }

  /** @param {Heartbeat} heartbeat @param {any} result */
  #tell(heartbeat, result) {
    this.#emit('answered', { heartbeat, result });
    if (result.status === 'conflict') this.#emit('conflict', { heartbeat, record: result.record });
  }

  /** @param {string} type @param {any} [detail] */
  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
