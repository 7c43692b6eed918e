// How times are told: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

process.env.TZ = 'America/New_York';
Object.assign(globalThis, { document: { documentElement: { translate: false } } });
const { ago, day } = await import('../assets/format.js');

test('an entry and the heading above it name the same day', () => {
  const now = Date.parse('2026-11-24T00:30:00-05:00'); // a Tuesday
  for (const [time, told, heading] of [
    ['2026-11-24T00:29:50-05:00', 'just now', 'Today'],
    ['2026-11-24T00:29:00.400-05:00', '59 seconds ago', 'Today'],
    ['2026-11-23T23:30:01-05:00', '59 minutes ago', 'Yesterday'],
    ['2026-11-23T23:30:00-05:00', '1 hour ago', 'Yesterday'],
    ['2026-11-22T23:50:00-05:00', '2 days ago', 'Sunday'], // 24 hours and 40 minutes
    ['2026-11-22T00:10:00-05:00', '2 days ago', 'Sunday'],
    ['2026-11-18T23:00:00-05:00', '6 days ago', 'Wednesday'],
    ['2026-11-17T23:59:59-05:00', 'Nov 17, 2026', 'November 17, 2026'],
    ['2026-11-01T01:30:00-04:00', 'Nov 1, 2026', 'November 1, 2026'], // the hour that came twice
    ['2026-10-31T23:59:59-04:00', 'Oct 31, 2026', 'October 31, 2026'],
    ['2026-12-01T00:00:00-05:00', 'just now', 'Today'], // the device's clock is behind
  ]) assert.deepEqual([ago(new Date(time), now), day(new Date(time), now)], [told, heading], time);
});
