// @ts-check
// SPDX-License-Identifier: Apache-2.0

const apart = 1000; // milliseconds of jitter between two clock reads

/**
 * @typedef {{at: number, shown: number, time: number}} Moment steady time of a report, the device's
 *   clock then, and the event time that it was given
 */

/**
 * The history's time: the time in an answer plus the steady time since. It is never ahead. It is behind by at most the latency of
 * the fastest answer. The history's times are Unix milliseconds; all others are steady.
 */
export class HistoryClock {
  /** Whether an answer contained the time since the last sleep. */
  known = false;
  /** Whether answers on this connection lack the time. */
  silent = false;
  /** The newest report. @type {Moment} */
  #newest;
  /** The previously dated report. @type {Moment} */
  #before;
  #since; // answers to earlier messages do not count
  #offset = 0; // history's time minus steady time
  #elapsed;

  /** @param {number} last event time of an earlier page @param {() => number} elapsed */
  constructor(last, elapsed) {
    this.#elapsed = elapsed;
    this.#since = elapsed();
    this.#newest = this.#before = { at: this.#since, shown: Infinity, time: last };
  }

  /** Newest event time of this device. */
  get last() {
    return this.#newest.time;
  }

  /** Corrects for a sleep that the steady clock missed. @param {number} ms */
  slept(ms) {
    this.known = this.silent = false;
    this.#since = this.#elapsed();
    for (const moment of new Set([this.#newest, this.#before])) moment.at -= ms;
  }

  /** Handles the time of an answer. @param {number | undefined} now @param {number} sent steady time of its message */
  answered(now, sent) {
    if (!now) this.silent = true;
    if (!now || sent < this.#since) return;
    const came = this.#elapsed();
    if (!this.known) this.#offset = now - came;
    this.#offset = Math.min(Math.max(this.#offset, now - came), now - sent);
    this.known = true;
  }

  /**
   * Dates new reports after another tab's event time. @param {number} last
   */
  follow(last) {
    if (last <= this.last) return;
    const at = this.#elapsed() - 2; // before the current report; its clock has whole milliseconds
    this.#newest = { at, shown: Infinity, time: last };
  }

  /**
   * Returns the history's time of a report, never in the future. Reports keep their order, even over a reload.
   * @param {number} shown device clock @param {number} zero device clock at steady time 0
   */
  date(shown, zero) {
    const at = Math.min(shown - zero, this.#elapsed());
    const moment = { at, shown: Math.min(shown, zero + at), time: Math.ceil(at + this.#offset) }; // both are truncated
    for (const other of [this.#before, this.#newest]) {
      const order = compare(moment, other);
      if (order >= 0) moment.time = Math.max(moment.time, order > 0 ? other.time + 1 : other.time);
    }
    this.#before = moment;
    if (compare(moment, this.#newest) >= 0) this.#newest = { ...moment, at: Math.max(at, this.#newest.at) };
    return moment.time;
  }
}

/** Compares the order of two reports. @param {Moment} a @param {Moment} b */
function compare(a, b) {
  const same = a.shown >= b.shown && a.at > b.at - apart; // else the clock was set
  return same ? a.shown - b.shown : a.at - b.at;
}
