// @ts-check

const apart = 1000; // milliseconds between two looks at a clock that nobody has set: one may be interrupted

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
  /** The newest time that a report of this device was given. */
  last;
  #lastAt; // when that was made
  #shown = 0; // what the device's clock showed then
  #zero = NaN; // and when nothing had elapsed
  #since; // answers to what was sent before do not count
  #offset = 0; // of the time to what has elapsed
  #elapsed;

  /** @param {number} last of a page before @param {() => number} elapsed */
  constructor(last, elapsed) {
    this.last = last;
    this.#elapsed = elapsed;
    this.#lastAt = this.#since = elapsed();
  }

  /** The device slept, as far as anybody can tell, of which what has elapsed knows nothing. @param {number} ms */
  slept(ms) {
    this.known = this.silent = false;
    this.#since = this.#elapsed();
    this.#lastAt -= ms;
    this.#zero += ms;
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
   * Another tab has given a report this time by now. What is made from now on is later; what was
   * made before may be older. @param {number} last
   */
  follow(last) {
    if (last <= this.last) return;
    this.last = last;
    this.#lastAt = this.#elapsed() - 2; // the report at hand was made before that, and its clock shows whole milliseconds
    this.#zero = NaN;
  }

  /**
   * The time of a moment, which is not in the future. Who has made two reports in their order finds
   * them in it, whatever was learned about the time in between, and over a reload.
   * @param {number} shown by the device's clock @param {number} zero what that showed when nothing had elapsed
   */
  date(shown, zero) {
    const at = Math.min(shown - zero, this.#elapsed());
    const time = Math.ceil(at + this.#offset); // both have lost some of a millisecond
    const seen = Math.min(shown, zero + at);
    const same = Math.abs(zero - this.#zero) < apart && seen >= this.#shown; // else it may have been set back
    const order = same ? seen - this.#shown : at - this.#lastAt;
    if (order < 0) return time;
    this.last = Math.max(time, order > 0 ? this.last + 1 : this.last);
    this.#lastAt = Math.max(this.#lastAt, at);
    this.#shown = seen;
    this.#zero = zero;
    return this.last;
  }
}
