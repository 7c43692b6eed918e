// The calls of client/testdata/contract.txt: PLAYHEAD_URL=... PLAYHEAD_TOKEN=... node contract.mjs
import { Playhead } from 'playhead';

const { PLAYHEAD_URL: url, PLAYHEAD_TOKEN: token } = process.env;
const user = new Playhead({ url, token, push: false });
const film = (id) => ({ id, type: 1 });
const say = (...words) => console.log(words.flat().join(' '));
const at = (record) => record?.resume_ms ?? 'none';
const all = async (records) => {
  const ids = [];
  for await (const { object } of records) ids.push(object.id);
  return ids;
};
const idsOf = (records) => records.map(({ object }) => object.id);

/** Reports, and resolves to the status. */
const report = (client, beat) => new Promise((resolve) => {
  client.addEventListener('answered', ({ detail }) => resolve(detail.result.status), { once: true });
  client.report({ duration_ms: 5_400_000, session: 's', ...beat });
});

user.connect();
const stopped = await report(user, { object: film('1'), kind: 'stop', position_ms: 600_000, meta: { title: 'Low Tide' } });
say('report', stopped, await report(user, { object: film('2'), kind: 'finish', position_ms: 5_400_000 }));
user.leave();
say('point', at(await user.point(film('1'))), at(await user.point(film('none'))));
say('lookup', (await user.lookup([film('1'), film('none')])).map(at));
say('list', await all(user.list({ type: 1 })));
say('continueWatching', idsOf(await user.continueWatching()));
say('search', await all(user.search('tide')));
const sessions = await user.viewings(film('1'));
say('viewings', sessions.length, sessions[0].to_ms);
const stats = await user.stats({ by: 'object', zone: 'Europe/Berlin' });
say('stats', stats.total.plays, stats.total.viewings, idsOf(stats.buckets));
say('mark', (await user.mark([film('3')], 'watched')).map(({ status }) => status));
for (const dismissed of [true, false]) {
  say('dismiss', await user.dismiss([film('1'), film('none')], dismissed));
  say('continueWatching', idsOf(await user.continueWatching()));
}
say('recording', await user.recording(), await user.recording(false), await user.recording(true));
const first = await user.changes();
say('changes', first.resync ? 'resync' : '');
say('delete', await user.delete([film('2'), film('none')]));
say('changes', 'removed', (await user.changes(first.token)).removed.map(({ id }) => id));
const lines = [];
for await (const line of user.export()) lines.push(line);
say('export', lines.length);
await user.clear();
say('clear');
say('list', await all(user.list()));
for (const restore of [false, true]) {
  const { rows, statuses } = await user.importLines(lines, { restore });
  say('importLines', rows, Object.entries(statuses).flat());
}
say('list', await all(user.list()));
for (const fails of [() => new Playhead({ url, token: 'none' }).recording(), () => user.changes('nonsense')]) {
  await fails().catch(({ status, code }) => say('error', status, code));
}
const other = new Playhead({ url, token });
await new Promise((resolve) => {
  other.follow(({ resync, items }) => {
    if (resync) report(user, { object: film('4'), kind: 'stop', position_ms: 7_000 });
    if (resync) user.connect();
    for (const { object, position_ms } of items) resolve(say('follow', object.id, position_ms));
  });
});
user.leave();
other.leave();
