// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Problem } from './api.js';
import { outcome } from './backup.js';
import { el, find, write } from './dom.js';
import { locale, t } from './language.js';

const day = new Intl.DateTimeFormat(locale, { dateStyle: 'medium' });

/**
 * The dialog that imports a file of another program: a preview first, then the import.
 * @param {import('./api.js').Api} api @param {{before(): Promise<any>, after(): Promise<any>}} does around an import
 */
export function importing(api, { before, after }) {
  const dialog = find('#import-dialog', HTMLDialogElement);
  const file = find('#import-file', HTMLInputElement);
  const dates = find('#import-dates', HTMLSelectElement);
  const from = find('#import-from', HTMLSelectElement);
  const first = find('#import-first', HTMLOListElement);
  const result = find('#import-result', HTMLElement);
  const progress = find('#import-progress', HTMLProgressElement);
  const go = find('#import-go', HTMLButtonElement);
  const close = find('#import-close', HTMLButtonElement);
  let running = new AbortController();

  /** Sends the chosen file. @param {boolean} dry @returns {Promise<any>} the report, undefined if it failed or was cancelled */
  const send = async (dry) => {
    running.abort();
    const mine = (running = new AbortController());
    go.disabled = true;
    progress.hidden = false;
    progress.value = 0;
    write(result, t('One moment…'));
    write(close, t('Cancel'));
    const query = { dry_run: dry ? 'true' : '', dates: dates.value, from: from.value };
    const on = { signal: mine.signal, progress: (/** @type {number} */ part) => { progress.value = part; } };
    const report = await api.importFile(/** @type {FileList} */ (file.files)[0], query, on).catch((e) => {
      if (!(e instanceof Problem)) throw e;
      if (mine.signal.aborted) return undefined;
      show(dates, e.dates);
      write(result, e.dates ? t('Which comes first in the dates of this file?') : t('{what}: {why}.', { what: t('The file was not taken in, or not all of it'), why: e.message }));
    });
    if (mine !== running) return undefined;
    progress.hidden = true;
    write(close, t('Close'));
    return mine.signal.aborted ? undefined : report;
  };
  const preview = async () => {
    first.replaceChildren();
    if (!file.files?.length) return;
    const report = await send(true);
    if (!report) return;
    offerUsers(report.users ?? []);
    first.replaceChildren(...(report.first ?? []).map(row));
    write(result, [report.form, outcome(report, true), span(report)].filter(Boolean).join(' · '));
    go.disabled = !report.statuses.readable;
  };
  /** @param {string[]} users of the file: more than one are to choose from */
  const offerUsers = (users) => {
    if (users.length < 2 || from.options.length > 0) return;
    from.replaceChildren(...users.map((name) => el('option', { value: name }, name)));
    show(from, true);
  };
  file.onchange = () => {
    dates.value = '';
    from.replaceChildren();
    for (const choice of [dates, from]) show(choice, false);
    return preview();
  };
  for (const choice of [dates, from]) choice.onchange = preview;
  find('#import', HTMLButtonElement).onclick = () => dialog.showModal();
  close.onclick = () => {
    if (progress.hidden) dialog.close();
    running.abort();
    write(result, '');
  };
  dialog.onclose = () => running.abort();
  go.onclick = async () => {
    await before();
    const report = await send(false);
    await after();
    if (report) write(result, outcome(report, true));
  };
}

/** @param {HTMLElement} choice @param {boolean} shown */
function show(choice, shown) {
  if (choice.parentElement) choice.parentElement.hidden = !shown;
}

/** @param {{oldest?: string, newest?: string}} report */
function span({ oldest, newest }) {
  return oldest && newest ? day.formatRange(new Date(oldest), new Date(newest)) : '';
}

/** @param {{title?: string, object: {id: string}, event_time: string}} entry */
function row({ title, object, event_time }) {
  return el('li', {}, title ?? object.id, ' ', el('time', { dateTime: event_time }, day.format(new Date(event_time))));
}
