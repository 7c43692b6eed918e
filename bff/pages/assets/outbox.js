// @ts-check

/**
 * @typedef {import('./clock.js').HistoryClock} Clock
 * @typedef {{object: {id: string, type: number}, kind: string, position_ms: number,
 *   event_time: string, session?: string, if_match?: string, dated?: boolean, [more: string]: any}} Heartbeat
 *   `dated` ones have times of the history, as those that were answered
 * @typedef {{status: string, record?: any, error?: any}} Result
 * @typedef {{add(session: string): void, has(session: string): boolean}} Sessions that pages of this device have reported
 * @typedef {{heartbeat: Heartbeat, result: Result}} Outcome of a report
 * @typedef {{beat: Heartbeat, id: string, text: string, object: string, viewing: string, bytes: number, tries: number, sent: boolean, zero: number | null}} Item
 *   `id` names it in all pages that share a storage; `zero` is what the device's clock, which gave its times, showed when nothing had elapsed; null for times of the history
 */

export const longest = 3_600_000; // milliseconds to wait because the edge said so
const most = { reports: 100, bytes: 64 << 10, report: 16 << 10 };
const beginning = 16 << 10; // bytes of the first message
const envelope = 300; // bytes of a message beside its reports
const noRecord = 'ffffffffffffffff'; // the etag of no record
export const least = 5; // milliseconds that a clock is set by: less is between two looks at it
const patientTries = 3; // of a report alone, before others go first

/**
 * The milliseconds until the next attempt: a part of what doubles with each failure in a row.
 * @param {{minWait: number, maxWait: number}} config @param {number} failures before this one @param {number} part from 0 to 1
 */
export function backoff({ minWait, maxWait }, failures, part) {
  return part * Math.min(minWait * 2 ** Math.min(failures, 16), maxWait);
}

/**
 * The reports that the edge has not answered, oldest first, and what to do with them: a
 * machine without timers, connection or storage. Each event is a method; what it returns
 * is to be told, and next() says what to send. `docs/clients.md` has the rules. Times are
 * milliseconds of a clock that only goes forward.
 */
export class Outbox {
  /** Whether the reports are others than those that were stored. */
  changed = false;
  #config;
  #made = 0; // reports
  /** @type {string | undefined} the name of this device, as it was reported last */
  #device;
  /** @type {Item[]} */
  #items = [];
  /** @type {{items: Item[], bytes: number, at: number, live: boolean, doubt: number} | null} */
  #sent = null;
  /** The times of the records that were seen since then, by object. @type {Map<string, number>} */
  #seen = new Map();
  #open = false;
  #live = false; // what happens elsewhere is told
  #room = beginning;
  #ceiling = most.bytes;
  #rest = 0; // until then nothing is sent
  #idle = 0; // messages in a row by which no report was answered
  /** The etag that the player goes on from, by object. @type {Map<string, string>} */
  #known = new Map();
  /** When the doubt about an object began. @type {Map<string, number>} */
  #doubted = new Map();
  #doubts = 0; // counts when doubt began
  /** The time that the device's clock showed when a viewing began, and its zero then, by viewing. @type {Map<string, {shown: string, zero: number}>} */
  #begun = new Map();

  /** @param {{queue: number, patience: number, minWait: number, maxWait: number, random: () => number,
   *   device: () => string, sessions: Sessions, name?: string}} config `device` names this one, for reports that do not, and `name` the page */
  constructor(config) {
    this.#config = config;
  }

  get length() {
    return this.#items.length;
  }

  /** All reports as JSON, each with its id. Those that have times of the history say so. */
  get text() {
    return `[${this.#items.map(({ id, text, zero }) => `${text.slice(0, -1)},"report_id":${JSON.stringify(id)}${zero === null ? ',"dated":true' : ''}}`).join()}]`;
  }

  /** Whether a message is on its way. */
  get busy() {
    return this.#sent !== null;
  }

  // The player's events.

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

  /** Takes over what another page left, except what waits here too. @param {Heartbeat[]} beats @param {number} [zero] of the device's clock @returns {Outcome[]} */
  adopt(beats, zero = 0) {
    const here = new Set(this.#items.flatMap(({ id, text }) => [id, text])); // a text may have other times by now, and another guard
    const parsed = beats.map((beat) => this.#parse(beat, zero));
    const refused = parsed.flatMap(({ wrong }, i) => (wrong ? [refusal(beats[i], wrong)] : []));
    const items = parsed.flatMap(({ item }) => (item && !here.has(item.id) && !here.has(item.text) && here.add(item.id).add(item.text) ? [item] : []));
    for (const item of items) item.sent = true; // as far as is known
    for (const { object, beat } of [...items].reverse()) if (beat.if_match) this.#unknown(object, beat.if_match);
    for (const { object } of items) this.#unknown(object);
    return [...refused, ...this.#add([...items, ...this.#items])];
  }

  /** Takes note of the record that the player goes on from. @param {any} record */
  seen(record) {
    this.#know(key(record), record.etag);
    this.#seen.set(key(record), Date.parse(record.event_time));
    if (this.#live) this.#doubted.delete(key(record));
    else this.#doubted.set(key(record), this.#doubts);
  }

  // The clocks' events.

  /** The time of the history is known: all reports have it from now on. @param {Clock} clock */
  date(clock) {
    for (const item of this.#items) if (item.zero !== null) {
      date(item, clock);
      this.changed = true;
    }
  }

  /** The device slept, which the clock that only goes forward has missed. @param {number} ms */
  slept(ms) {
    for (const item of this.#items) if (item.zero !== null) item.zero += ms;
    for (const begun of this.#begun.values()) begun.zero += ms;
  }

  /** The device's clock has another zero: times that it gave are brought to that. @param {number} zero */
  set(zero) {
    for (const item of this.#items) if (item.zero !== null && Math.abs(zero - item.zero) >= least) {
      shift(item, zero - item.zero);
      item.zero = zero;
    }
  }

  /** Whether the reports of a message have the times of the history. @param {Heartbeat[]} beats */
  dated(beats) {
    return !this.#items.some(({ beat, zero }) => beat === beats[0] && zero !== null);
  }

  // The connection's events.

  opened() {
    this.#open = true;
    this.#live = false;
  }

  /** The edge tells from now on what happens elsewhere. The page may have missed what happened before. */
  resync() {
    this.#live = true;
    this.doubt();
  }

  /**
   * The connection ended, with the code of a close frame. A message that was on its way may
   * have arrived or not.
   * @param {number} code @param {string} reason @param {number} now @returns {Outcome[]}
   */
  closed(code, reason, now) {
    const outcomes = !this.#sent ? [] : code === 1007 || code === 1009 ? this.refused(code === 1009, reason, now) : this.failed(now, true);
    this.left();
    this.doubt();
    return outcomes;
  }

  /** The connection ended as the page wanted. Doubt begins when it says so. */
  left() {
    this.#open = this.#live = false;
    this.#sent = null;
  }

  /** The page may have missed what happens elsewhere. */
  doubt() {
    this.#doubts++;
    for (const { object } of this.#items) this.#unknown(object);
    for (const object of this.#known.keys()) this.#doubted.set(object, this.#doubts);
  }

  // Messages and what becomes of them.

  /** The reports of the next message, if it is time for one. @param {number} now @param {boolean} [even] one of none @param {boolean} [ask] nothing but that */
  next(now, even = false, ask = false) {
    if (this.#sent || now < this.#rest) return null;
    const items = ask ? [] : this.#head();
    if (items.length === 0 && !even && !ask) return null;
    for (const item of items) item.sent = true;
    this.#sent = { items, bytes: size(items), at: now, live: this.#live, doubt: this.#doubts };
    this.#seen.clear();
    return items.map(({ beat }) => beat);
  }

  /** When there is something to do, if nothing happens. */
  wake() {
    if (this.#sent) return this.#sent.at + this.#patience(this.#sent);
    return this.#open && this.#items.length > 0 ? this.#rest : Infinity;
  }

  /** Whether the answer is late, and the connection to be given up. @param {number} now */
  late(now) {
    return this.#sent !== null && now >= this.wake();
  }

  /** @param {Result[]} results @param {number} now @returns {Outcome[]} */
  answered(results, now) {
    const sent = this.#sent;
    if (!sent) return [];
    if (results.length !== sent.items.length || !results.every((result) => result?.status)) return this.failed(now);
    this.#sent = null;
    if (now - sent.at <= this.#config.patience / 4) this.#room = Math.min(this.#ceiling, Math.max(this.#room, 2 * sent.bytes));
    const outcomes = sent.items.flatMap((item, i) => this.#takeAnswer(item, results[i], sent));
    if (sent.items.length > 0 && outcomes.length === 0) this.#pause(now);
    else this.#idle = 0;
    return outcomes;
  }

  /** The message was not answered, or by an error that may pass. @param {number} now @param {boolean} [gone] the connection is @returns {Outcome[]} */
  failed(now, gone = false) {
    const items = this.#halve();
    if (items.length === 1 && ++items[0].tries >= patientTries) this.#putBack(items[0]);
    if (!gone) this.#pause(now); // else it takes a while until there is another one
    return [];
  }

  /** The message will never be taken as it is. @param {boolean} large @param {string} reason @param {number} now @param {string} [where] in the message @returns {Outcome[]} */
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

  /** The edge asks to wait. @param {number} ms @param {number} now @returns {Outcome[]} */
  postponed(ms, now) {
    this.#sent = null;
    this.#rest = now + Math.min(ms, longest) + this.#config.random() * this.#config.minWait;
    return [];
  }

  // The page's questions.

  /**
   * The newest reports that fit, for a page that goes away and sends them.
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

  /** The newest report of an object that waits, if any does. @param {{id: string, type: number}} object */
  last(object) {
    return this.#items.findLast((item) => item.object === key({ object }))?.beat;
  }

  // Inside.

  /** @param {Heartbeat} beat @param {number} [zero] of the device's clock */
  #parse(beat, zero) {
    const parsed = parse(beat, this.#config.device, zero);
    if (!parsed.item) return parsed;
    parsed.item.id ||= `${this.#config.name}.${++this.#made}`;
    this.#config.sessions.add(parsed.item.beat.session ?? '');
    return parsed;
  }

  /** The clock may have been set since the viewing began: brings its beginning to what the clock shows now. @param {Item} item @param {number} zero */
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

  /** The etag that a report of an object made now must find. @param {string} object */
  #guard(object) {
    const before = this.#items.findLast((item) => item.object === object && item.beat.if_match)?.beat.if_match;
    return before || this.#doubted.has(object) ? (this.#known.get(object) ?? before) : undefined;
  }

  /** Reports that were not answered go on from the record of their guard, or from none. @param {string} object @param {string} [etag] */
  #unknown(object, etag = noRecord) {
    if (this.#known.has(object)) return;
    this.#know(object, etag);
    this.#doubted.set(object, this.#doubts);
  }

  /** Takes note of an etag; of too many the one noted longest ago goes. @param {string} object @param {string} etag */
  #know(object, etag) {
    const forgotten = keepLast(this.#known, object, etag, this.#config.queue);
    if (forgotten !== undefined) this.#doubted.delete(forgotten);
  }

  /** Gives one up. @returns {Outcome[]} */
  #shed() {
    const furthest = new Map(); // of the later reports of a viewing
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

  /** How long an answer may take. @param {{items: Item[], bytes: number}} message */
  #patience({ items, bytes }) {
    return this.#config.patience + (items.length === 1 ? bytes : 0); // as long as 1 KB/s takes
  }

  /** Has the next message half the bytes of the one that was on its way. @returns {Item[]} its reports */
  #halve() {
    const { items, bytes } = this.#sent ?? { items: [], bytes: 0 };
    if (items.length > 0) this.#room = Math.min(this.#room, Math.ceil(bytes / 2));
    this.#sent = null;
    return items;
  }

  /** Waits longer and longer. @param {number} now */
  #pause(now) {
    this.#rest = now + backoff(this.#config, this.#idle++, 0.5 + this.#config.random() / 2);
  }

  /** Lets others go first, if it still waits. @param {Item} item */
  #putBack(item) {
    item.tries = 0;
    if (!this.#items.includes(item)) return;
    const mates = this.#items.filter(({ object }) => object === item.object); // guarded, perhaps, by the record that it is to leave
    this.#items = [...this.#items.filter(({ object }) => object !== item.object), ...mates];
  }

  /** @param {Item} item @param {Result} result @param {{live: boolean, doubt: number}} sent when it was @returns {Outcome[]} */
  #takeAnswer(item, result, sent) {
    const { status, record } = result;
    if (status === 'unavailable') {
      this.#putBack(item);
      return [];
    }
    const glanced = ['stored', 'unchanged'].includes(status) && record?.early && record.position_ms === item.beat.position_ms; // another device has only just begun
    const own = record && (glanced || this.#makes(record, item.beat));
    if (status === 'conflict') return this.#conflict(item, result, own);
    const first = this.#known.get(item.object) === noRecord && record && notLater(record, item.beat);
    if (own || (record && status === 'stored' && (item.beat.if_match || first))) this.#goesOn(item, record, sent);
    else if (record && !this.#doubted.has(item.object) && notLater(record, item.beat) && !this.#overtaken(item.object, record)) this.#know(item.object, record.etag);
    const outcomes = this.#tell(item, result);
    if (!['stored', 'stale'].includes(status)) this.#passOn(item);
    return outcomes;
  }

  /** Whether this device made a record, in whichever page, also one that had the name of another window as it left this report. @param {any} record @param {Heartbeat} beat */
  #makes({ device, session = '' }, beat) {
    return (device === beat.device || device === this.#device) && this.#config.sessions.has(session);
  }

  /** Those of a viewing go on from what it has left, and so do those who went on from the record before. @param {Item} item @param {any} record */
  #follow(item, record) {
    const before = [item.beat.if_match ?? noRecord, this.#known.get(item.object)];
    const last = [item.viewing, viewing(record)];
    this.#renew(item.object, record, (other) => last.includes(other.viewing) || before.includes(other.beat.if_match));
  }

  /** The record is what this device has left. @param {Item} item @param {any} record @param {{live: boolean, doubt: number}} sent */
  #goesOn(item, record, sent) {
    this.#follow(item, record);
    if (this.#overtaken(item.object, record)) return;
    const since = this.#doubted.get(item.object) ?? 0;
    if (sent.live && since <= sent.doubt) this.#doubted.delete(item.object);
    else this.#doubted.set(item.object, since); // also where it was not known before
  }

  /** @param {Item} item @param {Result} result @param {boolean} own @returns {Outcome[]} */
  #conflict(item, result, own) {
    const { record } = result;
    if (own) { // an answer was lost
      this.#follow(item, record);
      return [];
    }
    if (!record) { // there is nothing else to go to
      this.#renew(item.object, null, () => true);
      return [];
    }
    const mates = this.#items.filter((other) => other.viewing === item.viewing && other.beat.if_match && other.beat.if_match !== record.etag && !this.#stands(other, record));
    if (!this.#overtaken(item.object, record)) this.seen(record);
    return mates.flatMap((mate) => this.#tell(mate, result));
  }

  /** An answer has brought a record, or none: guarded reports of the object go on from that. @param {string} object @param {any} record @param {(item: Item) => boolean} which */
  #renew(object, record, which) {
    for (const item of this.#items) if (item.object === object && item.beat.if_match && which(item) && !this.#stands(item, record)) {
      if (record) item.beat.if_match = record.etag;
      else delete item.beat.if_match;
      write(item);
      this.changed = true;
    }
    if (!this.#overtaken(object, record)) this.#know(object, record?.etag ?? noRecord);
  }

  /** Whether a report goes on from what was seen since the message left, and the answer knows less. @param {Item} item @param {any} record */
  #stands({ object, beat }, record) {
    return beat.if_match === this.#known.get(object) && this.#overtaken(object, record);
  }

  /** Whether a newer record was seen since the message left: than the one in its answer, or, as far as anybody knows, than none. @param {string} object @param {any} record */
  #overtaken(object, record) {
    const seen = this.#seen.get(object);
    return seen !== undefined && !(record && Date.parse(record.event_time) >= seen);
  }

  /** Tells of a report that was not answered. If it was sent it may be stored. @param {Item} item @param {Result} result @returns {Outcome[]} */
  #giveUp(item, result) {
    const outcomes = this.#tell(item, result);
    if (!item.sent) this.#passOn(item);
    return outcomes;
  }

  /** Where the first report of an object of which no record was known has left none, the next one is the first. @param {Item} item */
  #passOn({ object, beat }) {
    if (beat.if_match || this.#known.get(object) !== noRecord) return;
    const mates = this.#items.filter((other) => other.object === object);
    const next = mates[0];
    if (next?.beat.if_match !== noRecord || mates.some((mate) => !mate.beat.if_match) || this.#sent?.items.includes(next)) return;
    delete next.beat.if_match;
    write(next);
  }

  /** Removes a report, and returns its outcome, once. @param {Item} item @param {Result} result @returns {Outcome[]} */
  #tell(item, result) {
    const left = this.#items.filter((other) => other !== item);
    if (left.length === this.#items.length) return []; // it was before
    this.#items = left;
    this.changed = true;
    return [{ heartbeat: item.beat, result }];
  }
}

/** Names the object of a report or of a record. @param {{object: {id: string, type: number}}} of */
export function key({ object }) {
  return `${object?.type}/${object?.id}`;
}

/** Names the viewing of a report or of a record. @param {{object: {id: string, type: number}, session?: string}} of */
export function viewing(of) {
  return `${key(of)} ${of.session ?? ''}`;
}

/** Whether a report may be in a message with others of its object: one guard, one viewing. @param {Map<string, string>} tags @param {Item} item */
function joins(tags, { object, viewing, beat }) {
  const tag = beat.if_match ? `${viewing} ${beat.if_match}` : '';
  if (!tags.has(object)) tags.set(object, tag);
  return tags.get(object) === tag;
}

/** Whether the times of two reports are of one clock. @param {Item | undefined} a none for any @param {Item} b */
function alike(a, b) {
  return !a || (a.zero === null) === (b.zero === null);
}

/** Gives a report the times of the history. @param {Item} item @param {Clock} clock */
function date(item, clock) {
  const shown = Date.parse(item.beat.event_time);
  if (Math.abs(shown) < 8.64e15) shift(item, clock.date(shown, item.zero ?? 0) - shown); // else it is not valid
  item.zero = null;
}

/** Returns a report with the times of the history, for one that is to be reported later. @template {Heartbeat} B @param {B} beat @param {number} zero @param {Clock} clock */
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

/** Shifts a time, if it is one. @param {Heartbeat} beat @param {string} name @param {number} ms */
function move(beat, name, ms) {
  const at = Date.parse(beat[name]) + ms;
  if (Math.abs(at) < 8.64e15) beat[name] = new Date(at).toISOString();
}

/**
 * Makes an entry the last one. Of too many the first goes.
 * @template T @param {Map<string, T>} map @param {string} name @param {T} value @param {number} most
 * @returns {string | undefined} the name of the one that went
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

/** Writes the text of a report that was changed. @param {Item} item */
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
 * Makes a copy in which each half of a surrogate pair is U+FFFD. JSON writes such a half as
 * an escape.
 * @param {Heartbeat} beat @param {() => string} device @param {number} [zero] of the device's clock @returns {{item?: Item, wrong?: string}}
 */
function parse(beat, device, zero = 0) {
  try {
    const text = JSON.stringify(beat).replace(/\\(?:u(d[89a-f]..)|.)/g, (all, half) => (half ? '\ufffd' : all));
    const copy = JSON.parse(text);
    if (typeof copy.object !== 'object' || copy.object === null) return { wrong: 'want an object' };
    copy.device ||= device(); // two devices without a name are not to be taken for one
    const { dated, report_id: id = '' } = copy; // as a page before has stored it
    delete copy.dated;
    delete copy.report_id;
    const item = { beat: copy, id, text: JSON.stringify(copy), object: key(copy), viewing: viewing(copy), bytes: 0, tries: 0, sent: false, zero: dated ? null : zero };
    item.bytes = new TextEncoder().encode(item.text).length + 40; // for a guard
    if (item.bytes > most.report) return { wrong: `want at most ${most.report} bytes` };
    return { item };
  } catch (e) {
    return { wrong: `want JSON: ${e}` };
  }
}
