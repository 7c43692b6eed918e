// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { Api, home } from './api.js';
import { below } from './browser.js';
import { el, find, write } from './dom.js';
import { clock } from './format.js';
import { kept } from './kept.js';
import { Playhead } from './playhead.js';
import { Problems } from './problems.js';
import { refuse, signIn, user } from './session.js';

/** @typedef {{at: number, began: number, metrics: Record<string, number>, inside?: any, faults?: Record<string, boolean>}} Totals */

const token = await signIn();
const api = new Api(token);
const problems = new Problems();
const path = find('#path', HTMLElement);
const boxes = /** @type {HTMLElement[]} */ ([...path.querySelectorAll('.box')]);
const names = boxes.map((box) => box.id);
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const step = 450; // milliseconds from box to box
const pause = 10_000; // milliseconds between announcements of numbers
const looks = 3; // updates after which a waiting record is late: one tick of the hold and the job's work

/** @type {Totals | null} */
let last = null;
/** Start of viewing by the server's clock. */
let since = 0;
/** The last counted totals. @type {Totals | null} */
let counted = null;
/** Growth of each metric since the start of viewing, across reconnects. @type {Record<string, number>} */
const sums = {};
/** Waiting records at the latest updates. @type {number[]} */
const waited = [];
let recovering = false;
/** Time of the last announcement, steady clock. */
let saidAt = 0;
/** The viewer's records at the last update, by object. @type {Map<string, any> | null} */
let mine = null;

/** @param {string} id @param {string} text */
function put(id, text) {
  write(find(`#${id}`, HTMLElement), text);
}

/** @param {number} n */
function count(n) {
  return n >= 10_000 ? `${Math.round(n / 1000)}k` : Math.round(n).toLocaleString('en');
}

/** @param {number} n @param {string} noun */
function several(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

/** @param {Totals} now */
function totals(now) {
  if (last && now.at <= last.at) return;
  add(now);
  show(now, last ?? now);
  if (last) move(now, last);
  last = now;
}

/**
 * Adds the growth since the last update. A process started since then counts from 0, an older one from its first totals.
 * @param {Totals} now
 */
function add(now) {
  since ||= now.at;
  const same = counted?.began === now.began;
  for (const [name, n] of Object.entries(now.metrics)) {
    const before = same ? counted?.metrics[name] ?? 0 : now.began > since ? 0 : n;
    sums[name] = (sums[name] ?? 0) + Math.max(0, n - before);
  }
  counted = now;
}

/** Growth of a metric since the start of viewing. @param {string} name */
const sum = (name) => sums[`playhead_${name}`] ?? 0;

/** Heartbeats received by the edge. @param {Totals} t */
const reported = (t) => (t.metrics.playhead_ws_heartbeats_total ?? 0) + (t.metrics.playhead_api_heartbeats_total ?? 0);

/** Growth of a metric. @param {Totals} now @param {Totals} before @param {string} name */
const grown = (now, before, name) => Math.max(0, (now.metrics[`playhead_${name}`] ?? 0) - (before.metrics[`playhead_${name}`] ?? 0));

/** @param {Totals} now @param {Totals} before */
function show(now, before) {
  const seconds = Math.max(1, now.at - before.at) / 1000;
  put('players', count(now.metrics.playhead_ws_connections ?? 0));
  put('edge-rate', count((reported(now) - reported(before)) / seconds));
  const batches = sum('uplink_batches_total');
  put('batch', batches > 0 ? `${(sum('uplink_batched_heartbeats_total') / batches).toFixed(1)} go on in one batch.` : 'Sends them on in batches.');
  for (const box of boxes.slice(2)) box.classList.toggle('elsewhere', !now.inside);
  if (now.inside) {
    put('service-rate', count(grown(now, before, 'write_heartbeats_total') / seconds));
    put('job-rate', count(grown(now, before, 'job_puts_total') / seconds));
    const [beats, puts] = [sum('write_heartbeats_total'), sum('job_puts_total')];
    put('puts', count(puts));
    put('saved', `Since you look: ${several(beats, 'heartbeat')}, ${several(puts, 'write')}.`);
    inside(now.inside);
  }
  faults(now.faults ?? {});
  news(now);
}

/** @param {any} now */
function inside(now) {
  waited.push(now.waiting);
  if (waited.length > looks) waited.shift();
  put('marks', count(now.marks));
  put('oldest', now.marks > 0 ? `The oldest is ${clock(now.oldest_mark_ms)} old.` : '');
  put('held', count(now.running + now.due));
  put('queued', count(now.queued));
  put('longest', `, ${clock(now.hold_ms)} at most.${now.due > 0 ? ` Due now: ${count(now.due)}.` : ''}`);
  holds(now.hold_left_ms ?? [], now.hold_ms);
  find('#cache', HTMLElement).classList.toggle('piling', (late() ?? 0) > 0);
}

/** Draws the remaining time of each hold. @param {number[]} left @param {number} longest */
function holds(left, longest) {
  const chart = find('#holds', HTMLElement);
  while (chart.children.length > left.length) chart.lastElementChild?.remove();
  while (chart.children.length < left.length) chart.append(el('i'));
  left.forEach((ms, i) => {
    /** @type {HTMLElement} */ (chart.children[i]).style.height = `${(100 * ms) / longest}%`;
  });
  chart.setAttribute('aria-label', left.length > 0 ? `Countdowns; the next hold is over in ${clock(left[0])} at the latest` : 'No countdowns');
}

/** Number of records waiting for the archive at all latest updates; null before enough updates. */
function late() {
  const least = Math.min(...waited);
  return waited.length < looks && least > 0 ? null : least;
}

/** @param {string[]} parts */
const list = (parts) => new Intl.ListFormat('en-GB').format(parts.map((part) => `the ${part}`)).replace('the', 'The');

/** @param {Record<string, boolean>} stopped */
function faults(stopped) {
  for (const [part, is] of Object.entries(stopped)) {
    const box = find(`#${part}`, HTMLElement);
    const button = find('.fault', HTMLButtonElement, box);
    box.classList.toggle('stopped', is);
    if (button.hidden) requestAnimationFrame(wire); // the box grows
    button.hidden = false;
    write(button, `${is ? 'Start' : 'Stop'} the ${part}`);
    button.onclick = () => stop(part, !is);
  }
  for (const [name, line] of wires) line.classList.toggle('broken', Boolean(stopped[name] || stopped[names[names.indexOf(name) + 1]]));
}

/** @param {string} part @param {boolean} stopped */
function stop(part, stopped) {
  return problems.attempt(`The ${part} did not obey`, () => stop(part, stopped), () => api.put(`/flow/faults/${part}`, { stopped }));
}

/** Describes the state in a sentence. @param {Totals} now */
function news({ inside, faults = {} }) {
  const stopped = Object.keys(faults).filter((part) => faults[part]);
  const n = inside ? late() : 0;
  let [mood, text] = ['calm', 'All is well: every report is safe, and every viewing that ended is in the archive.'];
  if (!inside) text = 'This is the edge alone. The rest of the way is in other processes, whose metrics tell of it.';
  if (stopped.length > 0) {
    recovering = true;
    const lost = n === null ? 'Nothing is lost: what waits is being counted' : `Nothing is lost: ${several(n, 'record')} wait${n === 1 ? 's' : ''} for the archive`;
    [mood, text] = ['stopped', `${list(stopped)} ${stopped.length > 1 ? 'are' : 'is'} stopped. ${lost}, and players get their answers as before.`];
  } else if (n === null) {
    text = 'Counting what waits…';
  } else if (n > 0) {
    [mood, text] = ['late', `${recovering ? 'It is back' : 'Catching up'}: ${several(n, 'record')} still wait${n === 1 ? 's' : ''} for the archive.`];
  } else if (recovering && waited.length === looks) {
    text = 'Everything that waited is in the archive: nothing was lost.';
  }
  find('#news', HTMLElement).dataset.late = String(n ?? '');
  tell(mood, text, mood + stopped + (n === null));
}

/** @param {string} mood @param {string} text @param {string} what announced at once when it changes */
function tell(mood, text, what) {
  const line = find('#news', HTMLElement);
  line.dataset.mood = mood;
  write(line, text);
  say(what, text);
}

/** Announces news at once, and new numbers from time to time. @param {string} what @param {string} text */
function say(what, text) {
  const said = find('#said', HTMLElement);
  if (said.dataset.of === what && performance.now() - saidAt < pause) return;
  if (said.textContent !== text) saidAt = performance.now();
  said.dataset.of = what;
  write(said, text);
}

// The picture.

/** The line leaving each box. @type {Map<string, SVGPathElement>} */
const wires = new Map();

/** Draws the lines between the boxes. */
function wire() {
  const svg = find('#wires', SVGElement);
  const home = path.getBoundingClientRect();
  const rects = boxes.map((box) => box.getBoundingClientRect());
  rects.slice(1).forEach((to, i) => {
    const name = names[i];
    const line = wires.get(name) ?? svg.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'path'));
    wires.set(name, line);
    line.setAttribute('d', between(rects[i], to, home));
  });
}

/** @param {DOMRect} a @param {DOMRect} b @param {DOMRect} home */
function between(a, b, home) {
  const [ax, bx] = [a, b].map((r) => r.left + r.width / 2 - home.left);
  if (b.top < a.bottom) return `M${a.right - home.left} ${a.top + 46 - home.top}H${b.left - home.left}`;
  const [from, to] = [a.bottom - home.top, b.top - home.top];
  return `M${ax} ${from}V${(from + to) / 2}H${bx}V${to}`;
}

/** Sends dots for the traffic since the last update. @param {Totals} now @param {Totals} before */
function move(now, before) {
  const came = reported(now) - reported(before);
  const announced = grown(now, before, 'aggregate_announced_keys_total');
  send(came, 'player', now.inside ? 'cache' : 'service');
  if (!now.inside || !before.inside) return;
  send(grown(now, before, 'write_heartbeats_total') - came, 'service', 'cache'); // over gRPC, bypassing the edge
  const held = (/** @type {any} */ { running, due }) => running + due;
  send(held(now.inside) - held(before.inside) + announced, 'cache', 'hold');
  send(announced, 'hold', 'queue');
  send(grown(now, before, 'job_puts_total'), 'queue', 'archive');
}

/** @param {number} n @param {string} from @param {string} to */
function send(n, from, to) {
  for (let i = 0; i < Math.min(n, 12); i++) dot(from, to, (i + Math.random()) * (1000 / Math.min(n, 12)));
}

/**
 * Moves a dot. The viewer's own dots highlight the boxes.
 * @param {string} from @param {string} to @param {number} delay in milliseconds @param {boolean} [own]
 */
function dot(from, to, delay, own = false) {
  const way = names.slice(names.indexOf(from), names.indexOf(to));
  if (own) [...way, to].forEach((name, i) => setTimeout(() => light(name), delay + i * step));
  if (calm.matches || document.hidden || path.querySelectorAll('.dot').length > 150) return;
  way.forEach((name, i) => {
    const node = el('span', { className: own ? 'dot own' : 'dot', hidden: true, 'aria-hidden': 'true' });
    node.style.offsetPath = `path("${wires.get(name)?.getAttribute('d')}")`;
    path.append(node);
    setTimeout(() => {
      node.hidden = false;
      node.animate([{ offsetDistance: '0%' }, { offsetDistance: '100%' }], { duration: step, easing: 'ease-in-out' }).onfinish = () => node.remove();
    }, delay + i * step);
  });
}

calm.addEventListener('change', () => path.querySelectorAll('.dot').forEach((node) => node.remove())); // also moving ones

/** @param {string} name */
function light(name) {
  const box = find(`#${name}`, HTMLElement);
  box.classList.add('lit');
  setTimeout(() => box.classList.remove('lit'), step + 300);
}

// The viewer's own records.

/** @param {any[]} records */
function viewer(records) {
  const now = new Map(records.map((record) => [record.id, record]));
  if (mine) for (const record of records) travel(record, mine.get(record.id));
  mine = now;
  find('#records', HTMLElement).replaceChildren(...records.map(row));
}

/** Highlights a record's path since the last update. @param {any} now @param {any} before */
function travel(now, before) {
  const later = now.cache && now.cache.at !== before?.cache?.at;
  let delay = 0;
  if (later) {
    dot('player', 'cache', 0, true);
    delay = 3 * step;
  }
  if (now.held && !before?.held) dot('cache', 'hold', delay, true);
  const archived = now.archive && now.archive.at !== before?.archive?.at;
  if (archived) dot('hold', 'archive', delay, true);
  else if (!now.held && before?.held && now.marked) dot('hold', 'queue', delay, true);
}

/** @param {any} record */
function row(record) {
  const fact = (/** @type {string} */ name, /** @type {string} */ text, className = '') =>
    el('div', {}, el('dt', {}, name), el('dd', { className }, text));
  const same = !record.marked && record.archive?.at === record.cache?.at;
  return el('li', { 'data-id': record.id, 'data-marked': String(record.marked) }, el('h3', {}, record.title || record.id.replace(/_\d+$/, '')), el('dl', {},
    fact('Cache', place(record.cache), record.marked ? 'differs' : ''), fact('On its way', underWay(record)),
    fact('Archive', record.archive_away ? 'does not answer' : place(record.archive) + (same ? ' ✓' : ''), same ? 'same' : '')));
}

/** @param {any} place */
function place(place) {
  return place ? `${place.state} at ${clock(place.position_ms)}` : 'nothing yet';
}

/** @param {any} record */
function underWay({ held, marked, hold_left_ms: left }) {
  if (held) return left > 0 ? `held, ${clock(left)} left` : 'waits for the queue';
  return marked ? 'waits for the job' : 'nothing';
}

const walk = { object: { id: 'walk', type: 1 }, device: 'This page', duration_ms: 600_000, meta: { title: 'A walk through Playhead' } };
const beat = 2000; // milliseconds between two reports
const client = new Playhead({ url: home(), token: () => token, storage: kept, key: `playhead.outbox.flow.${user(token)}` });
/** @type {{session: string, began: number, played: number, at: number, timer: number} | null} */
let playing = null;
/** Send times of reports, steady clock. @type {Map<string, number>} */
const sent = new Map();

/** The key of a report. @param {any} heartbeat */
const nameOf = ({ session, kind, position_ms: at }) => `${session} ${kind} ${at}`;

/** Reports as a player does. @param {string} kind */
function report(kind) {
  if (!playing) return;
  const now = performance.now();
  playing.played = Math.min(playing.played + Math.min(now - playing.at, 2 * beat), walk.duration_ms); // a sleeping device plays nothing
  playing.at = now;
  const played = Math.round(playing.played);
  const heartbeat = { ...walk, kind, session: playing.session, position_ms: played, watched_ms: played,
    event_time: new Date().toISOString(), started_at: new Date(playing.began).toISOString() };
  sent.set(nameOf(heartbeat), now);
  client.report(heartbeat);
}

/** Reports progress, up to the end. */
function playOn() {
  report('progress');
  if (playing && playing.played >= walk.duration_ms) play(false, 'finish');
}

/** @param {boolean} on @param {string} [end] the kind of the last report */
function play(on, end = 'stop') {
  write(find('#play', HTMLElement), on ? 'Stop playing' : 'Play something');
  if (on) {
    client.connect();
    const now = Date.now();
    playing = { session: `walk-${now}`, began: now, played: 0, at: performance.now(), timer: setInterval(playOn, beat) };
    report('start');
  } else if (playing) {
    report(end);
    clearInterval(playing.timer);
    playing = null;
  }
}

client.addEventListener('answered', (e) => {
  const { heartbeat, result } = /** @type {CustomEvent} */ (e).detail;
  const at = sent.get(nameOf(heartbeat)); // unknown after a reload
  sent.delete(nameOf(heartbeat));
  const took = at === undefined ? '' : ` after ${Math.round(performance.now() - at)} ms`;
  if (last && !last.inside) dot('player', 'service', 0, true); // an edge alone has no records
  put('safe', ['stored', 'unchanged'].includes(result.status) ? `Your last one was safe${took}.` : `Your last one was not stored: ${result.status}.`);
});
client.addEventListener('conflict', (e) => client.seen(/** @type {CustomEvent} */ (e).detail.record));
client.addEventListener('unauthorized', refused);

// The stream, open while the page is visible.

let watching = new AbortController();
let signedIn = true;

/** Reads one stream while the page is visible and the token valid. */
async function watch() {
  watching.abort();
  if (document.hidden || !signedIn) return;
  const { signal } = (watching = new AbortController());
  while (!signal.aborted) {
    await listen(signal).catch(() => {}); // the connection broke
    if (watching.signal === signal) connection(false); // else another stream is open
    await new Promise((resolve) => setTimeout(resolve, 1000 + Math.random() * 2000));
  }
}

/** Stops; a new token reloads the page. */
function refused() {
  signedIn = false;
  watching.abort();
  play(false);
  client.leave();
  return refuse('The token was refused, or has expired.');
}

/** @param {AbortSignal} signal */
async function listen(signal) {
  const answer = await fetch(below(home(), '/flow/stream'), { headers: { Authorization: `Bearer ${token}` }, signal });
  if (answer.status === 401) return refused();
  if (answer.status === 503) put('news', 'Too many look on at the moment; this page tries again.');
  if (!answer.ok || !answer.body) return;
  connection(true);
  last = null; // changes were missed
  mine = null;
  waited.length = 0;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split('\n\n');
    text = events.pop() ?? '';
    for (const event of events) hear(event);
  }
}

/** @param {string} event */
function hear(event) {
  const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? [];
  if (name === 'totals') totals(JSON.parse(data));
  if (name === 'viewer') viewer(JSON.parse(data));
}

/** @param {boolean} open */
function connection(open) {
  const status = find('#connection', HTMLElement);
  status.dataset.state = open ? 'open' : 'closed';
  write(status, open ? 'Live' : 'Reconnecting…');
  if (open || find('#news', HTMLElement).dataset.late === undefined) return; // nothing shown yet
  tell('late', 'The server does not answer. What is shown is what it said last.', 'away');
}

put('user', user(token));
find('#play', HTMLButtonElement).onclick = () => play(!playing);
addEventListener('pagehide', () => play(false));
document.addEventListener('visibilitychange', watch);
new ResizeObserver(wire).observe(path);
wire();
await watch();
