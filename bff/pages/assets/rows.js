// @ts-check
import { el, write } from './dom.js';
import { ago, clock, day, nextPart, part, progress, spoken, title, typeName } from './format.js';
import { key } from './outbox.js';

/** @typedef {{node: HTMLElement, update(record: any): void}} Row */

/**
 * Shows records as the children of a list. A child stays the same element as long as its
 * record is there, so that what has the focus keeps it.
 */
export class Rows {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  #list;
  #make;

  /** @param {HTMLElement} list @param {() => Row} make */
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
    const row = this.#rows.get(key(record)) ?? this.#make();
    this.#rows.set(key(record), row);
    row.node.dataset.key = key(record);
    row.update(record);
    return row;
  }
}

/** A row of the history. @returns {Row} */
export function entry() {
  const link = el('a', { className: 'title' });
  const about = el('span', { className: 'about' });
  const { meter, at, tile, show } = gauge();
  const when = el('time');
  const marker = el('button', { type: 'button', className: 'mark', title: 'Mark… (M)', 'aria-haspopup': 'dialog' }, '⋯');
  const button = el('button', { type: 'button', className: 'delete', title: 'Delete (Del)' }, '✕');
  const node = el('li', { className: 'row' }, tile, el('div', { className: 'what' }, link, about),
    el('div', { className: 'gauge' }, meter, at), when, el('span', { className: 'actions' }, marker, button));
  return {
    node,
    update(record) {
      const time = new Date(record.event_time);
      const played = new Date(record.played_at ?? record.event_time);
      show(record);
      write(link, title(record));
      link.title = title(record);
      link.href = playerOf(record);
      write(about, [typeName(record.object.type), record.meta?.series, record.device, record.played_at && 'Restored'].filter(Boolean).join(' · '));
      write(when, ago(played));
      when.dateTime = played.toISOString();
      when.title = played.toLocaleString('en');
      node.dataset.of = day(time);
      marker.setAttribute('aria-label', `Mark ${title(record)}`);
      button.setAttribute('aria-label', `Delete ${title(record)}`);
    },
  };
}

/** A card of the row that invites to go on. @returns {Row} */
export function card() {
  const name = el('span', { className: 'title' });
  const { meter, at, tile, show } = gauge();
  const link = el('a', { className: 'card' }, tile, name, meter, at);
  const button = el('button', { type: 'button', className: 'dismiss', title: 'Remove from continue watching' }, '✕');
  return {
    node: el('li', {}, link, button),
    update(record) {
      show(record);
      button.setAttribute('aria-label', `Remove ${record.next ? nextPart(record.next) : title(record)} from continue watching`);
      write(name, record.next ? nextPart(record.next) : title(record));
      if (record.next) write(at, `After ${title(record)}`);
      meter.hidden = Boolean(record.next);
      if (record.next) link.removeAttribute('href'); // a catalogue knows what it is
      else link.href = playerOf(record);
    },
  };
}

/** How far somebody is, to look at and to listen to. */
function gauge() {
  const meter = el('progress', { max: 1, value: 0 });
  const at = el('span', { className: 'at' });
  const tile = el('span', { className: 'tile', 'aria-hidden': 'true' });
  return {
    meter, at, tile,
    /** @param {any} record */
    show(record) {
      meter.classList.toggle('done', Boolean(record.completed));
      meter.value = part(record);
      meter.setAttribute('aria-label', `Progress of ${title(record)}`);
      meter.setAttribute('aria-valuetext', record.completed ? 'completed' : `stopped at ${spoken(record.position_ms)}`);
      write(at, progress(record));
      at.title = record.furthest_ms > record.position_ms ? `Furthest: ${clock(record.furthest_ms)}` : '';
      at.classList.toggle('done', Boolean(record.completed));
      write(tile, /[\p{L}\p{N}]/u.exec(title(record))?.[0].toUpperCase() ?? '·');
      tile.style.setProperty('--hue', String(hue(record.object.id)));
    },
  };
}

/** @param {any} record */
function playerOf({ object, meta }) {
  const query = new URLSearchParams({ id: object.id, type: String(object.type) });
  if (meta?.title) query.set('title', meta.title);
  return `/player?${query}`;
}

/** @param {string} text */
function hue(text) {
  let n = 7;
  for (const c of text) n = (n * 31 + c.charCodeAt(0)) % 997;
  return Math.round(n * 137.5) % 360; // neighbours are far apart
}
