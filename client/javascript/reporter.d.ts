// SPDX-License-Identifier: Apache-2.0
import type { Heartbeat, Playhead, PlayheadObject } from './playhead.js';

/** Reports what an <audio> or <video> does. A viewing begins with the first play, and ends at the end of the media or of the page. */
export class Reporter {
  /** `duration_ms` of the object, if the media is only its beginning. */
  constructor(client: Playhead, media: HTMLMediaElement, about: { object: PlayheadObject; device?: string; duration_ms?: number; excerpt?: boolean; meta?: Record<string, string | null> });
  /** Milliseconds played in this viewing, without pauses and incognito. */
  watchedMs: number;
  /** Whether the viewing leaves no trace from now on. */
  incognito: boolean;
  get session(): string;
  /** Holds the reports until release(). `keep` receives them. */
  hold(keep?: (beat: Heartbeat) => void): void;
  /** Stops the viewing and all reports. Call it before the element plays something else. */
  end(): void;
  /** Resumes reporting. `here`: whether the position here counts. `last`: last report of an earlier page, if this one has reported nothing yet. */
  release(here: boolean, last?: Heartbeat): void;
}
