// The page's offers to bring back deleted entries: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

class Node extends EventTarget {
  textContent = '';
  classList = { add() {}, remove() {}, contains: () => true };
  contains() { return false; }
}
const heard = {}; // by the newest Undo
Object.assign(globalThis, {
  HTMLElement: Node, HTMLButtonElement: Node, addEventListener: (type, listener) => { heard[type] = listener; }, setTimeout() {},
  document: { documentElement: { translate: false }, querySelector: () => new Node() },
});
const { Undo } = await import('../assets/undo.js');
const { Decisions } = await import('../assets/decisions.js');
const { kept } = await import('../assets/kept.js');
const place = 'playhead.undo.u';
test.beforeEach(() => {
  for (const name of ['', '.left', '.dismissed']) kept.removeItem(place + name);
});

const entry = (id, event_time = 'then') => ({ object: { type: 1, id }, event_time, meta: { title: id } });
const entries = (...ids) => ids.map((id) => entry(id));
const ids = (records) => records.map((record) => (record.object ?? record).id).join();
const lineOf = (record) => JSON.stringify(record);
const saved = () => JSON.parse(kept.getItem(place) ?? '[]');
const turns = async () => { for (let i = 0; i < 5; i++) await new Promise(setImmediate); };

/** A page, which tells what it asks the edge for. What is given does it otherwise. */
function page(told, does = {}) {
  const decisions = new Decisions(place, {
    few: 0, lines: async (records) => records.map(lineOf).join('\n'), left: async (records) => records,
    remove: async (records) => { told.push(`remove ${ids(records)}`); return []; }, restore: async (lines) => told.push(`restore ${ids(lines.split('\n').map((line) => JSON.parse(line)))}`),
    removed() {}, reread() {}, why: async (e) => e.message, listed() {}, lacks: () => false, changed() {}, ...does,
  });
  const undo = new Undo(place, decisions, { offer: (object) => told.push(`offer ${object.id}`), focus() {} });
  return { decisions, undo, hidden: (...names) => names.filter((name) => decisions.hides(`1/${name}`)).join() };
}

/** The page after a page that goes away. */
function next(told, does) {
  heard.pagehide();
  const made = page(told, does);
  made.undo.resume();
  return made;
}

/** A page that deletes again what is there once more, while the undo of it has no answer. */
async function deletedAgain(told) {
  page(told).undo.delete([entry('a', 1)]);
  await turns();
  const made = next(told, { left: async () => [], restore: () => new Promise(() => {}) });
  await turns();
  made.undo.undo();
  made.undo.delete([entry('a', 2)]);
  await turns();
  return made;
}

const refused = async () => { throw new Error('refused'); };

test('however many are deleted, they are hidden at once, and deleted when the time is up', async () => {
  const told = [];
  const { undo, hidden } = page(told);
  undo.delete(entries('a', 'b', 'c'));
  assert.equal(hidden('a', 'b', 'c', 'd'), 'a,b,c');
  await turns();
  assert.deepEqual(told, []);
  await undo.send();
  assert.deepEqual(told, ['remove a,b,c']);
  assert.equal(hidden('a', 'b', 'c'), '');
});

test('all that was deleted is offered after a reload, whichever backup comes first', async () => {
  for (const order of [[0, 1], [1, 0]]) {
    const answers = [];
    const told = [];
    const { undo } = page(told, { lines: (records) => new Promise((resolve) => answers.push(() => resolve(records.map(lineOf).join('\n')))) });
    for (const id of ['a', 'b']) undo.delete([entry(id)]);
    for (const i of order) {
      answers[i]();
      await turns();
    }
    const { decisions } = next(told, { left: async () => [] });
    assert.equal(ids(decisions.offered), 'a,b');
    assert.deepEqual(told, ['remove a,b']);
    await decisions.takeBack();
    kept.removeItem(place);
  }
});

test('a page that goes away before it keeps what brings an entry back leaves it, and deletes it when it is there again', async () => {
  const told = [];
  page(told, { lines: () => new Promise(() => {}) }).undo.delete([entry('a')]);
  const { hidden } = next(told);
  assert.equal(hidden('a'), 'a');
  assert.deepEqual(told, []);
  await turns();
  const { decisions } = next(told, { left: async () => [] });
  assert.deepEqual(told, ['remove a']);
  assert.equal(ids(decisions.offered), 'a');
});

test('what the edge did not take while the page went away is deleted when the page is there again, and brought back only after that', async () => {
  const told = [];
  const { undo } = page([], { remove: () => new Promise(() => {}) });
  undo.delete(entries('a', 'b'));
  await turns();
  let done;
  const again = next(told, { remove: (records) => new Promise((resolve) => { done = () => resolve(told.push(`remove ${ids(records)}`) && []); }) });
  await turns();
  const undone = again.undo.undo();
  await turns();
  assert.deepEqual(told, []);
  done();
  await undone;
  assert.deepEqual(told, ['remove a,b', 'restore a,b']);
});

test('what was played since a page asked for it to be deleted is not deleted by the next one', async () => {
  const told = [];
  const { undo } = page([], { lines: async () => '', remove: () => new Promise(() => {}) });
  undo.delete(entries('a', 'b'));
  undo.send();
  await turns();
  const { decisions } = next(told, { left: async (records) => records.filter(({ object }) => object.id === 'b') });
  await turns();
  assert.deepEqual(told, ['remove b']);
  assert.equal(ids(decisions.offered), '', 'what would bring it back was not read');
});

test('what others report of a deleted entry is brought back, too', async () => {
  const answers = [];
  const asked = [];
  const { undo, decisions } = page([], {
    lines: (records) => {
      asked.push(ids(records));
      return new Promise((resolve) => answers.push(() => resolve(records.map(lineOf).join('\n'))));
    },
  });
  undo.delete([entry('a', 1)]);
  decisions.changed({ items: [entry('a', 2), entry('b', 3)], removed: [] });
  for (const answer of answers.toReversed()) answer();
  await turns();
  assert.deepEqual(saved()[0].lines, [lineOf(entry('a', 2))]);
  decisions.changed({ items: [entry('b', 4)], removed: [] });
  assert.deepEqual(asked, ['a', 'a'], 'what is not deleted is not read');
});

test('a window that another one has opened deletes nothing of what that one may still take back', async () => {
  const told = [];
  page(told).undo.delete([entry('a')]);
  await turns();
  page(told).undo.resume(); // with all that is kept, and the first one did not go away
  await turns();
  assert.deepEqual([told, saved()], [[], []]);
});

test('what is deleted while something is dismissed waits as any other, and is what can be taken back', async () => {
  const told = [];
  const { undo, hidden, decisions } = page(told);
  undo.delete([entry('b')]); // after the press on the card, before its answer
  await turns();
  undo.dismissed(entry('a'));
  assert.equal(ids(decisions.offered), 'b');
  await undo.undo();
  assert.deepEqual([told, hidden('b')], [[], '']);
  undo.dismissed(entry('a'));
  const again = next(told);
  assert.equal(kept.getItem(`${place}.dismissed`) === null, false);
  await again.undo.undo();
  assert.deepEqual(told, ['offer a']);
});

test('what could not be brought back is, when the page is loaded again', async () => {
  const told = [];
  page(told).undo.delete([entry('a')]);
  await turns();
  const { undo, decisions } = next(told, { left: async () => [], restore: refused });
  await undo.undo();
  assert.equal(decisions.why('back'), 'refused');
  undo.delete([entry('b')]); // whatever else is deleted, and taken back, meanwhile
  await undo.undo();
  next(told);
  await turns();
  assert.deepEqual(told, ['remove a', 'restore a']);
  assert.deepEqual(saved(), []);
});

test('what was taken back and deleted again stays deleted, and all of it can be brought back', async () => {
  const told = [];
  page(told).undo.delete([entry('a', 1)]);
  await turns();
  const { undo, decisions } = next(told, { left: async () => [], restore: refused });
  await undo.undo();
  undo.delete([entry('a', 2)]); // it was played elsewhere
  assert.equal(decisions.why('back'), '');
  await turns();
  await undo.send();
  assert.deepEqual(told, ['remove a', 'remove a']);
  const { decisions: last } = next(told, { left: async () => [], restore: async (lines) => told.push(lines) });
  await turns();
  await last.takeBack();
  assert.deepEqual(told.slice(2), [[1, 2].map((at) => lineOf(entry('a', at))).join('\n')]);
});

test('what is offered after a reload stays so beside what is deleted then', async () => {
  for (const [leaves, want] of [[false, ['remove a', 'restore a']], [true, ['remove a', 'remove b', 'restore a,b']]]) {
    const told = [];
    page(told).undo.delete([entry('a')]);
    await turns();
    const gone = { left: async () => [] };
    let made = next(told, gone);
    made.undo.delete([entry('b')]);
    await turns();
    assert.equal(ids(made.decisions.offered), 'a,b');
    if (leaves) made = next(told, gone);
    await made.undo.undo();
    assert.deepEqual(told, want);
  }
});

test('an entry that failed to be deleted is shown, and tried again until it is gone, taken back, or deleted by another', async () => {
  for (const [act, want, left] of [
    [({ decisions }) => decisions.again(), ['remove a'], ''],
    [({ decisions }) => decisions.changed({ items: [], removed: [{ type: 1, id: 'a' }] }), [], ''],
    [({ undo }) => undo.delete([entry('a')]), [], 'a'],
  ]) {
    const told = [];
    let works = false;
    const made = page(told, { remove: async (records) => (works ? told.push(`remove ${ids(records)}`) && [] : refused()) });
    made.undo.delete([entry('a')]);
    await made.undo.send();
    assert.deepEqual([made.decisions.why('gone'), made.hidden('a')], ['refused', '']);
    works = true;
    act(made);
    await turns();
    assert.deepEqual([told, made.decisions.why('gone'), made.hidden('a')], [want, '', left]);
  }
});

test('an entry that was taken back as it was deleted does not fail those with it', async () => {
  const told = [];
  page([], { remove: () => new Promise(() => {}) }).undo.delete(entries('a', 'b'));
  await turns();
  let tries = 0;
  const made = next(told, {
    left: async (records) => records,
    remove: async (records, wanted) => {
      if (++tries > 1) return told.push(`remove ${ids(records)}`) && [];
      await turns(); // it is to be asked for later
      told.push(`wanted ${wanted()}`);
      throw new Error('not wanted');
    },
  });
  await new Promise(setImmediate);
  made.undo.send();
  made.undo.delete([entry('b')]);
  await made.undo.undo();
  await turns();
  assert.deepEqual([told, made.decisions.why('gone')], [['wanted false', 'remove a', 'restore b'], '']);
});

test('without room for what brings entries back, they stay until the page is there again', async () => {
  const told = [];
  const { setItem } = kept;
  kept.setItem = (name, text) => {
    if (text.length > 300) throw new Error('QuotaExceededError');
    setItem.call(kept, name, text);
  };
  const { undo } = page(told, { lines: async (records) => records.map((record) => lineOf({ ...record, more: ' '.repeat(300) })).join('\n') });
  undo.delete([entry('a')]);
  await turns();
  const { hidden } = next(told);
  assert.deepEqual([told, hidden('a')], [[], 'a']);
  delete kept.setItem;
});

test('what is asked about an entry waits for the answer before, over a reload as well', async () => {
  const told = [];
  const { undo } = await deletedAgain(told);
  undo.send();
  assert.deepEqual(told, ['remove a']);
  const { hidden, undo: last } = next(told, { left: async () => [] }); // nobody knows as what it was there
  assert.equal(hidden('a'), 'a');
  await last.send();
  assert.deepEqual(told, ['remove a', 'remove a']);
});

test('what was played while it was deleted stays listed, and is read again', async () => {
  for (const how of ['push', 'list']) {
    let answer;
    let listed = entry('a', 1);
    const told = [];
    const { undo, decisions } = page(told, {
      remove: () => new Promise((resolve) => { answer = () => resolve([]); }), removed: (objects) => told.push(`removed ${ids(objects)}`), reread: () => told.push('reread'),
      listed: ({ object }) => (object.id === 'a' ? listed : undefined),
    });
    undo.delete([entry('a', 1), entry('b', 1)]);
    const sent = undo.send();
    await turns();
    if (how === 'push') decisions.changed({ items: [entry('a', 2)], removed: [] });
    else listed = entry('a', 2);
    answer();
    await sent;
    assert.deepEqual(told, ['removed b', 'reread']);
  }
});

test('what waits to be deleted is brought back as the list has it', async () => {
  let listed = entry('a', 1);
  const { undo, decisions } = page([], { listed: () => listed });
  undo.delete([entry('a', 1)]);
  await turns();
  listed = entry('a', 2);
  decisions.settle();
  await turns();
  assert.deepEqual(saved()[0].lines, [lineOf(entry('a', 2))]);
});

test('an undo is offered again for as long as the message would be there, and for what was deleted last', async () => {
  const { now } = Date;
  const told = [];
  const { undo } = page(told);
  undo.delete([entry('a')]);
  await turns();
  await undo.send();
  undo.delete([entry('b')]);
  await turns();
  Date.now = () => now() + 50_000; // the pointer is on the message
  const gone = { left: async () => [] };
  const second = next(told, gone);
  assert.equal(ids(second.decisions.offered), 'b');
  await turns();
  Date.now = () => now() + 100_000;
  const third = next(told, gone);
  assert.equal(ids(third.decisions.offered), 'b');
  await third.undo.send();
  Date.now = () => now() + 170_000;
  assert.equal(ids(next(told, gone).decisions.offered), '');
  Date.now = now;
});

test('an undo that failed is done when all of it is listed again', async () => {
  let listed;
  const told = [];
  page(told).undo.delete([entry('a', '2026-11-01T10:00:00Z')]);
  await turns();
  const { undo, decisions } = next(told, { left: async () => [], restore: refused, listed: () => listed });
  await undo.undo();
  decisions.settle();
  assert.equal(decisions.why('back'), 'refused');
  undo.delete([entry('a', '2026-11-02T10:00:00Z')]);
  await turns();
  await undo.undo();
  for (const day of ['01', '02']) {
    listed = entry('a', `2026-11-${day}T10:00:00Z`);
    decisions.settle();
    assert.equal(decisions.why('back'), 'refused', 'what was deleted before, or after, is not there');
  }
  await decisions.send(() => true);
  undo.delete([entry('a', '2026-11-02T10:00:00Z')]);
  await turns();
  listed = undefined;
  const again = next(told, { left: async () => [], restore: refused, listed: () => listed });
  await again.undo.undo();
  listed = { ...entry('a', '2026-11-03T10:00:00Z'), played_at: '2026-11-02T10:00:00Z' };
  again.decisions.settle();
  assert.equal(again.decisions.why('back'), '');
});

test('a page that went away keeps nothing any more, until it comes back', async () => {
  let answer;
  const told = [];
  const first = page(told, { lines: () => new Promise((resolve) => { answer = resolve; }) });
  first.undo.delete([entry('a')]);
  const { undo } = next(told);
  await undo.undo();
  answer(lineOf(entry('a')));
  await turns();
  assert.deepEqual(saved(), []);
  heard.pagehide();
  first.undo.resume();
  assert.deepEqual([first.hidden('a'), told], ['', []]);
});

test('what was deleted before all that would bring it back was known is not offered after a reload', async () => {
  const told = [];
  page(told).undo.delete([entry('a', 1)]);
  await turns();
  const { undo } = next(told, { left: async () => [], lines: async () => '' });
  undo.delete([entry('a', 2)]);
  await undo.send();
  assert.deepEqual(ids(next(told, { left: async () => [] }).decisions.offered), '');
});

test('what a page asked to be deleted is shown until the next page knows that it is still there', async () => {
  const told = [];
  page(told, { remove: () => new Promise(() => {}) }).undo.delete([entry('a')]);
  await turns();
  let left;
  const { hidden } = next(told, { left: (records) => new Promise((resolve) => { left = () => resolve(records); }), remove: () => new Promise(() => {}) });
  assert.equal(hidden('a'), '');
  left();
  await turns();
  assert.equal(hidden('a'), 'a');
});

test('what is gone, though nobody said so, and is deleted again from a list that is behind, can be taken back', async () => {
  const told = [];
  let lost = true;
  const { undo } = page(told, {
    lines: async (records) => (lost ? records.map(lineOf).join('\n') : ''), listed: () => entry('a'),
    remove: async () => {
      if (!lost) return [];
      lost = false;
      throw new Error('lost');
    },
  });
  undo.delete([entry('a')]);
  await undo.send();
  undo.delete([entry('a')]);
  await turns();
  await undo.undo();
  assert.deepEqual(told, ['restore a']);
});

test('what was taken back without an answer and deleted again is brought back as a whole after two reloads', async () => {
  const told = [];
  await deletedAgain(told);
  const last = next(told, { left: async () => [], restore: async (lines) => told.push(...new Set(lines.split('\n').map((line) => JSON.parse(line).event_time))) });
  await turns();
  await last.undo.undo();
  assert.deepEqual(told, ['remove a', 1, 2]);
});

test('what another page deletes while it waits to be deleted here can be taken back', async () => {
  for (const how of ['push', 'list']) {
    const told = [];
    let gone = false;
    const { undo, decisions } = page(told, { lacks: () => gone });
    undo.delete([entry('a')]);
    await turns();
    if (how === 'push') decisions.changed({ items: [], removed: [{ type: 1, id: 'a' }] });
    else gone = true;
    decisions.settle();
    await undo.undo();
    assert.deepEqual(told, ['restore a']);
  }
});

test('what was played between a delete that failed and the next is brought back', async () => {
  const told = [];
  let works = false;
  const { undo, decisions } = page(told, { remove: async () => (works ? [] : refused()) });
  undo.delete([entry('a', 1)]);
  await undo.send();
  decisions.changed({ items: [entry('a', 2)], removed: [] });
  works = true;
  decisions.again();
  await turns();
  const last = next(told, { left: async () => [], restore: async (lines) => told.push(lines) });
  await last.undo.undo();
  assert.deepEqual(told, [[1, 2].map((at) => lineOf(entry('a', at))).join('\n')]);
});

test('only what brings it back is deleted: another record stays', async () => {
  const asked = [];
  const { undo, decisions } = page([], {
    lines: async (records) => records.map((record) => lineOf({ ...record, etag: `line ${record.etag}` })).join('\n'),
    remove: async (records) => { asked.push(...records.map(({ etag }) => etag)); return records; },
    removed: (objects) => asked.push(`removed ${ids(objects)}`),
  });
  undo.delete([{ ...entry('a'), etag: 'one' }]);
  await turns();
  const sent = undo.send();
  decisions.changed({ items: [{ ...entry('a'), etag: 'two' }], removed: [] }); // too late
  await sent;
  assert.deepEqual(asked, ['line one', 'removed ']);
  assert.equal(ids(next([]).decisions.offered), '', 'it was not deleted');
});

test('what is to be done with an entry before it is deleted is done, and then it is another record', async () => {
  const told = [];
  let etag = 'one';
  const { undo, decisions } = page(told, {
    lines: async (records) => records.map((record) => lineOf({ ...record, etag })).join('\n'),
    remove: async (records) => { told.push(`remove ${records[0].etag}`); return []; },
  });
  let marked;
  const mark = decisions.during('1/a', () => new Promise((resolve) => { marked = resolve; }));
  undo.delete([entry('a')]);
  const sent = undo.send();
  await turns();
  assert.deepEqual(told, []);
  etag = 'two';
  marked('marked');
  assert.equal(await mark, 'marked');
  await sent;
  await turns();
  assert.deepEqual(told, ['remove two']);
});

test('what is deleted while it is brought back is deleted as it is then', async () => {
  let etag = 'one';
  let answer;
  const told = [];
  const does = {
    left: async () => [], lines: async (records) => records.map((record) => lineOf({ ...record, etag })).join('\n'),
    remove: async (records) => { told.push(`remove ${records[0].etag}`); return []; }, restore: () => new Promise((resolve) => { answer = resolve; }),
  };
  page([]).undo.delete([entry('a')]);
  await turns();
  const { undo } = next([], does);
  await turns();
  undo.undo();
  undo.delete([entry('a')]);
  const sent = undo.send();
  await turns();
  etag = 'two';
  answer();
  await sent;
  assert.deepEqual(told, ['remove two']);
});

test('after a reload what is deleted then is offered with what was, and a clear of one type forgets nothing of the others', async () => {
  const told = [];
  page(told).undo.delete(entries('a', 'c'));
  await turns();
  const { undo, decisions } = next(told, { left: async () => [], restore: refused });
  await turns();
  undo.delete([entry('b')]);
  assert.equal(ids(decisions.offered), 'a,c,b');
  await undo.undo();
  await decisions.send(({ object }) => object.id === 'a');
  assert.equal(decisions.why('back'), 'refused');
  decisions.changed({ items: [], removed: [{ type: 1, id: 'c' }] }); // of the delete before
  assert.equal(decisions.why('back'), 'refused');
});

test('what was final is not offered with what is deleted, or dismissed, after it', async () => {
  for (const dismisses of [false, true]) {
    const told = [];
    let answer;
    const { undo } = page(told, { remove: () => new Promise((resolve) => { answer = () => resolve([]); }) });
    undo.delete([entry('a')]);
    await turns();
    const sent = undo.send();
    if (dismisses) undo.dismissing(entry('b'));
    else undo.delete([entry('b')]);
    await turns();
    answer();
    await sent;
    const last = next(told, { left: async () => [] });
    await last.undo.undo();
    assert.deepEqual(told, [dismisses ? 'offer b' : 'restore b']);
  }
});

test('a window that a page has opened after a reload offers nothing of what that has dismissed or deleted', async () => {
  const told = [];
  page(told).undo.resume();
  const { undo } = next(told);
  undo.dismissed(entry('b'));
  const opened = page(told);
  opened.undo.resume();
  await opened.undo.undo();
  undo.delete([entry('a')]);
  await turns();
  page(told).undo.resume();
  await turns();
  assert.deepEqual(told, []);
});

test('what was dismissed is offered again for a minute', async () => {
  const { now } = Date;
  for (const [later, want] of [[50_000, ['offer a']], [70_000, []]]) {
    const told = [];
    page(told).undo.dismissed(entry('a'));
    Date.now = () => now() + later;
    const { undo } = next(told);
    Date.now = now;
    await undo.undo();
    assert.deepEqual(told, want);
  }
});

test('who brings back a backup wants no more to be gone', async () => {
  const told = [];
  const { undo, decisions } = page(told, { remove: refused });
  undo.delete([entry('a')]);
  await undo.send();
  decisions.restored();
  assert.equal(decisions.why('gone'), '');
  next(told);
  await turns();
  assert.deepEqual(told, []);
});

test('what is kept in another form, or damaged, is left alone', () => {
  for (const text of ['{"lines":"a"}', '[', '7']) {
    for (const name of ['', '.dismissed']) kept.setItem(place + name, text);
    const { decisions } = next([]);
    assert.deepEqual(decisions.offered, []);
  }
});

test('the time to think again does not pass while something is on the message, whatever is deleted meanwhile', async () => {
  const nodes = {};
  const begun = [];
  const { document: before, setTimeout: timer } = globalThis;
  Object.assign(globalThis, { setTimeout: (act, ms) => begun.push(ms), document: { ...before, querySelector: (name) => (nodes[name] ??= new Node()) } });
  const { undo } = page([]);
  const toast = nodes['#toast'];
  const steps = ['delete', 'pointerenter', 'delete', 'focusin', 'pointerleave', 'delete', 'focusout'];
  const times = [];
  for (const step of steps) {
    if (step === 'delete') undo.delete([entry('a')]);
    else toast.dispatchEvent(new Event(step));
    times.push(begun.splice(0).length);
  }
  Object.assign(globalThis, { setTimeout: timer, document: before });
  assert.deepEqual(times, [1, 0, 0, 0, 0, 0, 1]);
  await undo.undo();
});

test('a delete that failed is not tried again once the user has seen the entry, and marked it or loaded the page again', async () => {
  const { now } = Date;
  for (const how of ['mark', 'reload']) {
    const told = [];
    const { undo, decisions } = page(told, { remove: refused });
    undo.delete([entry('a')]);
    await undo.send();
    Date.now = () => now() + 2000; // the user has read it
    if (how === 'mark') await decisions.during('1/a', async () => {});
    else next(told);
    decisions.again();
    await turns();
    assert.deepEqual([told, how === 'mark' ? decisions.why('gone') : ''], [[], '']);
    assert.equal(ids(next(told).decisions.offered), '', 'it is there');
    Date.now = now;
  }
});

test('a delete that the page lost as it went away is made by the next one, which offers it', async () => {
  const told = [];
  let lose;
  const { undo } = page([], { remove: () => new Promise((_, reject) => { lose = () => reject(new Error('lost')); }) });
  undo.delete([entry('a')]);
  await turns();
  undo.send();
  await turns();
  lose();
  await turns();
  const { decisions } = next(told);
  await turns();
  assert.deepEqual([told, ids(decisions.offered)], [['remove a'], 'a']);
});

test('who deletes for good waits for what else is asked about entries, and not for what would bring back what is final', async () => {
  for (const [of, atOnce] of [['b', ['remove a']], ['a', []]]) {
    const told = [];
    const { undo, decisions } = page(told, { lines: () => new Promise(() => {}) });
    let marked;
    decisions.during(`1/${of}`, () => new Promise((resolve) => { marked = resolve; }));
    undo.delete([entry('a')]);
    const sent = undo.send(() => true).then(() => told.push('sent'));
    await turns();
    assert.deepEqual(told, atOnce);
    marked();
    await sent;
    assert.deepEqual(told, ['remove a', 'sent']);
  }
});

test('whatever was decided about an entry is over with a clear, and what is decided after it stays', async () => {
  for (const [how, does] of [['failed', { restore: refused }], ['under way', { restore: () => new Promise((_, reject) => { setImmediate(() => reject(new Error('late'))); }) }]]) {
    const told = [];
    page(told).undo.delete([entry('a')]);
    await turns();
    const { undo, decisions } = next(told, { left: async () => [], ...does });
    await turns();
    const undone = undo.undo();
    if (how === 'failed') await undone;
    const sent = undo.send(() => true);
    undo.delete([entry('b')]);
    await sent;
    await turns();
    assert.equal(decisions.why('back'), '');
    const after = next(told, { left: async () => [] });
    await turns();
    assert.deepEqual([told, ids(after.decisions.offered)], [['remove a', 'remove b'], 'b']);
    kept.removeItem(place);
  }
});

test('nothing of what fails before a clear is tried again', async () => {
  const told = [];
  const { undo, decisions } = page(told, { few: 2, remove: async (records) => { told.push(`remove ${ids(records)}`); throw new Error('refused'); } });
  undo.delete(entries('a', 'b'));
  await undo.send(({ object }) => object.id === 'a');
  decisions.again();
  await turns();
  assert.deepEqual([told, decisions.why('gone')], [['remove a', 'remove b', 'remove b'], 'refused']);
});

test('what was deleted without an answer is offered by the next page, if a mark shows that it is gone', async () => {
  for (const gone of [true, false]) {
    let lacks = false;
    const told = [];
    const { undo, decisions } = page(told, { remove: refused, lacks: () => lacks });
    undo.delete([entry('a')]);
    await undo.send();
    assert.equal(decisions.why('gone'), 'refused');
    await decisions.during('1/a', async () => { lacks = gone; });
    decisions.settle();
    assert.equal(decisions.why('gone'), '');
    const { decisions: after } = next(told, { left: async () => [] });
    assert.equal(ids(after.offered), gone ? 'a' : '');
    kept.removeItem(place);
  }
});

test('what is offered again is not told to be removed, unless the page does not know whether it was', () => {
  for (const [done, listed, want] of [[true, true, []], [true, false, ['offer a']], [false, true, ['offer a']]]) {
    const told = [];
    const { undo } = page([]);
    undo.dismissing(entry('a'));
    if (done) undo.dismissed(entry('a'));
    const after = next(told);
    after.undo.read((record) => listed && record.object.id === 'a');
    after.undo.undo();
    assert.deepEqual(told, want);
    kept.removeItem(`${place}.dismissed`);
  }
});

test('what else is asked about an entry is asked one after the other, and a clear is the last word on what has failed before', async () => {
  const told = [];
  let lacks = false;
  const { undo, decisions } = page(told, { remove: refused, lacks: () => lacks });
  undo.delete([entry('a')]);
  await undo.send();
  const asked = [];
  const marks = ['watched', 'reset'].map((as) => decisions.during('1/a', () => new Promise((resolve) => {
    asked.push({ as, resolve });
  })).catch(() => {}));
  await turns();
  assert.deepEqual(asked.map(({ as }) => as), ['watched']);
  const sent = undo.send(() => true);
  lacks = true;
  asked[0].resolve();
  await turns();
  assert.deepEqual(asked.map(({ as }) => as), ['watched', 'reset']);
  decisions.during('1/a', async () => asked.push({ as: 'unwatched' }));
  await turns();
  assert.equal(asked.length, 2);
  const after = next(told, { left: async () => [] });
  assert.equal(ids(after.decisions.offered), '');
  await turns();
  assert.equal(asked.at(-1).as, 'unwatched', 'the page that goes away has no time to wait');
  asked[1].resolve();
  await Promise.all([...marks, sent]);
});

test('what is being dismissed as the page goes away is offered again by the next one, unless that was refused', () => {
  for (const refusal of [false, true]) {
    const told = [];
    const { undo } = page([]);
    undo.dismissing(entry('a'));
    if (refusal) undo.forget(({ object }) => object.id === 'a');
    next(told).undo.undo();
    assert.deepEqual(told, refusal ? [] : ['offer a']);
  }
});

test('what is being read again is deleted as the page goes away', async () => {
  for (const due of [false, true]) {
    const told = [];
    let reads = 0;
    const { undo, decisions } = page(told, { lines: async (records) => (reads++ ? new Promise(() => {}) : records.map(lineOf).join('\n')) });
    undo.delete([entry('a')]);
    await turns();
    decisions.reread();
    if (due) undo.send();
    assert.deepEqual(told, []);
    heard.pagehide();
    assert.deepEqual(told, ['remove a']);
    kept.removeItem(place);
  }
});

test('what is deleted before a clear is so whatever record it is, and nothing is read for it', async () => {
  const asked = [];
  const { undo, decisions } = page([], {
    lines: async (records) => { asked.push('lines'); return records.map(lineOf).join('\n'); }, remove: async (records) => { asked.push(`remove ${records[0].etag}`); return []; },
  });
  let marked;
  const mark = decisions.during('1/a', () => new Promise((resolve) => { marked = resolve; }));
  undo.delete([{ ...entry('a'), etag: 'one' }]);
  await turns();
  const sent = undo.send(() => true);
  marked();
  await mark;
  await sent;
  assert.deepEqual(asked, ['lines', 'remove ']);
});

test('of a few that are deleted, what failed alone is tried again', async () => {
  const told = [];
  let works = false;
  const { undo, decisions } = page(told, {
    few: 2, remove: (records) => (works || ids(records) === 'a' ? Promise.resolve(told.push(`remove ${ids(records)}`) && []) : refused()),
  });
  undo.delete(entries('a', 'b'));
  await undo.send();
  decisions.changed({ items: [entry('a', 2)], removed: [] });
  works = true;
  decisions.again();
  await turns();
  assert.deepEqual([told, decisions.why('gone')], [['remove a', 'remove b'], '']);
});

test('one that is deleted by itself stays where it was played since, and several are deleted when the last part is answered', async () => {
  const { fetch: before } = globalThis;
  const { Api } = await import('../assets/api.js');
  const asked = [];
  let late;
  globalThis.fetch = async (address, { method, headers, body }) => {
    const { pathname } = new URL(address);
    asked.push(`${method} ${pathname} ${headers.get('If-Match')}`);
    if (!pathname.endsWith('/delete')) return new Response('{}', { status: { failed: 503, other: 412 }[pathname.split('/').at(-1)] ?? 200 });
    if (JSON.parse(body).objects.length < 1000) return new Response('{}', { status: 503 });
    await new Promise((resolve) => { late = resolve; });
    return new Response('{}');
  };
  const record = (id) => ({ object: { type: 1, id }, etag: `e ${id}` });
  const api = new Api('token', 'http://edge');
  assert.deepEqual(await api.remove([record('one')]), []);
  assert.equal(await api.remove([record('failed')]).catch((e) => e.status), 503);
  assert.deepEqual(await api.remove([record('other')]), [record('other')]);
  assert.deepEqual(asked, ['one', 'failed', 'other'].map((id) => `DELETE /v1/history/1/${id} "e ${id}"`));
  let over = false;
  const removed = api.remove(Array.from({ length: 1001 }, (_, i) => record(`${i}`))).catch((e) => e.status).finally(() => { over = true; });
  await turns();
  assert.equal(over, false);
  late();
  assert.equal(await removed, 503);
  assert.deepEqual(asked.slice(3), Array(2).fill('POST /v1/history/delete null'));
  globalThis.fetch = before;
});

test('a backup of some records has those that were played since as well, or nothing', async () => {
  const { fetch: before, location } = globalThis;
  const { Api } = await import('../assets/api.js');
  const line = (id) => JSON.stringify({ object: { type: 1, id }, event_time: `then ${id}` });
  const records = ['a', 'b'].map((id) => ({ object: { type: 1, id }, event_time: id }));
  for (const [answers, want] of [[[['a', 'b', 'c']], 'ab'], [[['a'], ['a', 'b', 'c']], 'ab'], [[['a'], null], ''], [[null], ''], [[['a'], ['a']], 'a']]) {
    const asked = [];
    globalThis.fetch = async (address) => {
      asked.push(new URL(address).searchParams.get('until'));
      const ids = answers[asked.length - 1];
      if (!ids) throw new TypeError('lost');
      return new Response(ids.map(line).join('\n'));
    };
    const lines = await new Api('token', 'http://edge').lines(records);
    assert.equal(lines.split('\n').filter(Boolean).map((text) => JSON.parse(text).object.id).join(''), want);
    assert.deepEqual(asked, ['b', null].slice(0, answers.length));
  }
  Object.assign(globalThis, { fetch: before, location });
});
