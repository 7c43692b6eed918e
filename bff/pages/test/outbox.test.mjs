// The outbox rule by rule, as docs/clients.md has them, without a connection.
import test from 'node:test';
import assert from 'node:assert/strict';
import { HistoryClock } from '../assets/clock.js';
import { dated, Outbox } from '../assets/outbox.js';
import { Store } from '../assets/store.js';

const none = 'ffffffffffffffff';
const at = (n) => new Date(1.7e12 + n * 1000).toISOString();

/** An outbox, open and live unless it shall not be. */
function outbox({ open = true, ...config } = {}) {
  const box = new Outbox({ queue: 500, timeoutMs: 10_000, minWaitMs: 500, maxWaitMs: 30_000, random: () => 1, device: () => 'tv', sessions: new Store(undefined, '', ''), ...config });
  if (open) connect(box);
  return box;
}

/** Has it connected, and told what others do. */
function connect(box) {
  box.opened();
  box.resync();
}

/** The report number n; each is later than those before. */
const beat = (n, more = {}) => ({ object: { id: '1', type: 1 }, session: 's1', device: 'tv', kind: 'progress', position_ms: n * 1000, event_time: at(n), ...more });
const other = (n, more) => beat(n, { object: { id: `o${n}`, type: 1 }, ...more });
const padded = (n, bytes) => other(n, { meta: { pad: 'x'.repeat(bytes) } });

/** The record that a report leaves. */
const left = (heartbeat, etag) => ({ ...heartbeat, etag });
const elsewhere = (n, etag) => left(beat(n, { session: 'other', device: 'phone' }), etag);

const stored = (heartbeat, etag) => ({ status: 'stored', record: left(heartbeat, etag) });
const guards = (beats) => beats.map(({ if_match }) => if_match);
const places = (beats) => beats.map(({ position_ms }) => position_ms / 1000);
const waiting = (box) => JSON.parse(box.text);

/** Sends, and has each answered by what a function of it says. */
function answer(box, result, now = 0) {
  return box.answered(box.next(now).map(result), now);
}

/** An outbox that knows the record 'a' of report 0, and is in doubt of it. */
function doubtful(config) {
  const box = outbox(config);
  box.report(beat(0));
  answer(box, (one) => stored(one, 'a'));
  box.closed(1006, '', 0);
  connect(box);
  return box;
}

test('a message has 100 reports at most', () => {
  const box = outbox();
  for (let n = 0; n < 300; n++) box.report(other(n));
  answer(box, (one) => stored(one, 'a'));
  assert.equal(box.next(0).length, 100);
});

test('a message has 64 KiB at most, with all guards', () => {
  const box = doubtful();
  for (let n = 1; n < 500; n++) box.report(beat(n, { meta: { pad: 'x'.repeat(570) } }));
  let largest = 0;
  for (let beats = box.next(0); beats; beats = box.next(0)) {
    const { length } = JSON.stringify({ seq: 1, records: true, sent_at: at(0), time_zone: 'UTC', heartbeats: beats });
    largest = Math.max(largest, length);
    box.answered(beats.map((one) => stored(one, none)), 0);
  }
  assert.ok(largest > 62 << 10 && largest <= 64 << 10, String(largest));
});

test('quick answers prove room, slow ones do not', () => {
  const box = outbox();
  for (let n = 0; n < 300; n++) box.report(padded(n, 800));
  const sizes = [];
  for (const took of [2500, 2501, 0, 0, 0]) {
    const beats = box.next(0);
    sizes.push(Math.round(JSON.stringify(beats).length / 1024));
    box.answered(beats.map((one) => stored(one, 'a')), took);
  }
  const [first, second, third, fourth, fifth] = sizes;
  assert.ok(first > 13 && first <= 16, String(sizes));
  assert.ok(second > 1.8 * first && second <= 32, String(sizes));
  assert.equal(third, second, 'a slow answer proves nothing');
  assert.ok(fourth > 50 && fourth <= 64 && fifth <= 64, String(sizes));
});

test('a message without an answer is halved, and its half proves room again', () => {
  const box = outbox();
  for (let n = 0; n < 40; n++) box.report(padded(n, 800));
  const before = box.next(0).length;
  box.failed(0);
  const after = box.next(1000).length;
  assert.ok(after <= before / 2 && after >= before / 3, `${before}, then ${after}`);
});

test('after 1009 room stays below what was refused, until a report alone was to blame', () => {
  const box = outbox();
  for (let n = 0; n < 200; n++) box.report(padded(n, 800));
  const all = box.next(0).length;
  box.closed(1009, '', 0);
  connect(box);
  const half = box.next(0).length;
  assert.ok(half <= all / 2);
  box.answered(Array.from({ length: half }, (_, n) => stored(padded(n, 800), 'a')), 0);
  assert.equal(box.next(0).length, half, 'it does not grow');
  let told = [];
  for (let i = 0; i < 20 && told.length === 0; i++) {
    told = box.closed(1009, 'too large', 0);
    connect(box);
    if (told.length === 0) box.next(0);
  }
  assert.deepEqual(told.map(({ result }) => [result.status, result.error.reason]), [['invalid', 'too large']]);
  answer(box, (one) => stored(one, 'a'));
  answer(box, (one) => stored(one, 'a'));
  assert.ok(box.next(0).length > all, 'it grows again');
});

test('1007 says nothing of what fits', () => {
  const box = outbox();
  for (let n = 0; n < 100; n++) box.report(padded(n, 800));
  const all = box.next(0).length;
  box.closed(1007, '', 0);
  connect(box);
  answer(box, (one) => stored(one, 'a'));
  answer(box, (one) => stored(one, 'a'));
  assert.ok(box.next(0).length > all);
});

test('one that fails alone goes behind the others', () => {
  const box = outbox();
  for (let n = 0; n < 3; n++) box.report(other(n));
  const sent = [];
  for (let i = 0; i < 9; i++) {
    sent.push(places(box.next(60_000 * i)).join());
    box.failed(60_000 * i);
  }
  assert.deepEqual(sent, ['0,1,2', '0', '0', '0', '1', '1', '1', '2', '2']);
});

test('it rests longer and longer as long as nothing is settled', () => {
  const box = outbox();
  box.report(other(0));
  const rests = [];
  let now = 0;
  const rest = () => {
    const began = now;
    while (!box.next(now) && now < began + 60_000) now += 100;
    rests.push(now - began);
  };
  rest();
  for (let i = 0; i < 9; i++) {
    if (i % 2) box.failed(now);
    else box.answered([{ status: 'unavailable' }], now);
    rest();
  }
  assert.deepEqual(rests, [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
  box.answered([stored(other(0), 'a')], now);
  box.report(other(1));
  rest();
  box.failed(now);
  rest();
  assert.deepEqual(rests.slice(-2), [0, 500], 'it begins anew');
});

test('a message of nothing that is refused is no reason to hurry', () => {
  const box = outbox();
  box.next(0, true);
  box.refused(false, '', 0);
  assert.equal(box.next(499, true), null);
  assert.notEqual(box.next(500, true), null);
});

test('an answer that does not fit is none', () => {
  for (const results of [[], [{}], [null], [stored(other(0), 'a'), stored(other(0), 'a')]]) {
    const box = outbox();
    box.report(other(0));
    box.next(0);
    assert.deepEqual(box.answered(results, 0), []);
    assert.equal(box.length, 1);
    assert.equal(box.busy, false);
  }
});

test('what is on its way is not given up', () => {
  const box = outbox({ queue: 3 });
  for (let n = 0; n < 3; n++) box.report(beat(n));
  box.next(0);
  const told = [box.report(beat(3)), box.report(beat(4))].flat();
  assert.deepEqual(told.map(({ heartbeat, result }) => [heartbeat.position_ms / 1000, result.status]), [[3, 'dropped'], [4, 'dropped']]);
  assert.deepEqual(places(waiting(box)), [0, 1, 2]);
});

test('a full queue gives up the oldest of what is superfluous', () => {
  const box = outbox({ queue: 4 });
  for (const [n, more] of [[1, { session: 's2' }], [3], [2], [3, { kind: 'pause' }]]) box.report(beat(n, more));
  const [{ heartbeat, result }] = box.report(beat(5, { kind: 'pause' }));
  assert.deepEqual([heartbeat.position_ms, result.status], [3000, 'superseded']);
  const [second] = box.report(beat(1, { kind: 'seek' }));
  assert.deepEqual([second.heartbeat.position_ms, second.result.status], [2000, 'superseded']);
  const [third] = box.report(beat(1, { kind: 'seek' }));
  assert.deepEqual([third.heartbeat.session, third.result.status], ['s2', 'dropped']);
});

test('a progress says nothing beside a later report of the same position', () => {
  for (const [position, status] of [[3000, 'superseded'], [2999, 'dropped']]) {
    const box = outbox({ queue: 1 });
    box.report(beat(3));
    const [{ heartbeat, result }] = box.report(beat(4, { kind: 'pause', position_ms: position }));
    assert.deepEqual([heartbeat.kind, result.status], ['progress', status]);
  }
});

test('times of the device are as its clock now has them, until those of the history are known', () => {
  const box = outbox();
  const times = () => waiting(box).map(({ event_time, started_at }) => [event_time, started_at]);
  box.report(beat(1, { started_at: 'no time' }), 1000);
  box.report(beat(2, { event_time: 'none' }), 1000);
  box.set(3_601_000); // it was set an hour ahead
  assert.deepEqual(times(), [[at(3601), 'no time'], ['none', undefined]]);
  const beats = box.next(0);
  assert.equal(box.dated(beats), false);
  box.failed(0);
  const clock = { known: true, date: (shown, zero) => shown - zero + 3_601_000 + 5000 };
  box.changed = false;
  box.date(clock);
  assert.equal(box.changed, true);
  assert.equal(box.dated(beats), true);
  box.set(0);
  assert.deepEqual(times(), [[at(3606), 'no time'], ['none', undefined]]);
  box.adopt([{ ...beat(7), dated: true }, beat(8)], 1000);
  assert.deepEqual(waiting(box).map(({ dated }) => dated), [true, undefined, true, true]);
  assert.equal(box.next(1e9).length, 1, 'a message has times of one clock');
});

test('what was answered is reported again with the times that it has', () => {
  const box = outbox();
  const clock = { known: true, date: (shown) => shown + 5000 };
  box.report({ ...beat(1, { started_at: at(0) }), dated: true }, 1000, clock);
  box.report(beat(2, { started_at: at(0) }), 1000, clock);
  assert.deepEqual(waiting(box).map(({ event_time, started_at, dated }) => [event_time, started_at, dated]), [[at(1), at(0), true], [at(7), at(5), true]]);
});

test('a report that is made later has the times that it would have had', () => {
  const clock = { date: (shown, zero) => shown - zero + 5000 };
  const { event_time, started_at, dated: done } = dated(beat(10, { started_at: at(8) }), 2000, clock);
  assert.deepEqual([event_time, started_at, done], [at(13), at(11), true]);
  assert.deepEqual(dated(beat(10), 0, clock).started_at, undefined);
});

test('a question is a message of nothing', () => {
  const box = outbox();
  box.report(beat(1));
  assert.deepEqual(box.next(0, false, true), []);
  assert.deepEqual(box.answered([], 0), []);
  assert.equal(box.next(0).length, 1);
});

test('a message has one guard and one viewing of an object', () => {
  const box = doubtful();
  box.report(beat(1));
  box.report(other(2));
  box.report(beat(3));
  box.report(beat(4, { session: 's2' }));
  box.report(other(5));
  assert.deepEqual(places(box.next(0)), [1, 2, 3]);
  box.answered([stored(beat(1), 'b'), stored(other(2), 'x'), stored(beat(3), 'c')], 0);
  const beats = box.next(0);
  assert.deepEqual(places(beats), [4, 5]);
  assert.deepEqual(guards(beats), ['c', undefined]);
});

test('what is not guarded does not go with what is', () => {
  const box = outbox();
  box.report(beat(1));
  box.next(0);
  box.closed(1006, '', 0);
  box.report(beat(2));
  connect(box);
  assert.deepEqual(places(box.next(0)), [1]);
  assert.deepEqual(guards(waiting(box)), [undefined, none]);
});

test('so it is in a page that goes away', () => {
  const box = doubtful();
  box.report(beat(1));
  box.report(other(2));
  box.report(beat(3, { session: 's2' }));
  assert.deepEqual(places(box.newest(60_000, () => true)), [2, 3]);
  assert.deepEqual(places(box.newest(60_000, ({ session }) => session === 's1')), [1, 2]);
  assert.deepEqual(box.newest(100, () => true), []);
});

test('an answer ends a doubt that began before the message', () => {
  for (const [during, guard] of [[() => {}, undefined], [(box) => box.doubt(), 'b']]) {
    const box = doubtful();
    box.report(beat(1));
    const beats = box.next(0);
    during(box);
    box.answered([stored(beats[0], 'b')], 0);
    box.report(beat(2));
    assert.deepEqual(guards(waiting(box)), [guard]);
  }
});

test('doubt ends only where others are told of', () => {
  for (const [before, after, guard] of [[true, false, undefined], [false, false, 'b'], [false, true, 'b'], [true, true, 'b']]) {
    const box = doubtful();
    box.opened();
    if (before) box.resync();
    box.report(beat(1));
    const beats = box.next(0);
    if (after) box.resync(); // something may have been missed
    box.answered([stored(beats[0], 'b')], 0);
    box.report(beat(2));
    assert.deepEqual(guards(waiting(box)), [guard]);
  }
});

test('doubt begins with what is seen before one is told of others', () => {
  const box = outbox({ open: false });
  box.opened();
  box.seen(elsewhere(1, 'a'));
  connect(box);
  box.report(beat(2));
  assert.deepEqual(guards(box.next(0)), ['a']);
  box.seen(elsewhere(2, 'b'));
  box.report(beat(3, { session: 's2' }));
  assert.deepEqual(guards(waiting(box)), ['a', 'b'], 'behind a guarded one, from what is seen');
});

test('what is seen on a connection ends doubt', () => {
  const box = doubtful();
  box.seen(elsewhere(1, 'b'));
  box.report(beat(2));
  assert.deepEqual(guards(waiting(box)), [undefined]);
});

test('a later record of another device is not where the player is', () => {
  const box = outbox();
  box.report(beat(0));
  answer(box, (one) => stored(one, 'a'));
  box.report(beat(1));
  answer(box, () => ({ status: 'stale', record: elsewhere(2, 'b') }));
  box.closed(1006, '', 0);
  box.report(beat(3));
  assert.deepEqual(guards(waiting(box)), ['a']);
});

test('an earlier record is, unless there is doubt', () => {
  for (const [doubt, guard] of [[false, 'b'], [true, 'a']]) {
    const box = outbox();
    box.report(beat(0));
    answer(box, (one) => stored(one, 'a'));
    box.report(beat(2));
    box.next(0);
    if (doubt) box.doubt();
    box.answered([{ status: 'paused', record: elsewhere(1, 'b') }], 0);
    box.closed(1006, '', 0);
    box.report(beat(3));
    assert.deepEqual(guards(waiting(box)), [guard]);
  }
});

test('a late answer does not take away what was seen since', () => {
  const older = elsewhere(0, 'a');
  const newer = elsewhere(9, 'c');
  for (const [name, seen, result, want] of [
    ['stored', newer, (one) => stored(one, 'b'), ['c']],
    ['stored', older, (one) => stored(one, 'b'), ['b']],
    ['a conflict', newer, () => ({ status: 'conflict', record: elsewhere(2, 'b') }), ['c']],
    ['a conflict', older, () => ({ status: 'conflict', record: elsewhere(2, 'b') }), []],
    ['a conflict with itself', newer, () => ({ status: 'conflict', record: left(beat(2), 'b') }), ['b', 'c']],
    ['a conflict with itself', older, () => ({ status: 'conflict', record: left(beat(2), 'b') }), ['b', 'b']],
    ['a conflict with nothing', newer, () => ({ status: 'conflict' }), [undefined, 'c']],
  ]) {
    const box = doubtful();
    box.report(beat(2));
    const sent = box.next(0);
    box.seen(seen);
    box.doubt();
    box.report(beat(10));
    box.answered(sent.map(result), 0);
    assert.deepEqual(guards(waiting(box)), want, `${name}, seen ${seen.etag}`);
  }
});

test('the first report of an object ends its doubt, unless the record is later', () => {
  for (const [when, guard] of [[1, undefined], [9, none]]) {
    const box = outbox({ open: false });
    box.report(beat(2));
    connect(box);
    answer(box, () => ({ status: 'stored', record: elsewhere(when, 'b') }));
    box.report(beat(3));
    assert.deepEqual(guards(waiting(box)), [guard]);
  }
});

test('a record of one\'s own renews the guards of its viewing, and those of the record before', () => {
  const box = outbox();
  box.report(beat(1, { if_match: 'a' }));
  box.report(beat(2, { if_match: 'b' })); // the same viewing
  box.report(beat(3, { session: 's2', if_match: 'a' })); // the same guard
  box.report(beat(4, { session: 's2', if_match: 'b' })); // neither
  box.report(other(5, { if_match: 'a' })); // another object
  box.report(beat(6, { session: 's3' })); // follows the last one
  assert.deepEqual(places(box.next(0)), [1]);
  box.changed = false;
  box.answered([stored(beat(1), 'c')], 0);
  assert.equal(box.changed, true);
  assert.deepEqual(guards(waiting(box)), ['c', 'c', 'b', 'a', 'b']);
});

test('another device that has only just begun where a report has left the user makes nothing new', () => {
  const glance = { ...left(beat(9, { device: 'phone', session: 'other' }), 'b'), early: true };
  for (const [status, position_ms, guard] of [['stored', 1000, 'b'], ['unchanged', 1000, 'b'], ['stale', 1000, none], ['unchanged', 5000, undefined]]) {
    const box = outbox({ open: false });
    box.report(beat(1)); // without a guard
    box.report(beat(2)); // with one, that of none
    connect(box);
    assert.deepEqual(places(box.next(0)), [1]);
    box.answered([{ status, record: { ...glance, position_ms } }], 0);
    assert.deepEqual(guards(waiting(box)), [guard], `${status} at ${position_ms}`);
  }
});

test('a conflict with oneself renews, one with nothing takes the guard away', () => {
  const box = doubtful();
  box.report(beat(1));
  box.report(beat(2, { session: 's2' }));
  assert.deepEqual(answer(box, () => ({ status: 'conflict', record: left(beat(0), 'b') })), []);
  box.report(beat(3));
  assert.deepEqual(guards(waiting(box)), ['b', 'b', 'b']);
  const later = doubtful();
  later.report(beat(1));
  later.report(beat(2, { session: 's2' }));
  assert.deepEqual(answer(later, () => ({ status: 'conflict' })), []);
  assert.deepEqual(guards(waiting(later)), [undefined, undefined]);
  later.report(beat(3));
  assert.deepEqual(guards(waiting(later)), [undefined, undefined, none], 'it goes on from no record');
});

test('a viewing is not in conflict with another one of its device that was not answered', () => {
  const box = outbox();
  box.report(beat(1, { if_match: none }));
  box.report(beat(2, { session: 's2', if_match: none }));
  assert.deepEqual(places(box.next(0)), [1]);
  box.answered([{ status: 'unavailable' }], 0); // and stored
  assert.deepEqual(places(box.next(1e6)), [1]);
  assert.deepEqual(box.answered([{ status: 'conflict', record: left(beat(1), 'a') }], 1e6), []);
  assert.deepEqual(guards(waiting(box)), ['a', 'a']);
  answer(box, (one) => stored(one, 'b'), 2e6);
  assert.deepEqual(guards(waiting(box)), ['b']);
});

test('a viewing is not in conflict with one that was told without an answer', () => {
  for (const [status, lose] of [
    ['invalid', (box) => box.closed(1007, '', 0)],
    ['invalid', (box) => box.closed(1009, '', 0)],
    ['dropped', (box) => [...box.closed(1006, '', 0), ...box.report(other(3))]],
  ]) for (const device of ['tv', 'phone']) {
    const box = outbox({ open: false, queue: 2 });
    for (const session of ['s1', 's2']) box.report(beat(1, { session }));
    connect(box);
    box.next(0);
    assert.deepEqual(lose(box).map(({ heartbeat, result }) => [heartbeat.session, result.status]), [['s1', status]]);
    connect(box);
    assert.deepEqual(guards(box.next(0).slice(0, 1)), [none]);
    const told = box.answered([{ status: 'conflict', record: left(beat(1, { device }), 'a') }], 0);
    assert.deepEqual(told.map(({ result }) => result.status), device === 'tv' ? [] : ['conflict']);
    if (device === 'tv') assert.deepEqual(guards(waiting(box)).slice(0, 1), ['a']);
  }
});

test('what a page has sent on its way out, or before, counts as sent', () => {
  const beats = [beat(1), beat(2, { session: 's2', if_match: none })];
  for (const fill of [
    (box) => box.adopt(beats),
    (box) => {
      for (const one of beats) box.report(one);
      assert.deepEqual(places(box.newest(60_000, () => true)), [2], 'one viewing of an object');
      assert.deepEqual(places(box.newest(60_000, ({ session }) => session === 's1')), [1]);
    },
  ]) {
    const box = outbox({ open: false, queue: 2 });
    fill(box);
    assert.deepEqual(box.report(other(3)).map(({ heartbeat }) => places([heartbeat])), [[1]], 'is given up');
    connect(box);
    assert.deepEqual(guards(box.next(0).slice(0, 1)), [none]);
    assert.deepEqual(box.answered([{ status: 'conflict', record: left(beat(1), 'a') }, { status: 'unavailable' }], 0), []);
    assert.deepEqual(guards(waiting(box)).filter(Boolean), ['a']);
  }
});

test('what was left by a page that died is in no conflict with what was played since', () => {
  for (const [device, want] of [['tv', []], ['phone', ['conflict']]]) {
    const box = outbox();
    box.report(beat(5, { session: 's2' }));
    answer(box, (one) => stored(one, 'b'));
    box.adopt([beat(1, { kind: 'finish', if_match: 'a' }), beat(2, { kind: 'finish', session: 's0', if_match: 'a' })]);
    const record = left(beat(5, { session: 's2', device }), 'b');
    assert.deepEqual(answer(box, () => ({ status: 'conflict', record })).map(({ result }) => result.status), want);
    if (device === 'tv') assert.deepEqual(guards(waiting(box)), ['b', 'b']);
  }
});

test('what a window has played under its own name is in no conflict with what the one left whose duplicate it is', () => {
  for (const [device, want] of [['window 2', []], ['phone', ['conflict']]]) {
    const box = outbox();
    box.report(beat(5, { session: 's2', device: 'window 2' }));
    answer(box, (one) => stored(one, 'b'));
    box.adopt([beat(1, { if_match: 'a' })]);
    const record = left(beat(5, { session: 's2', device }), 'b');
    assert.deepEqual(answer(box, () => ({ status: 'conflict', record })).map(({ result }) => result.status), want);
  }
});

test('what any page of a device has played is in no conflict with what another one reports', () => {
  for (const [device, want] of [['tv', []], ['phone', ['conflict']]]) for (const adopted of [true, false]) {
    const kept = new Map();
    const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
    const store = new Store(storage, 'k', 'b');
    outbox({ sessions: store }).report(beat(5, { session: 's2' }));
    store.save('', 0, false, 0);
    const now = outbox({ sessions: new Store(storage, 'k', 'c') });
    const beats = [beat(1, { if_match: 'a' }), beat(6, { session: 's3', if_match: 'a' })];
    if (adopted) now.adopt(beats);
    else for (const one of beats) now.report(one);
    const record = left(beat(5, { session: 's2', device }), 'b');
    assert.deepEqual(answer(now, () => ({ status: 'conflict', record })).map(({ result }) => result.status), want);
    if (device === 'tv') assert.deepEqual(guards(waiting(now)), ['b', 'b']);
  }
});

test('the last 500 sessions are remembered, for all pages once there is room', () => {
  const kept = new Map([['k.sessions', '{"damaged"']]);
  let full = true;
  const setItem = (name, text) => {
    if (full) throw new Error('full');
    kept.set(name, text);
  };
  const storage = { getItem: (name) => kept.get(name) ?? null, setItem };
  const [page, beside] = ['a', 'b'].map((tab) => new Store(storage, 'k', tab));
  for (let n = 0; n <= 500; n++) page.add(`s${n}`);
  for (const want of [false, true]) {
    page.save('', 0, false, 0);
    for (const [store, has] of [[page, true], [beside, want]]) {
      assert.deepEqual(['s0', 's1', 's500', 's501'].map((session) => store.has(session)), [false, has, has, false]);
    }
    full = false;
  }
});

test('what comes after a record was removed is not overwritten', () => {
  const box = doubtful();
  box.report(beat(1));
  answer(box, () => ({ status: 'conflict' }));
  answer(box, () => ({ status: 'stale', record: elsewhere(2, 'x') }), 1e6);
  assert.equal(box.length, 0);
  box.report(beat(3));
  assert.deepEqual(guards(waiting(box)), [none]);
});

test('what goes on from a first report that was put back goes on from its record', () => {
  const box = outbox({ open: false });
  for (const n of [1, 2]) box.report(beat(n));
  connect(box);
  for (let tries = 0; tries < 3; tries++) {
    box.next(1e6 * tries);
    box.failed(1e6 * tries);
  }
  box.report(beat(3, { session: 's2' }));
  assert.deepEqual(places(waiting(box)), [1, 2, 3]);
  answer(box, (one) => stored(one, 'y'), 1e7);
  assert.deepEqual(guards(waiting(box)), ['y', 'y']);
});

test('where the first report of an object leaves no record, the next one is the first', () => {
  const yesterday = elsewhere(0, 'x');
  for (const [status, record] of [['invalid'], ['paused', yesterday], ['unchanged', yesterday], ['cleared'], ['expired']]) {
    const box = outbox({ open: false });
    for (const n of [1, 2, 3]) box.report(beat(n));
    connect(box);
    answer(box, () => ({ status, record }));
    assert.deepEqual(guards(waiting(box)), [undefined, none], status);
    answer(box, (one) => stored(one, 'a'));
    assert.deepEqual(guards(waiting(box)), ['a'], status);
  }
  for (const status of ['stored', 'stale']) { // somebody else played later
    const box = outbox({ open: false });
    for (const n of [1, 2]) box.report(beat(n));
    connect(box);
    answer(box, () => ({ status, record: elsewhere(9, 'x') }));
    assert.deepEqual(guards(waiting(box)), [none], status);
  }
  const full = outbox({ open: false, queue: 3 });
  for (const n of [1, 2, 3, 4, 5]) full.report(beat(n));
  assert.deepEqual(places(waiting(full)), [3, 4, 5]);
  assert.deepEqual(guards(waiting(full)), [undefined, none, none]);
});

test('a report that is put back lets other objects go first, and keeps the order of its own', () => {
  const box = outbox();
  for (const one of [beat(1), other(2), beat(3, { session: 's2' }), other(4)]) box.report(one);
  const first = box.next(0);
  box.answered(first.map(() => ({ status: 'unavailable' })), 0);
  const order = places(waiting(box));
  assert.ok(order.indexOf(1) < order.indexOf(3), `its own object: ${order}`);
  const alone = outbox({ open: false });
  for (const one of [beat(1), beat(3), other(2)]) alone.report(one);
  connect(alone);
  assert.deepEqual(places(alone.next(0)), [1]);
  alone.answered([{ status: 'unavailable' }], 0);
  assert.deepEqual(places(waiting(alone)), [2, 1, 3]);
});

test('another device of the same session is not oneself', () => {
  const box = doubtful();
  box.report(beat(1));
  const told = answer(box, () => ({ status: 'conflict', record: left(beat(2, { device: 'phone' }), 'b') }));
  assert.deepEqual(told.map(({ result }) => result.status), ['conflict']);
});

test('a conflict answers those of its viewing that went on from another record', () => {
  const box = doubtful();
  for (const n of [1, 2]) box.report(beat(n));
  box.report(beat(3, { session: 's2' }));
  box.seen(elsewhere(4, 'x')); // the user has seen it, and goes on from there
  box.report(beat(5));
  assert.deepEqual(guards(waiting(box)), ['a', 'a', 'a', 'x']);
  const told = answer(box, () => ({ status: 'conflict', record: elsewhere(4, 'x') }));
  assert.deepEqual(told.map(({ heartbeat, result }) => [heartbeat.position_ms / 1000, result.status]), [[1, 'conflict'], [2, 'conflict']]);
  assert.deepEqual(places(waiting(box)), [3, 5]);
});

test('what was told is not put back', () => {
  const box = doubtful();
  for (const n of [1, 2]) box.report(beat(n));
  box.next(0);
  const told = box.answered([{ status: 'conflict', record: elsewhere(4, 'x') }, { status: 'unavailable' }], 0);
  assert.deepEqual(told.map(({ result }) => result.status), ['conflict', 'conflict']);
  assert.equal(box.length, 0);
});

test('what is adopted is in doubt, from the newest guard', () => {
  const box = outbox({ open: false });
  box.adopt([beat(1), beat(2, { if_match: 'a' }), beat(3, { if_match: 'b' }), other(4)]);
  box.report(beat(5));
  box.report(other(4, { event_time: at(6) }));
  assert.deepEqual(guards(waiting(box)), [undefined, 'a', 'b', undefined, 'b', none]);
  const known = doubtful();
  known.adopt([beat(1, { if_match: 'z' })]);
  known.report(beat(2));
  assert.deepEqual(guards(waiting(known)), ['z', 'a'], 'what is known stays');
});

test('what is adopted twice waits once, and in front', () => {
  const box = outbox({ open: false });
  box.report(beat(1));
  box.adopt([beat(0), beat(1)]);
  assert.deepEqual(places(waiting(box)), [0, 1]);
  const told = box.adopt([{ no: 'object' }]);
  assert.deepEqual(told.map(({ result }) => result.status), ['invalid']);
});

test('what is adopted with other times, or another guard, waits once as well', () => {
  const box = outbox({ open: false, name: 'a' });
  const two = outbox({ open: false, name: 'b' });
  for (let n = 1; n < 4; n++) box.report(beat(n), 1000);
  two.adopt(waiting(box), 1000);
  two.set(5000);
  two.report(beat(9), 5000);
  connect(two);
  two.next(0);
  box.adopt(waiting(two), 1000);
  assert.deepEqual(places(waiting(box)), [9, 1, 2, 3]);
});

test('it says when there is something to do', () => {
  const box = outbox({ open: false });
  box.report(padded(1, 1000));
  assert.equal(box.wake(), Infinity);
  connect(box);
  assert.equal(box.wake(), 0);
  box.postponed(60_000, 100);
  assert.equal(box.wake(), 60_600);
  assert.equal(box.next(60_599), null);
  const { length } = JSON.stringify(box.next(60_600));
  assert.ok(box.wake() >= 70_600 + length && box.wake() < 71_200 + length, 'as long as 1 KB/s takes');
  assert.equal(box.late(box.wake() - 1), false);
  assert.equal(box.late(box.wake()), true);
});

/** A clock of which a test says how much has elapsed. */
function clockOf(last = 0) {
  let elapsed = 0;
  const clock = new HistoryClock(last, () => elapsed);
  return {
    clock,
    now: (ms) => (elapsed = ms),
    answered(now, sent, came) {
      elapsed = came;
      clock.answered(now, sent);
    },
    /** The time of what is reported at a moment, by a clock that showed so much when nothing had elapsed. */
    date(at, zero = 0, reported = at) {
      elapsed = Math.max(elapsed, reported);
      return clock.date(zero + at, zero);
    },
  };
}

test('the time is never ahead, and behind by the quickest way back', () => {
  const { clock, answered, date } = clockOf();
  answered(undefined, 1, 2);
  assert.deepEqual([clock.known, clock.silent], [false, true]);
  answered(1_005_000, 0, 9000); // true is 1,000,000 more than what has elapsed; 4 s back
  assert.equal(date(9001), 1_005_001);
  answered(1_009_100, 9050, 9150);
  assert.equal(date(9200), 1_009_150);
  answered(1_019_000, 9200, 19_000); // a quick way back and a slow one there
  assert.equal(date(19_001), 1_019_001);
  answered(1_020_000, 19_002, 29_000);
  assert.equal(date(29_001), 1_029_001);
});

test('the order of reports is that of their times, whatever is learned of the time', () => {
  const { clock, answered, date, now } = clockOf(1_000_500);
  answered(1_000_000, 0, 10);
  const first = date(20);
  assert.equal(first, 1_000_501, 'after those of the page before');
  assert.equal(date(20), first);
  assert.equal(date(-5000), 994_990, 'what was long ago was long ago');
  answered(900_000, 30, 40); // it was ahead after all
  assert.deepEqual([50, 51].map((at) => date(at)), [first + 1, first + 2]);
  now(100);
  clock.slept(50);
  answered(1_300_000, 60, 110);
  assert.equal(clock.known, false, 'an answer from before a sleep says nothing');
  answered(1_300_000, 101, 110);
  assert.equal(date(120), 1_300_010);
});

test('the order of reports is that of their times, however roughly the clocks are read', () => {
  const { answered, date } = clockOf();
  answered(1_000_000, 0, 0);
  const shown = [5000, 5000, 5001, 5002, 5003, 4000, 5004];
  const zeros = [1000, 1000.9, 1001.4, 1000.2, 1300, 1000, 1000]; // 1300: interrupted between the two
  const dates = shown.map((ms, i) => date(ms - zeros[i], zeros[i], 4010));
  assert.deepEqual(dates.map((ms) => ms - dates[0]), [0, 0, 1, 2, 3, -1000, 4]);
});

test('two reports keep their order behind a third that seems to be later', () => {
  const { answered, date } = clockOf();
  answered(1_000_000, 0, 0);
  const dates = [[5000, 1000], [6002, 2010], [6004, 2020]].map(([ms, zero]) => date(ms - zero, zero, 4010));
  assert.ok(dates[0] < dates[1] && dates[1] < dates[2], `${dates}`);
});

test('the order of reports stands where the clock is set back by little', () => {
  const { answered, date } = clockOf();
  answered(1_000_000, 0, 10);
  assert.equal(date(20, 5000), 1_000_010);
  answered(900_000, 30, 40); // it was ahead after all
  assert.deepEqual([50, 60].map((at) => date(at, 4500)), [1_000_011, 1_000_012]);
});

test('a time in the future is now, and makes no other one later', () => {
  const { answered, date } = clockOf();
  answered(1_000_000, 0, 0);
  assert.equal(date(9e9, 0, 10), 1_000_010);
  assert.equal(date(11), 1_000_011);
  assert.equal(date(12), 1_000_012);
});

test('what waits for a time is not later than what another tab reported after it', () => {
  const { clock, answered, date, now } = clockOf();
  now(30);
  clock.follow(5_030); // by this moment the other tab has reported
  answered(5_100, 90, 100);
  assert.equal(date(10), 5_010);
  assert.equal(date(29), 5_031, 'a report at hand was made just before');
  assert.equal(date(31), 5_032);
});

test('as many etags are known as the queue is long, the last ones', () => {
  const box = outbox({ queue: 3 });
  for (let n = 1; n < 5; n++) box.seen(left(other(n), `e${n}`));
  box.seen(left(other(2), 'again'));
  box.closed(1006, '', 0);
  connect(box);
  for (let n = 1; n < 4; n++) box.report(other(n));
  assert.deepEqual(guards(waiting(box)), [undefined, 'again', 'e3']);
});
