// SPDX-License-Identifier: Apache-2.0
/** What a client needs of a page. */
export interface Page {
  /** The device's clock, Unix milliseconds. */
  now(): number;
  /** The steady clock, milliseconds. */
  elapsed(): number;
  /** From 0 to 1. */
  random(): number;
  /** A timer; the returned function cancels it. An idle one keeps no process alive. */
  after(ms: number, act: () => void, idle?: boolean): () => void;
  socket(address: URL, protocols: string[]): WebSocket;
  fetch(address: URL, request: RequestInit): Promise<Response>;
  /** Listens to an event of the page. */
  on(type: string, act: (event: any) => void): void;
  visible(): boolean;
  /** The user's time zone, such as Europe/Berlin. */
  zone(): string;
}

/** The page, or Node. */
export const browser: Page;
