// @ts-check
// SPDX-License-Identifier: Apache-2.0

const every = 10_000; // milliseconds between two reports of progress
const longest = 30 * 86_400_000; // milliseconds, the edge's limit
const [slowest, fastest] = [0.25, 4]; // the edge's limits

/**
 * Reports the events of a media element: start, progress, pause, seek, stop and finish. A viewing starts with the first play. It
 * ends with the media or the page.
 */
export class Reporter {
  /** Milliseconds played in this viewing, without pauses and incognito. */
  watchedMs = 0;
  #incognito = false;
  /** Receives the reports while they are held. @type {((beat: any) => void) | null} */
  #held = null;
  /** The unreported end of a viewing while held. @type {'stop' | 'finish' | ''} */
  #unsaid = '';
  #client;
  #media;
  #about;
  #session = '';
  #began = '';
  #fastest = 1;
  #at = 0; // time of the last report
  #rested = 0; // start of the pause, Unix ms; 0 while playing
  #atEnd = false; // at the end: the next play rewinds
  #rewinds = false; // that play has started
  #loaded = false; // the media was loaded in this viewing
  /** The last report. @type {any} */
  #said = null;
  /** Last position in seconds while playing. @type {number | null} */
  #last = null;
  #over = new AbortController();
  #timer;

  /**
   * @param {import('./playhead.js').Playhead} client @param {HTMLMediaElement} media
   * @param {{object: {id: string, type: number}, device?: string, duration_ms?: number, excerpt?: boolean, meta?: Record<string, string | null>}} about
   *   `duration_ms` of the object, if the media is only its beginning. The length of an `excerpt` is not the object's: its end is
   *   a stop, not a finish.
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

  /** Stops the viewing and all reports. Call it before the element plays another object. */
  end() {
    this.#end('stop');
    this.#over.abort();
    clearInterval(this.#timer);
  }

  /** Whether the media is the whole object. */
  get #whole() {
    const { excerpt, duration_ms: length = 0 } = this.#about;
    return !excerpt && this.#media.duration * 1000 > length - 1000;
  }

  get session() {
    return this.#session;
  }

  /** Whether the viewing leaves no trace. */
  get incognito() {
    return this.#incognito;
  }

  set incognito(on) {
    this.#watch();
    if (on && !this.#incognito && !this.#media.paused) this.#report('stop'); // for other devices
    this.#incognito = on;
  }

  /** Holds the reports until release(). @param {(beat: any) => void} [keep] receives them */
  hold(keep = () => {}) {
    this.#held = keep;
  }

  /**
   * Resumes reporting. @param {boolean} here whether the position here counts
   * @param {any} [last] last report of an earlier page, if this one has reported nothing yet
   */
  release(here, last) {
    const ended = this.#unsaid;
    this.#held = null;
    this.#unsaid = '';
    if (here) this.#rested = 0; // the position counts from now
    const before = this.#said ?? last;
    if (here && this.#session) this.#sought(ended);
    else if (here && before) this.#standIn(before);
    if (ended) this.#session = '';
  }

  /** Reports the position of an ended viewing; its start and watched time were reported. @param {any} last */
  #standIn({ started_at: _, watched_ms: __, if_match: ___, dated: ____, incognito: _____, ...last }) {
    const { readyState, currentTime } = this.#media;
    const { device = last.device } = this.#about;
    const session = device === last.device ? last.session : newSession(); // else it is another window's, duplicated
    const position = readyState > 0 ? Math.round(currentTime * 1000) : last.position_ms;
    const ended = last.kind === 'finish' && (position < 1000 || Math.abs(position - last.position_ms) < 1000); // at the end, or rewound
    for (const kind of ended ? ['finish'] : ['seek', 'stop']) {
      const position_ms = ended ? last.position_ms : position;
      this.#client.report({ ...last, ...(device && { device }), session, kind, position_ms, event_time: this.#time(Date.now()), ...(this.#incognito && { incognito: true }) });
    }
  }

  /** Reports a seek and the state after it. @param {'stop' | 'finish' | ''} [ended] how the viewing ended */
  #sought(ended = '') {
    const kind = ended === 'finish' && !this.#atEnd ? 'stop' : ended; // moved since
    if (kind !== 'finish') this.#report('seek');
    if (kind || this.#media.paused) this.#report(kind || 'pause');
  }

  /** Whether the media rewound by itself. */
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
    this.watchedMs = 0;
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
    if (this.#unsaid) return; // already ended
    this.#report(kind);
    if (this.#held && this.#session) this.#unsaid = kind;
    else this.#session = '';
  }

  /** Adds the time played since the last call. */
  #watch() {
    const { currentTime, playbackRate, paused, seeking } = this.#media;
    this.#fastest = Math.max(this.#fastest, playbackRate);
    const played = this.#last === null ? 0 : (currentTime - this.#last) * 1000;
    if (played > 0 && !this.#incognito) this.watchedMs += played;
    this.#last = seeking || (paused && !this.#media.ended) ? null : currentTime;
  }

  /** @param {string} kind */
  #report(kind) {
    const now = Date.now();
    if (kind === 'pause') this.#rested = now; // even if it is not reported
    if (!this.#session) return;
    if (this.#media.readyState > 0) this.#loaded = true;
    else if (this.#loaded) return; // loading again: no position
    const { currentTime, duration } = this.#media;
    const { excerpt, ...about } = this.#about;
    const position = Math.round(currentTime * 1000);
    const length = Math.max(excerpt ? 0 : Math.round(duration * 1000), about.duration_ms ?? 0);
    const said = {
      ...about,
      kind,
      position_ms: position <= longest ? position : 0, // a live stream may count from long ago
      duration_ms: length <= longest ? length : 0, // infinite or huge for a live stream
      event_time: this.#time(kind === 'stop' && this.#rested || now), // other devices' changes since the pause must win
      session: this.#session,
      started_at: this.#began,
      watched_ms: Math.round(this.watchedMs),
      speed: Math.min(Math.max(this.#fastest, slowest), fastest),
      ...(this.#incognito && { incognito: true }),
    };
    if (this.#held) return this.#held(said);
    this.#said = said;
    this.#client.report(said);
  }

  /** A unique time for a report. @param {number} now */
  #time(now) {
    this.#at = now > this.#at || now < this.#at - 1000 ? now : this.#at + 1;
    return new Date(this.#at).toISOString();
  }
}

function newSession() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (n) => n.toString(16).padStart(2, '0')).join('');
}
