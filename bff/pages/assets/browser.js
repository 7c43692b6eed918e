// @ts-check

/** An address of the API below that of an edge, which may have a path of its own. @param {string} edge @param {string} path */
export const below = (edge, path) => new URL(edge.replace(/\/+$/, '') + path);

/** The functions of the page that a client needs; tests have others. Where there is no page, as in Node, nothing happens to it. */
export const browser = {
  now: () => Date.now(),
  /** A clock that only goes forward, in milliseconds. */
  elapsed: () => performance.now(),
  random: () => Math.random(),
  /** @param {number} ms @param {() => void} act @param {boolean} [idle] it keeps no process alive @returns {() => void} what calls it off */
  after: (ms, act, idle) => {
    const timer = /** @type {any} */ (setTimeout(act, Math.min(ms, 2 ** 31 - 1)));
    if (idle) timer.unref?.(); // which timers of a page do not have
    return () => clearTimeout(timer);
  },
  /** @param {URL} address @param {string[]} protocols */
  socket: (address, protocols) => new WebSocket(address, protocols),
  /** @param {URL} address @param {RequestInit} request */
  fetch: (address, request) => fetch(address, { ...request, redirect: 'error' }), // what was played is for the edge alone
  /** @param {string} type of an event of the page @param {(e: any) => void} act */
  on: (type, act) => (type === 'visibilitychange' ? globalThis.document : globalThis)?.addEventListener?.(type, act),
  visible: () => !globalThis.document?.hidden,
  zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
};
