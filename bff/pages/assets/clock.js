// @ts-check

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
  #since; // answers to what was sent before do not count
  #offset = 0; // of the time to what has elapsed

  /** @param {number} last of a page before @param {number} elapsed */
  constructor(last, elapsed) {
    this.last = last;
    this.#lastAt = this.#since = elapsed;
  }

  /** The device may have slept, of which this clock knows nothing. @param {number} elapsed */
  doubt(elapsed) {
    this.known = this.silent = false;
    this.#since = elapsed;
  }

  /** An answer said what time it was. @param {number | undefined} now @param {number} sent when the message was @param {number} came */
  answered(now, sent, came) {
    if (!now) this.silent = true;
    if (!now || sent < this.#since) return;
    if (!this.known) this.#offset = now - came;
    this.#offset = Math.min(Math.max(this.#offset, now - came), now - sent);
    this.known = true;
  }

  /**
   * Another tab has given a report this time by now. What is made from now on is later; what was
   * made before may be older. @param {number} last @param {number} elapsed
   */
  follow(last, elapsed) {
    if (last <= this.last) return;
    this.last = last;
    this.#lastAt = elapsed - 0.001; // before what is made at this very moment
  }

  /**
   * The time of a moment. Who has made two reports in their order finds them in it, whatever was
   * learned about the time in between, and over a reload.
   * @param {number} at
   */
  date(at) {
    let time = Math.ceil(at + this.#offset); // both have lost some of a millisecond
    if (at < this.#lastAt) return time;
    time = Math.max(time, at > this.#lastAt ? this.last + 1 : this.last);
    this.#lastAt = at;
    this.last = time;
    return time;
  }
}
