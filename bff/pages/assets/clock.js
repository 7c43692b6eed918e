// @ts-check

const apart = 1000; // milliseconds between two looks at a clock that nobody has set: one may be interrupted

/**
 * @typedef {{at: number, shown: number, time: number}} Moment when something was reported, what the device's
 *   clock showed then, and the time that it was given
 */

/**
 * Tells the time by which the history judges events. It is what an answer said, and what has
 * elapsed since the answer came: never ahead, and behind by no more than the quickest answer
 * was on its way back. The round trip of an answer bounds it, too. Times of the history are
 * Unix milliseconds; all others are those of a clock that only goes forward.
 */
export class HistoryClock {
  /** Whether an answer has told the time since the device may last have slept. */
  known = false;
  /** Whether an answer on this connection has not, and will not. */
  silent = false;
  /** @type {Moment} */
  #newest; // of what this device has reported
  /** @type {Moment} */
  #before; // what was dated last, which may be older
  #since; // answers to what was sent before do not count
  #offset = 0; // of the time to what has elapsed
  #elapsed;

  /** @param {number} last of a page before @param {() => number} elapsed */
  constructor(last, elapsed) {
    this.#elapsed = elapsed;
    this.#since = elapsed();
    this.#newest = this.#before = { at: this.#since, shown: Infinity, time: last };
  }

  /** The newest time that a report of this device was given. */
  get last() {
    return this.#newest.time;
  }

  /** The device slept, as far as anybody can tell, of which what has elapsed knows nothing. @param {number} ms */
  slept(ms) {
    this.known = this.silent = false;
    this.#since = this.#elapsed();
    for (const moment of new Set([this.#newest, this.#before])) moment.at -= ms;
  }

  /** An answer said what time it was. @param {number | undefined} now @param {number} sent when the message was */
  answered(now, sent) {
    if (!now) this.silent = true;
    if (!now || sent < this.#since) return;
    const came = this.#elapsed();
    if (!this.known) this.#offset = now - came;
    this.#offset = Math.min(Math.max(this.#offset, now - came), now - sent);
    this.known = true;
  }

  /**
   * Another tab has given a report this time by now. Reports made from now on are later; earlier
   * ones may be older. @param {number} last
   */
  follow(last) {
    if (last <= this.last) return;
    const at = this.#elapsed() - 2; // the report at hand was made before that, and its clock shows whole milliseconds
    this.#newest = { at, shown: Infinity, time: last };
  }

  /**
   * The time of a moment, which is not in the future. Two reports keep the order in which
   * they were made, whatever was learned about the time in between, and over a reload.
   * @param {number} shown by the device's clock @param {number} zero what that showed when nothing had elapsed
   */
  date(shown, zero) {
    const at = Math.min(shown - zero, this.#elapsed());
    const moment = { at, shown: Math.min(shown, zero + at), time: Math.ceil(at + this.#offset) }; // both have lost some of a millisecond
    for (const other of [this.#before, this.#newest]) {
      const order = compare(moment, other);
      if (order >= 0) moment.time = Math.max(moment.time, order > 0 ? other.time + 1 : other.time);
    }
    this.#before = moment;
    if (compare(moment, this.#newest) >= 0) this.#newest = { ...moment, at: Math.max(at, this.#newest.at) };
    return moment.time;
  }
}

/** Whether one was reported after another, which is more than 0, or at the same moment. @param {Moment} a @param {Moment} b */
function compare(a, b) {
  const same = a.shown >= b.shown && a.at > b.at - apart; // else the clock may have been set
  return same ? a.shown - b.shown : a.at - b.at;
}
