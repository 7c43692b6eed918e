// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Api } from './api.js';
import { bars, calendar, png } from './chart.js';
import { el, find, save, write } from './dom.js';
import { lasting, title } from './format.js';
import { counted, locale, t } from './language.js';
import { Problems } from './problems.js';
import { signIn, user } from './session.js';

/** @typedef {{watched_ms: number, plays: number, viewings: number}} Sum */
/** @typedef {Sum & {day: string}} Day */

const token = await signIn();
const api = new Api(token);
const problems = new Problems();
const period = find('#period', HTMLSelectElement);
const [print, keep] = ['#print', '#save'].map((name) => find(name, HTMLButtonElement));
const numbers = find('#numbers', HTMLElement);
const narrow = matchMedia('(max-width: 44rem)');
const years = 5;
const dayMs = 86_400_000;

/** A format of dates that are at midnight UTC. @param {Intl.DateTimeFormatOptions} options */
const dates = (options) => {
  const format = new Intl.DateTimeFormat(locale, { ...options, timeZone: 'UTC' });
  return (/** @type {Date} */ date) => format.format(date);
};
const longDate = dates({ day: 'numeric', month: 'long', year: 'numeric', weekday: 'long' });
const shortDate = dates({ day: 'numeric', month: 'short', year: 'numeric' });

/** What is shown. @type {{days: Day[], facts: [string, string][], label: string} | null} */
let shown = null;
let asked = 0;

/** The first and the last day of the period, at midnight UTC. */
function bounds() {
  const now = new Date();
  const year = Number(period.value);
  if (year) return [Date.UTC(year, 0, 1), Date.UTC(year, 11, 31)];
  const today = Date.UTC(now.getFullYear(), now.getMonth(), now.getDate());
  return [Date.UTC(now.getFullYear() - 1, now.getMonth(), now.getDate() + 1), today];
}

/** A local midnight as the API wants it. @param {number} day midnight UTC @param {number} [ms] after it */
function local(day, ms = 0) {
  const date = new Date(day);
  return new Date(new Date(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()).getTime() + ms).toISOString();
}

async function read() {
  const mine = ++asked;
  write(find('#note', HTMLElement), t('Reading…'));
  await problems.attempt(t('The statistics could not be read'), read, async () => {
    const [from, to] = bounds();
    const range = { since: local(from), until: local(to + dayMs, -1), zone: Intl.DateTimeFormat().resolvedOptions().timeZone };
    const [byDay, byObject] = await Promise.all([api.get('/v1/stats', range), api.get('/v1/stats', { ...range, by: 'object', limit: 10 })]);
    const objects = byObject.buckets.map((/** @type {any} */ { object }) => object);
    const records = objects.length > 0 ? await api.lookup(objects) : [];
    if (mine !== asked) return; // another period was chosen meanwhile
    show(byDay, byObject.buckets, records);
  });
  if (mine === asked && problems.has(t('The statistics could not be read'))) write(find('#note', HTMLElement), '');
}

/** @param {any} byDay @param {any[]} most @param {any[]} records */
function show({ buckets, total, undated, streak }, most, records) {
  const known = new Map(buckets.map((/** @type {Day} */ one) => [one.day, one]));
  const [from, to] = bounds();
  const days = Array.from({ length: Math.round((to - from) / dayMs) + 1 }, (_, i) => {
    const day = new Date(from + i * dayMs).toISOString().slice(0, 10);
    return known.get(day) ?? { day, watched_ms: 0, plays: 0, viewings: 0 };
  });
  const active = days.filter(({ watched_ms, viewings }) => watched_ms + viewings > 0).length;
  const run = (/** @type {number} */ n) => counted(n, '{n} day', '{n} days');
  const facts = /** @type {[string, string][]} */ ([
    [t('Time watched'), lasting(total.watched_ms)],
    [t('On a day with a viewing'), lasting(total.watched_ms / Math.max(1, active))],
    [t('Completed'), total.plays.toLocaleString(locale)],
    [t('Viewings'), total.viewings.toLocaleString(locale)],
    [t('Days with a viewing'), active.toLocaleString(locale)],
    [t('Longest streak'), run(streak.longest_days)],
    [t('Current streak'), run(streak.current_days)],
  ]);
  find('#facts', HTMLElement).replaceChildren(...facts.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
  find('#most', HTMLElement).replaceChildren(...most.map((one, i) => el('li', {}, el('b', {}, title(records[i] ?? one)), el('span', {}, said(one)))));
  find('#days', HTMLElement).replaceChildren(...days.filter(some).reverse().map((one) => el('tr', {},
    el('th', { scope: 'row' }, shortDate(new Date(one.day))), ...[lasting(one.watched_ms), one.plays.toLocaleString(locale), one.viewings.toLocaleString(locale)].map((text) => el('td', {}, text)))));
  const empty = total.plays + total.viewings + total.watched_ms === 0;
  shown = { days, facts, label: period.selectedOptions[0].text };
  numbers.hidden = empty;
  print.disabled = keep.disabled = empty;
  const lost = undated.watched_ms > 0 ? t('{time} are of no known day.', { time: lasting(undated.watched_ms) }) : '';
  write(find('#note', HTMLElement), empty ? t('Nothing in this time.') : lost);
  draw();
}

/** @param {Sum} sum */
const some = ({ watched_ms, plays, viewings }) => watched_ms + plays + viewings > 0;

/** A sum in words. @param {Sum} sum */
function said({ watched_ms, plays, viewings }) {
  return [
    ...(watched_ms > 0 ? [lasting(watched_ms)] : []),
    counted(viewings, '{n} viewing', '{n} viewings'),
    ...(plays > 0 ? [counted(plays, 'completed once', 'completed {n} times')] : []),
  ].join(' · ');
}

/** Draws the charts: of the time, or of the viewings where no player reports a time. */
function draw() {
  if (!shown) return;
  const { days } = shown;
  const weeks = narrow.matches ? 27 : 54;
  const timed = days.some(({ watched_ms }) => watched_ms > 0);
  const value = (/** @type {Sum} */ sum) => (timed ? Math.max(sum.watched_ms, Math.min(sum.viewings, 1)) : sum.viewings); // a day with a viewing is never empty
  const short = (/** @type {Sum} */ sum) => (timed ? lasting(sum.watched_ms, true) : sum.viewings.toLocaleString(locale));
  const marks = days.map((one) => ({ date: new Date(one.day), value: value(one), text: `${longDate(new Date(one.day))}: ${said(one)}` }));
  const months = new Map();
  for (const one of days) {
    const name = one.day.slice(0, 7);
    const sum = months.get(name) ?? { watched_ms: 0, plays: 0, viewings: 0 };
    months.set(name, { watched_ms: sum.watched_ms + one.watched_ms, plays: sum.plays + one.plays, viewings: sum.viewings + one.viewings });
  }
  const [shortMonth, longMonth] = [dates({ month: 'short' }), dates({ month: 'long', year: 'numeric' })];
  const columns = [...months].map(([name, sum]) => ({
    name: shortMonth(new Date(name)), short: short(sum), value: value(sum), text: `${longMonth(new Date(name))}: ${said(sum)}`,
  }));
  const best = (/** @type {{value: number, text: string}[]} */ all) => all.reduce((a, b) => (b.value > a.value ? b : a)).text;
  const label = (/** @type {{value: number, text: string}[]} */ all) => t('The most: {most}. The table has all days.', { most: best(all) });
  find('#calendar', HTMLElement).replaceChildren(calendar(label(marks), marks, weeks, dates));
  find('#months', HTMLElement).replaceChildren(bars(label(columns), columns, weeks));
}

for (let i = 0; i < years; i++) {
  const year = String(new Date().getFullYear() - i);
  period.append(el('option', { value: year }, year));
}
period.onchange = read;
narrow.addEventListener('change', draw);
print.onclick = () => window.print();
keep.onclick = async () => {
  if (!shown) return;
  const { facts, label } = shown;
  const lines = [`${user(token)} · ${label}`, ...facts.map(([name, value]) => `${name}: ${value}`)];
  save(await png(lines, /** @type {SVGElement[]} */ ([...document.querySelectorAll('.chart')])), `statistics-${period.value || new Date().toISOString().slice(0, 10)}.png`);
};
find('#user', HTMLElement).textContent = user(token);
read();
