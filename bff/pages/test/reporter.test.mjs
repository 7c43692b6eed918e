// The reports about a media element: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

Object.assign(globalThis, { addEventListener() {}, setInterval() {} });
const { Conflicts } = await import('../assets/conflicts.js');
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

/** What a page says of itself to a player, and hears of it. @param {any[]} reports */
function clientOf(reports) {
  return Object.assign(new EventTarget(), { report: (h) => reports.push(h) });
}

/** The reports of a media element that plays for 20 s and pauses. @param {Partial<Media>} odd */
function reportsOf(odd) {
  const reports = [];
  const media = Object.assign(new Media(), odd);
  const client = clientOf(reports);
  const reporter = new Reporter(client, media, { object: { id: '1', type: 1 } });
  media.play(20);
  media.paused = true;
  media.tell('timeupdate');
  media.tell('pause');
  return { reports, media, client, reporter };
}

test('what the edge does not take is not said: such speeds, and the lengths and times of live streams', () => {
  for (const [odd, want] of [
    [{ playbackRate: 16 }, { position_ms: 20_000, duration_ms: 600_000, speed: 4 }],
    [{ playbackRate: 0.0625 }, { position_ms: 20_000, duration_ms: 600_000, speed: 0.25 }],
    [{ duration: Infinity }, { position_ms: 20_000, duration_ms: 0, speed: 1 }],
    [{ duration: NaN }, { position_ms: 20_000, duration_ms: 0, speed: 1 }],
    [{ duration: 2 ** 32 }, { position_ms: 20_000, duration_ms: 0, speed: 1 }],
    [{ duration: 2 ** 32, currentTime: 1_795_000_000 }, { position_ms: 0, duration_ms: 0, speed: 1 }],
  ]) {
    for (const { position_ms, duration_ms, speed } of reportsOf(odd).reports.slice(-1)) assert.deepEqual({ position_ms, duration_ms, speed }, want);
  }
});

test('an element that has only the beginning of an object does not make it shorter', () => {
  for (const [known, want] of [[720 * 3_600_000, 720 * 3_600_000], [599_500, 600_000], [undefined, 600_000]]) {
    const reports = [];
    const media = new Media();
    new Reporter(clientOf(reports), media, { object: { id: '1', type: 1 }, duration_ms: known });
    media.play(20);
    media.tell('pause');
    assert.deepEqual(reports.map(({ duration_ms }) => duration_ms), [want, want]);
  }
});

test('the end of a beginning is not the end of the object', () => {
  for (const [about, want] of [
    [{ duration_ms: 7_200_000 }, { kind: 'stop', duration_ms: 7_200_000 }], [{ excerpt: true }, { kind: 'stop', duration_ms: 0 }],
    [{ excerpt: true, duration_ms: 7_200_000 }, { kind: 'stop', duration_ms: 7_200_000 }], [{ duration_ms: 600_400 }, { kind: 'finish', duration_ms: 600_400 }],
  ]) {
    const reports = [];
    const media = new Media();
    new Reporter(clientOf(reports), media, { object: { id: '1', type: 1 }, ...about });
    media.play(600);
    media.ended = true;
    media.tell('ended');
    const { kind, duration_ms, excerpt } = reports.at(-1);
    assert.deepEqual({ kind, duration_ms, excerpt }, { ...want, excerpt: undefined });
  }
});

test('an end while nothing is said is said when the user stays', () => {
  for (const [here, want] of [[true, ['start', 'finish', 'start']], [false, ['start', 'start']]]) {
    const reports = [];
    const media = new Media();
    const reporter = new Reporter(clientOf(reports), media, { object: { id: '1', type: 1 } });
    media.play(599);
    reporter.hold();
    media.currentTime = 600;
    media.ended = true;
    media.tell('timeupdate');
    media.tell('ended');
    assert.equal(reports.length, 1);
    reporter.release(Boolean(here));
    media.ended = false;
    media.currentTime = 0;
    media.play(1);
    assert.deepEqual(reports.map(({ kind }) => kind), want);
    assert.equal(new Set(reports.map(({ session }) => session)).size, 2);
  }
});

test('the stop of a viewing that was paused is of the time of the pause', async () => {
  const { reports, reporter } = reportsOf({});
  await new Promise((resolve) => setTimeout(resolve, 20));
  reporter.end();
  const [pause, stop] = reports.slice(-2).map(({ kind, event_time: time }) => ({ kind, at: Date.parse(time) }));
  assert.deepEqual([pause.kind, stop.kind, stop.at - pause.at], ['pause', 'stop', 1]);
});

test('a pause that was not said is when the viewing has stopped', async () => {
  const { reports, reporter, media } = reportsOf({});
  media.play(5);
  reporter.hold();
  media.paused = true;
  media.tell('pause');
  const paused = Date.now();
  await new Promise((resolve) => setTimeout(resolve, 20));
  reporter.release(false);
  reporter.end();
  const { kind, event_time: time } = reports.at(-1);
  assert.equal(kind, 'stop');
  assert.ok(Date.parse(time) < paused + 15, 'what others have done since is later');
});

test('to stay where a viewing was paused and has stopped while nothing was said is as of now', async () => {
  const { reports, reporter, media } = reportsOf({});
  media.play(5);
  reporter.hold();
  media.paused = true;
  media.tell('pause');
  await new Promise((resolve) => setTimeout(resolve, 20));
  reporter.end();
  const now = Date.now();
  reporter.release(true);
  const { kind, event_time: time } = reports.at(-1);
  assert.equal(kind, 'stop');
  assert.ok(Date.parse(time) >= now);
});

test('to play again after the end is no jump to the beginning, where the user has moved nothing', () => {
  for (const [moves, want] of [[[], ['start', 'finish', 'start']], [[0], ['start', 'finish', 'start', 'seek']], [[300, 0], ['start', 'finish', 'start', 'seek', 'seek']]]) {
    const { reports, media } = reportsOf({});
    reports.length = 0;
    const seek = (/** @type {number} */ to) => {
      Object.assign(media, { seeking: true, ended: false, currentTime: to });
      media.tell('seeking');
      media.seeking = false;
      media.tell('seeked');
    };
    const end = () => {
      Object.assign(media, { ended: true, paused: true });
      media.tell('ended');
    };
    end();
    reports.length = 0;
    media.ended = false;
    media.play(1);
    end();
    Object.assign(media, { paused: false, ended: false, seeking: true, currentTime: 0 }); // as browsers do it
    media.tell('seeking');
    media.tell('play');
    media.seeking = false;
    media.tell('seeked');
    for (const to of moves) seek(to);
    assert.deepEqual(reports.map(({ kind }) => kind), want);
  }
});

test('what was moved after the end is where the next viewing is, and a jump in it is one', () => {
  const { reports, media } = reportsOf({});
  Object.assign(media, { ended: true, paused: true });
  media.tell('ended');
  Object.assign(media, { ended: false, currentTime: 300 });
  media.tell('seeking');
  media.tell('seeked');
  reports.length = 0;
  media.play(1);
  media.currentTime = 0;
  media.tell('seeking');
  media.tell('seeked');
  assert.deepEqual(reports.map(({ kind }) => kind), ['start', 'seek']);
});

test('to stay on a page that has said nothing says what a page before did', () => {
  const reports = [];
  const reporter = new Reporter(clientOf(reports), new Media(), { object: { id: '1', type: 1 } });
  const media = Object.assign(new Media(), { readyState: 4, currentTime: 70 });
  const page = new Reporter(clientOf(reports), media, { object: { id: '1', type: 1 } });
  const last = { object: { id: '1', type: 1 }, kind: 'progress', position_ms: 65_000, session: 's', event_time: '2026-01-01T00:00:00Z', started_at: '2026-01-01T00:00:00Z', watched_ms: 5, if_match: 'a', dated: true };
  for (const [which, here, beat, want] of [
    [page, false, last, []], [page, true, last, ['seek 70000', 'stop 70000']], [reporter, true, last, ['seek 65000', 'stop 65000']],
    [page, true, { ...last, kind: 'finish' }, ['seek 70000', 'stop 70000']], [reporter, true, { ...last, kind: 'finish' }, ['finish 65000']],
  ]) {
    reports.length = 0;
    which.hold();
    which.release(here, beat);
    assert.deepEqual(reports.map(({ kind, position_ms: at }) => `${kind} ${at}`), want);
    for (const said of reports) {
      assert.deepEqual(Object.keys(said).sort(), ['event_time', 'kind', 'object', 'position_ms', 'session'], 'the rest was said, and not by this clock');
      assert.ok(Date.parse(said.event_time) > Date.parse(last.event_time));
    }
  }
  reports.length = 0;
  media.currentTime = 0;
  page.hold();
  page.release(true, { ...last, kind: 'finish', position_ms: 600_000 });
  assert.deepEqual(reports.map(({ kind, position_ms: at }) => `${kind} ${at}`), ['finish 600000'], 'what has ended begins anew');
});

test('what there is to say while nothing is said goes to who keeps it, also the end', () => {
  const { reports, reporter, media } = reportsOf({});
  const held = [];
  reports.length = 0;
  reporter.hold((beat) => held.push(beat));
  media.play(5);
  reporter.end();
  assert.deepEqual([reports, held.map(({ kind, position_ms: at }) => `${kind} ${at}`)], [[], ['progress 20000', 'stop 25000']]);
  reporter.release(true);
  assert.deepEqual(reports.map(({ kind, session }) => [kind, session === held[0].session]), [['seek', true], ['stop', true]]); // a stop in the first seconds takes no place
});

test('to stay where the end came while the user was asked is to be at the end, unless the user has moved', () => {
  for (const [moved, want] of [[0, ['finish 600000']], [100, ['seek 100000', 'stop 100000']]]) {
    const { reports, reporter, media, client } = reportsOf({});
    const held = [];
    reporter.hold((beat) => held.push(beat.kind));
    Object.assign(media, { currentTime: 600, ended: true }).tell('ended');
    client.dispatchEvent(new Event('away')); // and it is back
    assert.deepEqual(held, ['finish']);
    if (moved) Object.assign(media, { currentTime: moved, ended: false }).tell('seeking');
    reports.length = 0;
    reporter.release(true);
    assert.deepEqual(reports.map(({ kind, position_ms: at }) => `${kind} ${at}`), want);
  }
});

test('to stay for a viewing that is over is as the user says now, under the name that the window has now', () => {
  const last = { object: { id: '1', type: 1 }, device: 'a', kind: 'stop', position_ms: 65_000, session: 's', event_time: '2026-01-01T00:00:00Z' };
  for (const [device, incognito, before] of [['a', false, true], ['a', true, undefined], ['b', false, undefined]]) {
    const reports = [];
    const reporter = new Reporter(clientOf(reports), new Media(), { object: { id: '1', type: 1 }, device });
    reporter.hold();
    reporter.incognito = incognito;
    reporter.release(true, { ...last, incognito: before });
    for (const said of reports) assert.deepEqual([said.device, said.session === 's', Boolean(said.incognito)], [device, device === 'a', incognito]);
    assert.equal(reports.length, 2);
  }
});

test('to stay where the viewing was over before the question is to be where the element is', () => {
  for (const [ends, moved, want] of [[false, 0, ['seek 20000', 'stop 20000']], [false, 400, ['seek 400000', 'stop 400000']], [true, 0, ['finish 600000']], [true, 400, ['seek 400000', 'stop 400000']]]) {
    const { reports, reporter, media, client } = reportsOf({ readyState: 4 });
    if (ends) Object.assign(media, { currentTime: 600, ended: true }).tell('ended');
    else client.dispatchEvent(new Event('away')); // and it is back
    reports.length = 0;
    if (moved) media.currentTime = moved;
    reporter.hold();
    reporter.release(true);
    assert.deepEqual(reports.map(({ kind, position_ms: at }) => `${kind} ${at}`), want);
  }
});

test('reports that are set aside are kept over a reload, each progress in the place of the one before', () => {
  const values = new Map();
  const storage = { full: false, getItem: (name) => values.get(name) ?? null, setItem(name, text) {
    if (this.full) throw new Error('it is full');
    values.set(name, text);
  } };
  const beat = (n, more = {}) => ({ object: { id: '1', type: 1 }, kind: 'progress', position_ms: n, session: 's', event_time: 'then', ...more });
  const here = new Conflicts(storage, 'a');
  here.add([beat(1, { if_match: 'g' }), { ...beat(2), object: { id: '2', type: 1 }, if_match: 'h' }]);
  for (const n of [3, 4]) here.hold(beat(n));
  here.hold(beat(5, { kind: 'pause' }));
  here.hold(beat(6, { session: 't' }));
  const next = new Conflicts(storage, 'a');
  const places = (beats) => beats.map(({ position_ms: at, if_match, dated }) => `${at} ${if_match} ${dated}`);
  const want = ['1 g true', '4 g undefined', '5 g undefined', '6 g undefined'];
  assert.deepEqual(places(next.of({ id: '1', type: 1 })), want);
  storage.full = true;
  assert.deepEqual(places(next.take({ id: '1', type: 1 })), want);
  next.add([beat(7)]);
  assert.deepEqual([places(next.take({ id: '1', type: 1 })), places(next.take({ id: '1', type: 1 }))], [['7 undefined true'], []]);
  storage.full = false;
  assert.deepEqual([places(next.take({ id: '2', type: 1 })), places(here.of({ id: '1', type: 1 }))], [['2 h true'], []]);
});

test('to stay after the viewing has ended says its end once more', () => {
  const { reports, reporter, media } = reportsOf({});
  media.ended = true;
  media.tell('ended');
  reporter.hold(); // the answer to that was the question
  reporter.release(true);
  const [first, again] = reports.slice(-2);
  assert.deepEqual([first.kind, again.kind, again.session], ['finish', 'finish', first.session]);
  assert.ok(again.event_time > first.event_time);
});

test('an element that is loaded anew is nowhere meanwhile', () => {
  const { reports, media, reporter } = reportsOf({ readyState: 4 });
  Object.assign(media, { currentTime: 0, readyState: 0 });
  media.tell('seeked');
  reporter.end();
  assert.deepEqual(reports.map(({ kind, position_ms }) => `${kind} ${position_ms}`), ['start 0', 'pause 20000']);
});

test('a reporter that has ended says nothing of what the element plays next', () => {
  const { reports, media, client, reporter } = reportsOf({});
  reporter.end();
  media.currentTime = 0;
  new Reporter(client, media, { object: { id: '2', type: 1 } });
  media.play(5);
  media.ended = true;
  media.tell('ended');
  assert.deepEqual(reports.map(({ object, kind }) => `${object.id} ${kind}`), ['1 start', '1 pause', '1 stop', '2 start', '2 finish']);
});

test('what is played on request without a trace is not in the watched time of what follows', () => {
  const reports = [];
  const media = new Media();
  const reporter = new Reporter(clientOf(reports), media, { object: { id: '1', type: 1 } });
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
  assert.deepEqual(reports.map(({ kind, watched_ms }) => [kind, watched_ms]), [['start', 0], ['stop', 60_000], ['pause', 70_000]], 'as far as others know it has stopped meanwhile');
  assert.equal(reporter.incognito, false);
});
