// @ts-check
// SPDX-License-Identifier: Apache-2.0

/** The URL of an API path below the edge's own. @param {string} edge @param {string} path */
export const below = (edge, path) => new URL(edge.replace(/\/+$/, '') + path);

/** The page's functions that a client needs. Tests replace them; Node has no page events. */
export const browser = {
  now: () => Date.now(),
  /** The steady clock, in milliseconds. */
  elapsed: () => performance.now(),
  random: () => Math.random(),
  /** @param {number} ms @param {() => void} act @param {boolean} [idle] keeps no process alive @returns {() => void} cancels it */
  after: (ms, act, idle) => {
    const timer = /** @type {any} */ (setTimeout(act, Math.min(ms, 2 ** 31 - 1)));
    if (idle) timer.unref?.(); // Node only
    return () => clearTimeout(timer);
  },
  /** @param {URL} address @param {string[]} protocols */
  socket: (address, protocols) => new WebSocket(address, protocols),
  /** @param {URL} address @param {RequestInit} request */
  fetch: (address, request) => fetch(address, { ...request, redirect: 'error' }), // reports are for the edge alone
  /** @param {string} type of an event of the page @param {(e: any) => void} act */
  on: (type, act) => (type === 'visibilitychange' ? globalThis.document : globalThis)?.addEventListener?.(type, act),
  visible: () => !globalThis.document?.hidden,
  zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
};
