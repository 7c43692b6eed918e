// The list of the history page, when it changes while the page reads: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

globalThis.document = { documentElement: { translate: false } };
const { Reader } = await import('../assets/reader.js');
const { LoadedHistory } = await import('../assets/loaded.js');
const { Problem } = await import('../assets/api.js');

/** A history of n records, of which each answer waits until it is let go. */
function world(n) {
  const asked = [];
  const api = {
    get: (path, { q = '', limit, cursor }) => new Promise((resolve, reject) => {
      const [of, from = 0] = cursor ? cursor.split('/') : [q];
      const go = () => {
        if (of !== q) return reject(new Error(`422: the cursor of "${of}" for "${q}"`));
        const items = Array.from({ length: n }, (_, i) => record(i)).slice(Number(from), Number(from) + limit);
        const end = Number(from) + items.length;
        resolve({ items, cursor: `${q}/${end}`, has_more: end < n });
      };
      asked.push({ path, limit, go, fail: () => reject(new Problem(503, 'unavailable')) });
    }),
  };
  const problems = {
    failed: false,
    has() { return this.failed; },
    async attempt(_what, _again, act) {
      await act().then(() => { this.failed = false; }, () => { this.failed = true; });
      return !this.failed;
    },
  };
  const loaded = new LoadedHistory();
  const reader = new Reader(api, loaded, problems, () => {});
  /** Answers what was asked, oldest first, until nothing is. */
  const settle = async () => {
    for (let turn = 0; turn < 20; turn++) {
      asked.shift()?.go();
      await new Promise(setImmediate);
    }
  };
  return { asked, loaded, reader, settle };
}

const record = (i) => ({ object: { type: 1, id: String(i) }, event_time: new Date(1e12 - i).toISOString(), meta: { title: 'tide' } });
const type = (loaded, words) => {
  loaded.words = words;
  loaded.restart();
};

const listed = (loaded, { object }) => loaded.sorted().find((one) => one.object.id === object.id && one.object.type === object.type);

test('the next page is read although all is read again meanwhile', async () => {
  const { loaded, reader, settle } = world(150);
  for (const words of ['tide', '']) {
    type(loaded, words);
    reader.refresh();
    await settle();
    reader.older();
    reader.refresh(); // the older page is of no use now
    await settle();
    assert.equal(loaded.size, 80);
    reader.refresh();
    reader.older(); // while it reads
    await settle();
    assert.equal(loaded.size, 120);
    assert.equal(reader.busy, false);
    await settle();
    assert.equal(loaded.size, 120, 'nobody asked for more');
  }
});

test('a list goes on with its own words, whatever is typed meanwhile', async () => {
  const { asked, loaded, reader, settle } = world(150);
  type(loaded, 'tide');
  reader.refresh();
  await settle();
  reader.older();
  await settle();
  const again = reader.refresh(); // 80 in two pages
  asked.shift().go();
  type(loaded, '');
  await settle();
  await again;
  assert.equal(loaded.cursor, '', 'nothing of the search is kept');
  reader.refresh();
  await settle();
  assert.deepEqual([loaded.size, loaded.cursor, reader.busy], [40, '/40', false]);

  reader.older();
  type(loaded, 'tide');
  await settle();
  assert.equal(loaded.cursor, '');
  reader.refresh();
  await settle();
  assert.deepEqual([loaded.size, loaded.cursor, reader.busy], [40, 'tide/40', false]);
});

test('what is told while the list is read is in it', async () => {
  const { asked, loaded, reader, settle } = world(150);
  const gone = { object: { type: 1, id: '0' } };
  const fresh = { ...record(1), event_time: new Date(2e12).toISOString() };
  const both = async () => {
    await new Promise(setImmediate);
    loaded.change({ items: [fresh], removed: [gone.object] });
    await settle();
    assert.deepEqual(loaded.sorted().slice(0, 3).map((r) => r.object.id), ['1', '2', '3']);
    assert.equal(Boolean(listed(loaded, gone)), false);
  };
  reader.refresh();
  await both();
  reader.refresh();
  await both();

  reader.older();
  await new Promise(setImmediate);
  loaded.change({ items: [], removed: [{ type: 1, id: '50' }] });
  await settle();
  assert.equal(Boolean(listed(loaded, record(50))), false, 'removed from a page that was on its way');
  assert.equal(Boolean(listed(loaded, record(51))), true);

  reader.refresh();
  await settle();
  assert.equal(Boolean(listed(loaded, gone)), true, 'what was told before is in the answer');
  assert.equal(asked.length, 0);
});

test('a read that nobody waits for any more says nothing of the newer one', async () => {
  for (const old of ['go', 'fail']) {
    for (const answer of ['go', 'fail']) {
      const { asked, loaded, reader } = world(10);
      reader.refresh();
      const [first] = asked.splice(0);
      type(loaded, 'tide');
      reader.refresh();
      const [second] = asked.splice(0);
      for (const act of [second[answer], first[old]]) {
        act();
        await new Promise(setImmediate);
      }
      assert.equal(reader.failed, answer === 'fail', `the old: ${old}, the new: ${answer}`);
      assert.equal(reader.busy, false);
    }
  }
});

test('records of one moment stand in the order of the edge', () => {
  const loaded = new LoadedHistory();
  const of = (id, type, state) => ({ object: { id, type }, state, event_time: new Date(1e12).toISOString() });
  loaded.replace([of('b', 1, 'playing'), of('a', 2, 'stopped'), of('k1', 1, 'finished'), of('c', 1, 'paused'), of('k2', 1, 'stopped')], { cursor: '', has_more: false });
  assert.deepEqual(loaded.sorted().map(({ object: { id } }) => id), ['k2', 'k1', 'a', 'c', 'b']);
});

test('what is pushed into a search is listed where the edge would find it', () => {
  const found = (words, title) => {
    const loaded = new LoadedHistory();
    loaded.words = words;
    loaded.replace([], { cursor: '', has_more: false });
    loaded.change({ items: [{ ...record(1), meta: { title } }], removed: [] });
    return loaded.size === 1;
  };
  for (const [words, title] of [['suden', 'Im Süden'], ['SÜDEN', 'Im Suden'], ['strasse', 'Die Straße'], ['große', 'GROẞE FREIHEIT'], ['οδυσσ', 'ΟΔΥΣΣΕΥΣ'], ['οδυσσευς', 'ΟΔΥΣΣΕΥΣ ΙΙ'], ['istanbul', 'İstanbul'],
    ['lodz', 'Łódź'], ['smorre', 'Smørrebrød'], ['abc', 'ＡＢＣ'], ['елки', 'Ёлки'], ['ガ', 'ｶﾞ']]) assert.ok(found(words, title), `${words} in ${title}`);
  for (const [words, title] of [['カ', 'ガ'], ['suden', 'Norden']]) assert.ok(!found(words, title), `${words} in ${title}`);
});

test('a search drops what is called otherwise now', () => {
  const loaded = new LoadedHistory();
  loaded.words = 'tide';
  loaded.replace([record(1)], { cursor: '', has_more: false });
  loaded.change({ items: [{ ...record(1), meta: { title: 'ebb' } }], removed: [] });
  assert.equal(loaded.size, 0);
});

test('what comes in above the end of what was read is listed, also where the last entry has moved', () => {
  for (const push of [{ items: [{ ...record(2), event_time: new Date(2e12).toISOString() }], removed: [] }, { items: [], removed: [record(2).object] }]) {
    const loaded = new LoadedHistory();
    loaded.replace([record(0), record(2)], { cursor: '2', has_more: true });
    loaded.change(push);
    loaded.change({ items: [record(1), record(3)], removed: [] }); // the edge goes on with the second one
    assert.deepEqual([Boolean(listed(loaded, record(1))), Boolean(listed(loaded, record(3)))], [true, false]);
  }
});

test('what was played while the pages were read comes behind the oldest page, and stands where it belongs', () => {
  const loaded = new LoadedHistory();
  loaded.replace([record(2), record(5)], { cursor: '2', has_more: true });
  const played = { ...record(9), event_time: new Date(2e12).toISOString() };
  loaded.append([played], { cursor: '3', has_more: true });
  assert.equal(loaded.sorted()[0], played);
  loaded.change({ items: [record(4)], removed: [] });
  assert.ok(listed(loaded, record(4)), 'the list was read further down than that');
});

test('what was brought back stands among its moment by name alone, as at the edge', () => {
  const loaded = new LoadedHistory();
  const of = (id, state) => ({ object: { id, type: 1 }, state, event_time: new Date(1e12).toISOString(), played_at: new Date(1e11).toISOString() });
  loaded.replace([of('a', 'stopped'), of('b', 'playing')], { cursor: '', has_more: false });
  assert.deepEqual(loaded.sorted().map(({ object: { id } }) => id), ['b', 'a']);
});
