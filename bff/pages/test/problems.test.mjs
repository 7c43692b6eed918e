// Failures, which are shown and tried again: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

class Node extends EventTarget {
  textContent = '';
  hidden = true;
}
const nodes = {};
Object.assign(globalThis, {
  HTMLElement: Node, HTMLButtonElement: Node, BroadcastChannel: EventTarget, // a real one would keep Node waiting
  document: { documentElement: { translate: false }, querySelector: (selector) => (nodes[selector] ??= new Node()) },
});
const { Problems, reason } = await import('../assets/problems.js');
const { Problem } = await import('../assets/api.js');

/** Problems, and an edge that fails until it is well. */
function world() {
  const problems = new Problems();
  const done = [];
  const edge = { well: false };
  const act = (what) => problems.attempt(what, () => act(what), async () => {
    if (!edge.well) throw new Problem(0, 'no connection');
    done.push(what);
  });
  return { problems, done, edge, act, shown: () => nodes['#problem-text'].textContent };
}

test('what failed is shown until it works, and tried again', async () => {
  const { act, edge, done, shown } = world();
  assert.equal(await act('read'), false);
  await act('clear');
  await act('clear');
  assert.equal(shown(), 'read: no connection. clear: no connection.');
  edge.well = true;
  assert.equal(await act('read'), true);
  assert.equal(shown(), 'clear: no connection.');
  nodes['#again'].onclick();
  await new Promise(setImmediate);
  assert.deepEqual([done, shown(), nodes['#problem'].hidden], [['read', 'clear'], '', true]);
});

test('a failure that does not matter any more is forgotten', async () => {
  const { act, problems, shown } = world();
  await act('set');
  problems.forget('set');
  assert.deepEqual([shown(), problems.has('set')], ['', false]);
});

test('an error that is no answer is not put into words', async () => {
  await assert.rejects(reason(new TypeError('a mistake')), TypeError);
  assert.equal(await reason(new Problem(503, 'unavailable')), 'unavailable');
});
