// Presses delete, undo and again at random, while answers are late, lost or refused, others play and delete, and the page is loaded again; and looks
// whether every entry is as the user wanted it last, or the page says that it is not: SEED=7 ROUNDS=1 node --test decisions.test.mjs
import test from 'node:test';
import assert from 'node:assert/strict';
import { dice } from './world.mjs';

globalThis.document = { documentElement: { translate: false } };
const { Decisions } = await import('../assets/decisions.js');
const { kept, recall } = await import('../assets/kept.js');
const { LoadedHistory } = await import('../assets/loaded.js');
const { Reader } = await import('../assets/reader.js');
const { key } = await import('../assets/outbox.js');

const first = Number(process.env.SEED ?? 1);
const rounds = Number(process.env.ROUNDS ?? 6000);
const place = 'playhead.undo.u';
const turn = () => new Promise(setImmediate);

/** The history of a user, where each entry has the numbers of its plays, and those who are told of it. */
class Edge {
  entries = new Map();
  pages = new Set();
  #time = 0;

  play(id, n) {
    const plays = this.entries.get(id)?.plays ?? [];
    this.#write({ id, plays: [...plays, n] });
  }

  /** Removes what is as it is known, where that is one, and whatever is there of several. @param {{object: any, etag: string}[]} records @returns {any[]} those that stay */
  removeKnown(records) {
    const others = records.filter(({ object, etag }) => records.length === 1 && this.entries.has(object.id) && this.entries.get(object.id).etag !== etag);
    this.remove(records.filter((record) => !others.includes(record)).map(({ object }) => object.id));
    return others;
  }

  remove(ids) {
    const there = ids.filter((id) => this.entries.delete(id));
    if (there.length > 0) this.#tell({ items: [], removed: there.map((id) => ({ id, type: 1 })) });
  }

  restore(lines) {
    for (const line of lines.split('\n').filter(Boolean)) {
      const { object: { id }, plays, event_time, played_at = event_time } = JSON.parse(line);
      const now = this.entries.get(id);
      const all = [...new Set([...now?.plays ?? [], ...plays])].sort((a, b) => a - b);
      if (now && all.length === now.plays.length) continue;
      this.#write({ id, plays: all, played_at: [played_at, now ? now.played_at ?? now.event_time : ''].sort().at(-1) });
    }
  }

  list() {
    return [...this.entries.values()].map((entry) => structuredClone(entry)).sort((a, b) => (a.event_time < b.event_time ? 1 : -1));
  }

  #write({ id, plays, played_at }) {
    const event_time = new Date(1e12 + ++this.#time).toISOString();
    const entry = { object: { id, type: 1 }, event_time, etag: event_time, plays, ...(played_at && { played_at }) };
    this.entries.set(id, entry);
    this.#tell({ items: [structuredClone(entry)], removed: [] });
  }

  #tell(push) {
    for (const page of this.pages) page.pushes?.push(push);
  }
}

/** A page as history.js makes it. Each of its requests, and each answer, waits until it is let go. */
class Page {
  requests = [];
  pushes = []; // that are under way to it; undefined while it is deaf
  loaded = new LoadedHistory();

  constructor(edge, guarded) {
    this.edge = edge;
    edge.pages.add(this);
    const problems = { has: () => false, attempt: async (_what, _again, act) => act().then(() => { this.unread = false; }, () => { this.unread = true; }) };
    const get = async () => ({ items: await this.ask('list', () => edge.list()), cursor: '', has_more: false });
    this.reader = new Reader({ get }, this.loaded, problems, () => this.settle());
    this.decisions = new Decisions(place, {
      few: guarded ? 8 : 0,
      lines: (records) => this.ask('lines', () => this.lines(records)).catch(() => ''),
      left: (records) => this.ask('left', () => records.filter((record) => edge.entries.get(record.object.id)?.event_time === record.event_time)),
      remove: (records) => this.ask(`remove ${records.map(({ object }) => object.id)}`, () => edge.removeKnown(records)),
      removed: (objects) => {
        this.loaded.change({ items: [], removed: objects });
        if (this.reader.busy) this.reader.refresh();
        this.settle();
      },
      restore: (lines) => this.ask('restore', () => edge.restore(lines)),
      reread: () => this.reader.refresh(),
      why: async (e) => e.message,
      listed: (record) => this.loaded.listed(record),
      lacks: (record) => this.loaded.lacks(record),
      changed() {},
    });
    this.loaded.hides = (name) => this.decisions.hides(name);
  }

  lines(records) {
    return records.map(({ object }) => this.edge.entries.get(object.id)).filter(Boolean).map((entry) => JSON.stringify(entry)).join('\n');
  }

  /** @param {string} what @param {() => any} act on the edge */
  ask(what, act) {
    return new Promise((resolve, reject) => {
      const request = {
        what,
        act: () => { // it arrives
          const answer = act();
          request.act = undefined;
          request.answer = () => resolve(answer);
        },
        lose: () => reject(new Error(`${what} lost`)),
      };
      this.requests.push(request);
    });
  }

  settle() {
    if (!this.reader.busy) this.decisions.settle();
  }

  hear() {
    const push = this.pushes?.shift();
    if (!push) return;
    this.decisions.changed(push);
    this.loaded.change(push);
    this.settle();
  }

  /** What the page does when the edge tells it that it has missed something. */
  resync() {
    this.pushes = [];
    this.decisions.reread();
    this.reader.refresh();
  }

  visible() {
    return this.loaded.visible();
  }

  failed() {
    return this.decisions.why('gone') + this.decisions.why('back');
  }
}

class Round {
  log = [];
  edge = new Edge();
  /** What the user decided last about an entry, and the plays that are to be there. */
  wanted = new Map();
  plays = 0;

  constructor(seed) {
    this.dice = dice(seed);
    this.calm = this.one(0.3); // nothing is lost
    this.guarded = this.one(0.7); // few are deleted, and only as they are known
  }

  one(chance) { return this.dice() < chance; }
  pick(list) { return list[Math.floor(this.dice() * list.length)]; }

  async run() {
    for (const name of ['', '.left']) kept.removeItem(place + name);
    for (const id of ['a', 'b', 'c']) this.play(id);
    await this.open(false);
    for (let i = 0; i < 60; i++) {
      this.step();
      await turn();
      this.look();
    }
    await this.end();
  }

  async open(left) {
    this.page = new Page(this.edge, this.guarded);
    this.page.decisions.resume(left);
    this.page.reader.refresh();
    await turn();
  }

  say(text) { this.log.push(text); }

  play(id) {
    const wanted = this.wanted.get(id);
    const deleting = this.page && (this.page.decisions.hides(`1/${id}`) || this.page.decisions.why('gone') || this.page.requests.some(({ what, act }) => act && what.startsWith('remove') && what.includes(id, 6)));
    const there = this.edge.entries.has(id);
    this.edge.play(id, ++this.plays);
    if (this.guarded && wanted?.gone && wanted.plays && there) { // it stays, unless the page was told of it
      wanted.stale = true;
      wanted.plays.push(this.plays);
    } else if (deleting || (wanted?.gone && there)) this.wanted.set(id, { free: true }); // it may be deleted with the rest, or not
    else if (wanted?.plays && !wanted.gone) wanted.plays.push(this.plays);
    else if (!wanted?.free) this.wanted.set(id, { plays: [this.plays], older: wanted?.plays });
  }

  step() {
    const { page } = this;
    this.pick([
      () => this.request(), () => this.request(), () => this.request(), () => this.request(), () => this.request(), () => this.request(),
      () => page.hear(), () => page.hear(), () => page.hear(),
      () => this.press(), () => this.press(),
      () => this.undo(), () => this.undo(),
      () => { this.say('the time is up'); page.decisions.send(); },
      () => { this.say('again'); page.decisions.again(); },
      () => this.others(),
      () => this.cut(),
      () => this.one(0.5) && this.reload(),
      () => this.one(0.2) && this.crash(),
      () => this.frozen && this.back(),
    ])();
  }

  request() {
    const { requests } = this.page;
    if (requests.length === 0) return;
    const request = this.pick(requests);
    const over = () => requests.splice(requests.indexOf(request), 1);
    if (!this.calm && this.one(0.15)) {
      this.say(`${request.what} is lost, ${request.act ? 'not ' : ''}done`);
      over();
      request.lose();
    } else if (request.act) {
      this.say(`${request.what} arrives`);
      request.act();
    } else {
      this.say(`${request.what} is answered`);
      over();
      request.answer();
    }
  }

  press() {
    const shown = this.page.visible().filter(() => this.one(0.5));
    if (shown.length === 0) return;
    this.say(`delete ${shown.map(key)}`);
    if (this.page.decisions.offered.length === 0) for (const wanted of this.wanted.values()) wanted.final = true; // what was deleted before
    for (const { object: { id }, event_time } of shown) {
      const stale = this.edge.entries.get(id)?.event_time !== event_time;
      const plays = this.edge.entries.get(id)?.plays; // none of what is gone already, which the page does not know yet
      const before = this.wanted.get(id);
      const older = this.page.decisions.offered.some((record) => record.object.id === id) ? before?.older ?? [] : [];
      this.wanted.set(id, { gone: true, stale, plays: before?.free ? undefined : plays && [...new Set([...before?.plays ?? [], ...plays, ...older])] });
    }
    this.page.decisions.delete(shown);
  }

  undo() {
    const { offered } = this.page.decisions;
    if (offered.length === 0) return;
    this.say(`undo ${offered.map(key)}`);
    for (const { object: { id } } of offered) {
      const { plays, free, final } = this.wanted.get(id);
      this.wanted.set(id, free || final || !plays || ((this.page.pushes?.length !== 0 || this.page.reader.busy || this.page.unread) && !this.edge.entries.has(id)) ? { free: true } : { plays });
    }
    this.page.decisions.takeBack();
  }

  /** Another device plays or deletes. */
  others() {
    const id = this.pick(['a', 'b', 'c']);
    if (this.one(0.7)) {
      this.say(`${id} is played elsewhere`);
      this.play(id);
    } else if (this.edge.entries.has(id)) {
      this.say(`${id} is deleted elsewhere`);
      const before = this.wanted.get(id);
      const known = recall(place, []).some(({ want, record, lines }) => want === 'gone' && record.object.id === id && lines.length > 0 && record.etag === this.edge.entries.get(id).etag);
      this.edge.remove([id]);
      if (!before?.gone || !known || before.stale) this.wanted.set(id, { free: true }); // else an undo brings it back
    }
  }

  cut() {
    const { page } = this;
    if (page.pushes) {
      this.say('deaf');
      page.pushes = undefined;
    } else {
      this.say('hears again');
      page.resync();
    }
  }

  /** What is under way as the page goes away is done, or is not. The browser may keep the page to come back to. */
  reload() {
    const keeps = this.one(0.3);
    this.say(keeps ? 'another page' : 'reload');
    this.leave();
    this.frozen = keeps ? this.page : undefined;
    this.open(true);
  }

  leave() {
    const { page } = this;
    if (page.decisions.why('gone')) for (const [id, { gone }] of this.wanted) if (gone) this.wanted.set(id, { free: true }); // the user was told that it is there
    page.decisions.leave();
    this.#gone(page);
  }

  #gone(page) {
    for (const { what, act } of page.requests) if (act && /remove|restore/.test(what) && (this.calm || this.one(0.5))) act();
    this.edge.pages.delete(page);
    page.pushes = undefined;
  }

  /** The page ends without a word: what waited to be deleted is there, or not. */
  crash() {
    this.say('crash');
    for (const [id, { gone }] of this.wanted) if (gone) this.wanted.set(id, { free: true });
    this.#gone(this.page);
    this.frozen = undefined;
    this.open(false);
  }

  /** Back to a page that the browser has kept. Its requests were given up. */
  back() {
    this.say('back');
    this.leave();
    this.page = this.frozen;
    this.frozen = undefined;
    this.edge.pages.add(this.page);
    for (const { lose } of this.page.requests.splice(0)) lose();
    this.page.decisions.resume(true);
    this.page.resync();
  }

  /** Whatever else: what is not as it was decided is under way, or told. */
  look() {
    const { page } = this;
    if (page.requests.length > 0 || page.pushes?.length !== 0 || page.unread) return;
    const held = new Set(page.decisions.offered.map(key));
    const at = (id) => !held.has(`1/${id}`);
    if (!page.decisions.why('back')) for (const [id, want] of this.wanted) if (at(id) && !(want.gone && page.failed())) this.check(id, want);
    const there = this.edge.list().map(key).filter((name) => !page.decisions.hides(name));
    assert.deepEqual(page.visible().map(key).sort(), there.sort(), 'the list is not what there is');
    if (page.decisions.why('gone')) assert.ok(there.length > 0, 'all is gone, and the page says that it is not');
  }

  check(id, { gone, stale, plays, free }) {
    if (free || (gone && stale)) return; // it is as if it were played since
    const there = this.edge.entries.get(id);
    if (gone) assert.equal(there, undefined, `${id} is to be gone`);
    else assert.deepEqual(plays.filter((n) => !there?.plays.includes(n)), [], `plays of ${id} are lost`);
  }

  /** Lets all end well, and looks at everything. */
  async end() {
    this.say('all works');
    this.calm = true;
    if (this.page.pushes) this.page.reader.refresh();
    else this.page.resync();
    this.page.decisions.send();
    for (let i = 0; i < 20; i++) {
      while (this.page.requests.length > 0) {
        this.request();
        await turn();
      }
      while (this.page.pushes.length > 0) this.page.hear();
      this.page.decisions.again();
      await turn();
    }
    assert.equal(this.page.failed(), '');
    assert.deepEqual(this.page.visible().map(key).sort(), this.edge.list().map(key).sort(), 'the list is not what there is');
    for (const [id, want] of this.wanted) this.check(id, want);
  }
}

test(`decisions, from seed ${first} on`, async (t) => {
  for (let seed = first; seed < first + rounds; seed++) {
    const round = new Round(seed);
    try {
      await round.run();
    } catch (e) {
      t.diagnostic(`SEED=${seed} ROUNDS=1: ${round.log.slice(-60).join(' | ')}`);
      throw new Error(`seed ${seed}: ${e.message}`, { cause: e });
    }
  }
});
