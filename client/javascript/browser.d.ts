/** The parts of a page that a client needs. */
export interface Page {
  /** Unix milliseconds that the device shows. */
  now(): number;
  /** A clock that only goes forward, in milliseconds. */
  elapsed(): number;
  /** From 0 to 1. */
  random(): number;
  /** Acts later; the function that it returns calls that off. An idle timer keeps no process alive. */
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
