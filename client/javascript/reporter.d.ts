import type { Heartbeat, Playhead, PlayheadObject } from './playhead.js';

/** Reports what an <audio> or <video> does. A viewing begins with the first play and is over at the end, or when the page goes away. */
export class Reporter {
  /** `duration_ms` is that of the object, where the element may have only its beginning. */
  constructor(client: Playhead, media: HTMLMediaElement, about: { object: PlayheadObject; device?: string; duration_ms?: number; excerpt?: boolean; meta?: Record<string, string | null> });
  /** Milliseconds of the object played in this viewing, without what was incognito. */
  watched: number;
  /** Whether the viewing is to leave no trace from now on. */
  incognito: boolean;
  get session(): string;
  /** Says nothing until the user has decided where to go on. `keep` takes what there would be to say. */
  hold(keep?: (beat: Heartbeat) => void): void;
  /** Stops the viewing, and says nothing any more: call it before the element plays something else. */
  end(): void;
  /** Goes on. `here` says whether where it is now is what counts, and `last` the last report of a page before, for one that has reported nothing yet. */
  release(here: boolean, last?: Heartbeat): void;
}
