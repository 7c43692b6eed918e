// @ts-check
import { key } from './outbox.js';

/**
 * Puts the parts of a series together, which are of one type, where its newest one stands. An entry of a series has its
 * records in "parts"; they follow it as entries of their own where the series is open.
 * @param {any[]} records newest first @param {Set<string>} open keys of entries of series @returns {any[]}
 */
export function series(records, open) {
  /** @type {Map<string, any[]>} */
  const parts = new Map();
  for (const record of records) {
    const name = nameOf(record);
    const known = parts.get(name);
    if (known) known.push(record);
    else if (name) parts.set(name, [record]);
  }
  return records.flatMap((record) => {
    const name = nameOf(record);
    const all = (name && parts.get(name)) || [];
    if (all.length < 2) return [record];
    if (all[0] !== record) return [];
    const { series: title, image } = record.meta;
    const head = { ...record, object: { id: `series ${title}`, type: record.object.type }, meta: { title, image }, parts: all };
    head.open = open.has(key(head));
    return head.open ? [head, ...all.map((/** @type {any} */ part) => ({ ...part, within: title }))] : [head];
  });
}

/** The type and the name of a record's series, '' for none. @param {any} record */
function nameOf({ object, meta }) {
  return meta?.series ? `${object.type} ${meta.series}` : '';
}
