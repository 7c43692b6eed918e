// @ts-check
// SPDX-License-Identifier: Apache-2.0

/**
 * @typedef {import('./clock.js').HistoryClock} Clock
 * @typedef {{object: {id: string, type: number}, kind: string, position_ms: number,
 *   event_time: string, session?: string, if_match?: string, dated?: boolean, [more: string]: any}} Heartbeat
 *   `dated`: its times are the history's
 * @typedef {{status: string, record?: any, error?: any}} Result
 * @typedef {{add(session: string): void, has(session: string): boolean}} Sessions reported by this device
 * @typedef {{heartbeat: Heartbeat, result: Result}} Outcome of a report
 * @typedef {{beat: Heartbeat, id: string, text: string, object: string, viewing: string, bytes: number, tries: number, sent: boolean, zero: number | null}} Item
 *   `id` is unique among pages that share a storage; `zero` is the device's clock at elapsed time 0, or null if the times are the history's
 */

export const longest = 3_600_000; // longest accepted Retry-After, milliseconds
const most = { reports: 100, bytes: 64 << 10, report: 16 << 10 };
const beginning = 16 << 10; // bytes of the first message
const envelope = 300; // bytes of a message without its reports
const noRecord = 'ffffffffffffffff'; // etag of no record
export const least = 5; // smallest clock step, milliseconds: less is jitter
const patientTries = 3; // attempts of a single report before others precede it

/**
 * Exponential backoff in milliseconds, with full jitter.
 * @param {{minWaitMs: number, maxWaitMs: number}} config @param {number} failures so far @param {number} part random, 0 to 1
 */
export function backoff({ minWaitMs, maxWaitMs }, failures, part) {
  return part * Math.min(minWaitMs * 2 ** Math.min(failures, 16), maxWaitMs);
}

/**
 * The queue of unanswered reports, oldest first: a state machine without timers, connection or storage. Each event is a method
 * that returns outcomes to emit; next() returns the reports to send. `docs/clients.md` has the rules. Times are milliseconds of
 * the steady clock.
 */
export class Outbox {
  /** Whether the queue differs from its stored copy. */
  changed = false;
  #config;
  #made = 0; // counts reports
  /** The device's last reported name. @type {string | undefined} */
  #device;
  /** @type {Item[]} */
  #items = [];
  /** @type {{items: Item[], bytes: number, at: number, live: boolean, doubt: number} | null} */
  #sent = null;
  /** Event times of records seen since the message was sent, by object. @type {Map<string, number>} */
  #seen = new Map();
  #open = false;
  #live = false; // pushes arrive
  #room = beginning;
  #ceiling = most.bytes;
  #rest = 0; // earliest time of the next message
  #idle = 0; // consecutive messages without an answered report
  /** The etag that the player continues from, by object. @type {Map<string, string>} */
  #known = new Map();
  /** When the doubt about an object began. @type {Map<string, number>} */
  #doubted = new Map();
  #doubts = 0; // counts the doubts
  /** Start of a viewing by the device's clock, and its zero then, by viewing. @type {Map<string, {shown: string, zero: number}>} */
  #begun = new Map();

  /** @param {{queue: number, timeoutMs: number, minWaitMs: number, maxWaitMs: number, random: () => number,
   *   device: () => string, sessions: Sessions, name?: string}} config `device` is the default device name, `name` the page's */
  constructor(config) {
    this.#config = config;
  }

  get length() {
    return this.#items.length;
  }

  /** The queue as JSON, for the storage. */
  get text() {
    return `[${this.#items.map(({ id, text, zero }) => `${text.slice(0, -1)},"report_id":${JSON.stringify(id)}${zero === null ? ',"dated":true' : ''}}`).join()}]`;
  }

  /** Whether a message is in flight. */
  get busy() {
    return this.#sent !== null;
  }

  // Events of the player.

  /** @param {Heartbeat} beat @param {number} [zero] of the device's clock @param {Clock} [clock] @returns {Outcome[]} */
  report(beat, zero = 0, clock) {
    const { item, wrong } = this.#parse(beat);
    if (!item) return [refusal(beat, wrong ?? '')];
    if (item.zero !== null) {
      item.zero = zero;
      this.#restate(item, zero);
      if (clock?.known) date(item, clock);
    }
    this.#device = item.beat.device;
    const guard = item.beat.if_match ?? this.#guard(item.object);
    if (guard) item.beat.if_match = guard;
    write(item);
    const outcomes = this.#add([...this.#items, item]);
    if (!this.#live) this.#unknown(item.object);
    return outcomes;
  }

  /** Adopts another page's queue, without duplicates. @param {Heartbeat[]} beats @param {number} [zero] of the device's clock @returns {Outcome[]} */
  adopt(beats, zero = 0) {
    const here = new Set(this.#items.flatMap(({ id, text }) => [id, text])); // times and guards may have changed
    const parsed = beats.map((beat) => this.#parse(beat, zero));
    const refused = parsed.flatMap(({ wrong }, i) => (wrong ? [refusal(beats[i], wrong)] : []));
    const items = parsed.flatMap(({ item }) => (item && !here.has(item.id) && !here.has(item.text) && here.add(item.id).add(item.text) ? [item] : []));
    for (const item of items) item.sent = true; // perhaps
    for (const { object, beat } of [...items].reverse()) if (beat.if_match) this.#unknown(object, beat.if_match);
    for (const { object } of items) this.#unknown(object);
    return [...refused, ...this.#add([...items, ...this.#items])];
  }

  /** Remembers the record that the player continues from. @param {any} record */
  seen(record) {
    this.#know(key(record), record.etag);
    this.#seen.set(key(record), Date.parse(record.event_time));
    if (this.#live) this.#doubted.delete(key(record));
    else this.#doubted.set(key(record), this.#doubts);
  }

  // Events of the clocks.

  /** Dates all reports once the history's time is known. @param {Clock} clock */
  date(clock) {
    for (const item of this.#items) if (item.zero !== null) {
      date(item, clock);
      this.changed = true;
    }
  }

  /** Corrects for a sleep that the steady clock missed. @param {number} ms */
  slept(ms) {
    for (const item of this.#items) if (item.zero !== null) item.zero += ms;
    for (const begun of this.#begun.values()) begun.zero += ms;
  }

  /** Shifts the device's times after its clock was set. @param {number} zero */
  set(zero) {
    for (const item of this.#items) if (item.zero !== null && Math.abs(zero - item.zero) >= least) {
      shift(item, zero - item.zero);
      item.zero = zero;
    }
  }

  /** Whether the reports of a message have the history's times. @param {Heartbeat[]} beats */
  dated(beats) {
    return !this.#items.some(({ beat, zero }) => beat === beats[0] && zero !== null);
  }

  // Events of the connection.

  opened() {
    this.#open = true;
    this.#live = false;
  }

  /** Handles the start of pushes. Earlier changes may have been missed. */
  resync() {
    this.#live = true;
    this.doubt();
  }

  /**
   * Handles a closed connection. A message in flight may have arrived.
   * @param {number} code @param {string} reason @param {number} now @returns {Outcome[]}
   */
  closed(code, reason, now) {
    const outcomes = !this.#sent ? [] : code === 1007 || code === 1009 ? this.refused(code === 1009, reason, now) : this.failed(now, true);
    this.left();
    this.doubt();
    return outcomes;
  }

  /** Handles a connection closed by the page. Doubt begins with doubt(). */
  left() {
    this.#open = this.#live = false;
    this.#sent = null;
  }

  /** Doubts all objects: changes may have been missed. */
  doubt() {
    this.#doubts++;
    for (const { object } of this.#items) this.#unknown(object);
    for (const object of this.#known.keys()) this.#doubted.set(object, this.#doubts);
  }

  // Messages and answers.

  /** The reports of the next message, null for none yet. @param {number} now @param {boolean} [even] may be empty @param {boolean} [ask] must be empty */
  next(now, even = false, ask = false) {
    if (this.#sent || now < this.#rest) return null;
    const items = ask ? [] : this.#head();
    if (items.length === 0 && !even && !ask) return null;
    for (const item of items) item.sent = true;
    this.#sent = { items, bytes: size(items), at: now, live: this.#live, doubt: this.#doubts };
    this.#seen.clear();
    return items.map(({ beat }) => beat);
  }

  /** The time of the next timeout or message. */
  wake() {
    if (this.#sent) return this.#sent.at + this.#patience(this.#sent);
    return this.#open && this.#items.length > 0 ? this.#rest : Infinity;
  }

  /** Whether the answer is late and the connection must be replaced. @param {number} now */
  late(now) {
    return this.#sent !== null && now >= this.wake();
  }

  /** @param {Result[]} results @param {number} now @returns {Outcome[]} */
  answered(results, now) {
    const sent = this.#sent;
    if (!sent) return [];
    if (results.length !== sent.items.length || !results.every((result) => result?.status)) return this.failed(now);
    this.#sent = null;
    if (now - sent.at <= this.#config.timeoutMs / 4) this.#room = Math.min(this.#ceiling, Math.max(this.#room, 2 * sent.bytes));
    const outcomes = sent.items.flatMap((item, i) => this.#takeAnswer(item, results[i], sent));
    if (sent.items.length > 0 && outcomes.length === 0) this.#pause(now);
    else this.#idle = 0;
    return outcomes;
  }

  /** Handles a missing answer or a temporary error. @param {number} now @param {boolean} [gone] the connection ended @param {number} [most] milliseconds of the backoff @returns {Outcome[]} */
  failed(now, gone = false, most = Infinity) {
    const items = this.#halve();
    if (items.length === 1 && ++items[0].tries >= patientTries) this.#putBack(items[0]);
    if (!gone) this.#pause(now, most); // else reconnecting takes a while
    return [];
  }

  /** Handles a permanent refusal of the message. @param {boolean} large @param {string} reason @param {number} now @param {string} [where] field of the message @returns {Outcome[]} */
  refused(large, reason, now, where = '') {
    const items = this.#halve();
    if (large) this.#ceiling = this.#room;
    if (items.length > 1) return [];
    this.#room = beginning;
    this.#ceiling = most.bytes;
    if (items.length === 0) this.#pause(now);
    const field = where.replace('body.heartbeats[0].', '');
    return items.flatMap((item) => this.#giveUp(item, { status: 'invalid', error: { field, reason } }));
  }

  /** Handles the edge's retry delay. @param {number} ms @param {number} now @returns {Outcome[]} */
  postponed(ms, now) {
    this.#sent = null;
    this.#rest = now + Math.min(ms, longest) + this.#config.random() * this.#config.minWaitMs;
    return [];
  }

  // Queries.

  /**
   * The newest reports that fit, for an unloading page.
   * @param {number} bytes @param {(beat: Heartbeat) => boolean} wanted
   */
  newest(bytes, wanted) {
    const tags = new Map();
    const items = [];
    for (const item of [...this.#items].reverse()) {
      if (!wanted(item.beat) || !alike(items[0], item) || !joins(tags, item)) continue;
      if ((bytes -= item.bytes + 1) < 0) break;
      items.unshift(item);
    }
    for (const item of items) item.sent = true;
    return items.map(({ beat }) => beat);
  }

  /** The newest waiting report of an object. @param {{id: string, type: number}} object */
  last(object) {
    return this.#items.findLast((item) => item.object === key({ object }))?.beat;
  }

  // Internals.

  /** @param {Heartbeat} beat @param {number} [zero] of the device's clock */
  #parse(beat, zero) {
    const parsed = parse(beat, this.#config.device, zero);
    if (!parsed.item) return parsed;
    parsed.item.id ||= `${this.#config.name}.${++this.#made}`;
    this.#config.sessions.add(parsed.item.beat.session ?? '');
    return parsed;
  }

  /** Corrects the start of a viewing if the clock was set since. @param {Item} item @param {number} zero */
  #restate({ viewing, beat }, zero) {
    const { started_at: shown } = beat;
    if (!shown) return;
    const before = this.#begun.get(viewing);
    const begun = before && before.shown === shown ? before : { shown, zero };
    keepLast(this.#begun, viewing, begun, this.#config.queue);
    if (begun.zero !== zero) move(beat, 'started_at', zero - begun.zero);
  }

  /** @param {Item[]} items @returns {Outcome[]} */
  #add(items) {
    this.#items = items;
    this.changed = true;
    const outcomes = [];
    while (this.#items.length > this.#config.queue) outcomes.push(...this.#shed());
    return outcomes;
  }

  /** The if_match of a new report. @param {string} object */
  #guard(object) {
    const before = this.#items.findLast((item) => item.object === object && item.beat.if_match)?.beat.if_match;
    return before || this.#doubted.has(object) ? (this.#known.get(object) ?? before) : undefined;
  }

  /** Sets the record that unanswered reports continue from: their guard's, or none. @param {string} object @param {string} [etag] */
  #unknown(object, etag = noRecord) {
    if (this.#known.has(object)) return;
    this.#know(object, etag);
    this.#doubted.set(object, this.#doubts);
  }

  /** Remembers an etag, and evicts the oldest beyond the limit. @param {string} object @param {string} etag */
  #know(object, etag) {
    const forgotten = keepLast(this.#known, object, etag, this.#config.queue);
    if (forgotten !== undefined) this.#doubted.delete(forgotten);
  }

  /** Drops a report from a full queue. @returns {Outcome[]} */
  #shed() {
    const furthest = new Map(); // later positions, by viewing
    const sent = new Set(this.#sent?.items);
    const free = this.#items.filter((item) => !sent.has(item));
    let victim = free[0] ?? this.#items[0];
    let status = 'dropped';
    for (const item of [...free].reverse()) {
      const later = furthest.get(item.viewing) ?? -1;
      if (item.beat.kind === 'progress' && item.beat.position_ms <= later) [victim, status] = [item, 'superseded'];
      furthest.set(item.viewing, Math.max(later, item.beat.position_ms));
    }
    return this.#giveUp(victim, { status });
  }

  #head() {
    const tags = new Map();
    const items = [];
    let bytes = envelope;
    for (const item of this.#items.slice(0, most.reports)) {
      bytes += item.bytes + 1;
      if ((items.length > 0 && bytes > this.#room) || !alike(items[0], item) || !joins(tags, item)) break;
      items.push(item);
    }
    return items;
  }

  /** The timeout of a message. @param {{items: Item[], bytes: number}} message */
  #patience({ items, bytes }) {
    return this.#config.timeoutMs + (items.length === 1 ? bytes : 0); // at 1 KB/s
  }

  /** Halves the next message. @returns {Item[]} the reports in flight */
  #halve() {
    const { items, bytes } = this.#sent ?? { items: [], bytes: 0 };
    if (items.length > 0) this.#room = Math.min(this.#room, Math.ceil(bytes / 2));
    this.#sent = null;
    return items;
  }

  /** Backs off. @param {number} now @param {number} [most] milliseconds */
  #pause(now, most = Infinity) {
    this.#rest = now + backoff({ ...this.#config, maxWaitMs: Math.min(most, this.#config.maxWaitMs) }, this.#idle++, 0.5 + this.#config.random() / 2);
  }

  /** Moves a waiting report to the end. @param {Item} item */
  #putBack(item) {
    item.tries = 0;
    if (!this.#items.includes(item)) return;
    const mates = this.#items.filter(({ object }) => object === item.object); // their guard may be the record that it creates
    this.#items = [...this.#items.filter(({ object }) => object !== item.object), ...mates];
  }

  /** @param {Item} item @param {Result} result @param {{live: boolean, doubt: number}} sent when it was @returns {Outcome[]} */
  #takeAnswer(item, result, sent) {
    const { status, record } = result;
    if (status === 'unavailable') {
      this.#putBack(item);
      return [];
    }
    const glanced = ['stored', 'unchanged'].includes(status) && record?.early && record.position_ms === item.beat.position_ms; // another device has just begun
    const own = record && (glanced || this.#makes(record, item.beat));
    if (status === 'conflict') return this.#conflict(item, result, own);
    const first = this.#known.get(item.object) === noRecord && record && notLater(record, item.beat);
    if (own || (record && status === 'stored' && (item.beat.if_match || first))) this.#goesOn(item, record, sent);
    else if (record && !this.#doubted.has(item.object) && notLater(record, item.beat) && !this.#overtaken(item.object, record)) this.#know(item.object, record.etag);
    const outcomes = this.#tell(item, result);
    if (!['stored', 'stale'].includes(status)) this.#passOn(item);
    return outcomes;
  }

  /** Whether this device created a record, in any page or window. @param {any} record @param {Heartbeat} beat */
  #makes({ device, session = '' }, beat) {
    return (device === beat.device || device === this.#device) && this.#config.sessions.has(session);
  }

  /** Renews the guards of the viewing, and those with the previous record's etag. @param {Item} item @param {any} record */
  #follow(item, record) {
    const before = [item.beat.if_match ?? noRecord, this.#known.get(item.object)];
    const last = [item.viewing, viewing(record)];
    this.#renew(item.object, record, (other) => last.includes(other.viewing) || before.includes(other.beat.if_match));
  }

  /** Handles a record created by this device. @param {Item} item @param {any} record @param {{live: boolean, doubt: number}} sent */
  #goesOn(item, record, sent) {
    this.#follow(item, record);
    if (this.#overtaken(item.object, record)) return;
    const since = this.#doubted.get(item.object) ?? 0;
    if (sent.live && since <= sent.doubt) this.#doubted.delete(item.object);
    else this.#doubted.set(item.object, since); // even if it was unknown before
  }

  /** @param {Item} item @param {Result} result @param {boolean} own @returns {Outcome[]} */
  #conflict(item, result, own) {
    const { record } = result;
    if (own) { // an answer was lost
      this.#follow(item, record);
      return [];
    }
    if (!record) { // removed: no other position
      this.#renew(item.object, null, () => true);
      return [];
    }
    const mates = this.#items.filter((other) => other.viewing === item.viewing && other.beat.if_match && other.beat.if_match !== record.etag && !this.#stands(other, record));
    if (!this.#overtaken(item.object, record)) this.seen(record);
    return mates.flatMap((mate) => this.#tell(mate, result));
  }

  /** Renews the guards of an object with an answer's record. @param {string} object @param {any} record @param {(item: Item) => boolean} which */
  #renew(object, record, which) {
    for (const item of this.#items) if (item.object === object && item.beat.if_match && which(item) && !this.#stands(item, record)) {
      if (record) item.beat.if_match = record.etag;
      else delete item.beat.if_match;
      write(item);
      this.changed = true;
    }
    if (!this.#overtaken(object, record)) this.#know(object, record?.etag ?? noRecord);
  }

  /** Whether a report continues from a record seen since the message was sent, which the answer lacks. @param {Item} item @param {any} record */
  #stands({ object, beat }, record) {
    return beat.if_match === this.#known.get(object) && this.#overtaken(object, record);
  }

  /** Whether a record newer than the answer's was seen since the message was sent. @param {string} object @param {any} record */
  #overtaken(object, record) {
    const seen = this.#seen.get(object);
    return seen !== undefined && !(record && Date.parse(record.event_time) >= seen);
  }

  /** Drops a report. If already sent, it may be stored. @param {Item} item @param {Result} result @returns {Outcome[]} */
  #giveUp(item, result) {
    const outcomes = this.#tell(item, result);
    if (!item.sent) this.#passOn(item);
    return outcomes;
  }

  /** If the first report of an object left no record, the next one is the first. @param {Item} item */
  #passOn({ object, beat }) {
    if (beat.if_match || this.#known.get(object) !== noRecord) return;
    const mates = this.#items.filter((other) => other.object === object);
    const next = mates[0];
    if (next?.beat.if_match !== noRecord || mates.some((mate) => !mate.beat.if_match) || this.#sent?.items.includes(next)) return;
    delete next.beat.if_match;
    write(next);
  }

  /** Removes a report and returns its outcome, once. @param {Item} item @param {Result} result @returns {Outcome[]} */
  #tell(item, result) {
    const left = this.#items.filter((other) => other !== item);
    if (left.length === this.#items.length) return []; // already removed
    this.#items = left;
    this.changed = true;
    return [{ heartbeat: item.beat, result }];
  }
}

/** The key of an object. @param {{object: {id: string, type: number}}} of */
export function key({ object }) {
  return `${object?.type}/${object?.id}`;
}

/** The key of a viewing. @param {{object: {id: string, type: number}, session?: string}} of */
export function viewing(of) {
  return `${key(of)} ${of.session ?? ''}`;
}

/** Whether a report may join a message: one guard and one viewing per object. @param {Map<string, string>} tags @param {Item} item */
function joins(tags, { object, viewing, beat }) {
  const tag = beat.if_match ? `${viewing} ${beat.if_match}` : '';
  if (!tags.has(object)) tags.set(object, tag);
  return tags.get(object) === tag;
}

/** Whether the times of two reports come from one clock. @param {Item | undefined} a none for any @param {Item} b */
function alike(a, b) {
  return !a || (a.zero === null) === (b.zero === null);
}

/** Converts a report to the history's times. @param {Item} item @param {Clock} clock */
function date(item, clock) {
  const shown = Date.parse(item.beat.event_time);
  if (Math.abs(shown) < 8.64e15) shift(item, clock.date(shown, item.zero ?? 0) - shown); // a valid date
  item.zero = null;
}

/** A copy with the history's times. @template {Heartbeat} B @param {B} beat @param {number} zero @param {Clock} clock */
export function dated(beat, zero, clock) {
  const copy = { ...beat, dated: true };
  const shown = Date.parse(beat.event_time);
  const ms = clock.date(shown, zero) - shown;
  move(copy, 'event_time', ms);
  move(copy, 'started_at', ms);
  return copy;
}

/** @param {Item} item @param {number} ms */
function shift(item, ms) {
  move(item.beat, 'event_time', ms);
  move(item.beat, 'started_at', ms);
  write(item);
}

/** Shifts a valid time. @param {Heartbeat} beat @param {string} name @param {number} ms */
function move(beat, name, ms) {
  const at = Date.parse(beat[name]) + ms;
  if (Math.abs(at) < 8.64e15) beat[name] = new Date(at).toISOString();
}

/**
 * Moves an entry to the end, and removes the first beyond the limit.
 * @template T @param {Map<string, T>} map @param {string} name @param {T} value @param {number} most
 * @returns {string | undefined} the removed name
 */
function keepLast(map, name, value, most) {
  map.delete(name);
  map.set(name, value);
  const [first] = map.keys();
  if (map.size <= most) return undefined;
  map.delete(first);
  return first;
}

/** @param {any} record @param {Heartbeat} beat */
function notLater(record, beat) {
  return Date.parse(record.event_time) <= Date.parse(beat.event_time);
}

/** Updates the text of a changed report. @param {Item} item */
function write(item) {
  item.text = JSON.stringify(item.beat);
}

/** @param {Item[]} items */
function size(items) {
  return items.reduce((sum, item) => sum + item.bytes + 1, envelope);
}

/** @param {Heartbeat} heartbeat @param {string} reason @returns {Outcome} */
function refusal(heartbeat, reason) {
  return { heartbeat, result: { status: 'invalid', error: { field: '', reason } } };
}

/**
 * Copies a report. Lone surrogates, which JSON writes as escapes, become U+FFFD.
 * @param {Heartbeat} beat @param {() => string} device @param {number} [zero] of the device's clock @returns {{item?: Item, wrong?: string}}
 */
function parse(beat, device, zero = 0) {
  try {
    const text = JSON.stringify(beat).replace(/\\(?:u(d[89a-f]..)|.)/g, (all, half) => (half ? '\ufffd' : all));
    const copy = JSON.parse(text);
    if (typeof copy.object !== 'object' || copy.object === null) return { wrong: 'want an object' };
    copy.device ||= device(); // or unnamed devices would share a name
    const { dated, report_id: id = '' } = copy; // stored by an earlier page
    delete copy.dated;
    delete copy.report_id;
    const item = { beat: copy, id, text: JSON.stringify(copy), object: key(copy), viewing: viewing(copy), bytes: 0, tries: 0, sent: false, zero: dated ? null : zero };
    item.bytes = new TextEncoder().encode(item.text).length + 40; // room for a guard
    if (item.bytes > most.report) return { wrong: `want at most ${most.report} bytes` };
    return { item };
  } catch (e) {
    return { wrong: `want JSON: ${e}` };
  }
}
