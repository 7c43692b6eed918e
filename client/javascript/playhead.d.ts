import type { Page } from './browser.js';

/** A thing that is watched, read or heard. */
export interface PlayheadObject {
  id: string;
  /** 1 video, 2 episode, 3 audio, 4 article; others are free. */
  type: number;
}

export type Kind = 'start' | 'progress' | 'pause' | 'seek' | 'stop' | 'finish';

/** A report of a player. Times are RFC 3339 with an offset, everything else in milliseconds. */
export interface Heartbeat {
  object: PlayheadObject;
  kind: Kind;
  position_ms: number;
  event_time: string;
  duration_ms?: number;
  started_at?: string;
  watched_ms?: number;
  /** The fastest of the session, 0.25 to 4. */
  speed?: number;
  /** The etag of the record that the device knows; the client sets it where that is in doubt. */
  if_match?: string;
  session?: string;
  device?: string;
  failed?: boolean;
  incognito?: boolean;
  /** Texts by key; `null` removes a key, and keys that are left out stay as they are. */
  meta?: Record<string, string | null>;
}

/** Where a user stopped in an object. */
export interface HistoryRecord {
  object: PlayheadObject;
  position_ms: number;
  /** Where a player begins. */
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
  /** The device has only just begun: `position_ms`, `resume_ms` and `completed` are of the report before. */
  early?: boolean;
  incomplete?: boolean;
  etag: string;
}

/** One session of an object. Of those before the newest 17 only `end`, `watched_ms` and `completed_at` are known, of those that said `watched_ms` or reached the end. */
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

export type Status =
  | 'stored' | 'unchanged' | 'stale' | 'conflict' | 'expired' | 'cleared' | 'paused' | 'brief' | 'invalid' | 'unknown'
  /** The queue was full: a later report of the viewing says as much. */
  | 'superseded'
  /** The queue was full, and this was the oldest. */
  | 'dropped';

export interface Result {
  status: Status;
  record?: HistoryRecord;
  error?: { field: string; reason: string };
  /** Only of a stale report: when it happened, and when the record's latest event did. */
  event_time?: string;
  record_time?: string;
}

/** All changes since a token. */
export interface Changes {
  /** Records as they now stand. One may be told again that has not changed since. */
  items: HistoryRecord[];
  removed: PlayheadObject[];
  /** The changes are not known: read everything, and then the changes since this token. */
  resync: boolean;
  token: string;
  settings: { recording: boolean; paused_at?: string };
}

export interface PlayheadConfig {
  /** Returns a token that is valid now. It is asked for every connection. */
  token: () => string | Promise<string>;
  /** The edge's address, by default that of the page's site. It may have a path. */
  url?: string;
  /** Whether to be told what other devices do (default true). */
  push?: boolean;
  /** How many reports are kept at most (default 500). */
  queue?: number;
  /** Keeps the queue over a reload. It may be that of several tabs. */
  storage?: Storage;
  /** Under which key, which names the user. */
  key?: string;
  /** How long the edge may take to answer, in milliseconds (default 10,000). */
  patience?: number;
  /** Bounds of the time until the next attempt, in milliseconds (defaults 500 and 30,000). */
  minWait?: number;
  maxWait?: number;
  /** Replacements for parts of the page, such as another WebSocket. */
  page?: Page;
}

/** The events, by what their `detail` is. */
export interface PlayheadEvents {
  open: undefined;
  /** It tries again in `wait` milliseconds. */
  close: { code: number; reason: string; wait: number };
  /** Called once with the outcome of a report. */
  answered: { heartbeat: Heartbeat; result: Result };
  /** A report made when the device could not know of this newer record; it was not stored. Ask the user where to go on. */
  conflict: { heartbeats: Heartbeat[]; record: HistoryRecord };
  /** Other devices have changed these. */
  push: { items: HistoryRecord[]; removed: PlayheadObject[] };
  /** More may have changed: read again what you show. */
  resync: undefined;
  /** Today in the user's zone, and whether nobody saw the user on it before. */
  day: { date: string; first: boolean };
  /** The token was refused; it is tried again, and by connect() at once. */
  unauthorized: undefined;
  /** The page goes away. What is reported now goes in one request with all that waits, in its order. */
  away: undefined;
}

/** A player's side of Playhead: it keeps each report until the edge has answered it. It is an EventTarget. */
export class Playhead {
  constructor(config: PlayheadConfig);
  /** How many reports are not answered yet. */
  get waiting(): number;
  /** Whether there is a WebSocket, by which pushes come. Where something keeps WebSockets out, reports go by POST, and nothing is pushed. */
  get live(): boolean;
  connect(): void;
  /** All changes since the token of the answer before; without one the answer is a resync. */
  changes(since?: string): Promise<Changes>;
  /** A report that is to be made later, with the times that it would have now. */
  dated(beat: Heartbeat): Heartbeat & { dated?: boolean };
  /** Reports what the player does; it is sent as soon as it can be. */
  report(beat: Heartbeat & { /** The times are those of the history already, as of what was answered. */ dated?: boolean }): void;
  /** Takes note of the record that the player goes on from. */
  seen(record: HistoryRecord): void;
  /** Returns the record that was read, or a newer one of this device's own report, which may still be on its way. */
  newest(record: HistoryRecord | null, object: PlayheadObject): HistoryRecord | null;
  /** Reads the newest 128 sessions of an object, newest first. It fails with an Error, which has the `status` of an answer. */
  viewings(object: PlayheadObject): Promise<Viewing[]>;
  /** Marks some objects, such as a season, at most 1,000. It fails as viewings does; then it may be done. */
  mark(objects: (PlayheadObject & { meta?: Record<string, string> })[], mark: 'watched' | 'unwatched' | 'reset', options?: {
    /** When the user said so; by default now. */
    event_time?: string;
    /** Leaves out what has no record. */
    only_recorded?: boolean;
    /** With watched: leaves out what has been completed. */
    unless_completed?: boolean;
  }): Promise<Result[]>;
  /** Ends the connection, and sends what waits as far as a page that goes away still can. */
  leave(): void;

  addEventListener<K extends keyof PlayheadEvents>(
    type: K, listener: (event: CustomEvent<PlayheadEvents[K]>) => void, options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof PlayheadEvents>(
    type: K, listener: (event: CustomEvent<PlayheadEvents[K]>) => void, options?: boolean | EventListenerOptions,
  ): void;
}
