// @ts-check
import { el, find, write } from './dom.js';
import { title, typeName } from './format.js';

/**
 * The search and the type filter.
 * @param {import('./loaded.js').LoadedHistory} loaded
 * @param {{searched(): void, filtered(): void}} does
 */
export function filters(loaded, does) {
  const search = find('#search', HTMLInputElement);
  const type = find('#type', HTMLSelectElement);
  for (const n of [1, 2, 3, 4]) type.append(el('option', { value: String(n) }, typeName(n)));
  search.oninput = () => {
    loaded.words = search.value.trim();
    does.searched();
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

/** Lets the user choose every type that was seen, beside those with a name. @param {any[]} records */
export function offerTypes(records) {
  const type = find('#type', HTMLSelectElement);
  const known = new Set([...type.options].map((option) => Number(option.value)));
  for (const n of new Set(records.map((record) => record.object.type))) {
    if (!known.has(n)) type.append(el('option', { value: String(n) }, typeName(n)));
  }
}

/**
 * Lets the keys work on the entries: Delete removes the one that has the focus, M marks it, the
 * arrows go to the next one.
 * @param {HTMLElement} list @param {{remove(key: string): void, mark(key: string): void}} does
 */
export function keys(list, { remove, mark }) {
  const rowOf = (/** @type {Event} */ e) => /** @type {HTMLElement | null} */ (e.target instanceof Element ? e.target.closest('.row') : null);
  list.addEventListener('keydown', (e) => {
    const row = rowOf(e);
    if (!row) return;
    if (e.key === 'Delete') remove(String(row.dataset.key));
    else if (e.key === 'm' && !e.ctrlKey && !e.metaKey && !e.altKey) mark(String(row.dataset.key));
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
 * Lets the button of a card take it away. The focus goes to the next card.
 * @param {HTMLElement} cards @param {(key: string) => void} dismiss
 */
export function dismissals(cards, dismiss) {
  cards.addEventListener('click', (e) => {
    const card = e.target instanceof Element && e.target.closest('.dismiss') ? e.target.closest('li') : null;
    if (!card) return;
    const next = card.nextElementSibling ?? card.previousElementSibling;
    dismiss(String(card.dataset.key));
    const button = next?.querySelector('button');
    (button ?? find('#search', HTMLInputElement)).focus();
  });
}

/** Puts the focus on an entry, or else on the search. @param {Element | null | undefined} row */
export function focus(row) {
  const link = row?.querySelector('a');
  (link ?? find('#search', HTMLInputElement)).focus();
}

/**
 * Asks as what an entry is to be marked.
 * @param {(record: any, mark: 'watched' | 'unwatched' | 'reset') => void} mark
 * @returns {(record: any) => void}
 */
export function marking(mark) {
  const dialog = find('#mark-dialog', HTMLDialogElement);
  /** @type {any} */
  let record;
  find('#mark-no', HTMLButtonElement).onclick = () => dialog.close();
  dialog.addEventListener('click', (e) => {
    if (!(e.target instanceof HTMLButtonElement) || !e.target.value) return;
    dialog.close();
    mark(record, /** @type {any} */ (e.target.value));
  });
  return (chosen) => {
    record = chosen;
    write(find('#mark-name', HTMLElement), `Mark “${title(record)}” as…`);
    dialog.showModal();
  };
}

/**
 * Asks before everything is cleared.
 * @param {import('./loaded.js').LoadedHistory} loaded @param {() => void} clear
 */
export function clearing(loaded, clear) {
  const dialog = find('#clear-dialog', HTMLDialogElement);
  find('#clear', HTMLButtonElement).onclick = () => {
    const what = loaded.type ? `every entry of the type ${typeName(loaded.type)}` : 'the whole history';
    write(find('#clear-what', HTMLElement), `This deletes ${what}, on all devices. Only a backup brings it back.`);
    dialog.returnValue = '';
    dialog.showModal();
  };
  find('#clear-no', HTMLButtonElement).onclick = () => dialog.close();
  find('#clear-yes', HTMLButtonElement).onclick = () => {
    dialog.close();
    clear();
  };
}

/**
 * The switch that pauses recording. It is there as soon as it is known how it stands.
 * @param {import('./api.js').Api} api @param {import('./problems.js').Problems} problems
 */
export function recording(api, problems) {
  const toggle = find('#recording', HTMLButtonElement);
  const show = (/** @type {{recording: boolean, paused_at?: string}} */ settings) => {
    toggle.hidden = false;
    toggle.setAttribute('aria-checked', String(settings.recording));
    find('#paused', HTMLElement).hidden = settings.recording;
  };
  const read = () => problems.attempt('The settings could not be read', read, async () => {
    show(await api.get('/v1/settings'));
  });
  toggle.onclick = () => problems.attempt('The setting could not be changed', read, async () => {
    show(await api.put('/v1/settings', { recording: toggle.getAttribute('aria-checked') !== 'true' }));
  });
  return read;
}
