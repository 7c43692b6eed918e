// The client, case by case: node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { below, browser } from '../assets/browser.js';
import { Playhead } from '../assets/playhead.js';
import { Device, Tab, World } from './world.mjs';

/** A page of a device of a new world, connected unless it shall not be. */
async function page(config = {}, connects = true) {
  const device = new Device(new World(), 'tv');
  const tab = new Tab(device, config);
  if (connects) tab.client.connect();
  await device.world.pass(1000);
  return { tab, client: tab.client, device, world: device.world, edge: device.world.edge };
}

let n = 0;

/** A report of a page. */
function beat(tab, more = {}) {
  const { world, device } = tab;
  return {
    object: { id: '100', type: 1 }, kind: 'progress', position_ms: 1000 * ++n, duration_ms: 6e6, session: 's1', device: device.name,
    event_time: new Date(world.now + device.skew).toISOString(), meta: { n: String(n) }, ...more,
  };
}

const elsewhere = { object: { id: '100', type: 1 }, kind: 'stop', position_ms: 3e6, session: 'other', device: 'phone' };

/** Reports of so many bytes each, of objects of their own. */
function pile(tab, count, pad) {
  for (let i = 0; i < count; i++) tab.client.report(beat(tab, { object: { id: `p${i}`, type: 1 }, meta: { n: String(++n), pad: 'x'.repeat(pad) } }));
}

const messages = (tab) => tab.sockets.flatMap((socket) => socket.sent).filter((message) => message.heartbeats.length > 0);

test('half an emoji is mended on the way in', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab, { meta: { 'a\ude00': 'A tiny happy film 😀'.slice(0, 19), whole: '😀', slash: '\\ud83d' } }));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored']);
  assert.deepEqual(edge.stored[0].beat.meta, { 'a\ufffd': 'A tiny happy film \ufffd', whole: '😀', slash: '\\ud83d' });
});

test('an edge may be below a path', () => {
  for (const edge of ['https://edge.example', 'https://edge.example/']) assert.equal(below(edge, '/v1/changes').href, 'https://edge.example/v1/changes');
  for (const edge of ['https://example.com/a/play', 'https://example.com/a/play/']) assert.equal(below(edge, '/v1/stream?push=true').href, 'https://example.com/a/play/v1/stream?push=true');
});

test('changes are joined from page to page, each object as it is told last', async () => {
  const { client, world, edge } = await page();
  const [a, b, c] = ['a', 'b', 'c'].map((id) => ({ id, type: 1 }));
  const settings = { recording: true };
  const pages = {
    null: { items: [], removed: [], resync: true, token: 't0', has_more: false, settings },
    t0: { items: [{ object: a, etag: '1' }, { object: b, etag: '1' }], removed: [c], resync: false, token: 't1', has_more: true, settings },
    t1: { items: [{ object: a, etag: '2' }, { object: c, etag: '3' }], removed: [b], resync: false, token: 't2', has_more: false, settings },
    t2: { items: [{ object: a, etag: '4' }], removed: [], resync: false, token: 't3', has_more: true, settings },
    t3: { items: [], removed: [], resync: true, token: 't4', has_more: false, settings },
  };
  edge.changes = (since) => pages[since];
  const ask = async (since) => {
    const answer = client.changes(since).catch((error) => error);
    await world.pass(5000);
    return answer;
  };
  assert.deepEqual(await ask(), { items: [], removed: [], resync: true, token: 't0', settings });
  assert.deepEqual(await ask('t0'), { items: [{ object: a, etag: '2' }, { object: c, etag: '3' }], removed: [b], resync: false, token: 't2', settings });
  assert.deepEqual(await ask('t2'), { items: [], removed: [], resync: true, token: 't4', settings });
  edge.changes = () => null;
  assert.equal((await ask('t0')).status, 0);
  edge.refuses = () => true;
  assert.equal((await ask('t0')).status, 401);
});

test('what is no report is refused at once', async () => {
  const { tab, client } = await page();
  const loop = beat(tab);
  loop.self = loop;
  for (const wrong of [undefined, {}, { object: null }, beat(tab, { object: { id: 1, type: 1 } }), beat(tab, { kind: 'watch' }), beat(tab, { position_ms: '5' })]) {
    assert.throws(() => client.report(wrong), TypeError);
  }
  for (const wrong of [loop, beat(tab, { at: 1n }), beat(tab, { meta: { a: 'x'.repeat(17000) } })]) client.report(wrong);
  assert.deepEqual(tab.statuses(), Array(3).fill('invalid'));
  assert.equal(client.waiting, 0);
});

for (const [what, wrong] of Object.entries({ 1007: { close: [1007, 'bad'] }, 1009: { close: [1009, 'large'] }, invalid: { error: { code: 'invalid', field: 'body.heartbeats[0].meta.bad', detail: 'bad' } } })) {
  test(`${what} is halved down to the guilty report`, async () => {
    const { tab, client, world, edge } = await page();
    edge.fault = ({ heartbeats }) => (heartbeats.some(({ meta }) => meta.bad) ? wrong : null);
    client.leave();
    for (let i = 0; i < 30; i++) client.report(beat(tab, { object: { id: `o${i}`, type: 1 }, meta: { n: String(++n), ...(i === 17 && { bad: 'yes' }) } }));
    client.connect();
    await world.pass(60_000);
    assert.equal(client.waiting, 0);
    assert.equal(tab.statuses().filter((status) => status === 'stored').length, 29);
    const [guilty] = tab.told.filter(({ result }) => result.status === 'invalid');
    assert.equal(guilty.heartbeat.object.id, 'o17');
    assert.equal(guilty.result.error.field, wrong.error ? 'meta.bad' : '');
  });
}

test('what a proxy takes is found out', async () => {
  const { tab, client, world, edge } = await page();
  edge.most = 6000;
  client.leave();
  pile(tab, 100, 1000);
  const before = tab.sockets.length;
  client.connect();
  await world.pass(60_000);
  assert.equal(client.waiting, 0);
  assert.ok(tab.sockets.length - before < 6, `${tab.sockets.length - before} connections`);
});

test('a legal queue of large reports gets through', async () => {
  const { tab, client, world } = await page({}, false);
  pile(tab, 120, 1300);
  client.connect();
  await world.pass(5000);
  assert.equal(client.waiting, 0);
  for (const message of messages(tab)) assert.ok(JSON.stringify(message).length <= 64 << 10);
});

for (const [rate, seconds] of [[1, 320], [4, 80]]) {
  test(`${rate} KB/s is enough`, async () => {
    const { tab, client, world, device } = await page({}, false);
    device.rate = rate;
    pile(tab, 300, 400);
    client.connect();
    await world.pass(seconds * 1000);
    assert.equal(client.waiting, 0, `${tab.sockets.length} connections`);
    assert.ok(tab.sockets.length <= 3, `${tab.sockets.length} connections`);
  });
}

test('one large report is given the time that it takes', async () => {
  const { tab, client, world, device } = await page({}, false);
  device.rate = 1;
  pile(tab, 1, 13_000);
  client.connect();
  await world.pass(30_000);
  assert.equal(client.waiting, 0);
});

test('what is unavailable does not hold up the others', async () => {
  const { tab, client, world, edge } = await page({}, false);
  edge.fault = () => ({ unavailable: (report) => report.object.id.startsWith('p') });
  pile(tab, 150, 10);
  client.report(beat(tab));
  client.connect();
  await world.pass(10_000);
  assert.deepEqual(tab.statuses(), ['stored']);
  assert.ok(messages(tab).length < 20, `${messages(tab).length} messages in 10 s`);
  edge.fault = () => null;
  await world.pass(40_000);
  assert.equal(client.waiting, 0);
});

test('a full queue tells what it gives up', async () => {
  const { tab, client } = await page({ queue: 3 }, false);
  const [start, first, second, third] = [['start', 0], ['progress', 5], ['progress', 10], ['progress', 15]].map(([kind, position_ms]) => beat(tab, { kind, position_ms }));
  for (const one of [start, first, second, third]) client.report(one);
  assert.deepEqual(tab.told.map(({ heartbeat, result }) => [heartbeat.position_ms, result.status]), [[5, 'superseded']]);
  for (const kind of ['pause', 'stop']) client.report(beat(tab, { kind, session: 's2' }));
  client.report(beat(tab, { kind: 'start', session: 's3' }));
  assert.deepEqual(tab.statuses().slice(1), ['superseded', 'dropped', 'dropped']);
});

test('a report made while there is no connection overwrites nothing', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  client.report(beat(tab));
  client.report(beat(tab));
  edge.put(elsewhere);
  world.now += 50;
  client.report(beat(tab));
  await world.pass(5000);
  assert.equal(edge.records.get('1/100').session, 'other');
  assert.equal(tab.count('conflict'), 1);
  assert.equal(client.waiting, 0);
  client.report(beat(tab)); // the user stays
  await world.pass(1000);
  assert.equal(edge.records.get('1/100').session, 's1');
});

test('a queue made offline follows itself, over several messages', async () => {
  const { tab, client, world, device } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  device.up = false;
  tab.fire('offline');
  for (let i = 0; i < 250; i++) {
    client.report(beat(tab, { session: i < 150 ? 's1' : 's2' }));
    world.now += 1000;
  }
  device.up = true;
  tab.fire('online');
  await world.pass(5000);
  assert.equal(client.waiting, 0);
  assert.deepEqual(new Set(tab.statuses()), new Set(['stored']));
  assert.equal(tab.count('conflict'), 0);
});

test('a guard is inherited until it is answered', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  edge.fault = () => ({ silent: true });
  client.report(beat(tab)); // without a guard
  await world.pass(1000);
  tab.socket.end(1006, '');
  const between = world.now;
  world.now += 50;
  client.report(beat(tab)); // with one, which waits for the answer to the other
  edge.fault = ({ heartbeats }) => {
    if (!heartbeats[0].if_match) return null;
    edge.fault = () => null;
    edge.put(elsewhere, between + 1);
    world.now += 50;
    client.report(beat(tab)); // there is no doubt any more, but it follows one
    return null;
  };
  const events = [];
  client.addEventListener('conflict', ({ detail: { heartbeats, record } }) => events.push([heartbeats.length, heartbeats.every(({ if_match }) => if_match), record.session]));
  await world.pass(5000);
  assert.equal(edge.records.get('1/100').session, 'other');
  assert.deepEqual(tab.statuses(), ['stored', 'stored', 'conflict', 'conflict']);
  assert.deepEqual(events, [[2, true, 'other']], 'it is told once, with all that was not stored');
});

test('an answer that was lost is no conflict', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  edge.fault = () => ({ close: [1006, ''], after: true });
  client.report(beat(tab));
  await world.pass(2000);
  edge.fault = () => null;
  client.report(beat(tab));
  await world.pass(60_000);
  assert.equal(client.waiting, 0);
  assert.equal(tab.count('conflict'), 0);
});

test('a guard survives a reload', async () => {
  const { tab, client, world, edge, device } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  client.report(beat(tab));
  tab.fire('pagehide');
  tab.kill();
  edge.records.delete('1/100');
  edge.put(elsewhere, world.now - 100); // instead of what the page could send
  const next = new Tab(device);
  assert.equal(next.client.waiting, 1);
  next.client.seen(edge.records.get('1/100'));
  next.client.connect();
  await world.pass(2000);
  assert.deepEqual(next.statuses(), ['conflict']);
  assert.equal(edge.records.get('1/100').session, 'other');
});

test('a guard is not shed', async () => {
  const { tab, client, world, edge } = await page({ queue: 3 });
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  for (let i = 0; i < 6; i++) client.report(beat(tab));
  edge.put(elsewhere);
  world.now += 50;
  for (let i = 0; i < 6; i++) client.report(beat(tab));
  await world.pass(5000);
  assert.equal(edge.records.get('1/100').session, 'other');
  assert.equal(tab.count('conflict'), 1);
});

test('an old report\'s answer does not hide a conflict', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  edge.fault = () => ({ silent: true });
  client.report(beat(tab, { kind: 'pause' })); // no doubt yet
  await world.pass(1000);
  edge.put(elsewhere);
  edge.fault = () => null;
  tab.socket.end(1006, '');
  await world.pass(3000);
  assert.equal(client.waiting, 0);
  client.report(beat(tab));
  await world.pass(1000);
  assert.equal(tab.count('conflict'), 1);
});

test('a connection that ends before the first answer leaves a doubt', async () => {
  const { tab, client, world, edge } = await page();
  edge.fault = () => ({ silent: true });
  client.report(beat(tab, { kind: 'start' }));
  await world.pass(1000);
  tab.socket.end(1006, '');
  edge.fault = () => null;
  edge.put(elsewhere);
  world.now += 50;
  await world.pass(3000);
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stale', 'conflict']);
  assert.equal(tab.count('conflict'), 1);
});

test('what was begun without a connection leaves a doubt', async () => {
  const { tab, client, world, edge } = await page({}, false);
  client.report(beat(tab, { kind: 'start' }));
  edge.put(elsewhere, world.now + 5);
  world.now += 50;
  client.connect();
  await world.pass(1000);
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stale', 'conflict']);
});

test('two devices without names do not hide one another', async () => {
  for (const session of ['', 'the film']) {
    const { tab, client, world, edge } = await page();
    const other = new Tab(new Device(world, 'phone'));
    other.client.connect();
    const report = (page) => page.client.report(beat(page, { session, device: undefined }));
    report(tab);
    await world.pass(1000);
    tab.device.up = false;
    tab.fire('offline');
    await world.pass(1000);
    report(other);
    await world.pass(1000);
    report(tab);
    tab.device.up = true;
    tab.fire('online');
    await world.pass(20_000);
    assert.deepEqual(tab.statuses(), ['stored', 'conflict']);
    assert.equal(edge.records.get('1/100').position_ms, other.told[0].heartbeat.position_ms);
    assert.equal(client.waiting, 0);
  }
});

test('a device without a name stays the same one', async () => {
  const { tab, client, world, edge, device } = await page();
  const nameless = (page) => beat(page, { session: undefined, device: '' });
  client.report(nameless(tab));
  tab.fire('pagehide');
  tab.kill();
  const pages = [tab, new Tab(device), new Tab(device)];
  for (const next of pages.slice(1)) {
    next.client.connect();
    world.now += 50;
    next.client.report(nameless(next));
    await world.pass(1000);
  }
  const names = new Set(edge.stored.map((change) => change.beat.device));
  assert.equal(edge.stored.length, 3);
  assert.equal(names.size, 1);
  assert.match([...names][0], /^device-\w{6}/);
});

test('doubt survives a reload', async () => {
  for (const guarded of [false, true]) {
    const { tab, client, world, edge, device } = await page({}, guarded);
    if (guarded) client.report(beat(tab));
    await world.pass(1000);
    device.up = false;
    tab.fire('offline');
    client.report(beat(tab, { session: 's2' }));
    tab.fire('pagehide');
    tab.kill();
    await world.pass(1000);
    edge.put(elsewhere);
    await world.pass(1000);
    const next = new Tab(device);
    next.client.report(beat(tab, { session: 's3' }));
    device.up = true;
    next.client.connect();
    await world.pass(5000);
    assert.deepEqual(next.statuses(), ['stale', 'conflict']);
    assert.equal(edge.records.get('1/100').session, 'other');
  }
});

test('a queue goes on after a reload', async () => {
  for (const guarded of [false, true]) {
    const { tab, client, world, device } = await page({}, guarded);
    if (guarded) client.report(beat(tab));
    await world.pass(1000);
    device.up = false;
    tab.fire('offline');
    for (let i = 0; i < 2; i++, world.now++) client.report(beat(tab, { session: 's2' }));
    tab.fire('pagehide');
    tab.kill();
    await world.pass(1000);
    const next = new Tab(device);
    for (const session of ['s3', 's3', 's4']) {
      next.client.report(beat(tab, { session }));
      world.now++;
    }
    device.up = true;
    next.client.connect();
    await world.pass(5000);
    assert.deepEqual(next.statuses(), Array(5).fill('stored'));
  }
});

test('what begins without a connection is no conflict with what was before', async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  edge.put(elsewhere);
  world.now += 50;
  device.up = false;
  client.connect();
  client.report(beat(tab, { kind: 'start' }));
  await world.pass(30_000);
  client.report(beat(tab));
  device.up = true;
  await world.pass(60_000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored']);
});

test('what was removed is reported again', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  edge.records.clear();
  client.report(beat(tab));
  await world.pass(3000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored']);
});

test('a sleep is noticed', async () => {
  const { tab, client, world, edge, device } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  await device.sleep(600_000);
  edge.put(elsewhere);
  world.now += 50;
  client.report(beat(tab));
  await world.pass(2000);
  assert.equal(tab.count('conflict'), 1);
  assert.ok(tab.count('resync') > 0);
});

test('a clock that is set takes the reports that wait along', async () => {
  for (const [skew, jump, off] of [[0, -3_600_000, 0], [-Date.UTC(2026, 10, 22), Date.UTC(2026, 10, 22), 0], [0, 3_600_000, -3_600_000]]) {
    const device = new Device(new World(), 'tv');
    const { world } = device;
    device.skew = skew;
    const tab = new Tab(device);
    tab.client.report(beat(tab, { started_at: new Date(world.now + skew - 5000).toISOString() }));
    const made = world.now;
    await world.pass(20_000);
    device.skew += jump;
    await world.pass(20_000);
    tab.client.connect();
    await world.pass(1000);
    const [{ at, beat: stored }] = world.edge.stored;
    assert.ok(Math.abs(at - made - off) < 100, `${jump}: ${at - made} ms off`);
    assert.ok(Math.abs(Date.parse(stored.event_time) - Date.parse(stored.started_at) - 5000) < 10, 'the start of the session stays behind');
  }
});

test('a clock that is set while a viewing goes on leaves its beginning where it was', async () => {
  for (const [ms, off] of [[-3_600_000, 0], [-20_000, 0], [100 * 86_400_000, 0], [3_600_000, -3_600_000], [0, 0]]) { // a clock that is set forward passes for sleep
    const { tab, client, world, edge } = await page();
    const began = new Date(world.now).toISOString();
    const made = world.now;
    for (const wait of [0, 15_000, 15_000, 15_000]) {
      await world.pass(wait);
      client.report(beat(tab, { started_at: began }));
      if (wait === 0) tab.device.skew += ms;
    }
    await world.pass(1000);
    assert.equal(edge.stored.length, 4);
    for (const { beat: stored } of edge.stored.slice(1)) {
      const late = Date.parse(stored.started_at) - made - off;
      assert.ok(Math.abs(late) < 100, `set by ${ms}: the beginning is ${late} ms late`);
    }
  }
});

test('a refused token is told once and tried again', async () => {
  const { tab, world, edge } = await page({}, false);
  edge.refused.add('good');
  tab.client.connect();
  await world.pass(30_000);
  assert.ok(tab.sockets.length > 2 && tab.sockets.length < 7, `${tab.sockets.length} attempts`);
  edge.refused.clear();
  await world.pass(40_000);
  assert.equal(tab.count('unauthorized'), 1);
  assert.equal(tab.count('open'), 1);
});

test('connect() tries a refused token at once', async () => {
  const { tab, world, edge } = await page({}, false);
  edge.refused.add('good');
  tab.client.connect();
  await world.pass(1000);
  edge.refused.clear();
  tab.client.connect();
  await world.pass(1000);
  assert.equal(tab.count('open'), 1);
});

test('a token() that never settles has a limit', async () => {
  let asked = 0;
  const { tab, world } = await page({ token: () => (asked++ === 0 ? new Promise(() => {}) : 'good') }, false);
  tab.client.connect();
  await world.pass(12_000);
  assert.equal(tab.count('open'), 1);
});

test('leave() ends an attempt', async () => {
  for (const ms of [0, 10, 50, 100]) {
    const { tab, world, edge } = await page({ token: () => new Promise((resolve) => setImmediate(() => resolve('good'))) }, false);
    if (ms === 100) edge.refused.add('good');
    tab.client.connect();
    await world.pass(ms);
    tab.client.leave();
    await world.pass(60_000);
    assert.equal(tab.client.waiting, 0);
    assert.ok(tab.sockets.every((socket) => socket.readyState === 3), `after ${ms} ms: a socket is open`);
    assert.ok(tab.sockets.length <= 1, `after ${ms} ms: ${tab.sockets.length} attempts`);
  }
});

test('damaged storage is put aside', async () => {
  for (const [text, waits] of [['null', 0], ['{"a":1}', 0], ['[1]', 0], ['no JSON', 0], ['[1,{"object":{"id":"1","type":1},"kind":"start"}]', 1]]) {
    const device = new Device(new World(), 'tv');
    device.storage.setItem('k', text);
    const tab = new Tab(device);
    assert.equal(tab.client.waiting, waits, text);
    assert.equal(device.storage.getItem('k.damaged'), text);
    assert.equal(device.storage.getItem('k'), null);
  }
});

test('a full storage loses nothing, also beside damage', async () => {
  const device = new Device(new World(), 'tv');
  const { storage, world } = device;
  const gone = new Tab(device);
  pile(gone, 5, 100);
  gone.fire('pagehide');
  gone.kill();
  storage.setItem('k', `[1,{"object":{"id":"1","type":1},"kind":"start","event_time":"2026-11-22T00:00:00Z","meta":{"pad":"${'x'.repeat(5000)}"}}]`);
  storage.most = storage.size + 10;
  device.up = false;
  const tab = new Tab(device);
  tab.client.report(beat(tab));
  assert.equal(tab.client.waiting, 7);
  tab.kill();
  const next = new Tab(device);
  assert.equal(next.client.waiting, 6, 'what there was no room for is in memory only');
  device.up = true;
  next.client.connect();
  await world.pass(30_000);
  assert.equal(next.client.waiting, 0);
  assert.deepEqual(storage.entries().map(([name]) => name).sort(), ['k.damaged', 'k.sessions', 'k.time']);
});

test('a storage that fails, or lists nothing, is no harm', async () => {
  const fails = { getItem: () => { throw new Error('no access'); }, setItem: () => { throw new Error('full'); } };
  const plain = new Map();
  const simple = { getItem: (key) => plain.get(key) ?? null, setItem: (key, text) => plain.set(key, text) };
  for (const [storage, waits] of [[fails, 1], [simple, 2]]) {
    const device = new Device(new World(), 'tv');
    for (const want of [1, waits]) {
      const tab = new Tab(device, { storage });
      tab.client.report(beat(tab));
      assert.equal(tab.client.waiting, want);
      tab.kill();
    }
  }
});

test('tabs share a storage', async () => {
  const device = new Device(new World(), 'tv');
  const { world } = device;
  const [first, second] = [new Tab(device), new Tab(device)];
  pile(first, 5, 1);
  pile(second, 1, 1);
  assert.deepEqual([first.client.waiting, second.client.waiting], [5, 1]);
  first.kill();
  await world.pass(170_000);
  assert.equal(second.client.waiting, 1, 'it may be alive');
  await world.pass(40_000);
  assert.equal(second.client.waiting, 6);
  second.fire('pagehide');
  second.kill();
  assert.equal(new Tab(device).client.waiting, 6);
});

test('nothing is adopted from another user', () => {
  const device = new Device(new World(), 'tv');
  const tabs = ['k', 'k#a'].map((key) => new Tab(device, { key }));
  for (const tab of tabs) {
    pile(tab, 1, 1);
    tab.fire('pagehide');
    tab.kill();
  }
  for (const key of ['k', 'k#a', 'k#b']) assert.equal(new Tab(device, { key }).client.waiting, key === 'k#b' ? 0 : 1, key);
});

test('what is adopted is removed only if it is still the same', async () => {
  const device = new Device(new World(), 'tv');
  const { world, storage } = device;
  const [asleep, other] = [new Tab(device), new Tab(device)];
  pile(asleep, 1, 1);
  asleep.fire('pagehide');
  const { most } = storage;
  storage.most = 0;
  await world.pass(30_000);
  assert.equal(other.client.waiting, 1);
  storage.most = most;
  asleep.fire('pageshow', { persisted: true });
  pile(asleep, 1, 1); // under its key, which the other one has adopted and could not remove
  other.client.leave();
  for (const tab of [other, asleep]) tab.kill();
  await world.pass(200_000);
  assert.equal(new Tab(device).client.waiting, 2, 'one of them from both');
});

test('after a sleep nobody is taken for gone who has not had time to say something', async () => {
  for (const counts of [true, false]) {
    const device = new Device(new World(), 'tv');
    const { world } = device;
    device.counts = counts;
    const tabs = [new Tab(device), new Tab(device)];
    for (const tab of tabs) pile(tab, 2, 1);
    for (const act of [() => device.sleep(1_000_000), () => void (device.skew += 3_600_000), () => void (device.skew -= 3_600_000)]) {
      await world.pass(60_000);
      await act();
      await world.pass(15_500);
      assert.deepEqual(tabs.map(({ client }) => client.waiting), [2, 2]);
    }
  }
});

test('a page that has left adopts nothing, and one that is back is not adopted', async () => {
  const device = new Device(new World(), 'tv');
  const { world } = device;
  const [left, other] = [new Tab(device), new Tab(device)];
  pile(other, 1, 1);
  left.fire('pagehide');
  other.fire('pagehide');
  other.kill();
  await world.pass(60_000);
  assert.equal(left.client.waiting, 0);
  left.fire('pageshow', { persisted: true });
  pile(left, 1, 1);
  left.fire('pagehide');
  left.fire('pageshow', { persisted: true });
  assert.equal(new Tab(device).client.waiting, 1, 'of the other one only');
});

test('a page that has left keeps what the storage had no room for', async () => {
  const { tab, client, world, device } = await page({}, false);
  client.leave();
  device.storage.most = device.storage.size;
  client.report(beat(tab));
  await world.pass(60_000);
  assert.equal(client.waiting, 1);
  device.storage.most = Infinity;
  await world.pass(16_000);
  tab.kill();
  const next = new Tab(device);
  next.client.connect();
  await world.pass(30_000);
  assert.deepEqual(next.statuses(), ['stored']);
  await world.pass(300_000);
  assert.equal(device.storage.entries().filter(([name]) => name.startsWith('k#')).length, 0);
});

test('what a page leaves a second time is adopted, too', async () => {
  const device = new Device(new World(), 'tv');
  const { world } = device;
  const [back, other] = [new Tab(device), new Tab(device)];
  for (const waits of [1, 2]) {
    pile(back, 1, 1);
    back.fire('pagehide');
    await world.pass(30_000);
    assert.equal(other.client.waiting, waits);
    if (waits === 1) back.fire('pageshow', { persisted: true });
  }
});

test('who has left stays away', async () => {
  const { tab, world, client } = await page();
  client.leave();
  for (const type of ['offline', 'online', 'visibilitychange']) tab.fire(type);
  await world.pass(600_000);
  assert.equal(tab.sockets.length, 1);
  assert.equal(tab.count('close'), 0);
});

test('who has left, or was never connected, is not brought back by the page', async () => {
  const away = [await page({}, false), await page()];
  away[1].client.leave();
  for (const { tab, world } of away) {
    const attempts = tab.sockets.length;
    for (const type of ['offline', 'online', 'pagehide']) tab.fire(type);
    tab.fire('pageshow', { persisted: true });
    await world.pass(600_000);
    assert.equal(tab.sockets.length, attempts);
    assert.equal(tab.count('close'), 0);
  }
});

test('a closing page sends the newest that fits', async () => {
  const { tab, client, world, edge, device } = await page();
  edge.fault = (_, socket) => socket && { silent: true };
  pile(tab, 90, 1000);
  tab.client.report(beat(tab));
  tab.fire('pagehide');
  world.now++;
  client.report(beat(tab, { kind: 'stop' })); // as a listener of its own does, after that
  client.leave();
  tab.kill();
  await world.pass(1000);
  const sizes = edge.posts.map((body) => JSON.stringify(body).length);
  assert.equal(edge.posts.length, 2);
  const sent = edge.posts.flatMap(({ heartbeats }) => heartbeats.map(({ meta }) => meta.n));
  assert.equal(new Set(sent).size, sent.length, 'nothing twice');
  assert.ok(sizes[0] > 50_000 && sizes[0] + sizes[1] < 64 << 10, String(sizes));
  assert.equal(edge.records.get('1/100').kind, 'stop');
  assert.equal(new Tab(device).client.waiting, 92);
});

test('what is said as the page goes away goes with all that waits: of two requests with one guard the second may come first', async () => {
  const { tab, client, world, edge } = await page();
  edge.fault = (_, socket) => socket && { silent: true };
  client.report(beat(tab));
  client.addEventListener('away', () => client.report(beat(tab, { kind: 'stop' })));
  world.now++;
  tab.fire('pagehide');
  tab.kill();
  await world.pass(100);
  assert.deepEqual(edge.posts.map(({ heartbeats }) => heartbeats.map(({ kind }) => kind)), [['progress', 'stop']]);
});

test('what the edge asks for is obeyed', async () => {
  for (const [code, reason] of [[1001, 'the edge is stopping; retry_after_ms=120000'], [1008, 'too many messages; retry_after_ms=120000']]) {
    const { tab, world } = await page();
    tab.socket.end(code, reason);
    await world.pass(1000);
    tab.fire('online');
    await world.pass(118_000);
    assert.equal(tab.count('open'), 1);
    await world.pass(5000);
    assert.equal(tab.count('open'), 2);
  }
  const { tab, client, world, edge } = await page();
  edge.fault = () => ({ error: { code: 'rate_limited', detail: '', retry_after_ms: 60_000 } });
  client.report(beat(tab));
  await world.pass(59_000);
  assert.equal(tab.socket.sent.length, 1);
  edge.fault = () => null;
  await world.pass(2000);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('a page that only listens notices a dead connection', async () => {
  const { tab, world, device } = await page();
  await world.pass(600_000);
  assert.equal(tab.sockets.length, 1);
  device.up = false;
  const since = world.now;
  await world.pass(120_000, () => tab.count('close') > 0);
  assert.ok(world.now - since < 60_000, `after ${world.now - since} ms`);
});

test('a hidden page asks nothing until it is seen', async () => {
  const { tab, world } = await page();
  tab.visible = false;
  await world.pass(600_000);
  assert.equal(tab.socket.sent.length, 0);
  tab.visible = true;
  tab.fire('visibilitychange');
  assert.equal(tab.socket.sent.length, 1);
});

test('pushes begin the back-off anew', async () => {
  const { tab, world, edge, device } = await page();
  device.sockets = true;
  for (let i = 0; i < 12; i++) {
    tab.socket.say('{"push":{"items":[{"object":{"id":"100","type":1}}]}}');
    await world.pass(100);
    tab.socket.end(1006, '');
    await world.pass(700);
    assert.equal(tab.socket.readyState, 1, `at ${i}`);
  }
  assert.equal(edge.posts.length, 0);
});

test('a blocked WebSocket gives way to POST, and comes back', async () => {
  const { tab, client, world, edge, device } = await page();
  device.sockets = false;
  tab.socket.end(1006, '');
  client.report(beat(tab));
  await world.pass(10_000);
  assert.deepEqual(tab.statuses(), ['stored']);
  assert.equal(edge.posts.length, 1);
  assert.equal(tab.count('resync'), 2, 'with the first connection, and as nothing was told meanwhile');
  edge.fault = ({ heartbeats }) => (heartbeats.some(({ meta }) => meta.bad) ? { error: { code: 'invalid' } } : null);
  client.report(beat(tab, { meta: { n: String(++n), bad: 'yes' } }));
  client.report(beat(tab));
  await world.pass(10_000);
  assert.deepEqual(tab.statuses().sort(), ['invalid', 'stored', 'stored']);
  const attempts = tab.sockets.length;
  await world.pass(90_000);
  assert.ok(tab.sockets.length > attempts && tab.sockets.length <= attempts + 3, `${tab.sockets.length - attempts} attempts`);
  device.sockets = true;
  await world.pass(90_000);
  client.report(beat(tab));
  await world.pass(1000);
  assert.equal(tab.socket.readyState, 1);
  assert.equal(messages(tab).length, 1);
});

test('one connection that carries nothing is no reason for POST', async () => {
  const { tab, client, world, edge, device } = await page({ push: false });
  for (let i = 0; i < 3; i++) {
    edge.fault = () => {
      edge.fault = () => null;
      return { silent: true };
    };
    client.report(beat(tab));
    await world.pass(15_000);
    device.sockets = false;
    tab.socket.end(1006, '');
    const attempts = tab.sockets.length;
    await world.pass(5000, () => tab.sockets.length > attempts && tab.socket.readyState === 3);
    device.sockets = true;
    await world.pass(5000);
    client.report(beat(tab));
    await world.pass(1000);
  }
  assert.equal(client.waiting, 0);
  assert.equal(edge.posts.length, 0);
});

test('a large message that is refused twice is no reason for POST', async () => {
  const { tab, client, world, edge } = await page({ push: false }, false);
  edge.most = 1500;
  pile(tab, 30, 100);
  client.connect();
  await world.pass(20_000);
  assert.ok(tab.count('close') > 2);
  assert.equal(client.waiting, 0);
  assert.equal(edge.posts.length, 0);
});

test('an edge that stops is no reason for POST', async () => {
  const { tab, client, world, edge } = await page({ push: false });
  edge.fault = () => ({ close: [1001, 'the edge is stopping; retry_after_ms=1000'] });
  client.report(beat(tab));
  await world.pass(10_000);
  assert.ok(tab.count('close') > 4);
  assert.equal(edge.posts.length, 0);
});

test('what carried nothing counts once', async () => {
  const { tab, client, world, edge } = await page({ push: false });
  edge.fault = () => ({ silent: true });
  client.report(beat(tab));
  await world.pass(20_000, () => tab.count('close') > 0);
  edge.fault = () => null;
  for (let i = 0; i < 3; i++) tab.fire('offline');
  await world.pass(30_000);
  assert.equal(client.waiting, 0);
  assert.equal(edge.posts.length, 0);
});

for (const code of [1006, 4401]) {
  test(`a POST whose answer comes after the end of a WebSocket by ${code} is not waited for`, async () => {
    const { tab, client, world, edge, device } = await page({}, false);
    device.sockets = false;
    client.connect();
    client.report(beat(tab));
    await world.pass(10_000);
    edge.delay = 3000;
    client.report(beat(tab));
    await world.pass(100);
    device.sockets = true;
    tab.fire('online');
    await world.pass(500);
    tab.socket.end(code, '');
    await world.pass(20_000);
    assert.deepEqual(tab.statuses(), ['stored', 'unchanged']);
    assert.deepEqual(tab.events.filter(({ detail }) => detail?.reason === 'an answer to nothing'), []);
  });
}

test('an answer to a connection that was left is not heard', async () => {
  const { tab, client, world, device } = await page();
  device.latency = 200;
  client.report(beat(tab));
  await world.pass(210);
  client.leave();
  client.connect();
  await world.pass(5000);
  assert.deepEqual(tab.statuses(), ['unchanged']);
  assert.equal(tab.count('close'), 0);
});

test('a page that goes away without a new token has the old one', async () => {
  let good = 'good';
  const { tab, client, world, edge } = await page({ token: () => good });
  good = '';
  tab.socket.end(1006, '');
  await world.pass(2000);
  client.report(beat(tab));
  tab.fire('pagehide');
  await world.pass(1000);
  assert.equal(edge.stored.length, 1);
});

for (const push of [true, false]) test(`a connection that lasted begins the back-off anew, push: ${push}`, async () => {
  const { tab, world } = await page({ push });
  for (let i = 0; i < 12; i++) {
    await world.pass(11_000);
    tab.socket.end(1006, '');
    await world.pass(700);
    assert.equal(tab.socket.readyState, 1, `at ${i}`);
  }
  for (let i = 0; i < 12; i++) {
    tab.socket.end(1006, '');
    await world.pass(700);
  }
  assert.equal(tab.socket.readyState, 3, 'others do not');
});

test('a token that ends on a connection is no reason to sign in', async () => {
  let tokens = 0;
  const { tab, client, world, edge } = await page({ token: () => `token${++tokens}` });
  await world.pass(20_000);
  edge.fault = () => {
    edge.fault = () => null;
    return { close: [4401, 'the token has expired'] };
  };
  client.report(beat(tab));
  await world.pass(1000);
  assert.equal(tab.count('unauthorized'), 0);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('reads that fail are no reason to stay away', async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  const { fetch } = edge;
  edge.fetch = (tab, address, request) => (request.method ? fetch.call(edge, tab, address, request) : Promise.resolve({ status: 503, ok: false, headers: { get: () => '2' } }));
  device.sockets = false;
  client.connect();
  client.report(beat(tab));
  await world.pass(60_000);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('no report is guilty of what a proxy does not like', async () => {
  for (const status of [400, 403, 413, 415, 422, 431]) {
    const { tab, client, world, edge, device } = await page({}, false);
    device.sockets = false;
    client.connect();
    client.report(beat(tab));
    await world.pass(10_000);
    edge.fault = () => ({ page: status });
    client.report(beat(tab));
    await world.pass(10_000);
    assert.deepEqual(tab.statuses(), ['stored'], String(status));
    edge.fault = () => null;
    await world.pass(60_000);
    assert.deepEqual(tab.statuses(), ['stored', 'stored'], String(status));
  }
});

test('a page that leaves as it hears of a refused token, or of an end, stays away', async () => {
  const { tab, client, world, edge } = await page();
  tab.client.addEventListener('unauthorized', () => client.leave());
  edge.refused.add('good');
  tab.socket.end(1006, '');
  await world.pass(10_000);
  assert.equal(tab.count('unauthorized'), 1);
  const attempts = tab.sockets.length;
  edge.refused.clear();
  await world.pass(600_000);
  assert.equal(tab.sockets.length, attempts);

  const blocked = await page({}, false);
  blocked.device.sockets = false;
  blocked.client.addEventListener('close', () => blocked.tab.count('close') > 1 && blocked.client.leave());
  blocked.client.connect();
  await blocked.world.pass(600_000);
  assert.equal(blocked.tab.sockets.length, 2);
  assert.equal(blocked.tab.count('open'), 0);
});

test('a page that connects as it hears of a refused token is in doubt, and waits for nothing', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  edge.fault = () => ({ close: [4401, 'no'] });
  tab.client.addEventListener('unauthorized', () => client.connect());
  client.report(beat(tab));
  await world.pass(100, () => tab.count('unauthorized') > 0);
  edge.fault = () => null;
  edge.put(elsewhere);
  world.now++;
  client.report(beat(tab));
  await world.pass(3000);
  assert.equal(tab.count('close'), 1);
  assert.equal(client.waiting, 0);
  assert.equal(edge.records.get('1/100').device, 'phone', JSON.stringify(tab.statuses()));
});

test('leave() ends a POST', async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  device.sockets = false;
  client.connect();
  await world.pass(10_000);
  edge.delay = 5000;
  client.report(beat(tab));
  await world.pass(1000);
  client.leave();
  const attempts = tab.sockets.length;
  await world.pass(120_000);
  assert.equal(tab.sockets.length, attempts);
  assert.equal(tab.count('close'), 2, 'of the attempts before');
  assert.equal(client.waiting, 1);
});

test('a POST whose token is refused asks for another one', async () => {
  let good = 'first';
  const { tab, client, world, edge, device } = await page({ token: () => good }, false);
  device.sockets = false;
  client.connect();
  await world.pass(10_000);
  edge.refused.add('first');
  good = 'second';
  client.report(beat(tab));
  await world.pass(8000);
  assert.equal(tab.count('unauthorized'), 1);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('doubt does not end before the edge tells of others', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  edge.watching = 3000;
  tab.socket.end(1006, '');
  client.report(beat(tab));
  await world.pass(1000);
  edge.put(elsewhere);
  world.now += 50;
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored', 'conflict']);
});

test('doubt begins where the edge may have missed something', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  edge.put(elsewhere);
  tab.socket.say('{"push":{"resync":true}}');
  await world.pass(100);
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored', 'conflict']);
});

test('doubt does not end where nothing is told of others', async () => {
  const { tab, client, world, edge } = await page({ push: false });
  client.report(beat(tab));
  await world.pass(1000);
  tab.socket.end(1006, '');
  client.report(beat(tab));
  await world.pass(5000);
  edge.put(elsewhere);
  world.now += 50;
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored', 'conflict']);
});

test('what a page says within a second of its end is not in doubt, after that it is', async () => {
  for (const [ms, guarded] of [[500, false], [1500, true]]) {
    const { tab, client, world, device } = await page();
    client.report(beat(tab));
    await world.pass(1000);
    client.leave();
    await world.pass(ms);
    client.report(beat(tab));
    const [, text] = device.storage.entries().find(([name]) => name.startsWith('k#'));
    assert.equal(text.includes('if_match'), guarded, `after ${ms} ms`);
  }
});

test('a page that comes back is in doubt', async () => {
  const { tab, client, world, edge } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  tab.fire('pagehide');
  edge.put(elsewhere);
  world.now += 50;
  tab.fire('pageshow', { persisted: true });
  client.report(beat(tab));
  await world.pass(1000);
  assert.equal(tab.count('conflict'), 1);
});

for (const [push, mute] of [[true, 'all'], [false, 'all'], [true, 'up']]) {
  test(`a WebSocket that opens and carries nothing gives way to POST, push: ${push}, not carried: ${mute}`, async () => {
    const { tab, client, world, edge, device } = await page({ push }, false);
    device.mute = mute;
    client.connect();
    client.report(beat(tab));
    await world.pass(40_000);
    assert.deepEqual(tab.statuses(), ['stored']);
    for (let i = 0; i < 20; i++) {
      client.report(beat(tab));
      await world.pass(15_000);
    }
    assert.ok(client.waiting <= 1, `${client.waiting} wait`);
    assert.ok(tab.sockets.length <= 14, `${tab.sockets.length} attempts`);
    device.mute = '';
    await world.pass(90_000);
    const posts = edge.posts.length;
    client.report(beat(tab));
    await world.pass(1000);
    assert.equal(client.waiting, 0);
    assert.equal(edge.posts.length, posts);
  });
}

test('pushes are a sign of life where nothing was asked', async () => {
  const { tab, world, device } = await page();
  for (let i = 0; i < 4; i++) {
    device.sockets = false;
    tab.socket.end(1006, '');
    const attempts = tab.sockets.length;
    await world.pass(5000, () => tab.sockets.length > attempts && tab.socket.readyState === 3);
    device.sockets = true;
    await world.pass(60_000, () => tab.socket.readyState === 1);
    assert.equal(tab.socket.readyState, 1, `at ${i}`);
  }
});

test('a WebSocket that cannot be made gives way to POST', async () => {
  const { tab, client, world, device } = await page({}, false);
  device.forbidden = true;
  client.connect();
  client.report(beat(tab));
  await world.pass(10_000);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('a device that stays in 1970 is stored in time', async () => {
  const device = new Device(new World(), 'tv');
  device.skew = -device.world.now + 60_000;
  const tab = new Tab(device);
  tab.client.report(beat(tab));
  await device.world.pass(60_000);
  tab.client.connect();
  await device.world.pass(1000);
  const [{ at }] = device.world.edge.stored;
  assert.ok(Math.abs(device.world.now - 61_000 - at) < 100);
});

test('a WebSocket that is closing for ever is given up', async () => {
  for (const reports of [5, 0]) {
    const { tab, client, world } = await page();
    tab.socket.hang();
    for (let i = 0; i < reports; i++) {
      client.report(beat(tab));
      await world.pass(3000);
    }
    await world.pass(reports > 0 ? 0 : 30_000);
    assert.equal(client.waiting, 0);
    assert.equal(tab.socket.readyState, 1);
    assert.equal(tab.count('close'), 1);
  }
});

test('a WebSocket that closes in time says why', async () => {
  const { tab, client, world } = await page();
  tab.socket.hang();
  client.report(beat(tab));
  await world.pass(5000);
  tab.socket.end(1001, 'the edge is stopping; retry_after_ms=60000');
  await world.pass(55_000);
  assert.equal(tab.sockets.length, 1);
  await world.pass(10_000);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('what the edge asks for outlives offline, online, and another connect()', async () => {
  const { tab, client, world, device } = await page();
  tab.socket.end(1001, 'the edge is stopping; retry_after_ms=60000');
  await world.pass(1000);
  tab.fire('offline');
  await world.pass(1000);
  tab.fire('online');
  client.connect();
  await world.pass(1000);
  tab.fire('pagehide');
  tab.fire('pageshow', { persisted: true });
  await world.pass(55_000);
  assert.equal(tab.sockets.length, 1);
  await world.pass(5000);
  assert.equal(tab.count('open'), 2);
  assert.equal(device.up, true);
});

test('nobody stays away for longer than an hour', async () => {
  const { tab, client, world, edge } = await page();
  edge.fault = () => ({ error: { code: 'rate_limited', detail: '', retry_after_ms: 1e12 } });
  client.report(beat(tab));
  await world.pass(3_599_000);
  edge.fault = () => null;
  await world.pass(2000);
  assert.equal(client.waiting, 0);
  tab.socket.end(1001, 'stopping; retry_after_ms=1000000000000');
  await world.pass(3_599_000);
  assert.equal(tab.count('open'), 1);
  await world.pass(2000);
  assert.equal(tab.count('open'), 2);
});

for (const [name, headers] of Object.entries({
  'in seconds': { 'Retry-After': '60' },
  'by a clock that is wrong': { 'Retry-After': 'Mon, 02 Jan 2006 15:05:05 GMT', Date: 'Mon, 02 Jan 2006 15:04:05 GMT' },
})) test(`a page of a proxy instead of an answer says when to come back, ${name}`, async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  device.sockets = false;
  client.connect();
  client.report(beat(tab));
  await world.pass(10_000);
  edge.fault = () => ({ page: 503, headers });
  client.report(beat(tab));
  await world.pass(59_000);
  assert.equal(edge.posts.length, 2);
  edge.fault = () => null;
  await world.pass(3000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored']);
  edge.fault = () => (edge.posts.length < 5 ? { page: 200 } : null); // who signs in to a network
  client.report(beat(tab));
  await world.pass(10_000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored', 'stored']);
});

test('1 KB/s is enough for a POST', async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  device.sockets = false;
  client.connect();
  await world.pass(10_000);
  device.rate = 1;
  pile(tab, 1, 15_000);
  await world.pass(25_000);
  assert.equal(client.waiting, 0);
  assert.equal(edge.posts.length, 1);
  pile(tab, 30, 1000);
  await world.pass(100_000);
  assert.equal(client.waiting, 0);
});

test('a POST without an answer is given up', async () => {
  const { tab, client, world, edge, device } = await page({}, false);
  device.sockets = false;
  client.connect();
  await world.pass(10_000);
  device.rate = 0.001;
  client.report(beat(tab));
  await world.pass(5000);
  device.rate = Infinity;
  device.clear();
  await world.pass(20_000);
  assert.deepEqual(tab.statuses(), ['stored']);
  assert.equal(edge.posts.length, 1);
});

test('doubt does not end with the answer to a POST, even if a WebSocket opens before', async () => {
  const { tab, client, world, edge, device } = await page();
  client.report(beat(tab));
  await world.pass(1000);
  device.sockets = false;
  tab.socket.end(1006, '');
  await world.pass(10_000);
  device.sockets = true;
  edge.fault = () => {
    edge.fault = () => null;
    tab.fire('online'); // tries a WebSocket
    return null;
  };
  device.latency = 10; // of what was begun before, the answer comes later
  world.edge.delay = 500;
  client.report(beat(tab));
  await world.pass(200);
  assert.equal(tab.socket.readyState, 1);
  edge.put(elsewhere); // before anything is told
  world.now += 50;
  await world.pass(1000);
  client.report(beat(tab));
  await world.pass(2000);
  assert.deepEqual(tab.statuses(), ['stored', 'stored', 'conflict']);
});

test('a page that comes back from the browser\'s memory reports again', async () => {
  const { tab, client, world } = await page();
  tab.fire('pagehide');
  await world.pass(10_000);
  assert.ok(tab.sockets.every((socket) => socket.readyState === 3));
  tab.fire('pageshow', { persisted: true });
  client.report(beat(tab));
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored']);
});

test('garbage ends the connection, not the client', async () => {
  for (const text of ['', 'null', '[]', '7', '{"seq":99,"results":[]}', '{"results":7}', '{"seq":1,"results":[null]}', '{"seq":1}']) {
    const { tab, client, world, edge } = await page();
    edge.fault = () => ({ silent: true });
    client.report(beat(tab));
    await world.pass(100);
    tab.socket.say(text);
    edge.fault = () => null;
    await world.pass(15_000);
    assert.deepEqual(tab.statuses(), ['stored'], text);
  }
});

test('newest() knows what waits', async () => {
  const { tab, client } = await page({}, false);
  const report = beat(tab);
  client.report(report);
  assert.equal(client.newest(null, report.object).position_ms, report.position_ms);
  assert.equal(client.newest({ event_time: '2999-01-01T00:00:00Z', position_ms: 7 }, report.object).position_ms, 7);
  assert.equal(client.newest(null, { id: 'none', type: 1 }), null);
  const glance = { event_time: '2999-01-01T00:00:00Z', position_ms: 7, early: true };
  assert.equal(client.newest(glance, report.object).position_ms, 7, 'the service knows whether that takes its place');
  client.report({ ...report, position_ms: 9, if_match: 'a' });
  assert.equal(client.newest(glance, report.object).position_ms, 9, 'otherwise there will be a conflict');
  assert.equal(client.newest({ ...glance, early: undefined }, report.object).position_ms, 7);
});

test('viewings() asks once, and tells what is wrong', async () => {
  const world = new World();
  const { client } = new Tab(new Device(world, 'a'));
  const asked = [];
  let answer = { status: 200, ok: true, json: async () => ({ items: [{ end: '2026-11-22T00:00:00Z' }] }) };
  world.edge.fetch = async (_, address, { headers }) => {
    asked.push([address.pathname, headers.Authorization]);
    return answer;
  };
  assert.deepEqual(await client.viewings({ id: 'a/b', type: 2 }), [{ end: '2026-11-22T00:00:00Z' }]);
  for (const id of ['.', '..']) assert.deepEqual(await client.viewings({ id, type: 1 }), []); // in an address they would be steps
  assert.deepEqual(asked, [['/v1/history/2/a%2Fb/viewings', 'Bearer good']]);
  answer = { status: 404, ok: false };
  assert.deepEqual(await client.viewings({ id: 'none', type: 1 }), []);
  answer = { status: 503, ok: false, json: async () => ({ detail: 'the history is unavailable' }) };
  const failed = 'GET /v1/history/1/none/viewings: ';
  await assert.rejects(client.viewings({ id: 'none', type: 1 }), { name: 'PlayheadError', message: `${failed}503 the history is unavailable`, status: 503, code: 'unavailable' });
  answer = { status: 200, ok: true, json: () => Promise.reject(new SyntaxError('Unexpected end of JSON input')) };
  await assert.rejects(client.viewings({ id: 'none', type: 1 }), { message: `${failed}the answer broke off`, status: 0, code: 'unreachable' });
  for (const wrong of [undefined, 'a/b', { id: 1, type: 1 }, { id: 'a', type: '1' }]) await assert.rejects(client.viewings(wrong), TypeError);
});

test('a read without an answer ends after 10 seconds', async () => {
  const { client, world, edge } = await page();
  edge.fetch = (_, address, { signal }) => new Promise((_, refuse) => signal.addEventListener('abort', () => refuse(new Error('aborted'))));
  let failed;
  client.point({ id: '1', type: 1 }).catch((e) => (failed = e));
  await world.pass(9_999);
  assert.equal(failed, undefined);
  await world.pass(1);
  assert.deepEqual([failed.code, failed.status], ['timeout', 0]);
});

for (const forbidden of [false, true]) test(`an edge that was away for an hour is back within two seconds, without WebSockets: ${forbidden}`, async () => {
  const device = new Device(new World(), 'tv');
  device.forbidden = forbidden;
  const tab = new Tab(device);
  const { world } = device;
  tab.client.connect();
  await world.pass(90_000);
  device.sockets = false;
  world.edge.fetch = () => Promise.reject(new Error('refused'));
  tab.socket?.end(1006, '');
  tab.client.report(beat(tab));
  await world.pass(3_600_000);
  device.sockets = true;
  delete world.edge.fetch;
  const began = world.now;
  await world.pass(60_000, () => tab.told.length > 0);
  assert.ok(world.now - began <= 2_000, `took ${world.now - began} ms`);
});

test('reconnect() waits for nothing', async () => {
  const { tab, client, world, edge } = await page();
  edge.fault = () => ({ close: [1001, 'stopping; retry_after_ms=600000'] });
  client.report(beat(tab));
  await world.pass(1000);
  edge.fault = () => null;
  client.connect();
  await world.pass(10_000);
  assert.equal(client.live, false);
  client.reconnect();
  await world.pass(1000);
  assert.deepEqual(tab.statuses(), ['stored']);
  client.reconnect();
  assert.equal(client.live, true, 'a connection stays');
});

test('a configuration of wrong types is refused at once', () => {
  for (const url of ['edge.example.com', '127.0.0.1:8080', 'ftp://edge', 'http://', '']) {
    assert.throws(() => new Playhead({ url, token: () => 'good' }), { name: 'TypeError', message: /want an absolute address/ });
  }
  for (const token of [undefined, '', 5, null]) assert.throws(() => new Playhead({ url: 'http://edge', token }), { name: 'TypeError', message: /token: want a text/ });
  assert.throws(() => new Playhead({ url: 'http://edge', token: 'good', timeoutMs: '5' }), { name: 'TypeError', message: /timeoutMs 5: want a number/ });
});

test('arguments of wrong types are refused before anything is sent', async () => {
  const page = { ...browser, on() {}, fetch: () => assert.fail('sent') };
  const client = new Playhead({ url: 'http://edge', token: 'good', page });
  const one = { id: '1', type: 1 };
  for (const call of [
    () => client.list({ type: '1' }), () => client.list({ since: 5 }), () => client.search('a', { type: '1' }), () => client.search(5), () => client.follow(5),
    () => client.report({ object: one, kind: 'stop', position_ms: 1, duration_ms: '5' }),
    () => client.continueWatching({ limit: '5' }), () => client.clear({ until: 5 }), () => client.clear({ type: '1' }), () => client.mark([one], 'seen'),
    () => client.mark([one], 'watched', { event_time: 5 }), () => client.mark(one, 'watched'), () => client.dismiss([one], 'no'),
    () => client.recording('off'), () => client.changes(5), () => client.importLines('{}'), () => client.importLines(5),
  ]) await assert.rejects(async () => call(), TypeError, String(call));
});

test('a portal that sends requests elsewhere has them go nowhere', async (t) => {
  const reached = [];
  const listen = async (answer) => {
    const server = createServer(answer).listen(0, '127.0.0.1');
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    await once(server, 'listening');
    return `http://127.0.0.1:${server.address().port}`;
  };
  const portal = await listen((request, answer) => {
    reached.push(request.url);
    answer.end('{}');
  });
  const url = await listen((request, answer) => answer.writeHead(307, { Location: `${portal}/login` }).end());
  const asked = [];
  const page = { ...browser, on() {}, socket: () => { throw new Error('none'); }, fetch: (...request) => asked[asked.push(browser.fetch(...request)) - 1] };
  const client = new Playhead({ url, token: () => 'good', page });
  t.after(() => client.leave());
  client.report({ object: { id: '1', type: 1 }, kind: 'stop', position_ms: 1, event_time: new Date().toISOString() });
  const closed = once(client, 'close');
  client.connect();
  await closed; // after it asked why there is no WebSocket
  await assert.rejects(client.viewings({ id: '1', type: 1 }));
  client.leave();
  assert.ok(asked.length >= 3); // more where that took long
  await Promise.allSettled(asked);
  assert.deepEqual(reached, []);
  assert.equal(client.waiting, 1);
});
