// @ts-check
import { Api, Problem, home } from './api.js';
import { backups } from './backup.js';
import { clearing, dismissals, filters, focus, keys, marking, offerTypes, recording } from './controls.js';
import { Decisions } from './decisions.js';
import { find, write } from './dom.js';
import { clock } from './format.js';
import { counted, t } from './language.js';
import { key } from './outbox.js';
import { Playhead } from './playhead.js';
import { Problems, reason } from './problems.js';
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
const near = new IntersectionObserver((seen) => { // a busy browser tells several looks at once
  if (seen.at(-1)?.isIntersecting && loaded.words === '') reader.older();
}, { rootMargin: '400px' });

function readerChanged() {
  settle();
  render();
  near.disconnect();
  if (!reader.busy) near.observe(end); // which looks at once
}

/** Ends what the list shows to be settled: what is gone needs no answer, and what is as it was asked for needs no other try. */
function settle() {
  if (reader.busy) return;
  problems.forget((_, about) => about?.over?.());
  decisions.settle();
  ask.forget((record) => (record.parts ?? [record]).every((/** @type {any} */ part) => loaded.lacks(part)));
  undo.forget((dismissed) => loaded.lacks(dismissed) || playedSince(dismissed)); // there is nothing to offer again
  undo.changed();
}

/** Whether a record that was dismissed was played since, and is offered for that. @param {any} record */
function playedSince(record) {
  const now = loaded.listed(record);
  return Boolean(now && !now.dismissed_at && now.event_time !== record.event_time);
}

function render() {
  const shown = loaded.visible();
  rows.show(loaded.entries(shown));
  selection.show();
  offerTypes(shown);
  writeDays();
  const row = unfinished.filter((record) => !decisions.hides(key(record)));
  cards.show(row);
  find('#continue', HTMLElement).hidden = row.length === 0 || !loaded.whole;
  find('#clear', HTMLButtonElement).disabled = shown.length === 0;
  more.hidden = !loaded.more || reader.failed || loaded.fresh;
  write(more, loaded.words ? t('Search older entries') : t('Show older entries'));
  write(find('#note', HTMLElement), note(shown.length));
}

/** Writes the day above the first entry of each. */
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

/** The note about the list, '' for none. Errors are shown by Problems. @param {number} shown */
function note(shown) {
  if (reader.failed) return '';
  if (loaded.words) return searchNote(shown);
  if (reader.busy && loaded.size === 0) return t('Reading…');
  if (shown > 0 || loaded.more) return '';
  if (loaded.until) return t('Nothing up to this day.');
  return loaded.type ? t('Nothing of this type yet.') : t('Nothing here yet. What you play shows up by itself.');
}

/** @param {number} shown */
function searchNote(shown) {
  if (reader.busy || loaded.fresh) return t('Searching…');
  if (shown === 0) return loaded.more ? counted(loaded.searched, 'Not the newest entry.', 'None of the {n} newest entries.') : t('Nothing found.');
  return loaded.more ? counted(shown, '{n} entry found so far', '{n} entries found so far') : counted(shown, '{n} entry found', '{n} entries found');
}

/** Shows the parts of a series, or hides them. @param {string} head the key of its entry */
function toggle(head) {
  if (!loaded.open.delete(head)) loaded.open.add(head);
  render();
}

let newest = 0; // names the newest read of what to go on with
/** What was pushed since that began, which may be from before. @type {Map<string, any>} */
const since = new Map();
let deciding = 0; // how many decisions about it are under way; each reads it after that

/** @returns {Promise<boolean>} */
async function goOn() {
  if (deciding > 0) return true; // it is read after that
  const mine = ++newest;
  since.clear();
  const ok = await problems.attempt(t('What to go on with could not be read'), goOn, async () => {
    const read = api.get('/v1/continue', { limit: 12 });
    await read.catch(() => {});
    if (mine !== newest || deciding > 0) return; // it may be from before the decision
    unfinished = (await read).items.map((/** @type {any} */ record) => since.get(key(record)) ?? record);
    undo.read((dismissed) => unfinished.some((record) => key(record) === key(dismissed)));
  });
  render();
  return ok;
}

/** Decides something about what to go on with, which is to be read after it. @template T @param {() => Promise<T>} act */
async function decide(act) {
  deciding++;
  try {
    return await act();
  } finally {
    deciding--;
  }
}

let soon = 0;
/** Reads on a little later what many changes at once would have read again and again. */
function goOnSoon() {
  clearTimeout(soon);
  soon = setTimeout(goOn, 1000 + Math.random() * 1000);
}

/** @param {{items: any[], removed: any[]}} push */
function changed({ items, removed }) {
  decisions.changed({ items, removed });
  loaded.change({ items, removed });
  for (const record of items) since.set(key(record), record);
  settle();
  const moved = new Map(items.map((record) => [key(record), record]));
  if (removed.length > 0 || !items.every(goesOn)) goOnSoon();
  unfinished = unfinished.map((record) => moved.get(key(record)) ?? record);
  render();
}

/** Whether a record that has changed stays what to go on with, in its place: it is as it was there, and further on. @param {any} record */
function goesOn(record) {
  const [first] = unfinished;
  if (!first || key(first) !== key(record) || first.completed || record.completed || record.dismissed_at) return false;
  return record.resume_ms >= first.resume_ms && record.duration_ms === first.duration_ms && record.meta?.series === first.meta?.series;
}

const place = `playhead.undo.${user(token)}`;
const decisions = new Decisions(place, {
  few: 8,
  lines: (records) => api.lines(records),
  left: (records) => api.left(records),
  remove: (records, wanted) => decide(() => api.remove(records, wanted)).finally(() => void goOn()),
  removed: (objects) => {
    const gone = new Set(objects.map((object) => key({ object })));
    unfinished = unfinished.filter((record) => !gone.has(key(record)));
    loaded.change({ items: [], removed: objects });
    if (reader.busy) reader.refresh(); // what is on its way may be of before the delete, or of after
    settle();
  },
  restore: async (lines) => {
    const { statuses } = await api.import(new Blob([lines]), true);
    if (statuses.invalid) throw new Problem(409, t('it came back several times in the last seconds'));
  },
  reread: () => Promise.all([reader.refresh(), goOn()]),
  why: reason,
  listed: (record) => loaded.listed(record),
  lacks: (record) => loaded.lacks(record),
  changed: () => {
    problems.set(t('The entries could not be deleted, or not all of them'), decisions.why('gone'), () => decisions.again());
    problems.set(t('The entry could not be brought back'), decisions.why('back'), () => decisions.again());
    undo.changed();
    render();
  },
});
loaded.hides = (/** @type {string} */ name) => decisions.hides(name);
const undo = new Undo(place, decisions, {
  offer: (object) => offer(object, false),
  focus: (within, name) => {
    const there = document.querySelector(`${within} [data-key="${CSS.escape(name)}"]`)?.querySelector('a[href], button');
    (there instanceof HTMLElement ? there : list).focus();
  },
});

let pressed = 0; // counts what is dismissed
/** Takes a record out of what to go on with, and lets the user take that back. @param {any} record */
async function dismiss(record) {
  unfinished = unfinished.filter((other) => other !== record);
  render();
  undo.dismissing(record); // what is deleted from now on can be taken back
  const mine = ++pressed;
  const ok = await offer(record.object, true);
  if (!ok) undo.forget((other) => key(other) === key(record));
  else if (mine === pressed && !loaded.lacks(record)) undo.dismissed(record);
}

/** @param {any} object @param {boolean} dismissed @returns {Promise<boolean>} whether it is so, with an answer or without */
async function offer(object, dismissed) {
  const name = key({ object });
  const before = loaded.listed({ object });
  const over = () => {
    const now = loaded.listed({ object });
    return loaded.lacks({ object }) || Boolean(now && now !== before && Boolean(now.dismissed_at) === dismissed);
  };
  const whats = [t('The entry could not be offered again'), t('The entry could not be removed from continue watching')];
  const [what, other] = dismissed ? whats.toReversed() : whats;
  problems.forget((of, _, about) => about === other && of === name);
  const ok = await decide(() => problems.attempt(what, () => offer(object, dismissed), () => api.dismiss([object], dismissed), new Map([[name, { over }]])));
  settle();
  await goOn();
  return ok || over();
}

/** @param {any} record @param {'watched' | 'unwatched' | 'reset'} as */
async function mark(record, as) {
  const name = key(record);
  const done = (/** @type {any} */ now) => now && now.event_time !== record.event_time && !now.device && (as === 'watched' ? now.completed : !now.resume_ms);
  const about = new Map([[name, { over: () => loaded.lacks(record) || done(loaded.listed(record)) }]]);
  const ok = await problems.attempt(t('The entry could not be marked'), () => mark(record, as), () => decisions.during(name, async () => {
    const { results: [{ status, record: marked }] } = await api.mark([record.object], as);
    if (status === 'unchanged' && !marked) loaded.change({ items: [], removed: [record.object] }); // it was deleted
    else if (marked && !loaded.lacks(record)) loaded.change({ items: [marked], removed: [] });
    if (status === 'paused') throw new Problem(409, t('recording is paused'));
    if (status === 'unavailable') throw new Problem(503, t('the history is unavailable at the moment'));
  }), about);
  settle();
  if (ok) await goOn();
}

/** Marks all listed parts of a series. @param {any} series @param {'watched' | 'unwatched' | 'reset'} as */
async function markSeries(series, as) {
  const ok = await problems.attempt(t('The entries could not be marked'), () => markSeries(series, as), async () => {
    for (let i = 0; i < series.parts.length; i += 1000) {
      const parts = series.parts.slice(i, i + 1000);
      const { results } = await api.mark(parts.map((/** @type {any} */ part) => part.object), as);
      loaded.change({ items: results.flatMap(({ record }, n) => (record && !loaded.lacks(parts[n]) ? record : [])), removed: [] });
      if (results.some(({ status }) => status === 'paused')) throw new Problem(409, t('recording is paused'));
      if (results.some(({ status }) => status === 'unavailable')) throw new Problem(503, t('the history is unavailable at the moment'));
    }
  });
  settle();
  render();
  if (ok) await goOn();
}

/** The ways back to where the last few sessions stopped, besides where the record is. @param {any} record */
async function waysBack(record) {
  if (record.parts) return [];
  const viewings = await api.viewings(record.object).catch(() => []); // a help, and no more
  const offered = new Set([clock(record.position_ms)]);
  const end = (record.duration_ms || Infinity) - 1000;
  const earlier = viewings.filter(({ to_ms = 0, state }) => to_ms >= 1000 && to_ms < end && state !== 'finished' && !offered.has(clock(to_ms)) && offered.add(clock(to_ms)));
  return earlier.slice(0, 5).map((viewing) => wayBack(record, viewing));
}

/** @param {number} type 0 for all */
async function clear(type) {
  const cleared = (/** @type {any} */ record) => !type || record.object.type === type;
  undo.forget(cleared);
  await undo.send(cleared);
  const before = loaded.sorted().filter(cleared);
  const about = new Map([[`type ${type}`, { over: () => loaded.cleared(type) }]]);
  const uncleared = t('The history could not be cleared');
  const ok = await problems.attempt(uncleared, () => askClear(type), () => api.clear(type), about);
  if (!ok) return settle();
  if (!type) problems.forget((_, __, what) => what === uncleared);
  const gone = before.filter((record) => loaded.listed(record) === record); // the rest was played since
  loaded.change({ items: [], removed: gone.map(({ object }) => object) });
  settle();
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
const ask = marking((record, as) => (record.parts ? markSeries : mark)(record, as), waysBack);
/** @param {string} name */
const called = (name) => loaded.visible().find((r) => key(r) === name);
const selection = selecting(list, {
  members: () => new Map(loaded.entries(loaded.visible()).map((r) => [key(r), (r.parts ?? [r]).map(key)])),
  remove: (names) => {
    const gone = new Set(names);
    undo.delete(loaded.visible().filter((r) => gone.has(key(r))));
  },
  changed: render,
});
/** @param {string} name */
function removed(name) {
  const record = called(name);
  if (!record) return; // a series, of which each part is deleted by itself or with others
  const row = list.querySelector(`[data-key="${CSS.escape(name)}"]`);
  const next = row?.nextElementSibling ?? row?.previousElementSibling;
  undo.delete([record]);
  focus(next);
}
keys(list, {
  remove: removed,
  mark: (name) => {
    const record = called(name) ?? loaded.entries(loaded.visible()).find((r) => key(r) === name);
    if (record) ask(record);
  },
});
dismissals(find('#cards', HTMLElement), (name) => {
  const record = unfinished.find((r) => key(r) === name);
  if (record) dismiss(record);
});
find('#cards', HTMLElement).addEventListener('focusin', ({ target }) => { // by keyboard: a browser leaves a card as it is of which a part can be seen
  if (target instanceof Element && target.matches(':focus-visible')) target.closest('li')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
});
/** Says how much lies over the list, so that the browser brings what has the focus out from under it. */
const over = new ResizeObserver(() => {
  for (const [name, selector] of [['above', '.tools'], ['below', '#selection']]) {
    document.documentElement.style.setProperty(`--${name}`, `${find(selector, HTMLElement).offsetHeight}px`);
  }
});
for (const selector of ['.tools', '#selection']) over.observe(find(selector, HTMLElement));
const askClear = clearing(loaded, clear);
const settings = recording(api, problems);
backups(api, {
  before: () => undo.send(),
  after: (all) => {
    if (all) decisions.restored();
    return Promise.all([reader.refresh(), goOn()]);
  },
});
more.onclick = () => reader.older();

write(find('#user', HTMLElement), user(token));
follow(client);
client.addEventListener('push', (e) => changed(/** @type {CustomEvent} */ (e).detail));
client.addEventListener('resync', () => Promise.all([decisions.reread(), reader.refresh(), goOn(), settings()])); // which is told of a switch as well
client.addEventListener('unauthorized', () => {
  client.leave();
  refuse(t('The token was refused, or has expired.'));
});
let posts = false; // where something keeps WebSockets out, nobody tells what has changed
client.addEventListener('open', () => (posts = !client.live));
client.addEventListener('close', () => (posts = false));
client.connect();
undo.resume();
setInterval(() => {
  if (posts && !document.hidden) for (const read of [() => reader.refresh(), goOn, settings]) read();
  else render(); // "3 minutes ago"
}, 30_000);
await Promise.all([reader.refresh(), goOn(), settings()]);
