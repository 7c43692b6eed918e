// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { counted, locale, t } from './language.js';

/** 75000 as 1:15, 3600000 as 1:00:00. @param {number} ms */
export function clock(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

// Formats are created once: creation takes a hundred times as long as use.
const [hours, minutes, whole] = ['hour', 'minute', 'second'].map((unit) => new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }));

/** 75000 as "1 minute 15 seconds", for screen readers. @param {number} ms */
export function spoken(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts = /** @type {[number, Intl.NumberFormat][]} */ ([
    [Math.floor(seconds / 3600), hours],
    [Math.floor(seconds / 60) % 60, minutes],
    [seconds % 60, whole],
  ]).filter(([n]) => n > 0);
  return parts.map(([n, unit]) => unit.format(n)).join(' ') || whole.format(0);
}

const [inHours, inMinutes] = ['hour', 'minute'].map((unit) => new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'short' }));

/** 5400000 as "1 hr 30 min"; rounded to hours if brief, or from ten hours on. @param {number} ms */
export function lasting(ms, brief = false) {
  const all = Math.round(ms / 60_000);
  if (all >= 600 || (brief && all >= 60)) return inHours.format(Math.round(all / 60));
  const [h, m] = [Math.floor(all / 60), all % 60];
  return [...(h > 0 ? [inHours.format(h)] : []), ...(m > 0 || h === 0 ? [inMinutes.format(m)] : [])].join(' ');
}

/** Formats local times; the device's zone may change while the page is open. @param {Intl.DateTimeFormatOptions} options */
function dates(options) {
  const format = new Intl.DateTimeFormat(locale, { ...options, timeZone: 'UTC' });
  return (/** @type {Date} */ t) => format.format(Date.UTC(t.getFullYear(), t.getMonth(), t.getDate(), t.getHours(), t.getMinutes(), t.getSeconds()));
}

const shortDate = dates({ day: 'numeric', month: 'short', year: 'numeric' });
const month = dates({ month: 'long', year: 'numeric' });
/** The date and the time. */
export const moment = dates({ year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric' });

const relative = new Intl.RelativeTimeFormat(locale, { numeric: 'auto' });
const steps = /** @type {[number, Intl.RelativeTimeFormatUnit][]} */ ([[60, 'second'], [60, 'minute'], [24, 'hour']]);

/** Number of midnights since a time. @param {Date} time @param {number} now */
function midnights(time, now) {
  const midnight = (/** @type {Date} */ t) => new Date(t.getFullYear(), t.getMonth(), t.getDate()).getTime();
  return Math.round((midnight(new Date(now)) - midnight(time)) / 86_400_000);
}

/** "3 minutes ago", "yesterday", and a date from a week on. @param {Date} time */
export function ago(time, now = Date.now()) {
  let n = (time.getTime() - now) / 1000;
  if (n > -45) return t('just now');
  for (const [size, unit] of steps) {
    if (Math.abs(n) < size) return relative.format(Math.trunc(n), unit);
    n /= size;
  }
  const days = midnights(time, now);
  return days < 7 ? relative.format(-days, 'day') : shortDate(time);
}

/** The heading of an entry: "Today", "Yesterday", "Last seven days", or the month. @param {Date} time */
export function day(time, now = Date.now()) {
  const days = midnights(time, now);
  if (days <= 0) return t('Today');
  if (days === 1) return t('Yesterday');
  return days < 7 ? t('Last seven days') : month(time);
}

const types = ['', 'Video', 'Episode', 'Audio', 'Article'];

/** @param {number} type */
export function typeName(type) {
  return types[type] ? t(types[type]) : t('Type {type}', { type });
}

const kinds = /** @type {Record<string, string>} */ ({
  start: t('begun'), progress: t('playing'), pause: t('paused'), seek: t('moved'), stop: t('stopped'), finish: t('finished'),
});

/** A report's kind in words. @param {string} kind */
export function kindName(kind) {
  return kinds[kind] ?? kind;
}

const refusals = /** @type {Record<string, string>} */ ({
  brief: t('too short'),
  cleared: t('deleted since'),
  conflict: t('another device went on'),
  expired: t('too old'),
  invalid: t('not understood'),
  dropped: t('too much was waiting'),
  paused: t('recording is paused'),
});

/** Why a report was not stored. @param {string} status */
export function refusal(status) {
  return refusals[status] ?? status;
}

/** The title of a record, or the id of its object. @param {any} record */
export function title(record) {
  return record.meta?.title?.trim() || record.object.id;
}

/** When a record was last played; a restore does not change it. @param {any} record */
export function played(record) {
  return new Date(record.played_at ?? record.event_time);
}

/** The number of a season or an episode, 0 for none. @param {string | undefined} text */
export function partNumber(text) {
  return /^\d{1,10}$/.test(text ?? '') ? Number(text) : 0;
}

/** @param {{season?: number, episode?: number}} part */
export function nextPart({ season, episode }) {
  if (!episode) return t('The next part');
  return season ? t('Season {season}, episode {episode}', { season, episode }) : t('Episode {episode}', { episode });
}

/** Progress from 0 to 1; 0 if the length is unknown. @param {any} record */
export function part(record) {
  if (record.completed) return 1;
  return record.duration_ms > 0 ? Math.min(1, record.position_ms / record.duration_ms) : 0;
}

const fresh = 60_000; // milliseconds after a report: players report at least every ten seconds

/** Whether a record is playing, according to its last report. @param {any} record */
export function playing(record, now = Date.now()) {
  return record.state === 'playing' && !record.marked && Math.abs(now - Date.parse(record.event_time)) < fresh;
}

/** The progress of a record, in words. @param {any} record */
export function progress(record) {
  if (record.position_ms < 1000 && playing(record)) return t('Just started');
  if (record.completed) return record.plays > 1 ? counted(record.plays, 'Completed once', 'Completed {n} times') : t('Completed');
  const at = clock(record.position_ms);
  return record.duration_ms > 0 ? t('{at} of {end}', { at, end: clock(record.duration_ms) }) : t('at {at}', { at });
}
