// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Api, Problem, home } from './api.js';
import { backups } from './backup.js';
import { clearing, dismissals, filters, focus, keys, marking, offerTypes, recording } from './controls.js';
import { find, write } from './dom.js';
import { clock, title } from './format.js';
import { importing } from './importing.js';
import { counted, t } from './language.js';
import { key } from './outbox.js';
import { Playhead } from './playhead.js';
import { Problems } from './problems.js';
import { Reader } from './reader.js';
import { Rows, card, entry, wayBack } from './rows.js';
import { selecting } from './select.js';
import { refuse, signIn, user } from './session.js';
import { LoadedHistory } from './loaded.js';
import { follow } from './status.js';
import { Undo } from './undo.js';

const token = await signIn();
const api = new Api(token);
const client = new Playhead({ url: home(), token: () => token });
const loaded = new LoadedHistory();
const problems = new Problems();
const reader = new Reader(api, loaded, problems, readerChanged);
const list = find('#list', HTMLElement);
const rows = new Rows(list, (record) => entry(record, toggle));
const cards = new Rows(find('#cards', HTMLElement), () => card());
const more = find('#more', HTMLButtonElement);
/** @type {any[]} */
let unfinished = [];

const end = find('#end', HTMLElement);
const near = new IntersectionObserver((seen) => { // a busy browser reports several at once
  if (seen.at(-1)?.isIntersecting && loaded.words === '') reader.older();
}, { rootMargin: '400px' });

function readerChanged() {
  render();
  near.disconnect();
  if (!reader.busy) near.observe(end); // it reports at once
}

function render() {
  loaded.shown = undo.shown('list');
  const shown = loaded.visible();
  rows.show(loaded.entries(shown));
  selection.show();
  offerTypes(shown);
  writeDays();
  const row = unfinished.map(undo.shown('cards')).filter(Boolean);
  cards.show(row);
  find('#continue', HTMLElement).hidden = row.length === 0 || !loaded.whole;
  find('#clear', HTMLButtonElement).disabled = shown.length === 0;
  more.hidden = !loaded.more || reader.failed || loaded.fresh;
  write(more, loaded.words ? t('Search older entries') : t('Show older entries'));
  const empty = isEmpty(shown.length);
  find('#empty', HTMLElement).hidden = !empty;
  write(find('#note', HTMLElement), empty ? '' : note(shown.length));
}

/** Writes a heading above the first entry of each day. */
function writeDays() {
  let last;
  for (const node of /** @type {HTMLElement[]} */ ([...list.children])) {
    const { of } = node.dataset;
    const within = node.classList.contains('within');
    if (within || of === last) delete node.dataset.day;
    else node.dataset.day = of;
    if (!within) last = of;
  }
}

/** Whether the user has no history at all. @param {number} shown */
function isEmpty(shown) {
  return shown === 0 && loaded.whole && !loaded.more && !loaded.fresh && !reader.busy && !reader.failed;
}

/** The note below the list; Problems shows errors. @param {number} shown */
function note(shown) {
  if (reader.failed) return '';
  if (loaded.words) return searchNote(shown);
  if (reader.busy && loaded.size === 0) return t('Reading…');
  if (shown > 0 || loaded.more) return '';
  if (loaded.until) return t('Nothing up to this day.');
  return loaded.type ? t('Nothing of this type yet.') : '';
}

/** @param {number} shown */
function searchNote(shown) {
  if (reader.busy || loaded.fresh) return t('Searching…');
  if (shown === 0) return loaded.more ? counted(loaded.searched, 'Not the newest entry.', 'None of the {n} newest entries.') : t('Nothing found.');
  return loaded.more ? counted(shown, '{n} entry found so far', '{n} entries found so far') : counted(shown, '{n} entry found', '{n} entries found');
}

/** Expands or collapses a series. @param {string} head key of its entry */
function toggle(head) {
  if (!loaded.open.delete(head)) loaded.open.add(head);
  render();
}

let newest = 0; // number of the newest read of the cards
/** Records pushed during that read; its response may be older. @type {Map<string, any>} */
const since = new Map();

/** Reads the cards. @returns {Promise<boolean>} */
async function goOn() {
  const mine = ++newest;
  since.clear();
  const ok = await problems.attempt(t('What to go on with could not be read'), goOn, async () => {
    const read = api.get('/v1/continue', { limit: 12 });
    await read.catch(() => {});
    if (mine === newest) unfinished = (await read).items.map((/** @type {any} */ record) => since.get(key(record)) ?? record);
  });
  render();
  return ok;
}

let soon = 0;
/** Debounces goOn. */
function goOnSoon() {
  clearTimeout(soon);
  soon = setTimeout(goOn, 1000 + Math.random() * 1000);
}

/** @param {{items: any[], removed: any[]}} push */
function changed({ items, removed }) {
  for (const name of [...items.map(key), ...removed.map((object) => key({ object }))]) undo.forget(name);
  loaded.change({ items, removed });
  for (const record of items) since.set(key(record), record);
  const moved = new Map(items.map((record) => [key(record), record]));
  if (removed.length > 0 || !items.every(goesOn)) goOnSoon();
  unfinished = unfinished.map((record) => moved.get(key(record)) ?? record);
  render();
}

/** Whether a changed record keeps its place as the first card. @param {any} record */
function goesOn(record) {
  const [first] = unfinished;
  if (!first || key(first) !== key(record) || first.completed || record.completed || record.dismissed_at) return false;
  return record.resume_ms >= first.resume_ms && record.duration_ms === first.duration_ms && record.meta?.series === first.meta?.series;
}

const undo = new Undo(render, (where, name) => {
  const there = document.querySelector(`#${where} [data-key="${CSS.escape(name)}"]`)?.querySelector('a[href], button');
  (there instanceof HTMLElement ? there : list).focus();
});

/** Removes changed records from the cards and reloads these. @param {any[]} records */
function offTheCards(records) {
  const gone = new Set(records.map(key));
  unfinished = unfinished.filter((record) => !gone.has(key(record)));
  goOn();
}

/** @param {any[]} records */
function remove(records) {
  undo.add({
    kind: 'delete', records, where: 'list', list: () => null,
    text: (all) => (all.length === 1 ? t('Deleted “{title}”.', { title: title(all[0]) }) : counted(all.length, 'Deleted one entry.', 'Deleted {n} entries.')),
    failed: records.length === 1 ? t('The entry could not be deleted') : t('The entries could not be deleted, or not all of them'),
    send: async (all) => {
      await api.remove(all);
      loaded.change({ items: [], removed: all.map(({ object }) => object) });
      offTheCards(all);
    },
  });
}

/** @param {any} record */
function dismiss(record) {
  undo.add({
    records: [record], where: 'cards', list: (shown) => shown,
    text: () => t('“{title}” removed from continue watching.', { title: title(record) }),
    failed: t('The entry could not be removed from continue watching'),
    send: async (all) => {
      await api.dismiss(all);
      offTheCards(all);
    },
  });
}

/** Marks a record, or all listed parts of a series. @param {any} entry @param {'watched' | 'unwatched' | 'reset'} as */
function mark(entry, as) {
  const records = entry.parts ?? [entry];
  const position = as === 'watched' ? { completed: true, plays: 0 } : { completed: false, position_ms: 0 };
  const now = { event_time: new Date().toISOString(), played_at: undefined, state: 'stopped', device: '', resume_ms: 0, marked: true };
  undo.add({
    records, where: 'list',
    list: (record) => (records.length > 1 && as === 'watched' && record.completed ? record : { ...record, ...now, ...position }),
    text: () => t('Marked “{title}”.', { title: title(entry) }),
    failed: records.length === 1 ? t('The entry could not be marked') : t('The entries could not be marked'),
    send: async (all) => {
      const results = await api.mark(all, as);
      loaded.change({
        items: results.flatMap((result) => result.record ?? []),
        removed: all.filter((_, i) => results[i].status === 'unchanged' && !results[i].record).map(({ object }) => object), // deleted elsewhere
      });
      if (results.some(({ status }) => status === 'paused')) throw new Problem(409, t('recording is paused'));
      if (results.some(({ status }) => status === 'unavailable')) throw new Problem(503, t('the history is unavailable at the moment'));
      offTheCards(all);
    },
  });
}

/** Links to the end positions of the last few sessions. @param {any} record */
async function waysBack(record) {
  if (record.parts) return [];
  const viewings = await api.viewings(record.object).catch(() => []); // optional
  const offered = new Set([clock(record.position_ms)]);
  const end = (record.duration_ms || Infinity) - 1000;
  const earlier = viewings.filter(({ to_ms = 0, state }) => to_ms >= 1000 && to_ms < end && state !== 'finished' && !offered.has(clock(to_ms)) && offered.add(clock(to_ms)));
  return earlier.slice(0, 5).map((viewing) => wayBack(record, viewing));
}

/** @param {number} type 0 for all */
async function clear(type) {
  undo.send();
  if (!await problems.attempt(t('The history could not be cleared'), () => askClear(type), () => api.clear(type))) return;
  loaded.clear();
  await Promise.all([reader.refresh(), goOn()]);
}

filters(loaded, {
  typed: render,
  searched: () => reader.refresh(),
  filtered: () => {
    loaded.clear();
    reader.refresh();
  },
});
const ask = marking(mark, waysBack);
/** @param {string} name */
const called = (name) => loaded.visible().find((r) => key(r) === name);
const selection = selecting(list, {
  members: () => new Map(loaded.entries(loaded.visible()).map((r) => [key(r), (r.parts ?? [r]).map(key)])),
  remove: (names) => {
    const gone = new Set(names);
    remove(loaded.visible().filter((r) => gone.has(key(r))));
  },
  changed: render,
});
/** @param {string} name */
function removeRow(name) {
  const record = called(name);
  if (!record) return; // a series: only its parts can be deleted
  const row = list.querySelector(`[data-key="${CSS.escape(name)}"]`);
  const next = row?.nextElementSibling ?? row?.previousElementSibling;
  remove([record]);
  focus(next);
}
keys(list, {
  remove: removeRow,
  mark: (name) => {
    const record = called(name) ?? loaded.entries(loaded.visible()).find((r) => key(r) === name);
    if (record) ask(record);
  },
});
dismissals(find('#cards', HTMLElement), (name) => {
  const record = unfinished.find((r) => key(r) === name);
  if (record) dismiss(record);
});
find('#cards', HTMLElement).addEventListener('focusin', ({ target }) => { // browsers do not scroll to a partly visible card
  if (target instanceof Element && target.matches(':focus-visible')) target.closest('li')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
});
/** Measures the overlays, so the browser scrolls a focused entry clear of them. */
const over = new ResizeObserver(() => {
  for (const [name, selector] of [['above', '.tools'], ['below', '#selection']]) {
    document.documentElement.style.setProperty(`--${name}`, `${find(selector, HTMLElement).offsetHeight}px`);
  }
});
for (const selector of ['.tools', '#selection']) over.observe(find(selector, HTMLElement));
const askClear = clearing(loaded, clear);
const settings = recording(api, problems);
const around = { before: () => undo.send(), after: () => Promise.all([reader.refresh(), goOn()]) };
backups(api, around);
importing(api, around);
more.onclick = () => reader.older();

write(find('#user', HTMLElement), user(token));
follow(client);
client.addEventListener('push', (e) => changed(/** @type {CustomEvent} */ (e).detail));
client.addEventListener('resync', () => Promise.all([reader.refresh(), goOn(), settings()])); // also the recording switch
client.addEventListener('unauthorized', () => {
  client.leave();
  refuse(t('The token was refused, or has expired.'));
});
let posts = false; // without WebSockets there are no pushes
client.addEventListener('open', () => (posts = !client.live));
client.addEventListener('close', () => (posts = false));
client.connect();
setInterval(() => {
  if (posts && !document.hidden) for (const read of [() => reader.refresh(), goOn, settings]) read();
  else render(); // "3 minutes ago"
}, 30_000);
await Promise.all([reader.refresh(), goOn(), settings()]);
