// @ts-check

/**
 * Puts the parts of a series together, where its newest one stands. An entry of a series has its
 * records in "parts"; they follow it as entries of their own where the series is open.
 * @param {any[]} records newest first @param {Set<string>} open names of series @returns {any[]}
 */
export function series(records, open) {
  /** @type {Map<string, any[]>} */
  const parts = new Map();
  for (const record of records) {
    const name = nameOf(record);
    if (name) parts.set(name, [...(parts.get(name) ?? []), record]);
  }
  return records.flatMap((record) => {
    const name = nameOf(record);
    const all = (name && parts.get(name)) || [];
    if (all.length < 2) return [record];
    if (all[0] !== record) return [];
    const head = { ...record, object: { id: `series ${name}`, type: record.object.type }, meta: { title: name, image: record.meta.image }, parts: all, open: open.has(name) };
    return open.has(name) ? [head, ...all.map((/** @type {any} */ part) => ({ ...part, within: name }))] : [head];
  });
}

/** @param {any} record */
function nameOf({ meta }) {
  return meta?.series ?? '';
}
