// What the page offers to bring back of what was deleted: node --test
import test from 'node:test';
import assert from 'node:assert/strict';

class Node extends EventTarget {
  textContent = '';
  classList = { add() {}, remove() {} };
}
Object.assign(globalThis, {
  HTMLElement: Node, HTMLButtonElement: Node, addEventListener() {}, setTimeout() {},
  document: { documentElement: { translate: false }, querySelector: () => new Node() },
});
const { Undo } = await import('../assets/undo.js');
const { kept } = await import('../assets/kept.js');

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
