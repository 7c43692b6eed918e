// What the history page has read, when the list changes while it reads: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

globalThis.document = { documentElement: { translate: false } };
const { Reader } = await import('../assets/reader.js');
const { LoadedHistory } = await import('../assets/loaded.js');

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
      asked.push({ path, limit, go });
    }),
  };
  const problems = { has: () => false, attempt: async (_what, _again, act) => { await act(); return true; } };
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
