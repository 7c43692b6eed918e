// @ts-check

const every = 10_000; // milliseconds between two reports of progress
const longest = 30 * 86_400_000; // milliseconds that the edge takes
const [slowest, fastest] = [0.25, 4]; // speeds that the edge takes

/**
 * Reports what a media element does: start, progress, pause, seek, stop and finish. A viewing
 * begins with the first play and is over at the end, or when the page goes away.
 */
export class Reporter {
  /** Milliseconds of the object played in this viewing; pauses are none, nor is what leaves no trace. */
  watched = 0;
  #incognito = false;
  /** @type {((beat: any) => void) | null} who takes what there is to say while the user has not said where to go on */
  #held = null;
  /** @type {'stop' | 'finish' | ''} how the viewing has ended while nothing was said */
  #unsaid = '';
  #client;
  #media;
  #about;
  #session = '';
  #began = '';
  #fastest = 1;
  #at = 0; // of the last report
  #rested = 0; // since when it is paused in this viewing, in Unix milliseconds; 0 while it plays
  #atEnd = false; // where it has ended, and nobody has moved it since: the next play moves it to the beginning
  #rewinds = false; // that play has begun
  #loaded = false; // the element was, in this viewing
  /** @type {any} the last report */
  #said = null;
  /** @type {number | null} */
  #last = null; // seconds, while it plays on
  #over = new AbortController();
  #timer;

  /**
   * @param {import('./playhead.js').Playhead} client @param {HTMLMediaElement} media
   * @param {{object: {id: string, type: number}, device?: string, duration_ms?: number, excerpt?: boolean, meta?: Record<string, string | null>}} about
   *   `duration_ms` is that of the object, where the element may have only its beginning; an `excerpt` is a beginning whose own
   *   length says nothing of the object's. Such an element is stopped at its end, and not finished.
   */
  constructor(client, media, about) {
    this.#client = client;
    this.#media = media;
    this.#about = about;
    const { signal } = this.#over;
    const on = (/** @type {string} */ type, /** @type {() => void} */ act) => media.addEventListener(type, act, { signal });
    on('play', () => this.#goOn());
    on('pause', () => media.ended || this.#report('pause'));
    on('seeking', () => {
      this.#last = null;
      this.#atEnd &&= !media.paused;
    });
    on('seeked', () => this.#rewound() || this.#sought());
    on('timeupdate', () => this.#watch());
    on('ended', () => {
      this.#atEnd = true;
      this.#end(this.#whole ? 'finish' : 'stop');
    });
    this.#timer = setInterval(() => media.paused || this.#goOn(), every);
    client.addEventListener('away', () => this.#end('stop'), { signal });
    addEventListener('pageshow', (e) => e.persisted && !media.paused && this.#goOn(), { signal });
  }

  /** Stops the viewing, and says nothing any more: call it before the element plays something else. */
  end() {
    this.#end('stop');
    this.#over.abort();
    clearInterval(this.#timer);
  }

  /** Whether the element has all of the object. */
  get #whole() {
    const { excerpt, duration_ms: length = 0 } = this.#about;
    return !excerpt && this.#media.duration * 1000 > length - 1000;
  }

  get session() {
    return this.#session;
  }

  /** Whether the viewing is to leave no trace. */
  get incognito() {
    return this.#incognito;
  }

  set incognito(on) {
    this.#watch();
    if (on && !this.#incognito && !this.#media.paused) this.#report('stop'); // as far as others are to know
    this.#incognito = on;
  }

  /** Says nothing until the user has decided. @param {(beat: any) => void} [keep] takes what there would be to say */
  hold(keep = () => {}) {
    this.#held = keep;
  }

  /**
   * Goes on. @param {boolean} here whether where it is now is what counts, also where the viewing has ended there
   * @param {any} [last] report of a page before, where this one has said nothing yet: what it played is where this page is
   */
  release(here, last) {
    const ended = this.#unsaid;
    this.#held = null;
    this.#unsaid = '';
    if (here) this.#rested = 0; // it is there as of now
    const before = this.#said ?? last;
    if (here && this.#session) this.#sought(ended);
    else if (here && before) this.#standIn(before);
    if (ended) this.#session = '';
  }

  /** Says where it is for a viewing that is over. When that began, and how much it played, was said, if by a page before then by another clock. @param {any} last */
  #standIn({ started_at: _, watched_ms: __, if_match: ___, dated: ____, incognito: _____, ...last }) {
    const { readyState, currentTime } = this.#media;
    const { device = last.device } = this.#about;
    const session = device === last.device ? last.session : newSession(); // or it was the window of which this one is a duplicate
    const position = readyState > 0 ? Math.round(currentTime * 1000) : last.position_ms;
    const ended = last.kind === 'finish' && (position < 1000 || Math.abs(position - last.position_ms) < 1000); // it is there, or to begin anew
    for (const kind of ended ? ['finish'] : ['seek', 'stop']) {
      const position_ms = ended ? last.position_ms : position;
      this.#client.report({ ...last, ...(device && { device }), session, kind, position_ms, event_time: this.#time(Date.now()), ...(this.#incognito && { incognito: true }) });
    }
  }

  /** A seek plays on, except where it does not. @param {'stop' | 'finish' | ''} [ended] how the viewing is over, if it is */
  #sought(ended = '') {
    const kind = ended === 'finish' && !this.#atEnd ? 'stop' : ended; // it was moved since
    if (kind !== 'finish') this.#report('seek');
    if (kind || this.#media.paused) this.#report(kind || 'pause');
  }

  /** Whether it was not the user who has moved it. */
  #rewound() {
    const rewound = this.#rewinds && this.#media.currentTime < 1;
    this.#rewinds = false;
    return rewound;
  }

  #goOn() {
    this.#unsaid = '';
    this.#rested = 0;
    if (this.#session) this.#report('progress');
    else this.#begin();
  }

  #begin() {
    this.#session = newSession();
    this.#began = new Date().toISOString();
    this.watched = 0;
    this.#fastest = this.#media.playbackRate;
    this.#loaded = false;
    this.#rewinds = this.#atEnd;
    this.#atEnd = false;
    this.#report('start');
  }

  /** @param {'stop' | 'finish'} kind */
  #end(kind) {
    this.#watch();
    this.#last = null;
    if (this.#unsaid) return; // it has ended already
    this.#report(kind);
    if (this.#held && this.#session) this.#unsaid = kind;
    else this.#session = '';
  }

  /** Adds what was played since the last time. */
  #watch() {
    const { currentTime, playbackRate, paused, seeking } = this.#media;
    this.#fastest = Math.max(this.#fastest, playbackRate);
    const played = this.#last === null ? 0 : (currentTime - this.#last) * 1000;
    if (played > 0 && !this.#incognito) this.watched += played;
    this.#last = seeking || (paused && !this.#media.ended) ? null : currentTime;
  }

  /** @param {string} kind */
  #report(kind) {
    const now = Date.now();
    if (kind === 'pause') this.#rested = now; // also where it is not said
    if (!this.#session) return;
    if (this.#media.readyState > 0) this.#loaded = true;
    else if (this.#loaded) return; // it is loaded anew, and nowhere
    const { currentTime, duration } = this.#media;
    const { excerpt, ...about } = this.#about;
    const position = Math.round(currentTime * 1000);
    const length = Math.max(excerpt ? 0 : Math.round(duration * 1000), about.duration_ms ?? 0);
    const said = {
      ...about,
      kind,
      position_ms: position <= longest ? position : 0, // of a stream that counts from long ago
      duration_ms: length <= longest ? length : 0, // of a live one it is infinite, or some very large number
      event_time: this.#time(kind === 'stop' && this.#rested || now), // what others have done since the pause is later than the stop
      session: this.#session,
      started_at: this.#began,
      watched_ms: Math.round(this.watched),
      speed: Math.min(Math.max(this.#fastest, slowest), fastest),
      ...(this.#incognito && { incognito: true }),
    };
    if (this.#held) return this.#held(said);
    this.#said = said;
    this.#client.report(said);
  }

  /** The time of a report: no two have the same. @param {number} now */
  #time(now) {
    this.#at = now > this.#at || now < this.#at - 1000 ? now : this.#at + 1;
    return new Date(this.#at).toISOString();
  }
}

function newSession() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (n) => n.toString(16).padStart(2, '0')).join('');
}
