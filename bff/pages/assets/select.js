// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { find, write } from './dom.js';
import { counted } from './language.js';

/**
 * Selects several entries for deletion. A series includes its parts.
 * @param {HTMLElement} list
 * @param {{members(): Map<string, string[]>, remove(keys: string[]): void, changed(): void}} does `members`: record keys by
 * entry key
 * @returns {{show(): void}} shows the selection
 */
export function selecting(list, { members, remove, changed }) {
  /** @type {Set<string>} */
  const chosen = new Set();
  const bar = find('#selection', HTMLElement);
  const start = find('#select', HTMLButtonElement);
  const doDelete = find('#select-delete', HTMLButtonElement);
  const on = () => list.classList.contains('selecting');
  /** @param {boolean} wanted */
  const toggle = (wanted) => {
    list.classList.toggle('selecting', wanted);
    start.setAttribute('aria-pressed', String(wanted));
    bar.hidden = !wanted;
    chosen.clear();
    changed();
    (wanted ? find('#select-all', HTMLButtonElement) : start).focus();
  };
  /** @param {Iterable<string>} keys @param {boolean} wanted */
  const choose = (keys, wanted) => {
    for (const key of keys) if (wanted) chosen.add(key); else chosen.delete(key);
    changed();
  };
  start.onclick = () => toggle(!on());
  find('#select-done', HTMLButtonElement).onclick = () => toggle(false);
  find('#select-all', HTMLButtonElement).onclick = () => choose([...members().values()].flat(), true);
  doDelete.onclick = () => {
    const keys = [...chosen];
    toggle(false);
    remove(keys);
  };
  list.addEventListener('change', ({ target }) => {
    const row = target instanceof HTMLInputElement && target.matches('.pick') ? /** @type {HTMLElement} */ (target.closest('.row')) : null;
    if (row) choose(members().get(String(row.dataset.key)) ?? [], /** @type {HTMLInputElement} */ (target).checked);
  });
  addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && on() && !document.querySelector('dialog[open]')) toggle(false);
  });
  return {
    show() {
      /** @type {Map<string, string[]>} */
      const entries = on() ? members() : new Map();
      const there = new Set([...entries.values()].flat());
      for (const key of chosen) if (!there.has(key)) chosen.delete(key);
      for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (list.querySelectorAll('.pick'))) {
        const keys = entries.get(String(/** @type {HTMLElement} */ (box.closest('.row')).dataset.key)) ?? [];
        const n = keys.filter((key) => chosen.has(key)).length;
        box.checked = n > 0 && n === keys.length;
        box.indeterminate = n > 0 && n < keys.length;
      }
      write(find('#selected', HTMLElement), counted(chosen.size, '{n} selected', '{n} selected'));
      doDelete.disabled = chosen.size === 0;
    },
  };
}
