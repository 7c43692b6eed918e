// The cases of client/testdata/outbox.json, which the Go client passes too: node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Outbox } from '../assets/outbox.js';
import { Store } from '../assets/store.js';

const cases = JSON.parse(readFileSync(new URL('../../../client/testdata/outbox.json', import.meta.url), 'utf8'));
const time = (n) => new Date(1.7e12 + n * 1000).toISOString();

/** An outbox whose steps are texts. */
class Machine {
  now = 0;
  made = 0;
  #box;

  constructor(queue = 500) {
    const config = { timeoutMs: 10_000, minWaitMs: 500, maxWaitMs: 30_000, random: () => 1, device: () => 'tv' };
    this.#box = new Outbox({ queue, ...config, sessions: new Store(undefined, '', '') });
    this.#box.opened();
  }

  /** @returns {string[]} outcomes, or the sent reports */
  step(verb, words) {
    this.now += 3_600_000; // no wait of the outbox is longer
    const box = this.#box;
    const told = {
      report: () => box.report(this.#report(words[0])),
      send: () => (box.next(this.now) ?? []).map((beat) => named(beat) + (beat.if_match ? `@${beat.if_match}` : '')),
      answer: () => box.answered(words.map((word) => this.#result(word)), this.now - 3_600_000),
      invalid: () => box.refused(false, 'bad', this.now),
      too_large: () => box.refused(true, 'large', this.now),
      lost: () => box.failed(this.now),
      wait: () => box.postponed(1, this.now),
      resync: () => box.resync(),
      slept: () => box.doubt(),
      closed: () => box.closed(1006, '', this.now),
      seen: () => box.seen(this.#record(...words[0].split(':'))),
    }[verb]() ?? [];
    return told.map((one) => (one.heartbeat ? `${named(one.heartbeat)}=${one.result.status}` : one));
  }

  #report(word) {
    const [, id, n, session = 's'] = /^(\w)\.(\d)(?:\/(\w))?$/.exec(word);
    return { object: { id, type: 1 }, kind: 'progress', position_ms: n * 1000, session, device: 'tv', event_time: time(++this.made) };
  }

  #record(id, etag) {
    return { object: { id, type: 1 }, etag, session: 'other', device: 'phone', position_ms: 5, event_time: time(++this.made) };
  }

  #result(word) {
    const [, id, n, status, etag, others] = /^(\w)\.(\d)=(\w+)(?::(\w+))?(!)?$/.exec(word);
    if (!etag) return { status };
    const own = others ? {} : { session: 's', device: 'tv', position_ms: n * 1000 };
    return { status, record: { ...this.#record(id, etag), ...own } };
  }
}

const named = ({ object, position_ms, session }) => `${object.id}.${position_ms / 1000}${session === 's' ? '' : `/${session}`}`;

for (const { name, queue, steps } of cases) test(name, () => {
  const machine = new Machine(queue);
  for (const [i, step] of steps.entries()) {
    const [does, told = ''] = step.split(' -> ');
    const [verb, ...words] = does.split(' ');
    assert.deepEqual(machine.step(verb, words), verb === 'send' ? words : told.split(' ').filter(Boolean), `step ${i}: ${step}`);
  }
});
