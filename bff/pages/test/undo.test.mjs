// Changes that wait for their undo: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

class Node extends EventTarget {
  textContent = '';
  classes = new Set();
  classList = { add: (name) => this.classes.add(name), remove: (name) => this.classes.delete(name), contains: (name) => this.classes.has(name) };
  matches() { return this.held; }
}
const nodes = {};
const heard = {}; // by the newest Undo
const timers = new Map();
Object.assign(globalThis, {
  HTMLElement: Node, HTMLButtonElement: Node, BroadcastChannel: EventTarget,
  addEventListener: (type, listener) => { heard[type] = listener; },
  setTimeout: (act, ms) => timers.set(timers.size + 1, { act, ms }).size, clearTimeout: (timer) => timers.delete(timer),
  document: { documentElement: { translate: false }, querySelector: (selector) => (nodes[selector] ??= new Node()) },
});
const { Undo } = await import('../assets/undo.js');
const { Problem } = await import('../assets/api.js');

const turns = async () => { for (let i = 0; i < 5; i++) await new Promise(setImmediate); };
const entry = (id) => ({ object: { type: 1, id } });

function page(send = async () => {}) {
  timers.clear();
  const sent = [];
  const undo = new Undo(() => {}, (where, name) => sent.push(`focus ${where} ${name}`));
  const ids = (records) => records.map(({ object }) => object.id).join();
  const change = (kind, records) => undo.add({
    kind, records, where: 'list', failed: 'not deleted', list: () => null, text: (all) => `${kind} ${ids(all)}`,
    send: async (all) => { sent.push(`${kind} ${ids(all)}`); await send(all); },
  });
  return { undo, sent, change, hidden: (id) => undo.shown('list')(entry(id)) === null, said: () => nodes['#toast-text'].textContent };
}

/** Lets the time of the message pass. */
async function later() {
  for (const { act } of [...timers.values()]) act();
  await turns();
}

test('a delete hides the row, and is sent when its time is up', async () => {
  const { change, sent, hidden, said } = page();
  change('delete', [entry('a')]);
  assert.deepEqual([hidden('a'), hidden('b'), sent, said(), [...timers.values()][0].ms], [true, false, [], 'delete a', 6000]);
  await later();
  assert.deepEqual([sent, said(), hidden('a')], [['delete a'], '', false]);
});

test('deletes in a row are taken back together', async () => {
  const { change, sent, hidden, said, undo } = page();
  change('delete', [entry('a')]);
  change('delete', [entry('b')]);
  assert.equal(said(), 'delete a,b');
  undo.takeBack();
  await later();
  assert.deepEqual([hidden('a'), hidden('b'), sent], [false, false, ['focus list 1/a']]);
});

test('another kind of change sends the one before, as does a page that goes away', async () => {
  const { change, sent, hidden } = page(() => new Promise(() => {}));
  change('delete', [entry('a')]);
  change('mark', [entry('b')]);
  assert.deepEqual([sent, hidden('a'), hidden('b')], [['delete a'], true, true]);
  heard.pagehide();
  assert.deepEqual(sent, ['delete a', 'mark b']);
});

test('what fails is shown again, with the reason, until it changes', async () => {
  const { change, hidden, said, undo } = page(async () => { throw new Problem(0, 'no connection'); });
  change('delete', [entry('a'), entry('b')]);
  await later();
  const shown = (id) => undo.shown('list')(entry(id)).problem;
  assert.deepEqual([hidden('a'), shown('a'), shown('b'), said(), nodes['#undo'].hidden], [false, 'not deleted: no connection.', undefined, 'not deleted: no connection.', true]);
  undo.forget('1/a');
  assert.equal(shown('a'), undefined);
});

test('the clock stops while the pointer or the focus is on the message', () => {
  const { change } = page();
  change('delete', [entry('a')]);
  nodes['#toast'].held = true;
  nodes['#toast'].dispatchEvent(new Event('pointerenter'));
  assert.equal(timers.size, 0);
  nodes['#toast'].held = false;
  nodes['#toast'].dispatchEvent(new Event('pointerleave'));
  assert.equal(timers.size, 1);
});
