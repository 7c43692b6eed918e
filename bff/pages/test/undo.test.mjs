// The page's offers to bring back deleted entries: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

class Node extends EventTarget {
  textContent = '';
  classList = { add() {}, remove() {} };
  contains() { return false; }
}
const heard = {}; // by the newest Undo
Object.assign(globalThis, {
  HTMLElement: Node, HTMLButtonElement: Node, addEventListener: (type, listener) => { heard[type] = listener; }, setTimeout() {},
  document: { documentElement: { translate: false }, querySelector: () => new Node() },
});
const { Undo } = await import('../assets/undo.js');
const { kept } = await import('../assets/kept.js');
test.beforeEach(() => {
  for (const name of ['', '.undone', '.left']) kept.removeItem(`playhead.undo.u${name}`);
});

test('however many are deleted, they are hidden at once', async () => {
  const hidden = [];
  const undo = new Undo('u', { hide: (keys) => hidden.push(keys), show() {}, send() {}, offer() {}, restore() {}, lines: async () => '' });
  await undo.delete(['a', 'b', 'c'].map((id) => ({ object: { type: 1, id } })));
  assert.deepEqual(hidden, [['1/a', '1/b', '1/c']]);
});

test('all that was deleted is offered after a reload, whichever backup comes first', async () => {
  for (const turns of [[0, 1], [1, 0]]) {
    const answers = [];
    const undo = new Undo('u', {
      hide() {}, show() {}, send() {}, offer() {}, restore() {},
      lines: (records) => new Promise((resolve) => answers.push(() => resolve(records.map((r) => r.object.id).join('\n')))),
    });
    const deletes = ['a', 'b'].map((id) => undo.delete([{ object: { type: 1, id } }]));
    for (const turn of turns) {
      answers[turn]();
      await deletes[turn];
    }
    const { text, lines } = JSON.parse(kept.getItem('playhead.undo.u'));
    assert.deepEqual([text, lines], ['Deleted 2 entries.', 'a\nb']);
    kept.removeItem('playhead.undo.u');
  }
});

test('a page that goes away before it keeps what brings an entry back leaves it, and deletes it when it is there again', async () => {
  const told = [];
  let answer;
  const does = {
    hide: (keys) => told.push(`hide ${keys}`), show: (keys) => told.push(`show ${keys}`), send: (records) => told.push(`send ${records.map((r) => r.object.id)}`),
    offer() {}, restore() {}, lines: () => new Promise((resolve) => { answer = resolve; }),
  };
  new Undo('u', does).delete([{ object: { type: 1, id: 'a' } }]);
  heard.pagehide();
  assert.deepEqual(told.splice(0), ['hide 1/a', 'show 1/a']);
  answer('a'); // too late
  const again = new Undo('u', does);
  const resumed = again.resume();
  assert.deepEqual(told.splice(0), ['hide 1/a']);
  answer('a');
  await resumed;
  heard.pagehide();
  assert.deepEqual(told, ['send a']);
  assert.equal(JSON.parse(kept.getItem('playhead.undo.u')).lines, 'a');
  kept.removeItem('playhead.undo.u');
});

test('what the edge did not take while the page went away is deleted when the page is there again, and brought back only after that', async () => {
  const told = [];
  let left;
  const undo = new Undo('u', {
    hide() {}, show() {}, offer() {}, lines: async () => '', left: () => new Promise((resolve) => { left = resolve; }),
    send: async (records) => told.push(`send ${records}`), restore: (lines) => told.push(`restore ${lines}`),
  });
  kept.setItem('playhead.undo.u', JSON.stringify({ text: 'Deleted', lines: 'a', about: ['#list', '1/a'], at: Date.now() }));
  heard.pagehide();
  undo.resume();
  const undone = undo.undo();
  left(['a']);
  await undone;
  assert.deepEqual(told, ['send a', 'restore a']);
});

test('what others report of a deleted entry is brought back, too', async () => {
  const answers = [];
  const undo = new Undo('u', {
    hide() {}, show() {}, send() {}, offer() {}, restore() {},
    lines: (records) => new Promise((resolve) => answers.push(() => resolve(records.map((r) => `${r.object.id} at ${r.event_time}`).join('\n')))),
  });
  const ended = [undo.delete([{ object: { type: 1, id: 'a' }, event_time: 1 }]), undo.changed([{ object: { type: 1, id: 'a' }, event_time: 2 }, { object: { type: 1, id: 'b' }, event_time: 3 }])];
  for (const answer of answers.toReversed()) answer();
  await Promise.all(ended);
  assert.equal(JSON.parse(kept.getItem('playhead.undo.u')).lines, 'a at 2');
  await undo.changed([{ object: { type: 1, id: 'b' }, event_time: 4 }]);
  assert.equal(answers.length, 2, 'what is not deleted is not read');
  kept.removeItem('playhead.undo.u');
});

test('a window that another one has opened deletes nothing of what that one may still take back', async () => {
  const told = [];
  const does = {
    hide() {}, show() {}, offer() {}, restore() {}, lines: async () => 'a',
    left: async () => ['a'], send: async (records) => told.push(records),
  };
  await new Undo('u', does).delete([{ object: { type: 1, id: 'a' } }]);
  const copy = [...Array(kept.length).keys()].map((i) => [kept.key(i), kept.getItem(kept.key(i))]);
  new Undo('u', does).resume();
  assert.equal(kept.getItem('playhead.undo.u'), null);
  for (const [name, text] of copy) kept.setItem(name, text);
  await new Promise(setImmediate);
  assert.deepEqual(told, []);
  kept.removeItem('playhead.undo.u');
});

test('what is deleted while something is dismissed waits as any other, and is what can be taken back', async () => {
  const told = [];
  const undo = new Undo('u', { hide() {}, show: (keys) => told.push(`show ${keys}`), send: async (records) => told.push(records), offer: () => told.push('offer'), restore() {}, lines: async () => 'b' });
  await undo.delete([{ object: { type: 1, id: 'b' } }]); // after the press on the card, before its answer
  undo.dismissed({ object: { type: 1, id: 'a' } }, 'removed');
  assert.equal(JSON.parse(kept.getItem('playhead.undo.u')).lines, 'b');
  await undo.undo();
  assert.deepEqual(told, ['show 1/b']);
  undo.dismissed({ object: { type: 1, id: 'a' } }, 'removed');
  await undo.undo();
  assert.deepEqual(told, ['show 1/b', 'offer']);
});

test('what could not be brought back is, when the page is loaded again', async () => {
  const told = [];
  const line = (id) => JSON.stringify({ object: { type: 1, id } });
  const does = {
    hide() {}, show() {}, send() {}, offer() {}, left: async () => [],
    lines: async (records) => records.map(({ object }) => line(object.id)).join('\n'), restore: async (lines) => told.push(lines),
  };
  await new Undo('u', does).delete([{ object: { type: 1, id: 'a' } }]);
  heard.pagehide();
  const next = new Undo('u', does);
  next.resume();
  await next.undo(); // which is refused
  heard.pagehide();
  const last = new Undo('u', does);
  await last.resume();
  assert.deepEqual(told.splice(0), [line('a'), line('a')]);
  await last.delete([{ object: { type: 1, id: 'b' } }]); // whatever else is deleted, and taken back, meanwhile
  await last.undo();
  heard.pagehide();
  new Undo('u', does).resume();
  assert.deepEqual(told, [line('a')]);
  last.forget(({ object }) => object.id === 'b');
  assert.deepEqual(JSON.parse(kept.getItem('playhead.undo.u.undone')).lines, [line('a')]);
  await last.delete([{ object: { type: 1, id: 'a' } }]);
  assert.deepEqual(JSON.parse(kept.getItem('playhead.undo.u.undone')).lines, [line('a')], 'that may be taken back, too');
  await last.send(); // which is the last word
  assert.equal(kept.getItem('playhead.undo.u.undone'), null);
  kept.removeItem('playhead.undo.u');
});

test('what is offered after a reload stays so beside what is deleted then', async () => {
  const told = [];
  const line = (id) => JSON.stringify({ object: { type: 1, id } });
  const does = {
    hide() {}, show: (keys) => told.push(`show ${keys}`), send: async (records) => told.push(`send ${records.map(({ object }) => object.id)}`), offer() {}, left: async () => [],
    lines: async (records) => records.map(({ object }) => line(object.id)).join('\n'), restore: async (lines) => told.push(`restore ${lines.split('\n').length}`),
  };
  for (const [leaves, want] of [[false, ['show 1/b', 'restore 1']], [true, ['send b', 'restore 2']]]) {
    told.length = 0;
    await new Undo('u', does).delete([{ object: { type: 1, id: 'a' } }]);
    heard.pagehide();
    told.length = 0;
    let undo = new Undo('u', does);
    undo.resume();
    await undo.delete([{ object: { type: 1, id: 'b' } }]);
    assert.equal(JSON.parse(kept.getItem('playhead.undo.u')).text, 'Deleted 2 entries.');
    if (leaves) {
      heard.pagehide();
      undo = new Undo('u', does);
      undo.resume();
    }
    await undo.undo();
    assert.deepEqual(told, want);
    kept.removeItem('playhead.undo.u.undone'); // as if it were there again
  }
});

test('the time to think again does not pass while something is on the message, whatever is deleted meanwhile', async () => {
  const nodes = {};
  const begun = [];
  const { document: page, setTimeout: timer } = globalThis;
  Object.assign(globalThis, { setTimeout: (act, ms) => begun.push(ms), document: { ...page, querySelector: (name) => (nodes[name] ??= new Node()) } });
  const undo = new Undo('u', { hide() {}, show() {}, send() {}, offer() {}, restore() {}, lines: async () => '' });
  const toast = nodes['#toast'];
  const steps = ['delete', 'pointerenter', 'delete', 'focusin', 'pointerleave', 'delete', 'focusout'];
  const times = [];
  for (const step of steps) {
    if (step === 'delete') await undo.delete([{ object: { type: 1, id: 'a' } }]);
    else toast.dispatchEvent(new Event(step));
    times.push(begun.splice(0).length);
  }
  Object.assign(globalThis, { setTimeout: timer, document: page });
  assert.deepEqual(times, [1, 0, 0, 0, 0, 0, 1]);
  await undo.undo();
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
