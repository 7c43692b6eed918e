// @ts-check
// SPDX-License-Identifier: Apache-2.0

/**
 * Creates an element. Strings become text, never markup.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [props] properties, or else attributes;
 *   false, null and undefined are left out
 * @param {...(Node | string)} children
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name in node) /** @type {any} */ (node)[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/**
 * Returns an element that must exist.
 * @template {Element} T
 * @param {string} selector @param {new () => T} kind @param {ParentNode} [within]
 * @returns {T}
 */
export function find(selector, kind, within = document) {
  const node = within.querySelector(selector);
  if (!(node instanceof kind)) throw new Error(`no ${selector}`);
  return node;
}

/** Writes text only if it changed: screen readers would repeat it. @param {Element} node @param {string} text */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Adds a file to the browser's downloads. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const link = el('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
