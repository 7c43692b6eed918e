// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { el, find, write } from './dom.js';
import { title, typeName } from './format.js';
import { t } from './language.js';

const pause = 250; // milliseconds from the last keystroke to the search

/**
 * Search, type filter, jump to a day, and the series switch.
 * @param {import('./loaded.js').LoadedHistory} loaded
 * @param {{typed(): void, searched(): void, filtered(): void}} does
 */
export function filters(loaded, does) {
  const search = find('#search', HTMLInputElement);
  const type = find('#type', HTMLSelectElement);
  for (const n of [1, 2, 3, 4]) type.append(el('option', { value: String(n) }, typeName(n)));
  let soon = 0;
  const date = find('#date', HTMLInputElement);
  const newest = find('#newest', HTMLButtonElement);
  search.oninput = () => {
    const words = search.value.trim();
    if (words === loaded.words) return;
    loaded.words = words;
    loaded.restart();
    date.disabled = newest.disabled = words !== ''; // a search covers all days
    clearTimeout(soon);
    soon = setTimeout(does.searched, pause);
    does.typed();
  };
  const bound = () => {
    date.max = localDay(new Date());
    date.min = localDay(new Date(Date.now() - 90 * 86_400_000));
  };
  bound();
  date.onfocus = bound; // midnight may have passed
  date.onchange = () => {
    if (!date.validity.valid) return; // the year 2, while 2026 is typed
    const day = date.value && new Date(`${date.value}T00:00`);
    loaded.until = day ? new Date(day.getFullYear(), day.getMonth(), day.getDate() + 1).getTime() - 1 : 0;
    newest.hidden = !day;
    does.filtered();
  };
  newest.onclick = () => {
    date.value = '';
    date.dispatchEvent(new Event('change'));
    date.focus();
  };
  const group = find('#group', HTMLButtonElement);
  group.onclick = () => {
    loaded.grouped = !loaded.grouped;
    group.setAttribute('aria-checked', String(loaded.grouped));
    does.typed();
  };
  type.onchange = () => {
    loaded.type = Number(type.value);
    does.filtered();
  };
  addEventListener('keydown', (e) => {
    const typing = e.target instanceof HTMLElement && e.target.matches('input, select, textarea');
    if (e.key !== '/' || typing || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    search.focus();
  });
}

/** A local day in the format of date inputs. @param {Date} time */
function localDay(time) {
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** Adds the records' types to the filter. @param {any[]} records */
export function offerTypes(records) {
  const type = find('#type', HTMLSelectElement);
  const known = new Set([...type.options].map((option) => Number(option.value)));
  for (const n of new Set(records.map((record) => record.object.type))) {
    if (!known.has(n)) type.append(el('option', { value: String(n) }, typeName(n)));
  }
}

/**
 * Handles the entries' keys (Delete, M to mark, arrows to move) and buttons.
 * @param {HTMLElement} list @param {{remove(key: string): void, mark(key: string): void}} does
 */
export function keys(list, { remove, mark }) {
  const rowOf = (/** @type {Event} */ e) => /** @type {HTMLElement | null} */ (e.target instanceof Element ? e.target.closest('.row') : null);
  list.addEventListener('keydown', (e) => {
    const row = rowOf(e);
    if (!row) return;
    if (e.key === 'Delete') remove(String(row.dataset.key));
    else if (e.key.toLowerCase() === 'm' && !e.ctrlKey && !e.metaKey && !e.altKey) mark(String(row.dataset.key));
    else if (e.key === 'ArrowDown') focus(row.nextElementSibling);
    else if (e.key === 'ArrowUp') focus(row.previousElementSibling);
    else return;
    e.preventDefault();
  });
  list.addEventListener('click', (e) => {
    const row = rowOf(e);
    if (!row || !(e.target instanceof Element)) return;
    if (e.target.closest('.delete')) remove(String(row.dataset.key));
    if (e.target.closest('.mark')) mark(String(row.dataset.key));
  });
}

/**
 * Handles the buttons that dismiss cards. The focus moves to the next card.
 * @param {HTMLElement} cards @param {(key: string) => void} dismiss
 */
export function dismissals(cards, dismiss) {
  cards.addEventListener('click', (e) => {
    const card = e.target instanceof Element && e.target.closest('.dismiss') ? e.target.closest('li') : null;
    if (!card) return;
    const next = card.nextElementSibling ?? card.previousElementSibling;
    dismiss(String(card.dataset.key));
    const button = next?.querySelector('button');
    (button ?? find('#list', HTMLElement)).focus();
  });
}

/** Focuses an entry, or else the list. @param {Element | null | undefined} row */
export function focus(row) {
  const link = /** @type {HTMLElement | null | undefined} */ (row?.querySelector('.title'));
  (link ?? find('#list', HTMLElement)).focus();
}

/**
 * Opens the dialog to mark an entry.
 * @param {(record: any, mark: 'watched' | 'unwatched' | 'reset') => void} mark
 * @param {(record: any) => Promise<Node[]>} waysBack links to where earlier sessions stopped
 * @returns {(record: any) => void}
 */
export function marking(mark, waysBack) {
  const dialog = find('#mark-dialog', HTMLDialogElement);
  /** @type {any} */
  let record;
  find('#mark-no', HTMLButtonElement).onclick = () => dialog.close();
  dialog.addEventListener('click', (e) => {
    if (e.target instanceof HTMLAnchorElement) dialog.close(); // or it would be open again after "back"
    if (!(e.target instanceof HTMLButtonElement) || !e.target.value) return;
    dialog.close();
    mark(record, /** @type {any} */ (e.target.value));
  });
  return (chosen) => {
    record = chosen;
    write(find('#mark-name', HTMLElement), t('Mark “{title}” as…', { title: title(record) }));
    dialog.showModal();
    const section = find('#viewings', HTMLElement);
    section.hidden = true;
    waysBack(chosen).then((links) => {
      if (record !== chosen) return;
      find('ul', HTMLElement, section).replaceChildren(...links);
      section.hidden = links.length === 0;
    });
  };
}

/**
 * Confirms before clearing the history or one type.
 * @param {import('./loaded.js').LoadedHistory} loaded @param {(type: number) => void} clear
 * @returns {(type: number) => void} asks, as the button does
 */
export function clearing(loaded, clear) {
  const dialog = find('#clear-dialog', HTMLDialogElement);
  let asked = 0;
  const ask = (/** @type {number} */ type) => {
    asked = type;
    const what = type
      ? t('This deletes every entry of the type {type}, on all devices. Only a backup brings it back.', { type: typeName(type) })
      : t('This deletes the whole history, on all devices. Only a backup brings it back.');
    write(find('#clear-what', HTMLElement), what);
    dialog.returnValue = '';
    dialog.showModal();
  };
  find('#clear', HTMLButtonElement).onclick = () => ask(loaded.type);
  find('#clear-no', HTMLButtonElement).onclick = () => dialog.close();
  find('#clear-yes', HTMLButtonElement).onclick = () => {
    dialog.close();
    clear(asked);
  };
  return ask;
}

/**
 * The switch that pauses recording. It is hidden until its state is known, and busy during a change.
 * @param {import('./api.js').Api} api @param {import('./problems.js').Problems} problems
 * @returns {() => Promise<boolean>} reads the state
 */
export function recording(api, problems) {
  const toggle = find('#recording', HTMLButtonElement);
  const failed = t('The setting could not be changed');
  let newest = 0; // number of the newest read
  /** @type {Promise<any> | undefined} */
  let setting;
  const show = (/** @type {{recording: boolean, paused_at?: string}} */ settings) => {
    newest++; // outdates reads in flight
    toggle.hidden = false;
    toggle.setAttribute('aria-checked', String(settings.recording));
    find('#paused', HTMLElement).hidden = settings.recording;
    problems.forget(failed);
  };
  const read = () => problems.attempt(t('The settings could not be read'), read, async () => {
    await setting;
    const mine = ++newest;
    const settings = await api.get('/v1/settings');
    if (mine === newest) show(settings);
  });
  /** @param {boolean} wanted */
  const set = async (wanted) => {
    if (setting) return;
    toggle.setAttribute('aria-busy', 'true');
    setting = problems.attempt(failed, () => set(wanted), async () => show(await api.put('/v1/settings', { recording: wanted })));
    await setting;
    setting = undefined;
    toggle.removeAttribute('aria-busy');
  };
  toggle.onclick = () => set(toggle.getAttribute('aria-checked') !== 'true');
  return read;
}
