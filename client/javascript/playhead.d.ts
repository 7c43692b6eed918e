// SPDX-License-Identifier: Apache-2.0
import type { Page } from './browser.js';

/** Something to watch, read or hear. */
export interface PlayheadObject {
  id: string;
  /** 1 video, 2 episode, 3 audio, 4 article; others are free. */
  type: number;
}

export type Kind = 'start' | 'progress' | 'pause' | 'seek' | 'stop' | 'finish';

/** A report of a player. Times are RFC 3339 with an offset, durations are milliseconds. */
export interface Heartbeat {
  object: PlayheadObject;
  kind: Kind;
  position_ms: number;
  event_time: string;
  duration_ms?: number;
  started_at?: string;
  watched_ms?: number;
  /** Highest speed of the session, 0.25 to 4. */
  speed?: number;
  /** Etag of the record that the device knows; the client sets it when needed. */
  if_match?: string;
  session?: string;
  device?: string;
  failed?: boolean;
  incognito?: boolean;
  /** Texts by key; `null` removes a key, absent keys stay. */
  meta?: Record<string, string | null>;
  /** The same as `null` in `meta`, by key. */
  removed_meta?: string[];
}

/** Where a user stopped in an object. */
export interface HistoryRecord {
  object: PlayheadObject;
  position_ms: number;
  /** Where a player resumes. */
  resume_ms: number;
  completed?: boolean;
  duration_ms: number;
  furthest_ms: number;
  plays: number;
  state: 'playing' | 'paused' | 'stopped' | 'finished';
  event_time: string;
  played_at?: string;
  completed_at?: string;
  dismissed_at?: string;
  session?: string;
  device?: string;
  meta?: Record<string, string>;
  watched_ms?: number;
  /** The session has just begun: `position_ms`, `resume_ms` and `completed` are of the one before. */
  early?: boolean;
  incomplete?: boolean;
  etag: string;
}

/** A session of an object. Before the newest 17 only `end`, `watched_ms` and `completed_at` are known, if it had `watched_ms` or reached the end. */
export interface Viewing {
  begin?: string;
  end: string;
  from_ms?: number;
  to_ms?: number;
  state?: 'playing' | 'paused' | 'stopped' | 'finished';
  device?: string;
  watched_ms?: number;
  completed_at?: string;
}

/** Sums of a history. `watched_ms` is as reported, of each viewing at most the time that it took. */
export interface StatsSum {
  watched_ms: number;
  plays: number;
  viewings: number;
}

/** Days and types ascending, or objects most watched first. */
export interface Stats {
  buckets: (StatsSum & { day?: string; type?: number; object?: PlayheadObject })[];
  total: StatsSum;
  /** The part of `total` that has no day. */
  undated: StatsSum;
  /** By day only. */
  streak?: { longest_days: number; current_days: number };
}

export type Status =
  | 'stored' | 'unchanged' | 'stale' | 'conflict' | 'expired' | 'cleared' | 'paused' | 'brief' | 'invalid' | 'unknown'
  /** The queue was full; a later report of the viewing replaces it. */
  | 'superseded'
  /** The queue was full, and this was the oldest. */
  | 'dropped';

export interface Result {
  status: Status;
  record?: HistoryRecord;
  error?: { field: string; reason: string };
  /** For `stale`: event times of the report and of the record. */
  event_time?: string;
  record_time?: string;
}

/** All changes since a token. */
export interface Changes {
  /** Current records. An unchanged one may be repeated. */
  items: HistoryRecord[];
  removed: PlayheadObject[];
  /** The changes are unknown: read everything, then the changes since this token. */
  resync: boolean;
  token: string;
  settings: { recording: boolean; paused_at?: string };
}

export interface PlayheadConfig {
  /** A valid token, or a function that returns one; called for every connection and request. */
  token: string | (() => string | Promise<string>);
  /** The edge's URL, by default the page's origin. It may have a path. */
  url?: string;
  /** Whether to receive changes by other devices (default true). */
  push?: boolean;
  /** Maximum length of the queue (default 500). */
  queue?: number;
  /** Keeps the queue over a reload; tabs may share it. */
  storage?: Storage;
  /** Key in the storage; name the user in it. */
  key?: string;
  /** Timeout of a connection attempt, an answer and a read (default 10,000). */
  timeoutMs?: number;
  /** Bounds of the backoff (default 500 and 30,000). An edge that is away is tried every 1,500 ms at least. */
  minWaitMs?: number;
  maxWaitMs?: number;
  /** Replacements for parts of the page, such as another WebSocket. */
  page?: Page;
}

/** The `detail` of each event. */
export interface PlayheadEvents {
  open: undefined;
  /** Reconnects after `wait_ms`, or at once by reconnect(). */
  close: { code: number; reason: string; wait_ms: number };
  /** The outcome of a report, once. */
  answered: { heartbeat: Heartbeat; result: Result };
  /** Reports were refused, since another device went on unknown to this one. Ask the user where to go on. */
  conflict: { heartbeats: Heartbeat[]; record: HistoryRecord };
  /** Changes by other devices. */
  push: { items: HistoryRecord[]; removed: PlayheadObject[] };
  /** Changes may have been missed: read again what you show. */
  resync: undefined;
  /** Today in the user's zone, and whether it is the user's first report of the day. */
  day: { date: string; first: boolean };
  /** The token was refused; it is retried, by connect() at once. */
  unauthorized: undefined;
  /** The page goes away; reports made now go with all that wait in one request. */
  away: undefined;
}

/** A failed request. */
export class PlayheadError extends Error {
  constructor(request: string, status: number, detail: string, code?: string);
  /** HTTP status, 0 without an answer. */
  status: number;
  /** unreachable, timeout, unauthorized, invalid, too_large, rate_limited, unavailable, internal or refused. */
  code: string;
}

/** What other devices changed. */
export interface Change {
  items: HistoryRecord[];
  removed: PlayheadObject[];
  /** Changes may have been missed: read again what you show. */
  resync: boolean;
}

/** What became of imported lines. */
export interface Imported {
  rows: number;
  statuses: Record<string, number>;
  /** The first of the refused lines. */
  refused: { line: number; field: string; reason: string }[];
}

/**
 * A client of Playhead, which keeps each report until the edge has answered it. It is an EventTarget. Requests are sent once, and
 * fail with a PlayheadError. Wrong types throw a TypeError at once.
 */
export class Playhead {
  constructor(config: PlayheadConfig);
  /** Number of unanswered reports. */
  get waiting(): number;
  /** Whether there is a WebSocket. Without one, reports go by POST and nothing is pushed. */
  get live(): boolean;
  connect(): void;
  /** Connects at once if not connected, even before the edge's Retry-After. */
  reconnect(): void;
  /** Calls back with changes by other devices. The returned function stops it. */
  follow(changed: (change: Change) => void): () => void;
  /** A report for later, with the times that it would have now. */
  dated(beat: Heartbeat): Heartbeat & { dated?: boolean };
  /** Queues a report, and sends it as soon as possible. `event_time` is now by default. */
  report(beat: Omit<Heartbeat, 'event_time'> & { event_time?: string; /** The times are the history's. */ dated?: boolean }): void;
  /** Notes the record from which the player goes on. */
  seen(record: HistoryRecord): void;
  /** Returns the given record, or a newer one made from this device's waiting report. */
  newest(record: HistoryRecord | null, object: PlayheadObject): HistoryRecord | null;
  /** Where the user stopped in an object. */
  point(object: PlayheadObject): Promise<HistoryRecord | null>;
  /** Where the user stopped in objects. */
  lookup(objects: PlayheadObject[]): Promise<(HistoryRecord | null)[]>;
  /** All records, newest first. */
  list(options?: { type?: number; since?: Date | string; until?: Date | string }): AsyncGenerator<HistoryRecord>;
  /** Records with all words of a text in id or metadata, newest first. */
  search(text: string, options?: { type?: number }): AsyncGenerator<HistoryRecord>;
  /** What is begun and unfinished, newest first, one record per series. */
  continueWatching(options?: { limit?: number; type?: number }): Promise<HistoryRecord[]>;
  /** The newest 128 sessions of an object, newest first. */
  viewings(object: PlayheadObject): Promise<Viewing[]>;
  /** Time watched, plays and viewings, by default per day in UTC. `zone` is a name such as Europe/Berlin, `limit` is of objects. */
  stats(options?: { by?: 'day' | 'type' | 'object'; since?: Date | string; until?: Date | string; zone?: string; limit?: number }): Promise<Stats>;
  /** Removes objects. Resolves to how many had a record. */
  delete(objects: PlayheadObject[]): Promise<number>;
  /** Removes everything up to a time, by default now, of one type or of all. */
  clear(options?: { until?: Date | string; type?: number }): Promise<void>;
  /** Marks objects, such as a season. */
  mark(objects: (PlayheadObject & { meta?: Record<string, string> })[], mark: 'watched' | 'unwatched' | 'reset', options?: {
    /** Time of the mark; by default now. */
    event_time?: string;
    /** Skips objects without a record. */
    only_recorded?: boolean;
    /** With `watched`: skips completed objects. */
    unless_completed?: boolean;
  }): Promise<Result[]>;
  /** Takes objects out of continueWatching() until they are played again, or back. Resolves to how many had a record. */
  dismiss(objects: PlayheadObject[], dismissed?: boolean): Promise<number>;
  /** Whether what is played is kept; an argument switches it. */
  recording(on?: boolean): Promise<boolean>;
  /** All changes since a token; a resync without one. */
  changes(since?: string): Promise<Changes>;
  /** All of the history, as lines of NDJSON. An export that fails halfway is no backup. */
  export(): AsyncGenerator<string>;
  /** Folds exported lines in. They count once, however often that is done. `restore` brings removed records back. */
  importLines(lines: Iterable<string> | AsyncIterable<string>, options?: { restore?: boolean }): Promise<Imported>;
  /** Ends the connection, and sends as much of the queue as a page that goes away can. */
  leave(): void;

  addEventListener<K extends keyof PlayheadEvents>(
    type: K, listener: (event: CustomEvent<PlayheadEvents[K]>) => void, options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof PlayheadEvents>(
    type: K, listener: (event: CustomEvent<PlayheadEvents[K]>) => void, options?: boolean | EventListenerOptions,
  ): void;
}
