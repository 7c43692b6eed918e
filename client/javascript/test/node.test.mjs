// The package in Node against an edge: PLAYHEAD_URL=... PLAYHEAD_TOKEN=... node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Playhead } from 'playhead';

const url = process.env.PLAYHEAD_URL;
const token = () => process.env.PLAYHEAD_TOKEN;
const object = { id: 'node', type: 1 };
const beat = (kind, position_ms) => ({ object, kind, position_ms, duration_ms: 600_000, event_time: new Date().toISOString(), session: 's', device: 'node' });

const point = async () => {
  const answer = await fetch(`${url}/v1/history/1/node`, { headers: { Authorization: `Bearer ${token()}` } });
  return answer.ok ? answer.json() : null;
};

/** Reports, and waits for the answers. */
function reported(client, beats) {
  return new Promise((resolve) => {
    const statuses = [];
    client.addEventListener('answered', ({ detail: { result } }) => {
      statuses.push(result.status);
      if (statuses.length === beats.length) resolve(statuses);
    });
    for (const one of beats) client.report(one);
  });
}

test('it reports, and what it reported is there', async (t) => {
  const client = new Playhead({ url, token });
  t.after(() => client.leave());
  client.connect();
  assert.deepEqual(await reported(client, [beat('start', 0), beat('progress', 90_000)]), ['stored', 'stored']);
  client.leave();
  assert.equal(client.waiting, 0);
  assert.equal((await point()).position_ms, 90_000);
  const [newest, ...others] = await client.viewings(object);
  assert.deepEqual([newest.from_ms, newest.to_ms, newest.state, newest.device, others], [0, 90_000, 'playing', 'node', []]);
  assert.deepEqual(await client.viewings({ id: 'none', type: 1 }), []);
});

// Node 20 has a WebSocket only where it is asked for.
if (globalThis.WebSocket) test('what another device does is pushed', { timeout: 30_000 }, async (t) => {
  const film = { id: 'pushed', type: 1 };
  const phone = new Playhead({ url, token });
  const tv = new Playhead({ url, token });
  t.after(() => [phone, tv].forEach((client) => client.leave()));
  const told = new Promise((resolve) => {
    phone.addEventListener('push', ({ detail }) => detail.items.filter((r) => r.object.id === film.id).forEach(resolve));
  });
  const watching = new Promise((resolve) => phone.addEventListener('resync', resolve, { once: true })); // from now on nothing is missed
  phone.connect();
  await watching;
  tv.connect();
  assert.deepEqual(await reported(tv, [{ ...beat('stop', 42_000), object: film, device: 'tv' }]), ['stored']);
  const { position_ms, device, etag } = await told;
  assert.deepEqual({ position_ms, device }, { position_ms: 42_000, device: 'tv' });
  assert.match(etag, /^[0-9a-f]{1,16}$/);
  const removed = new Promise((resolve) => phone.addEventListener('push', ({ detail }) => detail.removed.length > 0 && resolve(detail.removed)));
  const answer = await fetch(`${url}/v1/history/1/${film.id}`, { method: 'DELETE', headers: { Authorization: `Bearer ${token()}` } });
  assert.equal(answer.status, 200);
  assert.deepEqual(await removed, [film]);
});

test('a process that has left ends', async () => {
  const script = `import { Playhead } from 'playhead';
    const client = new Playhead({ url: '${url}', token: () => '${token()}' });
    client.addEventListener('answered', ({ detail }) => { console.log(detail.result.status); client.leave(); });
    client.connect();
    client.report(${JSON.stringify(beat('stop', 120_000))});`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { cwd: dirname(fileURLToPath(import.meta.url)), timeout: 60_000 });
  assert.equal(stdout, 'stored\n');
});
