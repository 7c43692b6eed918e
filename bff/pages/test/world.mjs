// A world for the client: time that passes when it is told to, an edge, links that are slow or
// break, devices whose clocks are wrong, and pages that come and go.
import { Playhead } from '../assets/playhead.js';

globalThis.CustomEvent ??= class extends Event { // Node 18
  constructor(type, { detail } = {}) {
    super(type);
    this.detail = detail;
  }
};

/** @param {number} seed @returns {() => number} from 0 to 1, the same for the same seed */
export function dice(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let n = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    n = (n + Math.imul(n ^ (n >>> 7), 61 | n)) ^ n;
    return ((n ^ (n >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class World {
  now = Date.UTC(2026, 10, 22); // the true time, Unix milliseconds
  edge = new Edge(this);
  #due = [];

  constructor(seed = 1) {
    this.random = dice(seed);
  }

  after(ms, act) {
    const entry = { at: this.now + Math.max(0, Math.ceil(ms)), act };
    const place = this.#due.findIndex((other) => other.at > entry.at);
    this.#due.splice(place < 0 ? this.#due.length : place, 0, entry);
    return () => (entry.act = () => {});
  }

  /** Lets so much time pass, or less if something holds. */
  async pass(ms, until = () => false) {
    const end = this.now + ms;
    await turn();
    while (!until() && this.#due.length > 0 && this.#due[0].at <= end) {
      const { at, act } = this.#due.shift();
      this.now = Math.max(this.now, at);
      act();
      await turn();
    }
    if (!until()) this.now = end;
  }
}

const turn = () => new Promise(setImmediate); // all promises that can go on have done so

/** A storage that lists its keys, as the browsers' do. */
export class Storage {
  most = Infinity; // characters
  size = 0;
  #texts = new Map();
  get length() { return this.#texts.size; }
  key(i) { return [...this.#texts.keys()][i] ?? null; }
  getItem(name) { return this.#texts.get(name) ?? null; }
  setItem(name, text) {
    const size = this.size - this.#takes(name) + name.length + text.length;
    if (size > this.most) throw new Error('full');
    this.#texts.set(name, String(text));
    this.size = size;
  }
  removeItem(name) {
    this.size -= this.#takes(name);
    this.#texts.delete(name);
  }
  entries() { return [...this.#texts]; }
  #takes(name) { return this.#texts.has(name) ? name.length + this.#texts.get(name).length : 0; }
}

/** State that the pages of one device share. */
export class Device {
  storage = new Storage();
  rate = Infinity; // bytes per millisecond, upwards
  latency = 20; // milliseconds
  up = true; // whether anything arrives
  sockets = true; // whether WebSockets do
  mute = ''; // what WebSockets that open do not carry: 'up' or 'all'
  forbidden = false; // whether the page must not make any
  skew = 0; // of the device's clock
  rough = 0; // milliseconds that may pass between two looks at its clocks, at most
  counts = false; // whether its other clock, which only goes forward, counts through sleep
  slept = 0; // milliseconds that this one has missed
  asleep = false;
  #free = 0; // when the link has sent what it has

  constructor(world, name) {
    this.world = world;
    this.name = name;
  }

  /** Calls back when so many bytes have arrived, if they do. */
  carry(bytes, act) {
    const { world } = this;
    this.#free = Math.max(world.now, this.#free) + bytes / this.rate;
    world.after(this.#free - world.now + this.latency, () => this.up && act());
  }

  /** Nothing arrives for so long, and then all of it. */
  stall(ms) {
    this.#free = Math.max(this.world.now, this.#free) + ms;
  }

  /** Loses all messages on their way. */
  clear() {
    this.#free = 0;
  }

  async sleep(ms) {
    this.asleep = true;
    await this.world.pass(ms);
    this.asleep = false;
    if (!this.counts) this.slept += ms;
  }
}

/** A page with a client. */
export class Tab {
  alive = true;
  told = []; // {heartbeat, result}
  events = []; // names
  visible = true;
  resets = 0; // connections
  #handlers = [];
  #sockets = [];

  constructor(device, config = {}) {
    this.device = device;
    this.world = device.world;
    this.start = this.world.now - device.slept;
    const { world } = this;
    this.client = new Playhead({
      url: 'http://edge.example', token: () => 'good', storage: device.storage, key: 'k', page: this.#page(), ...config,
    });
    for (const name of ['open', 'close', 'conflict', 'push', 'resync', 'day', 'unauthorized', 'answered']) {
      this.client.addEventListener(name, ({ detail }) => {
        this.events.push({ name, detail, at: world.now });
        if (name === 'answered') this.told.push(detail);
      });
    }
  }

  count(name) { return this.events.filter((event) => event.name === name).length; }
  statuses() { return this.told.map(({ result }) => result.status); }

  /** An event of the page. */
  fire(type, e = {}) {
    for (const handler of this.#handlers) if (handler.type === type) handler.act(e);
  }

  /** The page is gone without a word. */
  kill() {
    this.alive = false;
    for (const socket of this.#sockets) socket.readyState = 3;
  }

  get socket() { return this.#sockets.at(-1); }
  get sockets() { return this.#sockets; }

  #page() {
    const { world, device } = this;
    const tab = this;
    return {
      now: () => world.now + device.skew + Math.floor(world.random() * (device.rough + 1)),
      elapsed: () => world.now - device.slept - tab.start,
      random: world.random,
      after: (ms, act) => {
        let stop;
        const wait = (left) => (stop = world.after(left, () => (device.asleep ? wait(1000) : tab.alive && act())));
        wait(ms);
        return () => stop();
      },
      socket: (address, protocols) => {
        if (device.forbidden) throw new Error('forbidden');
        const socket = new Socket(tab, address, protocols);
        tab.#sockets.push(socket);
        return socket;
      },
      fetch: (address, request) => world.edge.fetch(tab, address, request),
      on: (type, act) => tab.#handlers.push({ type, act }),
      visible: () => tab.visible,
      zone: () => 'UTC',
    };
  }
}

class Socket {
  readyState = 0;
  sent = []; // messages
  unanswered = null;

  constructor(tab, address, protocols) {
    this.tab = tab;
    this.push = address.search === '?push=true';
    this.token = protocols[1].slice('bearer.'.length);
    const { device } = tab;
    device.carry(600, () => {
      if (!device.sockets || tab.world.edge.refuses(this.token)) this.end(1006, '');
      else this.#open();
    });
  }

  send(text) {
    const message = JSON.parse(text);
    this.sent.push(message);
    this.unanswered = message;
    const { device, world } = this.tab;
    device.carry(Buffer.byteLength(text), () => this.readyState === 1 && !device.mute && world.edge.hear(this, message, Buffer.byteLength(text)));
  }

  close() {
    if (this.readyState > 1) return;
    const { device, world } = this.tab;
    this.readyState = 2;
    world.after(device.latency, () => this.end(1005, ''));
  }

  /** The edge has ended it, and the network does not: no event tells. */
  hang() {
    if (this.readyState === 1) this.readyState = 2;
  }

  /** The edge says something. */
  say(text) {
    const { device, world } = this.tab;
    world.after(device.latency, () => {
      if (![1, 2].includes(this.readyState) || !this.tab.alive || !device.up || device.mute === 'all') return;
      if (!text.startsWith('{"push"')) this.unanswered = null;
      this.onmessage({ data: text });
    });
  }

  /** The edge, or the network, ends it. */
  end(code, reason) {
    if (this.readyState === 3 || !this.tab.alive) return;
    this.readyState = 3;
    const alone = this.unanswered?.heartbeats.length === 1;
    if (alone && (code === 1007 || code === 1009)) this.tab.world.edge.blamed.add(number(this.unanswered.heartbeats[0]));
    this.onclose?.({ code, reason });
  }

  #open() {
    if (this.readyState !== 0 || !this.tab.alive) return;
    this.readyState = 1;
    this.onopen();
    const { world } = this.tab;
    if (this.push) world.after(world.edge.watching, () => this.say('{"push":{"resync":true}}'));
  }
}

/** Names a report in tests. */
export const number = (beat) => Number(beat?.meta?.n);

/** The rules of the real one, as far as clients can tell, and whatever a test has it do. */
export class Edge {
  records = new Map(); // by object
  blamed = new Set(); // numbers of reports that were refused alone
  stored = []; // {beat, at, before, tab, corrected}: what changed a record
  stale = []; // {beat, before, removed, tab, corrected}: what did not
  #removed = new Map(); // when an object was
  posts = []; // messages without a WebSocket
  most = 128 << 10; // bytes of a message
  delay = 0; // milliseconds until a POST is answered
  watching = 0; // milliseconds from a connection until nothing can be missed on it
  refused = new Set(); // tokens
  silent = false; // about what time it is
  /** The fault of a message: a function of it, which may return what to do instead. */
  fault = () => null;
  /** The answer to GET /v1/changes, by the token. */
  changes = () => null;
  #etag = 0;

  constructor(world) {
    this.world = world;
  }

  refuses(token) { return this.refused.has(token); }

  hear(socket, message, bytes) {
    const wrong = this.fault(message, socket, bytes) ?? (bytes > this.most && { close: [1009, 'too large'] }) ?? null;
    if (wrong?.close && !wrong.after) return socket.end(...wrong.close);
    if (wrong?.silent || wrong?.page) return;
    if (wrong?.error) return this.#refuse(socket, message, wrong.error);
    const answer = JSON.stringify({ seq: message.seq, results: this.apply(message, socket.tab, wrong?.unavailable), now_ms: this.time() });
    if (wrong?.close) return socket.end(...wrong.close);
    if (!wrong?.lost) socket.say(wrong?.half ? answer.slice(0, answer.length / 2) : answer);
  }

  #refuse(socket, { seq, heartbeats }, error) {
    if (heartbeats.length === 1 && !error.retry_after_ms) this.blamed.add(number(heartbeats[0]));
    socket.say(JSON.stringify({ seq, error }));
  }

  /** @returns {Promise<Response>} */
  fetch(tab, address, { method = 'GET', body, headers, signal, keepalive }) {
    return new Promise((resolve, reject) => {
      signal?.addEventListener('abort', () => reject(new Error('aborted')));
      tab.device.carry(300 + Buffer.byteLength(body ?? ''), () => {
        if (!tab.alive && !keepalive) return;
        const answer = address.pathname === '/v1/changes' ? this.#changed(address, headers) : this.#answer(tab, method, body && JSON.parse(body), headers.Authorization.slice('Bearer '.length), Buffer.byteLength(body ?? ''));
        this.world.after(tab.device.latency + this.delay, () => (answer ? resolve(answer) : reject(new Error('no connection'))));
      });
    });
  }

  #changed({ searchParams }, { Authorization: token }) {
    if (this.refuses(token.slice('Bearer '.length))) return response(401, {});
    const told = this.changes(searchParams.get('since'));
    return told && response(200, told);
  }

  #answer(tab, method, body, token, bytes) {
    if (this.refuses(token)) return response(401, {});
    if (method === 'GET') return response(200, { items: [] });
    if (body.heartbeats.length > 0) this.posts.push(body);
    const wrong = this.fault(body, null, bytes);
    if (wrong?.page) return response(wrong.page, null, wrong.headers);
    if (wrong?.error?.retry_after_ms) return response(503, {}, { 'Retry-After': String(Math.ceil(wrong.error.retry_after_ms / 1000)) });
    if (wrong?.error || wrong?.close?.[0] === 1007 || wrong?.close?.[0] === 1009) {
      if (body.heartbeats.length === 1) this.blamed.add(number(body.heartbeats[0]));
      return response(422, { detail: 'wrong' });
    }
    if (wrong?.close || wrong?.silent || wrong?.lost || wrong?.half) return null;
    return response(200, { results: this.apply(body, tab, wrong?.unavailable), now_ms: this.time() });
  }

  time() { return this.silent ? undefined : this.world.now; }

  /** Stores a message, each object's reports in the order of their times. */
  apply({ sent_at, heartbeats }, tab, unavailable = () => false) {
    const skew = this.world.now - Date.parse(sent_at);
    const results = [];
    const granted = new Map();
    const events = heartbeats.map((beat, i) => ({ beat, i, at: Math.min(this.world.now, Date.parse(beat.event_time) + (skew < 0 || skew > 120_000 ? skew : 0)) }));
    for (const { beat, i, at } of [...events].sort((a, b) => a.at - b.at)) {
      const status = unavailable(beat) ? 'unavailable' : this.#fold(beat, at, granted, { tab, corrected: sent_at !== undefined });
      results[i] = { status };
    }
    heartbeats.forEach((beat, i) => (results[i].record = this.records.get(name(beat))));
    return results;
  }

  #fold(beat, at, granted, how) {
    const before = this.records.get(name(beat));
    const grant = `${viewing(beat)} ${beat.if_match}`;
    const repeats = before && viewing(before) === viewing(beat) && before.position_ms === beat.position_ms && before.device === (beat.device ?? '');
    const removed = this.#removed.get(name(beat));
    if (before?.at >= at || removed >= at) {
      if (repeats) granted.set(name(beat), grant);
      else this.stale.push({ beat, before, removed, ...how });
      return repeats ? 'unchanged' : 'stale';
    }
    const matches = before && (before.etag === beat.if_match || (repeats && beat.session));
    if (beat.if_match && granted.get(name(beat)) !== grant && !matches) return 'conflict';
    granted.set(name(beat), grant);
    this.put(beat, at).corrected = how.corrected;
    this.stored.push({ beat, at, before, ...how });
    return 'stored';
  }

  /** Somebody removes one. @param {string} object */
  remove(object) {
    this.records.delete(object);
    this.#removed.set(object, this.world.now);
    this.world.now += 7;
  }

  /** Somebody leaves a record. */
  put(beat, at = this.world.now) {
    const record = { ...beat, device: beat.device ?? '', event_time: new Date(at).toISOString(), at, etag: (++this.#etag).toString(16) };
    this.records.set(name(beat), record);
    return record;
  }
}

const name = ({ object }) => `${object.type}/${object.id}`;
const viewing = ({ session, device }) => session || `device/${device ?? ''}`;

function response(status, body, headers = {}) {
  return { status, ok: status === 200, headers: { get: (name) => headers[name] ?? null }, json: () => (body ? Promise.resolve(body) : Promise.reject(new Error('no JSON'))) };
}
