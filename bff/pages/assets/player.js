// @ts-check
import { Api, Problem, home, said } from './api.js';
import { Aside } from './aside.js';
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

const sample = 600_000; // milliseconds that a clip of unknown length goes on behind where the user was
let asked = /** @type {any} */ (null); // the record of which the user is asked whether to go on there
let answer = { of: '', here: true }; // the last one to that, and the time of the record that it was about
let stopped = 0; // seconds, where the user was when the next viewing here begins
let counted = ''; // the viewing whose beginning was looked at
let beginning = 0; // milliseconds, where to go once the clip is loaded
let known = 0; // when the user was where this page began, in Unix milliseconds
let before = 0; // what is older takes no place away from where the user is asked to go, in Unix milliseconds
let from = ''; // the time of the record from which it began, and from nothing that was not stored yet
let place = ''; // where the user is, as far as this page knows: by its last report, or where it began
let told = ''; // the place that the note about another device names
const token = await signIn();
const uid = user(token);
const api = new Api(token);
const problems = new Problems();
const aside = new Aside(kept, `playhead.aside.${uid}`);
const client = new Playhead({ url: home(), token: () => token, storage: kept, key: `playhead.outbox.${uid}` });
const media = find('#clip', HTMLAudioElement);
client.addEventListener('away', () => {
  if (reporter.session) stopped = media.currentTime; // the reporter, which hears of it next, ends the viewing
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

/** Begins where the user stopped. As long as nobody knows where that is, there is no play. */
async function begin() {
  const point = { record: /** @type {any} */ (null) };
  const read = await problems.attempt(t('Where you stopped could not be read'), begin, async () => {
    point.record = await api.point(object, query.get('seen'));
  });
  if (!read) return;
  if (point.record) client.seen(point.record);
  for (const beat of aside.take(object)) client.report(beat); // of a page before, whose user has not said where to go on
  const record = client.newest(point.record, object);
  from = record === point.record ? record?.event_time : '';
  load(record);
}

/** @param {any} record of the user, if there is one */
function load(record) {
  about.meta = { ...about.meta, ...record?.meta }; // the record knows better than the address
  about.duration_ms = record?.duration_ms ?? 0;
  about.excerpt = Boolean(record) && !record.duration_ms; // the clip ends at some length, which is not the object's
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

/** How long a clip of an object is: as the object, or some time longer than what is known of it. @param {any} record */
function seconds(record) {
  return Math.ceil((record?.duration_ms || (record?.furthest_ms ?? 0) + sample) / 1000);
}

/** @param {any} record */
function clip(record) {
  return `assets/clip.wav?seconds=${seconds(record)}`;
}

/** The beginning of a viewing elsewhere than where the user stopped is a jump, which counts at once. A page that is loaded again goes on where the user is by then. */
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

/** Goes to where another device was, in a clip that is long enough. @param {any} record */
function join(record) {
  client.seen(record);
  const playing = !media.paused;
  if (!(seconds(record) <= media.duration)) { // or it is not known yet
    media.src = clip(record);
    if (playing) media.addEventListener('loadedmetadata', () => media.play(), { once: true });
  }
  place = placeOf(record);
  go(record.position_ms);
}

/** Takes note of how long the object is, as another device knows it. @param {any} record */
function learn(record) {
  about.duration_ms = Math.max(about.duration_ms, record.duration_ms ?? 0);
  about.excerpt ||= !record.duration_ms && record.furthest_ms > media.duration * 1000;
}

/** @param {string} place @param {string} text */
function offer(place, text) {
  find(place, HTMLElement).hidden = text === '';
  write(find(`${place}-text`, HTMLElement), text);
}

/** Offers to follow another device that plays the same object, unless this one has gone on from there. @param {any} record */
function elsewhere(record) {
  learn(record);
  if (asked) {
    if (Date.parse(record.event_time) >= Date.parse(asked.event_time)) conflict(record);
    return;
  }
  if (!(Date.parse(record.event_time) > known)) return;
  const { device: who } = record; // '' where the user has marked it, or the device has no name
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
  find('#follow', HTMLButtonElement).hidden = Boolean(record.completed); // to finish here as well would be one more play
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

/** Whether a report is of the first seconds of its session, which take no place away. @param {any} heartbeat */
function early({ kind, event_time, started_at }) {
  return kind !== 'seek' && kind !== 'finish' && Date.parse(event_time) - Date.parse(started_at) < 10_000;
}

/** Whether a record says where this page knows the user to be. At 0 that may be chance, as after a mark. @param {any} record */
function unmoved(record) {
  return record.position_ms > 0 && placeOf(record) === place;
}

/** Another device was here while this one slept, and may go on while the user is asked. @param {any} record */
function conflict(record) {
  learn(record);
  if (!asked && record.event_time === answer.of) return sent(answer.here); // reports of a viewing before, which were sent apart
  const begunThere = !asked && !reporter.session && record.event_time === from;
  if (begunThere && aside.of(object).every((beat) => Date.parse(beat.event_time) < Date.parse(record.event_time))) return aside.take(object).forEach(count);
  if (!asked || !record.early) before = record.early ? 0 : Date.parse(record.event_time); // when somebody went on before an early one is not known
  asked = record;
  client.seen(record); // by the answer to the question
  stopped = (record.resume_ms ?? 0) / 1000;
  reporter.hold((/** @type {any} */ beat) => aside.hold(client.dated(beat)));
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

/** Ends the question. What was not stored counts, unless it would take the place of where the user goes to. @param {boolean} here whether where it is now is what counts */
function decided(here) {
  known = Math.max(known, Date.parse(asked.event_time));
  answer = { of: asked.event_time, here };
  asked = null;
  offer('#conflict', '');
  reporter.release(here, sent(here).at(-1));
}

/** Reports what was not stored, as far as it counts, and returns all of it. @param {boolean} here as "decided" has it */
function sent(here) {
  const beats = aside.take(object);
  for (const beat of beats) if (here || Date.parse(beat.event_time) < before) count(beat);
  return beats;
}

/** Reports what was not stored, in the knowledge of what stands. @param {any} heartbeat */
function count({ if_match: _, ...heartbeat }) {
  client.report(heartbeat);
}

/** Where the user was elsewhere is deleted: there is nowhere else to go to. */
function forgotten() {
  offer('#resumed', '');
  offer('#elsewhere', '');
  if (asked) decided(!media.paused); // else nothing is said of a place that is gone
}

/** Names this window, so that the others know it: the same over reloads. */
function deviceName() {
  const before = kept.getItem('playhead.device');
  const browser = /Firefox|Edg|Chrome|Safari/.exec(navigator.userAgent)?.[0] ?? 'Browser';
  const made = before ?? `${browser} window ${crypto.getRandomValues(new Uint16Array(1))[0].toString(36)}`;
  kept.setItem('playhead.device', made);
  return made;
}

/**
 * Takes another name where another window has this one, which keeps it: a window that was opened by a window, or is its duplicate,
 * begins with all that the other one keeps.
 */
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
    ask(); // this one may be taken, too
  });
  ask();
}

/** @template T @param {string} type @param {(detail: any) => T} act */
function on(type, act) {
  client.addEventListener(type, (e) => act(/** @type {CustomEvent} */ (e).detail));
}

/** @param {{heartbeat: any, result: any}} answer */
function answered({ heartbeat, result }) {
  if (key(heartbeat) !== key({ object })) return; // what another page of this window has left to send
  if (result.status === 'superseded') return; // a later one tells
  const safe = ['stored', 'unchanged', 'stale'].includes(result.status);
  const { record } = result;
  if (safe && record?.device === about.device) place = placeOf(record);
  else if (safe && !early(heartbeat) && (!record || record.early)) place = placeOf({ ...heartbeat, completed: heartbeat.kind === 'finish' }); // else another device was later
  const text = safe ? `${clock(heartbeat.position_ms)} (${kindName(heartbeat.kind)})` : t('{why}: nothing was kept', { why: heartbeat.incognito ? t('on request') : refusal(result.status) });
  write(find('#safe', HTMLElement), text);
}

/** @param {{items: any[], removed: any[]}} push */
function pushed({ items, removed }) {
  if (removed.some((gone) => key({ object: gone }) === key({ object }))) forgotten();
  const here = items.find((record) => key(record) === key({ object }));
  if (here && here.device !== about.device) elsewhere(here);
}

/** Asks what was missed. */
async function missed() {
  const record = await api.point(object).catch(() => undefined); // the next report finds out, too
  if (record === null) forgotten();
  if (record && record.device !== about.device) elsewhere(record);
}

on('answered', answered);
on('conflict', ({ heartbeats, record }) => {
  aside.add(heartbeats);
  if (key(record) === key({ object })) conflict(record); // else the user is asked where that is opened
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
  problems.forget((name, _, what) => what === t('The clip cannot be played'));
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
  write(find('#watched', HTMLElement), clock(reporter.watched));
}, 500);
draw(find('#stage', HTMLCanvasElement), media);
transport(media);
follow(client);
client.connect();
await begin();
