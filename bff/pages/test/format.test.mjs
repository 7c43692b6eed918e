// How times are told: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

process.env.TZ = 'America/New_York';
Object.assign(globalThis, { document: { documentElement: { translate: false } } });
const { ago, day, playing, progress } = await import('../assets/format.js');

test('the heading above an entry fits its age', () => {
  const now = Date.parse('2026-11-24T00:30:00-05:00'); // a Tuesday
  for (const [time, told, heading] of [
    ['2026-11-24T00:29:50-05:00', 'just now', 'Today'],
    ['2026-11-24T00:29:00.400-05:00', '59 seconds ago', 'Today'],
    ['2026-11-23T23:30:01-05:00', '59 minutes ago', 'Yesterday'],
    ['2026-11-23T23:30:00-05:00', '1 hour ago', 'Yesterday'],
    ['2026-11-22T23:50:00-05:00', '2 days ago', 'Last seven days'], // 24 hours and 40 minutes
    ['2026-11-22T00:10:00-05:00', '2 days ago', 'Last seven days'],
    ['2026-11-18T23:00:00-05:00', '6 days ago', 'Last seven days'],
    ['2026-11-17T23:59:59-05:00', 'Nov 17, 2026', 'November 2026'],
    ['2026-11-01T01:30:00-04:00', 'Nov 1, 2026', 'November 2026'], // the hour that came twice
    ['2026-10-31T23:59:59-04:00', 'Oct 31, 2026', 'October 2026'],
    ['2026-12-01T00:00:00-05:00', 'just now', 'Today'], // the device's clock is behind
  ]) assert.deepEqual([ago(new Date(time), now), day(new Date(time), now)], [told, heading], time);
});

test('a record is played now as long as its reports come', () => {
  const record = { state: 'playing', event_time: '2026-11-24T00:30:00Z', position_ms: 0, duration_ms: 600_000 };
  const now = Date.parse(record.event_time);
  assert.deepEqual([0, 59_999, 60_000].map((ms) => playing(record, now + ms)), [true, true, false]);
  assert.equal(playing({ ...record, state: 'paused' }, now), false);
  const current = { ...record, event_time: new Date().toISOString() };
  assert.deepEqual([current, { ...current, position_ms: 15_000 }, { ...current, state: 'stopped' }].map((r) => progress(r)), ['Just started', '0:15 of 10:00', '0:00 of 10:00']);
});
