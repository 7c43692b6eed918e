// SPDX-License-Identifier: Apache-2.0
// A player in a terminal that goes on where the user stopped, on any device:
//
//   npm pack ../../client/javascript && npm install --no-save ./playhead-0.1.0.tgz
//   PLAYHEAD_URL=http://127.0.0.1:8080 PLAYHEAD_TOKEN=... node player.mjs 100 "Low Tide"
import { randomUUID } from 'node:crypto';
import { Playhead } from 'playhead';

const { PLAYHEAD_URL: url, PLAYHEAD_TOKEN: token, SECONDS = '3' } = process.env;
const [id, title = id] = process.argv.slice(2);
if (!id) throw new Error('usage: node player.mjs ID [TITLE]');

const client = new Playhead({ url, token });
const object = { id, type: 1 };
const session = randomUUID();
const clock = (ms) => `${Math.floor(ms / 60_000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, '0')}`;

client.addEventListener('answered', ({ detail: { heartbeat, result } }) => {
  if (result.status !== 'stored') console.log(heartbeat.kind, result.status, result.error ?? '');
});
client.addEventListener('unauthorized', () => console.log('the token was refused'));

/** Plays: sends a report of each second. */
async function play(from) {
  const report = (kind, position_ms) => client.report({ object, kind, position_ms, duration_ms: 600_000, session, device: 'terminal', meta: { title } });
  report('start', from);
  for (let second = 1; second <= Number(SECONDS); second++) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    report(second < Number(SECONDS) ? 'progress' : 'stop', from + 1000 * second);
  }
}

/** Resolves when each report has its answer. */
async function answered() {
  while (client.waiting > 0) await new Promise((resolve) => client.addEventListener('answered', resolve, { once: true }));
}

const record = await client.point(object);
const from = record?.resume_ms ?? 0;
if (record) client.seen(record); // another device may go on meanwhile: that is a conflict
console.log(`${title} from ${clock(from)}`);
client.connect();
await play(from);
await answered();
client.leave();
console.log('History:');
for await (const { meta = {}, object: of, resume_ms } of client.list()) console.log(`  ${meta.title ?? of.id} at ${clock(resume_ms)}`);
