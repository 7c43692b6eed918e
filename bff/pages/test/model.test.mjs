// Breaks everything at random, and looks whether the promises of docs/clients.md hold:
// SEED=7 ROUNDS=1 node --test model.test.mjs
import test from 'node:test';
import assert from 'node:assert/strict';
import { Device, Tab, World, dice, number } from './world.mjs';

const first = Number(process.env.SEED ?? 1);
const rounds = Number(process.env.ROUNDS ?? 30);

test(`model, from seed ${first} on`, async (t) => {
  for (let seed = first; seed < first + rounds; seed++) {
    const round = new Round(seed);
    try {
      await round.run();
    } catch (e) {
      t.diagnostic(`SEED=${seed} ROUNDS=1: ${round.log.slice(-12).join(' | ')}`);
      throw new Error(`seed ${seed}: ${e.message}`, { cause: e });
    }
  }
});

const codes = [1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008, 1009, 1011, 1012, 1013, 4401, 4999];

class Round {
  log = [];
  reports = []; // by number: {at, tab, since}
  tabs = [];
  forward = false; // whether a clock was set forward by hours, which looks like sleep

  constructor(seed) {
    this.dice = dice(seed);
    this.world = new World(seed + 1e7);
    this.devices = [new Device(this.world, 'a'), new Device(this.world, 'b')];
    if (this.one(0.2)) this.devices[0].skew = -this.world.now + 60_000; // it begins in 1970
    else if (this.one(0.5)) this.devices[0].skew = this.pick([-18_000_000, -119_000, -60_000, -8000, 4000, 3_600_000]);
    this.world.edge.silent = this.one(0.15);
    for (const device of this.devices) [device.counts, device.rough] = [this.one(0.3), this.one(0.5) ? 3 : 0];
    this.nameless = this.devices.filter(() => this.one(0.2)); // they say neither device nor session
    this.slow = this.one(0.3);
    this.queue = this.one(0.2) ? this.pick([30, 130]) : 500;
  }

  one(chance) { return this.dice() < chance; }
  pick(list) { return list[Math.floor(this.dice() * list.length)]; }
  between(a, b) { return a + Math.floor(this.dice() * (b - a)); }

  async run() {
    for (const device of this.devices) this.open(device);
    const steps = this.between(20, 120);
    for (let i = 0; i < steps; i++) await this.step();
    await this.calm();
    this.check();
  }

  open(device) {
    const tab = new Tab(device, { token: () => this.token(), queue: this.queue });
    tab.since = new Map(); // object: when the device lost sight of it, null for not
    tab.client.addEventListener('close', () => this.lost(tab));
    tab.client.addEventListener('unauthorized', () => this.chaos && this.pick([() => tab.left ?? tab.client.connect(), () => this.leave(tab), () => {}])());
    tab.client.addEventListener('answered', ({ detail: { heartbeat, result } }) => this.answered(tab, heartbeat, result));
    for (const name of ['open', 'close', 'answered', 'conflict', 'push', 'resync', 'day']) tab.client.addEventListener(name, () => this.inside(tab));
    this.tabs.push(tab);
    tab.client.connect();
    return tab;
  }

  /** The page does something while it is told of something else. */
  inside(tab) {
    if (this.chaos && this.one(0.05)) this.pick([() => this.leave(tab), () => this.report(1, tab), () => this.seen(tab), () => tab.left ?? tab.client.connect()])();
  }

  token() {
    if (this.chaos && this.one(0.05)) return new Promise(() => {});
    return this.chaos && this.one(0.05) ? '' : 'good';
  }

  lost(tab) {
    for (const [object, since] of tab.since) if (since === null) tab.since.set(object, this.world.now);
  }

  answered(tab, beat, { record, status }) {
    const own = record && record.session === beat.session && record.device === beat.device;
    if (record && (own || status === 'conflict' || (status === 'stored' && beat.if_match))) tab.since.set(record.object.id, null);
  }

  get live() { return this.tabs.filter((tab) => tab.alive); }

  async step() {
    this.chaos = this.one(0.7);
    this.world.edge.fault = (message) => this.fault(message);
    const [name, act] = this.pick(this.acts);
    this.log.push(name);
    await act();
    await this.world.pass(this.pick([0, 10, 300, 3000, 20_000, 100_000]));
  }

  acts = [
    ['report', () => this.report(this.between(1, 6))],
    ['report', () => this.report(this.between(1, 6))],
    ['report', () => this.report(this.between(1, 6))],
    ['report', () => this.report(this.between(10, 150))],
    ['other', () => this.other()],
    ['removed', () => this.world.edge.remove(`1/${this.pick(['x', 'y'])}`)],
    ['stalled', () => this.stalled()],
    ['seen', () => this.seen()],
    ['met', () => this.met()],
    ['close', () => this.pick(this.live).socket?.end(this.pick(codes), this.one(0.5) ? '; retry_after_ms=3000' : '')],
    ['offline', () => this.offline()],
    ['hang', () => this.pick(this.live).socket?.hang()],
    ['mute', () => void (this.pick(this.devices).mute = this.pick(['', 'up', 'all']))],
    ['latency', () => void (this.pick(this.devices).latency = this.pick([20, 200, 900]))],
    ['watching', () => void (this.world.edge.watching = this.pick([0, 0, 3000, 60_000]))],
    ['full', () => this.full()],
    ['damage', () => this.pick(this.devices).storage.setItem(this.pick(['k', 'k#gone']), this.pick(['[1]', 'no JSON', '{"of":"k"}', 'null']))],
    ['silence', () => void (this.pick(this.devices).up = false)],
    ['back', () => this.back()],
    ['blocked', () => this.blocked()],
    ['rate', () => void (this.pick(this.devices).rate = this.slow ? this.pick([1, 4, Infinity]) : Infinity)],
    ['reload', () => this.reload()],
    ['crash', () => this.crash()],
    ['tab', () => void (this.live.length < 4 && this.open(this.pick(this.devices)))],
    ['bfcache', () => this.bfcache()],
    ['leave', () => this.leave()],
    ['sleep', () => this.sleep()],
    ['clock', () => this.clock()],
    ['token', () => void (this.one(0.5) ? this.world.edge.refused.add('good') : this.world.edge.refused.clear())],
  ];

  fault({ heartbeats }) {
    const poison = heartbeats.find((beat) => beat.meta.poison)?.meta.poison;
    if (poison) return poison === 'error' ? { error: { code: 'invalid', detail: 'poison' } } : { close: [Number(poison), 'poison'] };
    if (!this.chaos || this.one(0.6)) return null;
    return this.pick([
      { close: [this.pick(codes), ''] },
      { close: [this.pick(codes), ''], after: true },
      { silent: true }, { lost: true }, { half: true },
      { error: { code: 'rate_limited', detail: '', retry_after_ms: this.between(1, 60_000) } },
      { error: { code: 'unavailable', detail: '', retry_after_ms: 1000 } },
      { error: { code: 'internal', detail: '' } },
      { page: this.pick([200, 400, 403, 404, 415, 502, 503]), headers: { 'Retry-After': this.pick(['5', 'Sun, 22 Nov 2026 00:00:00 GMT', undefined]) } },
      { unavailable: () => this.one(0.3) },
    ]);
  }

  report(n, tab = this.pick(this.live), id = this.pick(['x', 'y'])) {
    tab.session ??= `s${this.tabs.length}${this.between(0, 1e9)}`;
    if (this.one(0.1)) tab.session = `s${this.between(0, 1e9)}`;
    const named = !this.nameless.includes(tab.device);
    for (let i = 0; i < n; i++) {
      const poison = this.one(0.01) ? this.pick(['1007', '1009', 'error']) : undefined;
      const beat = {
        object: { id, type: 1 }, ...(named && { session: tab.session, device: tab.device.name }), kind: this.pick(['progress', 'progress', 'pause', 'seek']),
        position_ms: this.reports.length * 1000, duration_ms: 1e9, event_time: new Date(this.world.now + tab.device.skew).toISOString(),
        meta: { n: String(this.reports.length), title: 'half an emoji \ud83d', pad: 'x'.repeat(this.pick([0, 300, 1200])), ...(poison && { poison }) },
      };
      this.reports.push({ at: this.world.now, tab, poison, since: tab.since.get(id), saw: tab.saw?.get(id) });
      tab.client.report(beat);
      this.world.now += this.between(1, 8);
    }
  }

  other(id = this.pick(['x', 'y'])) {
    this.world.edge.put({ object: { id, type: 1 }, session: 'other', device: 'other', kind: 'stop', position_ms: 5 });
    this.world.now += 7;
  }

  /** Another device was there, and the user sees it, perhaps before the answer to an earlier report. Then the connection ends. */
  async met() {
    const tab = this.pick(this.live);
    const id = this.pick(['x', 'y']);
    this.report(1, tab, id);
    await this.world.pass(this.pick([0, 30, 300]));
    this.other(id);
    this.seen(tab, id);
    await this.world.pass(this.pick([0, 30]));
    tab.socket?.end(1006, '');
    this.report(1, tab, id);
  }

  seen(tab = this.pick(this.live), id = this.pick(['x', 'y'])) {
    const record = this.world.edge.records.get(`1/${id}`);
    if (!record) return;
    tab.client.seen(record);
    (tab.saw ??= new Map()).set(record.object.id, record.at);
    tab.since.set(record.object.id, tab.client.waiting >= 0 && tab.socket?.readyState === 1 ? null : this.world.now);
  }

  offline() {
    const device = this.pick(this.devices);
    device.up = false;
    for (const tab of this.live) if (tab.device === device) tab.fire('offline');
  }

  back() {
    for (const device of this.devices) {
      device.up = device.sockets = true;
      device.mute = '';
      for (const tab of this.live) if (tab.device === device) tab.fire('online');
    }
  }

  /** Messages that are sent from now on arrive later, in their order. */
  stalled() {
    const device = this.pick(this.devices);
    device.stall(this.between(1000, 9500));
  }

  blocked() {
    const device = this.pick(this.devices);
    device.sockets = false;
    for (const tab of this.live) if (tab.device === device) tab.socket?.end(1006, '');
  }

  reload() {
    const tab = this.pick(this.live);
    tab.fire('pagehide');
    tab.kill();
    this.open(tab.device);
  }

  crash() {
    const tab = this.pick(this.live);
    tab.kill();
    if (!this.live.some((other) => other.device === tab.device)) this.open(tab.device);
  }

  async bfcache() {
    const tab = this.pick(this.live);
    tab.fire('pagehide');
    this.lost(tab);
    await this.world.pass(this.between(0, 100_000));
    tab.returned = true;
    tab.fire('pageshow', { persisted: true });
  }

  /** The page wants no connection, until it wants one again. */
  leave(tab = this.pick(this.live)) {
    if (tab.left === undefined) {
      tab.returned = true; // as it will
      tab.client.leave();
      tab.left = tab.sockets.length;
      this.world.after(1000, () => tab.left === undefined || this.lost(tab));
    } else this.enter(tab);
  }

  enter(tab) {
    assert.equal(tab.sockets.length, tab.left, 'a page that had left connected');
    tab.left = undefined;
    this.lost(tab);
    tab.client.connect();
  }

  /** There is no room for a while. */
  async full() {
    const { storage } = this.pick(this.devices);
    storage.most = storage.size + this.between(0, 3000);
    this.report(this.between(1, 20));
    await this.world.pass(this.between(0, 60_000));
    storage.most = Infinity;
    await this.world.pass(16_000); // until each page has kept what it has
  }

  /** A clock that is set back before a page has looked cannot be told from less sleep. */
  async sleep() {
    await this.pick(this.devices).sleep(this.between(1000, 10_000_000));
    await this.world.pass(1000);
  }

  async clock() {
    const device = this.pick(this.devices);
    const jump = this.pick([-3_600_000, -60_000, 3_600_000, -device.skew]);
    if (jump > 0 && jump < 90 * 86_400_000) this.forward = true;
    device.skew += jump;
    this.set = true;
    await this.world.pass(16_000); // until each page has looked at it
  }

  /** Everything works again, if slowly: all must be told, within what the bytes take. */
  async calm() {
    this.chaos = false;
    const { edge } = this.world;
    edge.refused.clear();
    for (const tab of this.live) if (tab.left !== undefined) this.enter(tab);
    for (const device of this.devices) {
      device.up = true;
      device.mute = this.pick(['', '', '', '', '', 'up', 'all']);
      device.sockets = this.one(0.8);
      device.rate = this.pick([1, 4, Infinity]);
    }
    const open = () => this.live.reduce((sum, tab) => sum + tab.client.waiting, 0);
    const stored = () => this.devices.flatMap((device) => device.storage.entries().filter(([name]) => name.startsWith('k#')));
    const bytes = this.devices.reduce((sum, device) => sum + device.storage.entries().reduce((n, [, text]) => n + text.length, 0), 0);
    const began = this.world.now;
    await this.world.pass(600_000 + 6 * bytes, () => open() === 0 && stored().length === 0);
    assert.equal(open(), 0, `${open()} of ${this.reports.length} wait after ${(this.world.now - began) / 1000} s`);
    assert.equal(stored().length, 0, 'nobody took over what a page left');
  }

  check() {
    const told = new Set();
    for (const tab of this.tabs) {
      const here = new Set();
      for (const { heartbeat, result } of tab.told) this.answer(tab, number(heartbeat), result, here, told);
    }
    this.reports.forEach((_, n) => assert.ok(told.has(n), `report ${n} was lost`));
    for (const change of this.world.edge.stored) this.change(change);
    for (const one of this.world.edge.stale) if (!one.corrected) this.stale(one);
  }

  /**
   * Nothing is stale because of an earlier report of its page, or of a removal before it. The reports
   * of a page that leaves before the first answer are corrected by when they come, as at an edge that does not tell the time.
   * Reports to which a page that came back has given no times may have been dated by another tab meanwhile.
   */
  stale({ beat, tab, before, removed }) {
    const report = this.reports[number(beat)];
    const earlier = before?.corrected ? undefined : this.reports[number(before)];
    const own = earlier && earlier.tab === tab && report.tab === tab && earlier.at < report.at && !tab.returned;
    assert.ok(!own, `report ${number(beat)} of ${report.at} is stale because of report ${number(before)} of ${earlier?.at}`);
    const back = 1000; // an answer's way, at most
    assert.ok(before || this.forward || report.at <= removed + back, `report ${number(beat)} of ${report.at} is stale because of a removal at ${removed}`);
  }

  answer(tab, n, { status, record }, here, told) {
    const { edge } = this.world;
    const returned = tab.returned || this.set; // another tab may have taken over, and left again
    const again = here.has(n) && !returned && this.reports[n].tab === tab;
    assert.ok(!again, `report ${n} was told twice in a page`);
    here.add(n);
    told.add(n);
    const itself = status === 'conflict' && this.reports[number(record)]?.tab.device === tab.device;
    assert.ok(!itself, `report ${n} is in conflict with report ${number(record)} of its own device`);
    assert.ok(status !== 'conflict' || !(record.at <= this.reports[n].saw), `report ${n} is in conflict with a record that was seen before`);
    if (status === 'invalid') assert.ok(edge.blamed.has(n), `report ${n} is invalid, and nobody said so`);
    if (status === 'dropped' || status === 'superseded') assert.ok(this.reports.length > this.queue, `report ${n} was ${status} with a queue of ${this.queue}`);
  }

  change({ beat, at, before, tab }) {
    const report = this.reports[number(beat)];
    assert.ok(!beat.meta.title.includes('\ud83d'), 'half a pair of surrogates');
    if (!this.forward && tab === report.tab) this.inTime(number(beat), at, before && this.reports[number(before)]);
    if (before?.device !== 'other' || !report.since) return;
    const unseen = before.at > report.since && before.at < report.at;
    assert.ok(!unseen, `report ${number(beat)} overwrote what happened elsewhere ${report.at - before.at} ms before`);
  }
  /** A page that lives corrects what its device's clock did; nobody does for one that is gone. */
  inTime(n, at, before) {
    const report = this.reports[n];
    const most = this.world.edge.silent ? 220_000 : 100_000; // it does not correct a clock that is two minutes behind
    assert.ok(Math.abs(at - report.at) < most, `report ${n} is ${at - report.at} ms off`);
    if (before?.tab === report.tab) assert.ok(before.at < report.at + 100_000, `report ${n} went back`);
  }
}
