// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { below, browser } from './browser.js';
import { HistoryClock } from './clock.js';
import { Link, soon } from './link.js';
import { dated, least, Outbox } from './outbox.js';
import { PlayheadError, Requests, pathOf } from './requests.js';
import { Store } from './store.js';

export { PlayheadError };

/**
 * @typedef {import('./outbox.js').Heartbeat} Heartbeat
 * @typedef {{object: {id: string, type: number}, kind: string, position_ms: number, event_time?: string, [more: string]: any}} Report
 */

const every = 15_000; // milliseconds between clock checks
const settling = 20_000; // milliseconds after a sleep, until all tabs have renewed their lease
const slept = 90_000; // milliseconds without a tick: the device slept
const silence = 30_000; // milliseconds until an empty message probes the edge
const setBack = 5_000; // milliseconds
const unseen = 1_000; // milliseconds of sleep that are ignored
const setForward = 90 * 86_400_000; // milliseconds: the clock was set
const lastWords = 1_000; // milliseconds after leaving until doubt begins
const parting = 60 << 10; // bytes that a browser sends for an unloading page
const kinds = ['start', 'progress', 'pause', 'seek', 'stop', 'finish'];

/**
 * A client of Playhead's stream. It keeps each report until the edge has answered it, and retries unanswered ones; retries count
 * once. The [Outbox] decides what to send; this class connects it to the edge, a storage and the clocks.
 *
 * Events, with their `detail`:
 * - `open`; `close` {code, reason, wait_ms}: reconnects after `wait_ms`, or at once by reconnect()
 * - `answered` {heartbeat, result}: the outcome of a report, once; `superseded` or `dropped` if the queue was full
 * - `conflict` {heartbeats, record}: reports of a viewing were refused, since another device continued unnoticed. Ask the user
 *   where to continue. If here, report them again without `if_match`, and `dated`
 * - `push` {items, removed}: changes by other devices
 * - `resync`: changes may have been missed; reload the shown data
 * - `day` {date, first}: today in the user's zone, and whether it is the user's first report of the day
 * - `unauthorized`: the token was refused; it is retried, by connect() at once
 * - `away`: the page unloads; reports made now are sent with the queue in one request
 */
export class Playhead extends Requests {
  #config;
  #page;
  #outbox;
  #store;
  #link;
  #seq = 0;
  #connections = 0;
  #day = '';
  #left = false;
  #kept = true; // the queue is stored
  /** Reports sent while leaving. @type {Set<Heartbeat>} */
  #parted = new Set();
  #spent = 0; // their bytes
  #tick;
  #steady = -settling; // steady time of the last sleep or clock change
  #offset; // device clock minus steady clock
  #clock;
  #sentAt = 0; // of the last message
  #stopWaking = () => {};
  #stopDoubt = () => {};
  #stopResync = () => {};

  /**
   * @param {{token: string | (() => string | Promise<string>), url?: string, push?: boolean, queue?: number,
   *   storage?: Storage, key?: string, timeoutMs?: number, minWaitMs?: number, maxWaitMs?: number,
   *   page?: typeof browser}} config
   *   `url` of the edge, by default the page's origin; `push` asks for changes by other devices; `storage` keeps the queue over a
   *   reload, shared by tabs, under `key`, which names the user
   */
  constructor(config) {
    const full = complete(config);
    super({ ...full, token: () => this.#link.newToken() });
    this.#page = full.page;
    this.#config = full;
    const { random } = full;
    const name = random().toString(36).slice(2);
    this.#store = new Store(config.storage, config.key ?? 'playhead.outbox', name);
    this.#outbox = new Outbox({ ...this.#config, name, device: () => this.#store.device(`device-${name}`), sessions: this.#store });
    this.#link = new Link(this.#config, {
      opened: () => this.#opened(),
      heard: (message) => this.#heard(message),
      closed: (detail) => this.#closed(detail),
      unauthorized: () => this.#emit('unauthorized'),
    }, this.#page);
    this.#tick = this.#page.now();
    this.#offset = this.#tick - this.#page.elapsed();
    this.#clock = new HistoryClock(this.#store.last, () => this.#page.elapsed());
    this.#adopt();
    this.#follow();
  }

  /** Whether a WebSocket is open, and so pushes arrive. */
  get live() {
    return this.#link.live;
  }

  /** Number of unanswered reports. */
  get waiting() {
    return this.#outbox.length;
  }

  /**
   * Returns the given record, or a newer one made from this device's own queued report, for instance after a reload.
   * @param {any} record null for none @param {{id: string, type: number}} object
   */
  newest(record, object) {
    const beat = this.#outbox.last(object);
    if (!beat) return record;
    const glanced = record?.early && beat.if_match; // the time of a device that has just started
    if (!glanced && Date.parse(beat.event_time) <= Date.parse(record?.event_time ?? '')) return record;
    const completed = beat.kind === 'finish'; // as far as this page knows
    return { ...record, ...beat, state: completed ? 'finished' : 'stopped', completed, resume_ms: completed ? 0 : beat.position_ms };
  }

  /**
   * Calls back with what other devices change, and with `resync` when changes may have been missed: read again what is shown.
   * @param {(change: {items: any[], removed: {id: string, type: number}[], resync: boolean}) => void} changed
   * @returns {() => void} stops it
   */
  follow(changed) {
    if (typeof changed !== 'function') throw new TypeError('follow: want a function');
    const push = (/** @type {any} */ { detail }) => changed({ ...detail, resync: false });
    const resync = () => changed({ items: [], removed: [], resync: true });
    this.addEventListener('push', push);
    this.addEventListener('resync', resync);
    this.connect();
    return () => {
      this.removeEventListener('push', push);
      this.removeEventListener('resync', resync);
    };
  }

  /** Connects at once if not connected, even before the edge's Retry-After. */
  reconnect() {
    this.#comeBack();
    this.#link.reconnect();
  }

  connect() {
    this.#comeBack();
    this.#link.connect();
  }

  #comeBack() {
    if (this.#left) this.#outbox.doubt();
    this.#stopDoubt();
    this.#left = false;
    this.#parted.clear();
    this.#spent = 0;
    this.#keep(); // another tab may have adopted the stored queue
  }

  /**
   * Queues a report, and sends it as soon as possible. `event_time` is now by default. Wrong types throw a TypeError.
   * @param {Report} beat
   */
  report(beat) {
    pathOf(beat?.object);
    if (!kinds.includes(beat.kind)) throw new TypeError(`kind ${beat.kind}: want one of ${kinds.join(', ')}`);
    for (const [name, value] of Object.entries({ position_ms: beat.position_ms, duration_ms: beat.duration_ms ?? 0 })) {
      if (!Number.isFinite(value)) throw new TypeError(`${name} ${value}: want a number`);
    }
    this.#look();
    this.#clock.follow(this.#store.last);
    this.#tell(this.#outbox.report({ event_time: new Date(this.#page.now()).toISOString(), ...beat }, this.#offset, this.#clock));
    this.#send();
  }

  /** Dates a report for later use. @template {Heartbeat} B @param {B} beat @returns {B & {dated?: boolean}} */
  dated(beat) {
    this.#look();
    this.#clock.follow(this.#store.last);
    return this.#clock.known ? dated(beat, this.#offset, this.#clock) : beat;
  }

  /**
   * Remembers the record that the player continues from, to detect conflicts. Do not pass pushed records: the player may be
   * elsewhere.
   * @param {any} record
   */
  seen(record) {
    this.#outbox.seen(record);
  }

  /** Ends the connection, and sends as much of the queue as an unloading page can. */
  leave() {
    this.#watchClock();
    const beats = this.#outbox.newest(parting - this.#spent, (beat) => !this.#parted.has(beat));
    this.#left = true;
    this.#link.leave();
    this.#outbox.left();
    this.#stopDoubt();
    this.#stopDoubt = this.#page.after(lastWords, () => this.#outbox.doubt());
    this.#wakeLater();
    this.#keep();
    if (beats.length > 0 && this.#link.token) this.#part(beats);
  }

  /** @param {Heartbeat[]} beats */
  #part(beats) {
    const headers = { Authorization: `Bearer ${this.#link.token}`, 'Content-Type': 'application/json' };
    const body = JSON.stringify(this.#message(beats));
    for (const beat of beats) this.#parted.add(beat);
    this.#spent += new TextEncoder().encode(body).length;
    this.#page.fetch(below(this.#config.url, '/v1/heartbeats'), { method: 'POST', keepalive: true, headers, body }).catch(() => {}); // they are in the storage
  }

  #follow() {
    const { on, visible } = this.#page;
    on('visibilitychange', () => visible() && this.#look());
    on('offline', () => this.#link.drop('offline'));
    on('online', () => this.#link.hurry());
    let goOn = () => {}; // restores the state before pagehide
    on('pagehide', () => {
      const { wanted } = this.#link;
      if (!this.#left) goOn = () => (wanted ? this.connect() : this.#comeBack());
      this.#emit('away');
      this.leave();
    });
    on('pageshow', (e) => {
      if (e.persisted) goOn();
      goOn = () => {};
    });
    const tick = () => {
      this.#look();
      this.#adopt();
      this.#page.after(every, tick, true);
    };
    this.#page.after(every, tick, true);
  }

  /** Detects a set device clock and a stopped steady clock. */
  #watchClock() {
    const elapsed = this.#page.elapsed();
    const jump = this.#page.now() - elapsed - this.#offset;
    if (Math.abs(jump) < least) return;
    if (jump > unseen && jump <= setForward) { // presumably a sleep
      this.#clock.slept(jump);
      this.#outbox.slept(jump);
    }
    if (Math.abs(jump) > setBack) this.#steady = elapsed;
    this.#offset += jump;
  }

  /** Detects clock changes, sleep, and a silent edge. */
  #look() {
    this.#watchClock();
    this.#link.look();
    const now = this.#page.now();
    const elapsed = this.#page.elapsed();
    const sleep = now - this.#tick >= slept;
    this.#tick = now;
    if (sleep) {
      this.#steady = elapsed;
      this.#missed();
    }
    if (sleep || (elapsed - this.#link.heardAt > silence && this.#page.visible())) this.#send(this.#link.live);
  }

  /** Adopts the queues of closed tabs. */
  #adopt() {
    if (this.#left && !this.#kept) this.#keep(); // the stored queue may have been adopted
    if (this.#left) return;
    const found = this.#page.elapsed() - this.#steady >= settling ? this.#store.adopt(this.#page.now()) : [];
    const outcomes = this.#outbox.adopt(found, this.#offset);
    if (this.#clock.known) this.#outbox.date(this.#clock);
    this.#keep();
    if (outcomes.length > 0) this.#page.after(0, () => this.#tell(outcomes)); // after listeners are added
    this.#send();
  }

  #keep() {
    this.#outbox.set(this.#offset);
    this.#kept = this.#store.save(this.#outbox.length > 0 ? this.#outbox.text : '', this.#page.now(), this.#left, this.#clock.last);
    this.#outbox.changed = false;
  }

  #missed() {
    this.#outbox.doubt();
    this.#resync();
  }

  #resync() {
    this.#stopResync();
    this.#stopResync = this.#page.after(this.#page.random() * 1000, () => this.#emit('resync')); // spread the load
  }

  #opened() {
    this.#outbox.opened();
    this.#clock.silent = false;
    this.#emit('open');
    if (this.#connections++ > 0) this.#resync();
    this.#send();
  }

  /** @param {{code: number, reason: string, wait_ms: number}} detail */
  #closed(detail) {
    this.#tell(this.#outbox.closed(detail.code, detail.reason, this.#page.elapsed()));
    this.#wakeLater();
    this.#emit('close', detail);
  }

  /** Sends waiting reports, or an empty message that asks for the time. @param {boolean} [even] may be empty */
  #send(even = false) {
    this.#watchClock();
    const ask = this.#outbox.length > 0 && !this.#clock.known && !this.#clock.silent;
    const now = this.#page.elapsed();
    const beats = this.#link.open ? this.#outbox.next(now, even, ask) : null;
    if (beats) this.#sentAt = now;
    if (beats) this.#link.send({ seq: ++this.#seq, records: true, ...this.#message(beats) });
    this.#wakeLater();
  }

  #wakeLater() {
    this.#stopWaking();
    const at = this.#link.open ? this.#outbox.wake() : Infinity;
    if (at < Infinity) this.#stopWaking = this.#page.after(Math.max(0, Math.ceil(at - this.#page.elapsed())), () => this.#wake());
  }

  #wake() {
    if (this.#outbox.late(this.#page.elapsed())) this.#link.late();
    else this.#send();
  }

  /** A message; sent_at corrects times of the device's clock. @param {Heartbeat[]} heartbeats */
  #message(heartbeats) {
    this.#outbox.set(this.#offset);
    const sentAt = this.#outbox.dated(heartbeats) ? undefined : new Date(this.#page.now()).toISOString();
    return { sent_at: sentAt, first_flag: this.#day || undefined, time_zone: this.#page.zone(), heartbeats };
  }

  /** @param {any} message */
  #heard({ seq, results = [], error, push, first_flag: date, first_of_day: first, now_ms: now }) {
    if (push) return this.#pushed(push);
    if (seq !== this.#seq || !this.#outbox.busy) return this.#link.drop('an answer to nothing');
    if (date && (first || date !== this.#day)) this.#emit('day', { date, first: Boolean(first) });
    this.#day = date ?? this.#day;
    if (!error) this.#learnTime(now);
    this.#tell(error ? this.#failed(error) : this.#outbox.answered(results, this.#page.elapsed()));
    this.#send();
  }

  /** Takes the history's time from an answer. @param {number} [now] */
  #learnTime(now) {
    this.#watchClock();
    this.#clock.answered(now, this.#sentAt);
    if (this.#clock.known) this.#outbox.date(this.#clock);
  }

  /** @param {{items?: any[], removed?: any[], resync?: boolean}} push */
  #pushed({ items = [], removed = [], resync }) {
    if (items.length + removed.length > 0) this.#emit('push', { items, removed });
    if (!resync) return;
    this.#outbox.resync();
    this.#resync();
  }

  /** @param {{code: string, detail: string, field?: string, retry_after_ms?: number}} error */
  #failed({ code, detail, field, retry_after_ms: wait }) {
    const now = this.#page.elapsed();
    if (wait) return this.#outbox.postponed(wait, now);
    if (code === 'unreachable') return this.#outbox.failed(now, false, soon);
    if (code === 'invalid' || code === 'too_large') return this.#outbox.refused(code === 'too_large', detail, now, field);
    return this.#outbox.failed(now);
  }

  /** @param {import('./outbox.js').Outcome[]} outcomes */
  #tell(outcomes) {
    if (this.#outbox.changed) this.#keep();
    const asked = new Set();
    for (const { heartbeat, result } of outcomes) {
      this.#emit('answered', { heartbeat, result });
      if (result.status !== 'conflict' || asked.has(result)) continue;
      asked.add(result);
      this.#emit('conflict', { heartbeats: outcomes.flatMap((one) => (one.result === result ? [one.heartbeat] : [])), record: result.record });
    }
  }

  /** @param {string} type @param {any} [detail] */
  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The configuration with its defaults. Wrong types throw a TypeError. @param {ConstructorParameters<typeof Playhead>[0]} config */
function complete(config) {
  const page = config?.page ?? browser;
  const defaults = { url: globalThis.location?.origin, push: true, queue: 500, timeoutMs: 10_000, minWaitMs: 500, maxWaitMs: 30_000 };
  const { token, ...full } = { ...defaults, ...config, page, random: page.random };
  if (!/^https?:\/\/[^/]/i.test(full.url)) throw new TypeError(`url ${full.url}: want an absolute address, of HTTP`);
  if (!token || !['string', 'function'].includes(typeof token)) throw new TypeError('token: want a text, or a function that returns one');
  for (const name of /** @type {const} */ (['queue', 'timeoutMs', 'minWaitMs', 'maxWaitMs'])) {
    if (!(typeof full[name] === 'number' && full[name] > 0)) throw new TypeError(`${name} ${full[name]}: want a number above 0`);
  }
  return { ...full, token: typeof token === 'function' ? token : () => token };
}
