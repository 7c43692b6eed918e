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

const about = (...names) => new Map(names.map((name) => [name, { name }]));

/** Problems, and an edge that fails until it is well. */
function world() {
  const problems = new Problems();
  const done = [];
  const edge = { well: false };
  const act = (what, of) => problems.attempt(what, (left) => act(what, left), async () => {
    if (!edge.well) throw new Problem(0, 'no connection');
    done.push(`${what} ${[...of.keys()]}`);
  }, of);
  return {
    problems, done, edge, act,
    shown: () => nodes['#problem-text'].textContent,
    async again() {
      nodes['#again'].onclick();
      await new Promise(setImmediate);
    },
  };
}

test('of two that failed in the same way each is tried again', async () => {
  const { act, edge, done, again, shown } = world();
  assert.equal(await act('delete', about('a')), false);
  assert.equal(await act('delete', about('b', 'c')), false);
  assert.equal(shown(), 'delete: no connection.');
  edge.well = true;
  await again();
  assert.deepEqual(done, ['delete a', 'delete b,c']);
  assert.equal(nodes['#problem'].hidden, true);
});

test('what has worked since is not tried again, and one success does not hide another failure', async () => {
  const { act, edge, done, again, shown } = world();
  await act('delete', about('a', 'b'));
  await act('mark', about('a'));
  edge.well = true;
  assert.equal(await act('delete', about('a')), true);
  assert.equal(shown(), 'delete: no connection. mark: no connection.');
  await again();
  assert.deepEqual(done, ['delete a', 'delete b', 'mark a']);
  assert.equal(shown(), '');
});

test('a failure is over when nothing is left of what it is about', async () => {
  const { act, problems, shown } = world();
  await act('delete', about('a', 'b'));
  problems.forget((name) => name === 'a');
  assert.equal(shown(), 'delete: no connection.');
  problems.forget((_, { name }) => name === 'b');
  assert.deepEqual([shown(), problems.has('delete')], ['', false]);
});

test('what is not as it is wanted is shown with its newest reason, until it is', async () => {
  const { problems, shown, again } = world();
  let tries = 0;
  for (const why of ['late', 'lost']) problems.set('delete', why, () => tries++);
  problems.set('undo', 'lost', () => {});
  assert.equal(shown(), 'delete: lost. undo: lost.');
  await again();
  assert.equal(tries, 1);
  problems.set('delete', '', () => {});
  assert.equal(shown(), 'undo: lost.');
});

test('an error that is no answer is not put into words', async () => {
  await assert.rejects(reason(new TypeError('a mistake')), TypeError);
  assert.equal(await reason(new Problem(503, 'unavailable')), 'unavailable');
});
