// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { el, write } from './dom.js';
import { ago, clock, day, moment, nextPart, part, partNumber, played, playing, progress, spoken, title, typeName } from './format.js';
import { counted, t } from './language.js';
import { key } from './outbox.js';

/** @typedef {{node: HTMLElement, update(record: any): void}} Row */

/** Renders records as children of a list. A record keeps its element, and thus the focus. */
export class Rows {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  #list;
  #make;

  /** @param {HTMLElement} list @param {(record: any) => Row} make */
  constructor(list, make) {
    this.#list = list;
    this.#make = make;
  }

  /** @param {any[]} records */
  show(records) {
    this.#retain(new Set(records.map(key)));
    const focused = document.activeElement;
    let at = this.#list.firstElementChild;
    for (const record of records) {
      const { node } = this.#row(record);
      if (node === at) at = at.nextElementSibling;
      else this.#list.insertBefore(node, at);
    }
    if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  /** @param {Set<string>} wanted */
  #retain(wanted) {
    for (const [name, row] of this.#rows) {
      if (wanted.has(name)) continue;
      row.node.remove();
      this.#rows.delete(name);
    }
  }

  /** @param {any} record */
  #row(record) {
    const row = this.#rows.get(key(record)) ?? this.#make(record);
    this.#rows.set(key(record), row);
    row.node.dataset.key = key(record);
    row.update(record);
    return row;
  }
}

/** A row of the history; a record with parts is a series. @param {any} record @param {(key: string) => void} toggle @returns {Row} */
export function entry(record, toggle) {
  return record.parts ? seriesEntry(toggle) : recordEntry();
}

/** @returns {Row} */
function recordEntry() {
  const link = el('a', { className: 'title' });
  const about = el('span', { className: 'about' });
  const wrong = el('span', { className: 'failed' });
  const { meter, at, tile, show } = gauge();
  const when = el('time');
  const pick = el('input', { type: 'checkbox', className: 'pick' });
  const marker = el('button', { type: 'button', className: 'mark', title: t('Mark… (M)'), 'aria-haspopup': 'dialog' }, '⋯');
  const button = el('button', { type: 'button', className: 'delete', title: t('Delete (Del)') }, '✕');
  const node = el('li', { className: 'row' }, tile, pick, el('div', { className: 'what' }, link, about, wrong),
    el('div', { className: 'gauge' }, meter, at), when, el('span', { className: 'actions' }, marker, button));
  return {
    node,
    update(record) {
      show(record);
      write(link, title(record));
      link.title = title(record);
      link.href = playerOf(record);
      const { series, season, episode } = record.meta ?? {};
      const number = partNumber(episode) > 0 && nextPart({ season: partNumber(season), episode: partNumber(episode) });
      const parts = record.within ? [number, record.device] : [typeName(record.object.type), series, record.device];
      write(about, [...parts, record.played_at && t('Restored')].filter(Boolean).join(' · '));
      write(wrong, record.problem ?? '');
      writeTime(when, record);
      node.dataset.of = day(new Date(record.event_time));
      node.classList.toggle('within', Boolean(record.within));
      pick.setAttribute('aria-label', t('Select {title}', { title: title(record) }));
      marker.setAttribute('aria-label', t('Mark {title}', { title: title(record) }));
      button.setAttribute('aria-label', t('Delete {title}', { title: title(record) }));
    },
  };
}

/** @param {(key: string) => void} toggle @returns {Row} */
function seriesEntry(toggle) {
  const name = el('button', { type: 'button', className: 'title' });
  const about = el('span', { className: 'about' });
  const wrong = el('span', { className: 'failed' });
  const { meter, at, tile, show } = gauge();
  const when = el('time');
  const pick = el('input', { type: 'checkbox', className: 'pick' });
  const marker = el('button', { type: 'button', className: 'mark', title: t('Mark… (M)'), 'aria-haspopup': 'dialog' }, '⋯');
  const node = el('li', { className: 'row series' }, tile, pick, el('div', { className: 'what' }, name, about, wrong),
    el('div', { className: 'gauge' }, meter, at), when, el('span', { className: 'actions' }, marker));
  name.onclick = () => toggle(String(node.dataset.key));
  return {
    node,
    update(record) {
      const done = record.parts.filter((/** @type {any} */ r) => r.completed).length;
      show(record);
      meter.value = done / record.parts.length;
      meter.classList.toggle('done', done === record.parts.length);
      at.classList.toggle('done', done === record.parts.length);
      at.title = '';
      meter.setAttribute('aria-valuetext', t('{done} of {n} completed', { done, n: record.parts.length }));
      write(at, t('{done} of {n} completed', { done, n: record.parts.length }));
      write(name, title(record));
      name.setAttribute('aria-expanded', String(record.open));
      write(about, [counted(record.parts.length, '{n} part', '{n} parts'), record.parts[0].device].filter(Boolean).join(' · '));
      write(wrong, record.parts.find((/** @type {any} */ r) => r.problem && !record.open)?.problem ?? '');
      writeTime(when, record);
      node.dataset.of = day(new Date(record.event_time));
      pick.setAttribute('aria-label', t('Select {title}', { title: title(record) }));
      marker.setAttribute('aria-label', t('Mark {title}', { title: title(record) }));
    },
  };
}

/** @param {HTMLTimeElement} when @param {any} record */
function writeTime(when, record) {
  const at = played(record);
  const now = playing(record);
  write(when, now ? t('Playing now') : ago(at));
  when.classList.toggle('now', now);
  when.dateTime = at.toISOString();
  when.title = moment(at);
}

/** A link to the end position of an earlier session. @param {any} record @param {any} viewing */
export function wayBack(record, { end, to_ms, device }) {
  const link = el('a', { href: playerOf(record, to_ms) }, t('Go on at {at}', { at: clock(to_ms) }));
  return el('li', {}, link, ' ', el('span', { className: 'about' }, [ago(new Date(end)), device].filter(Boolean).join(' · ')));
}

/** A card of "continue watching". @returns {Row} */
export function card() {
  const name = el('span', { className: 'title' });
  const series = el('span', { className: 'about' });
  const wrong = el('span', { className: 'failed' });
  const { meter, at, tile, show } = gauge();
  const link = el('a', { className: 'card' }, tile, name, series, wrong, meter, at);
  const button = el('button', { type: 'button', className: 'dismiss', title: t('Remove from continue watching') }, '✕');
  return {
    node: el('li', {}, link, button),
    update(record) {
      show(record);
      button.setAttribute('aria-label', t('Remove {title} from continue watching', { title: record.next ? nextPart(record.next) : title(record) }));
      write(name, record.next ? nextPart(record.next) : title(record));
      write(series, record.meta?.series ?? '');
      write(wrong, record.problem ?? '');
      at.classList.toggle('now', playing(record));
      if (playing(record)) write(at, t('Playing now'));
      if (record.next) write(at, t('After {title}', { title: title(record) }));
      meter.hidden = Boolean(record.next);
      if (record.next) link.removeAttribute('href'); // its id is unknown here
      else link.href = playerOf(record);
    },
  };
}

/** A record's progress, visible and for screen readers. */
function gauge() {
  const meter = el('progress', { max: 1, value: 0 });
  const at = el('span', { className: 'at' });
  const initial = el('span');
  const tile = el('span', { className: 'tile', 'aria-hidden': 'true' }, initial);
  return {
    meter, at, tile,
    /** @param {any} record */
    show(record) {
      meter.classList.toggle('done', Boolean(record.completed));
      meter.value = part(record);
      meter.setAttribute('aria-label', t('Progress of {title}', { title: title(record) }));
      meter.setAttribute('aria-valuetext', record.completed ? t('Completed') : t('stopped at {at}', { at: spoken(record.position_ms) }));
      write(at, progress(record));
      at.title = record.furthest_ms > record.position_ms ? t('Furthest: {at}', { at: clock(record.furthest_ms) }) : '';
      at.classList.toggle('done', Boolean(record.completed));
      write(initial, /[\p{L}\p{N}]/u.exec(title(record).normalize())?.[0].toUpperCase() ?? '·');
      tile.style.setProperty('--hue', String(hue(record.object.id)));
      picture(tile, record.meta?.image);
    },
  };
}

/** Allowed origins of pictures (--image-origin). */
const sites = document.querySelector('meta[name=images]')?.getAttribute('content')?.split(' ') ?? [];

/** Shows a picture in a tile, or keeps its initial. @param {HTMLElement} tile @param {string | undefined} address */
function picture(tile, address) {
  const shown = tile.querySelector('img');
  if (shown?.dataset.of === address || (!shown && !address)) return;
  shown?.remove();
  if (!address?.startsWith('assets/poster.svg?') && (!address || !URL.canParse(address) || !sites.includes(new URL(address).origin))) return;
  const image = el('img', { alt: '', decoding: 'async', loading: 'lazy', referrerPolicy: 'no-referrer' });
  image.dataset.of = address;
  image.onerror = () => image.classList.add('broken');
  image.src = address;
  tile.append(image);
}

/** @param {any} record @param {number} [at] start position in milliseconds; by default the resume point */
function playerOf({ object, meta, event_time: seen }, at) {
  const query = new URLSearchParams({ id: object.id, type: String(object.type), seen });
  if (meta?.title) query.set('title', meta.title);
  if (at) query.set('at', String(at));
  return `player?${query}`;
}

/** @param {string} text */
function hue(text) {
  let n = 7;
  for (const c of text) n = (n * 31 + c.charCodeAt(0)) % 997;
  return Math.round(n * 137.5) % 360; // spreads similar values
}
