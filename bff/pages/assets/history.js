// @ts-check
import { Api, Problem } from './api.js';
import { backups } from './backup.js';
import { clearing, dismissals, filters, focus, keys, marking, offerTypes, recording } from './controls.js';
import { find, write } from './dom.js';
import { title } from './format.js';
import { key } from './outbox.js';
import { Playhead } from './playhead.js';
import { Problems } from './problems.js';
import { Reader } from './reader.js';
import { Rows, card, entry } from './rows.js';
import { refuse, signIn, user } from './session.js';
import { LoadedHistory } from './loaded.js';
import { follow } from './status.js';
import { Undo } from './undo.js';

const token = await signIn();
const api = new Api(token);
const client = new Playhead({ token: () => token });
const loaded = new LoadedHistory();
const problems = new Problems();
const reader = new Reader(api, loaded, problems, readerChanged);
const list = find('#list', HTMLElement);
const rows = new Rows(list, entry);
const cards = new Rows(find('#cards', HTMLElement), card);
const more = find('#more', HTMLButtonElement);
/** @type {any[]} */
let unfinished = [];

const end = find('#end', HTMLElement);
const near = new IntersectionObserver((seen) => { // a busy browser tells several looks at once
  if (seen.at(-1)?.isIntersecting && loaded.words === '') reader.older();
}, { rootMargin: '400px' });

function readerChanged() {
  render();
  near.disconnect();
  if (!reader.busy) near.observe(end); // which looks at once
}

function render() {
  const shown = loaded.visible();
  rows.show(shown);
  offerTypes(shown);
  writeDays();
  const row = unfinished.filter((record) => !loaded.hidden.has(key(record)));
  cards.show(row);
  find('#continue', HTMLElement).hidden = row.length === 0 || loaded.words !== '' || loaded.type !== 0;
  find('#clear', HTMLButtonElement).disabled = shown.length === 0;
  more.hidden = !loaded.more || reader.failed || loaded.size === 0;
  more.disabled = reader.busy;
  write(more, loaded.words ? 'Search older entries' : 'Show older entries');
  write(find('#note', HTMLElement), note(shown.length));
}

/** Writes the day above the first entry of each. */
function writeDays() {
  let last;
  for (const node of /** @type {HTMLElement[]} */ ([...list.children])) {
    const { of } = node.dataset;
    if (of === last) delete node.dataset.day;
    else node.dataset.day = of;
    last = of;
  }
}

/** The note about the list, '' for none. Errors are shown by Problems. @param {number} shown */
function note(shown) {
  if (reader.failed) return '';
  if (reader.busy && loaded.size === 0) return 'Reading…';
  if (loaded.words) return shown === 0 ? `None of the ${loaded.size} newest entries matches.` : `${shown} of the ${loaded.size} newest entries.`;
  if (shown > 0 || loaded.more) return '';
  return loaded.type ? 'Nothing of this type yet.' : 'Nothing here yet. What you play shows up by itself.';
}

/** @returns {Promise<boolean>} */
async function goOn() {
  const ok = await problems.attempt('What to go on with could not be read', goOn, async () => {
    unfinished = (await api.get('/v1/continue', { limit: 12 })).items;
  });
  render();
  return ok;
}

let soon = 0;
/** Reads on a little later what many changes at once would have read again and again. */
function goOnSoon() {
  clearTimeout(soon);
  soon = setTimeout(goOn, 1000 + Math.random() * 1000);
}

/** @param {{items: any[], removed: any[]}} push */
function changed({ items, removed }) {
  loaded.change({ items, removed });
  const moved = new Map(items.map((record) => [key(record), record]));
  const known = unfinished.filter((record) => moved.has(key(record))).length;
  unfinished = unfinished.map((record) => moved.get(key(record)) ?? record);
  if (known < items.length || removed.length > 0 || items.some((r) => r.state === 'finished' || r.dismissed_at)) goOnSoon();
  render();
}

const undo = new Undo({
  hide: (key) => {
    loaded.hidden.add(key);
    render();
  },
  show: (keys) => {
    for (const key of keys) loaded.hidden.delete(key);
    render();
  },
  send: (records) => remove(records),
});

/** @param {any[]} records */
async function remove(records) {
  const objects = records.map((record) => record.object);
  const ok = await problems.attempt('The entries are still there, they could not be deleted', () => remove(records), () => api.remove(objects));
  if (ok) loaded.change({ items: [], removed: objects });
  if (ok) unfinished = unfinished.filter((record) => !objects.includes(record.object));
  for (const record of records) loaded.hidden.delete(key(record));
  render();
}

/** Takes a record out of what to go on with, and lets the user take that back. @param {any} record */
async function dismiss(record) {
  unfinished = unfinished.filter((other) => other !== record);
  render();
  const ok = await offer(record, true);
  if (ok) await undo.done(`“${title(record)}” removed from continue watching.`, () => offer(record, false));
}

/** @param {any} record @param {boolean} dismissed @returns {Promise<boolean>} */
async function offer(record, dismissed) {
  const what = dismissed ? 'The entry could not be removed from continue watching' : 'The entry could not be brought back';
  const ok = await problems.attempt(what, () => offer(record, dismissed), () => api.dismiss([record.object], dismissed));
  await goOn();
  return ok;
}

/** @param {any} record @param {'watched' | 'unwatched' | 'reset'} as */
async function mark(record, as) {
  const ok = await problems.attempt('The entry could not be marked', () => mark(record, as), async () => {
    const { results: [{ status, record: marked }] } = await api.mark([record.object], as);
    if (marked) loaded.change({ items: [marked], removed: [] });
    if (status === 'paused') throw new Problem(409, 'recording is paused');
    if (status === 'unavailable') throw new Problem(503, 'the history is unavailable at the moment');
  });
  if (ok) await goOn();
}

async function clear() {
  await undo.send();
  const ok = await problems.attempt('The history could not be cleared', clear, () => api.delete('/v1/history', { type: loaded.type }));
  if (!ok) return;
  loaded.clear();
  await Promise.all([reader.refresh(), goOn()]);
}

filters(loaded, {
  searched: render,
  filtered: () => {
    loaded.clear();
    reader.refresh();
  },
});
const ask = marking(mark);
/** @param {string} name */
const called = (name) => loaded.visible().find((r) => key(r) === name);
/** @param {string} name */
function removed(name) {
  const record = called(name);
  const row = list.querySelector(`[data-key="${CSS.escape(name)}"]`);
  const next = row?.nextElementSibling ?? row?.previousElementSibling;
  if (record) undo.delete(record);
  focus(next);
}
keys(list, {
  remove: removed,
  mark: (name) => {
    const record = called(name);
    if (record) ask(record);
  },
});
dismissals(find('#cards', HTMLElement), (name) => {
  const record = unfinished.find((r) => key(r) === name);
  if (record) dismiss(record);
});
clearing(loaded, clear);
backups(api, () => Promise.all([reader.refresh(), goOn()]));
more.onclick = () => reader.older();

write(find('#user', HTMLElement), user(token));
follow(client);
client.addEventListener('push', (e) => changed(/** @type {CustomEvent} */ (e).detail));
client.addEventListener('resync', () => Promise.all([reader.refresh(), goOn()]));
client.addEventListener('unauthorized', () => {
  client.leave();
  refuse('The token was refused, or has expired.');
});
client.connect();
setInterval(render, 30_000); // "3 minutes ago"
await Promise.all([reader.refresh(), goOn(), recording(api, problems)()]);
