// What the reporter says of a media element: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

Object.assign(globalThis, { addEventListener() {}, setInterval() {} });
const { Reporter } = await import('../assets/reporter.js');

/** A media element that plays when it is told to. */
class Media extends EventTarget {
  currentTime = 0;
  duration = 600;
  playbackRate = 1;
  paused = true;
  seeking = false;
  ended = false;

  tell(/** @type {string} */ type) {
    this.dispatchEvent(new Event(type));
  }

  play(/** @type {number} */ seconds) {
    this.paused = false;
    this.tell('play');
    this.tell('timeupdate');
    this.currentTime += seconds;
  }
}

test('what is played on request without a trace is not in the watched time of what follows', () => {
  const reports = [];
  const media = new Media();
  const reporter = new Reporter({ report: (h) => reports.push(h), leave() {} }, media, { object: { id: '1', type: 1 } });
  media.play(60);
  reporter.incognito = true;
  media.currentTime += 300;
  media.tell('timeupdate');
  media.currentTime += 5;
  reporter.incognito = false;
  media.currentTime += 10;
  media.paused = true;
  media.tell('timeupdate');
  media.tell('pause');
  assert.deepEqual(reports.map(({ kind, watched_ms }) => [kind, watched_ms]), [['start', 0], ['pause', 70_000]]);
  assert.equal(reporter.incognito, false);
});
