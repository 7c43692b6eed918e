// @ts-check
// SPDX-License-Identifier: Apache-2.0
import de from './texts.de.js';

/**
 * Translations by language. The code's texts are English; a file such as texts.de.js maps them to a text or plural forms.
 * @type {Record<string, Record<string, string | Record<string, string>>>}
 */
const languages = { de };

const language = (/** @type {string} */ tag) => tag.split('-')[0].toLowerCase();

/** The locale of texts, numbers and dates: the browser's first known language. A page may be English only. */
export const locale = (document.documentElement.translate && navigator.languages.find((tag) => language(tag) === 'en' || language(tag) in languages)) || 'en';
const texts = languages[language(locale)] ?? {};
const plurals = new Intl.PluralRules(locale);

/** Translates a text. @param {string} text in English, with {names} @param {Record<string, any>} [values] by name */
export function t(text, values = {}) {
  const known = texts[text];
  return fill(typeof known === 'string' ? known : text, values);
}

/** Translates a text with a number {n}. @param {number} n @param {string} one @param {string} other @param {Record<string, any>} [values] */
export function counted(n, one, other, values = {}) {
  const form = plurals.select(n);
  const known = texts[other];
  const text = typeof known === 'object' ? known[form] ?? known.other : form === 'one' ? one : other;
  return fill(text, { ...values, n: n.toLocaleString(locale) });
}

/** @param {string} text @param {Record<string, any>} values */
function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => isolated(String(values[name])));
}

/** Isolates a right-to-left value from the surrounding text. @param {string} text */
function isolated(text) {
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(text) ? `\u2068${text}\u2069` : text;
}

/** Translates the page. */
export function localize(root = document) {
  document.documentElement.lang = locale;
  const walk = root.createTreeWalker(root.documentElement, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node instanceof Text) node.data = whole(node.data);
    else if (node instanceof Element) for (const name of ['placeholder', 'title', 'aria-label']) localizeAttribute(node, name);
  }
}

/** @param {Element} element @param {string} name */
function localizeAttribute(element, name) {
  const text = element.getAttribute(name);
  if (text) element.setAttribute(name, whole(text));
}

/** Translates a text node, and keeps the space around it. @param {string} text */
function whole(text) {
  const [, before, inner, after] = /** @type {RegExpExecArray} */ (/^(\s*)([^]*?)(\s*)$/.exec(text));
  const known = texts[inner.replace(/\s+/g, ' ')];
  return typeof known === 'string' ? before + known + after : text;
}
