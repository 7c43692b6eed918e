// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Problem, said } from './api.js';
import { el, find, save, write } from './dom.js';
import { counted, t } from './language.js';

/**
 * The dialog that saves and restores backups.
 * @param {import('./api.js').Api} api @param {{before(): Promise<any>, after(): Promise<any>}} does around a restore
 */
export function backups(api, { before, after }) {
  const dialog = find('#backup-dialog', HTMLDialogElement);
  const file = find('#backup-file', HTMLInputElement);
  const restore = find('#backup-restore', HTMLInputElement);
  const go = find('#backup-go', HTMLButtonElement);
  const result = find('#backup-result', HTMLElement);
  const ready = () => { go.disabled = !file.files?.length; };
  file.onchange = () => {
    write(result, '');
    ready();
  };
  restore.onchange = () => write(result, '');
  /** @param {string} failed @param {() => Promise<string>} act */
  const attempt = async (failed, act) => {
    go.disabled = true;
    write(result, t('One moment…'));
    write(result, await act().catch((e) => {
      if (!(e instanceof Problem)) throw e;
      return t('{what}: {why}.', { what: failed, why: e.message });
    }));
    ready();
  };
  find('#backup', HTMLButtonElement).onclick = () => {
    write(result, '');
    ready();
    dialog.showModal();
  };
  find('#backup-close', HTMLButtonElement).onclick = () => dialog.close();
  find('#backup-save', HTMLButtonElement).onclick = () => attempt(t('The backup could not be saved'), async () => {
    save(await api.export(), `history-${new Date().toISOString().slice(0, 10)}.ndjson`);
    return t('The backup is among your downloads.');
  });
  go.onclick = () => attempt(t('The backup was not taken in, or not all of it; try again'), async () => {
    await before();
    const restored = restore.checked;
    const report = await api.import(/** @type {FileList} */ (file.files)[0], restored);
    await after();
    return outcome(report, restored);
  });
}

/**
 * The outcome of a restore, in words.
 * @param {{rows: number, statuses: Record<string, number>, refused: {line: number, status: string, error?: {field: string, reason: string}}[]}} report
 * @param {boolean} restored
 */
export function outcome({ rows, statuses, refused }, restored) {
  if (rows === 0) return t('There is nothing in this file.');
  const n = (/** @type {string[]} */ ...names) => names.reduce((sum, name) => sum + (statuses[name] ?? 0), 0);
  const parts = [
    some(n('readable'), '{n} entry can be taken in', '{n} entries can be taken in'),
    some(n('stored'), '{n} entry was taken in', '{n} entries were taken in'),
    some(n('unchanged', 'stale'), '{n} entry was here already', '{n} entries were here already'),
    some(n('cleared'), '{n} entry was deleted or cleared since, and stays so', '{n} entries were deleted or cleared since, and stay so'),
    some(n('expired'), '{n} entry is too old to be kept', '{n} entries are too old to be kept'),
    some(n('brief'), '{n} entry is too short to be kept', '{n} entries are too short to be kept'),
    some(n('paused'), '{n} entry is from while recording was paused', '{n} entries are from while recording was paused'),
    some(n('skipped'), '{n} row is no entry', '{n} rows are no entries'),
  ].filter(Boolean);
  const bad = refused.filter(({ status }) => status === 'invalid');
  if (n('invalid') > 0) {
    const faults = bad.slice(0, 3).map(fault).join('; ') + (bad.length > 3 ? '; …' : '');
    parts.push(t('{what}: {why}', { what: some(n('invalid'), '{n} entry could not be read', '{n} entries could not be read'), why: faults }));
  }
  const hint = n('cleared') > 0 && !restored ? ` ${t('Tick the box to bring back what was removed.')}` : '';
  return `${parts.join('. ')}.${hint}`;
}

/** @param {number} n @param {string} one @param {string} other */
function some(n, one, other) {
  return n === 0 ? '' : counted(n, one, other);
}

/** Errors of a line, by field. */
const wrong = /** @type {Record<string, string>} */ ({
  body: t('not a line of a backup'),
  user: t('of another user'),
  version: t('of a version that is not known'),
});

/** @param {{line: number, error?: {field: string, reason: string}}} row */
function fault({ line, error }) {
  return t('line {line}', { line }) + (error?.field === 'row' ? ` (${error.reason})` : error ? ` (${said(`${error.field}: ${error.reason}`, wrong[error.field] ?? error.field)})` : '');
}
