// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Api, Problem, home, said } from './api.js';
import { Conflicts } from './conflicts.js';
import { find, write } from './dom.js';
import { ago, clock, kindName, played, refusal, title } from './format.js';
import { kept } from './kept.js';
import { t } from './language.js';
import { key } from './outbox.js';
import { Playhead } from './playhead.js';
import { Problems } from './problems.js';
import { Reporter } from './reporter.js';
import { refuse, signIn, user } from './session.js';
import { draw } from './stage.js';
import { follow } from './status.js';
import { enable, transport } from './transport.js';

const query = new URLSearchParams(location.search);
const object = { id: query.get('id') ?? '100', type: Number(query.get('type') ?? 1) };
const about = { object, device: deviceName(), duration_ms: 0, excerpt: false, meta: { title: query.get('title') ?? (query.has('id') ? object.id : t('Sample clip')) } };

const sample = 600_000; // milliseconds of clip behind the furthest position, if the length is unknown
let asked = /** @type {any} */ (null); // record of the open question
let answer = { of: '', here: true }; // the last answer, and its record's time
let stopped = 0; // seconds, the user's position before the next viewing
let counted = ''; // the viewing whose start was handled
let beginning = 0; // milliseconds, the position once the clip is loaded
let known = 0; // event time of the record where this page began, Unix ms
let before = 0; // earlier reports do not move the position in question, Unix ms
let from = ''; // event time of the stored record where this page began
let place = ''; // this page's position: its last report, or its start
let told = ''; // the position in the note about another device
const token = await signIn();
const uid = user(token);
const api = new Api(token);
const problems = new Problems();
const conflicts = new Conflicts(kept, `playhead.conflicts.${uid}`);
const client = new Playhead({ url: home(), token: () => token, storage: kept, key: `playhead.outbox.${uid}` });
const media = find('#clip', HTMLAudioElement);
client.addEventListener('away', () => {
  if (reporter.session) stopped = media.currentTime; // the reporter ends the viewing next
});
const reporter = new Reporter(client, media, about);

nameApart();
showTitle();
write(find('#user', HTMLElement), uid);
write(find('#device', HTMLElement), about.device);

function showTitle() {
  const name = title(about);
  write(find('#title', HTMLElement), name);
  document.title = `${name} · Playhead`;
}

/** Starts at the user's position. Playing is disabled until it is known. */
async function begin() {
  const point = { record: /** @type {any} */ (null) };
  const read = await problems.attempt(t('Where you stopped could not be read'), begin, async () => {
    point.record = await api.point(object, query.get('seen'));
  });
  if (!read) return;
  if (point.record) client.seen(point.record);
  for (const beat of conflicts.take(object)) client.report(beat); // from an earlier page with an open question
  const record = client.newest(point.record, object);
  from = record === point.record ? record?.event_time : '';
  load(record);
}

/** @param {any} record null for none */
function load(record) {
  about.meta = { ...about.meta, ...record?.meta }; // the record is newer than the address
  about.duration_ms = record?.duration_ms ?? 0;
  about.excerpt = Boolean(record) && !record.duration_ms; // the clip's length is not the object's
  showTitle();
  const back = Math.min(Number(query.get('at')) || 0, seconds(record) * 1000);
  const resumes = !back && record?.resume_ms >= 1000;
  beginning = 0;
  media.src = clip(record);
  if (back || resumes) go(back || record.resume_ms);
  stopped = (record?.resume_ms ?? 0) / 1000;
  known = Date.parse(record?.event_time ?? 0);
  place = record ? placeOf(record) : '';
  if (!resumes) return;
  const values = { at: clock(record.resume_ms), ago: ago(played(record)) };
  offer('#resumed', record.early ? t('You stopped at {at}.', values) : t('You stopped at {at}, {ago}.', values));
}

/** Length of the clip: the object's, or longer than its known part. @param {any} record */
function seconds(record) {
  return Math.ceil((record?.duration_ms || (record?.furthest_ms ?? 0) + sample) / 1000);
}

/** @param {any} record */
function clip(record) {
  return `assets/clip.wav?seconds=${seconds(record)}`;
}

/** Seeks if a viewing starts away from the user's position: a jump counts at once. */
function begun() {
  if (reporter.session === counted) return;
  counted = reporter.session;
  const at = loaded() ? media.currentTime : beginning / 1000;
  if (Math.abs(at - stopped) > 1) go(at * 1000);
  query.delete('at');
  history.replaceState(history.state, '', `?${query}`);
}

/** @param {number} ms */
function go(ms) {
  if (loaded()) media.currentTime = ms / 1000;
  else beginning = ms;
}

function loaded() {
  return media.readyState !== HTMLMediaElement.HAVE_NOTHING;
}

/** Seeks to another device's position, in a longer clip if necessary. @param {any} record */
function join(record) {
  client.seen(record);
  const playing = !media.paused;
  if (!(seconds(record) <= media.duration)) { // or NaN
    media.src = clip(record);
    if (playing) media.addEventListener('loadedmetadata', () => media.play(), { once: true });
  }
  place = placeOf(record);
  go(record.position_ms);
}

/** Takes the object's length from another device's record. @param {any} record */
function learn(record) {
  about.duration_ms = Math.max(about.duration_ms, record.duration_ms ?? 0);
  about.excerpt ||= !record.duration_ms && record.furthest_ms > media.duration * 1000;
}

/** @param {string} place @param {string} text */
function offer(place, text) {
  find(place, HTMLElement).hidden = text === '';
  write(find(`${place}-text`, HTMLElement), text);
}

/** Offers to follow another device, unless this one has continued since. @param {any} record */
function elsewhere(record) {
  learn(record);
  if (asked) {
    if (Date.parse(record.event_time) >= Date.parse(asked.event_time)) conflict(record);
    return;
  }
  if (!(Date.parse(record.event_time) > known)) return;
  const { device: who } = record; // '' for a mark or an unnamed device
  const playing = record.state === 'playing';
  if (record.early && unmoved(record)) {
    find('#follow', HTMLButtonElement).hidden = true;
    const text = who ? t('{who} is playing this.', { who }) : t('This is playing elsewhere.');
    return offer('#elsewhere', playing ? text : '');
  }
  if (record.early && playing && told === placeOf(record) && !find('#elsewhere', HTMLElement).hidden) return;
  told = placeOf(record);
  const values = { who, at: clock(record.position_ms) };
  offer('#resumed', '');
  find('#follow', HTMLButtonElement).hidden = Boolean(record.completed); // following would add a play
  if (record.completed) offer('#elsewhere', t('This was completed elsewhere.'));
  else if (record.early) offer('#elsewhere', t('This was left at {at} elsewhere.', values));
  else if (who) offer('#elsewhere', playing ? t('{who} is playing this at {at}.', values) : t('{who} left this at {at}.', values));
  else offer('#elsewhere', playing ? t('This is playing elsewhere, at {at}.', values) : t('This was left at {at} elsewhere.', values));
  find('#follow', HTMLButtonElement).onclick = () => {
    offer('#elsewhere', '');
    join(record);
  };
}

/** @param {any} record */
function placeOf({ position_ms, completed }) {
  return `${position_ms} ${Boolean(completed)}`;
}

/** Whether a report is from the first seconds of its session, which do not move the position. @param {any} heartbeat */
function early({ kind, event_time, started_at }) {
  return kind !== 'seek' && kind !== 'finish' && Date.parse(event_time) - Date.parse(started_at) < 10_000;
}

/** Whether a record has this page's position. At 0 that may be a coincidence, as after a mark. @param {any} record */
function unmoved(record) {
  return record.position_ms > 0 && placeOf(record) === place;
}

/** Asks where to continue: another device continued unnoticed, and may do so again. @param {any} record */
function conflict(record) {
  learn(record);
  if (!asked && record.event_time === answer.of) return sent(answer.here); // from an earlier viewing, sent separately
  const begunThere = !asked && !reporter.session && record.event_time === from;
  if (begunThere && conflicts.of(object).every((beat) => Date.parse(beat.event_time) < Date.parse(record.event_time))) return conflicts.take(object).forEach(count);
  if (!asked || !record.early) before = record.early ? 0 : Date.parse(record.event_time); // unknown for an early record
  asked = record;
  client.seen(record);
  stopped = (record.resume_ms ?? 0) / 1000;
  reporter.hold((/** @type {any} */ beat) => conflicts.hold(client.dated(beat)));
  offer('#resumed', '');
  offer('#elsewhere', '');
  const decide = (/** @type {boolean} */ here) => {
    decided(here);
    if (!here) join(record);
  };
  const { device: who } = record;
  const values = { at: clock(record.position_ms), who, ago: ago(played(record)) };
  if (record.early) offer('#conflict', record.completed ? t('This was completed elsewhere.') : t('This was left at {at} elsewhere.', values));
  else if (record.completed) offer('#conflict', t('This was completed elsewhere, {ago}.', values));
  else offer('#conflict', who ? t('You went on to {at} on {who}, {ago}.', values) : t('This was left at {at} elsewhere, {ago}.', values));
  find('#jump', HTMLButtonElement).hidden = Boolean(record.completed);
  find('#jump', HTMLButtonElement).onclick = () => decide(false);
  find('#stay', HTMLButtonElement).onclick = () => decide(true);
}

/** Closes the question. Refused reports count unless they would move the chosen position. @param {boolean} here whether to stay here */
function decided(here) {
  known = Math.max(known, Date.parse(asked.event_time));
  answer = { of: asked.event_time, here };
  asked = null;
  offer('#conflict', '');
  reporter.release(here, sent(here).at(-1));
}

/** Reports the refused reports that count, and returns all. @param {boolean} here whether to stay here */
function sent(here) {
  const beats = conflicts.take(object);
  for (const beat of beats) if (here || Date.parse(beat.event_time) < before) count(beat);
  return beats;
}

/** Reports a refused report again, without a guard. @param {any} heartbeat */
function count({ if_match: _, ...heartbeat }) {
  client.report(heartbeat);
}

/** Handles a deleted record: no other position is left. */
function forgotten() {
  offer('#resumed', '');
  offer('#elsewhere', '');
  if (asked) decided(!media.paused); // a paused player must not report a deleted position
}

/** The name of this window, kept over reloads. */
function deviceName() {
  const before = kept.getItem('playhead.device');
  const browser = /Firefox|Edg|Chrome|Safari/.exec(navigator.userAgent)?.[0] ?? 'Browser';
  const made = before ?? `${browser} window ${crypto.getRandomValues(new Uint16Array(1))[0].toString(36)}`;
  kept.setItem('playhead.device', made);
  return made;
}

/** Takes a new name if another window has this one: an opened or duplicated window starts with a copy of the storage. */
function nameApart() {
  const windows = new BroadcastChannel('playhead.device');
  const me = crypto.getRandomValues(new Uint32Array(1))[0];
  const ask = () => windows.postMessage({ asks: me, name: about.device });
  windows.addEventListener('message', ({ data: { asks, answers, name } }) => {
    if (name !== about.device) return;
    if (asks) windows.postMessage({ answers: asks, name });
    if (answers !== me) return;
    kept.removeItem('playhead.device');
    about.device = deviceName();
    write(find('#device', HTMLElement), about.device);
    ask(); // it may be taken too
  });
  ask();
}

/** @template T @param {string} type @param {(detail: any) => T} act */
function on(type, act) {
  client.addEventListener(type, (e) => act(/** @type {CustomEvent} */ (e).detail));
}

/** @param {{heartbeat: any, result: any}} answer */
function answered({ heartbeat, result }) {
  if (key(heartbeat) !== key({ object })) return; // queued by another page of this window
  if (result.status === 'superseded') return; // a later one follows
  const safe = ['stored', 'unchanged', 'stale'].includes(result.status);
  const { record } = result;
  if (safe && record?.device === about.device) place = placeOf(record);
  else if (safe && !early(heartbeat) && (!record || record.early)) place = placeOf({ ...heartbeat, completed: heartbeat.kind === 'finish' }); // else another device is later
  const text = safe ? `${clock(heartbeat.position_ms)} (${kindName(heartbeat.kind)})` : t('{why}: nothing was kept', { why: heartbeat.incognito ? t('on request') : refusal(result.status) });
  write(find('#safe', HTMLElement), text);
}

/** @param {{items: any[], removed: any[]}} push */
function pushed({ items, removed }) {
  if (removed.some((gone) => key({ object: gone }) === key({ object }))) forgotten();
  const here = items.find((record) => key(record) === key({ object }));
  if (here && here.device !== about.device) elsewhere(here);
}

/** Reads the missed changes. */
async function missed() {
  const record = await api.point(object).catch(() => undefined); // the next report detects it
  if (record === null) forgotten();
  if (record && record.device !== about.device) elsewhere(record);
}

on('answered', answered);
on('conflict', ({ heartbeats, record }) => {
  conflicts.add(heartbeats);
  if (key(record) === key({ object })) conflict(record); // other objects have their own player
});
on('push', pushed);
on('resync', missed);
on('unauthorized', () => {
  media.pause();
  client.leave();
  return refuse(t('The token was refused, or has expired.'));
});
find('#over', HTMLButtonElement).onclick = () => {
  offer('#resumed', '');
  go(0);
};
find('#incognito', HTMLInputElement).onchange = (e) => (reporter.incognito = /** @type {HTMLInputElement} */ (e.target).checked);
media.addEventListener('loadedmetadata', () => {
  problems.forget(t('The clip cannot be played'));
  if (beginning) go(beginning);
  enable();
});
media.addEventListener('play', begun);
media.addEventListener('ended', () => {
  stopped = 0;
  offer('#resumed', '');
});
media.addEventListener('error', () => problems.attempt(t('The clip cannot be played'), begin, async () => {
  throw new Problem(0, said(media.error?.message, t('it cannot be read')));
}));
setInterval(() => {
  write(find('#waiting', HTMLElement), String(client.waiting));
  write(find('#watched', HTMLElement), clock(reporter.watchedMs));
}, 500);
draw(find('#stage', HTMLCanvasElement), media);
transport(media);
follow(client);
client.connect();
await begin();
