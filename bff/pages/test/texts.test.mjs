// Every text of the history page, the statistics and the player is there in every language: node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';

const folder = new URL('..', import.meta.url);
const read = (name) => readFileSync(new URL(name, folder), 'utf8');
const pages = ['history.html', 'stats.html', 'player.html'];
const untouched = new Set(['Playhead', 'playhead token ann', '⋯', '✕', '0', '0:00', '− 10 s', '+ 10 s', '½ ×', '1 ×', '1½ ×', '2 ×']);

/** The texts of a page: those between tags, and those of attributes. */
function textsOf(page) {
  const html = read(page).replace(/<noscript>[^]*?<\/noscript>/g, '');
  const between = [...html.matchAll(/>([^<]+)</g)].map(([, text]) => text);
  const attributes = [...html.matchAll(/\s(?:placeholder|title|aria-label)="([^"]+)"/g)].map(([, text]) => text);
  return [...between, ...attributes].map((text) => text.trim().replace(/\s+/g, ' ')).filter((text) => text && !untouched.has(text));
}

/** The texts in the code: those of t, and the plurals, which have {n} and come after a singular. */
function textsIn(file) {
  const code = read(`assets/${file}`);
  const single = [...code.matchAll(/\bt\('((?:[^'\\]|\\.)+)'/g)].map(([, text]) => text);
  const types = file === 'format.js' ? [...code.matchAll(/const types = \[(.*)\]/g)].flatMap(([, list]) => list.match(/(?<=')[A-Z]\w+(?=')/g)) : [];
  return { single: [...single, ...types], plural: [...code.matchAll(/'[^']+', '([^']*\{n\}[^']*)'/g)].map(([, text]) => text) };
}

const code = readdirSync(new URL('assets', folder)).filter((name) => /^(?!flow|texts).*\.js$/.test(name)).map(textsIn);
const single = new Set([...pages.flatMap(textsOf), ...code.flatMap((found) => found.single)]);
const plural = new Set(code.flatMap((found) => found.plural));
const names = (text) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();

for (const file of readdirSync(new URL('assets', folder)).filter((name) => /^texts\..+\.js$/.test(name))) {
  test(file, async () => {
    const texts = (await import(new URL(`assets/${file}`, folder))).default;
    const language = file.split('.')[1];
    const forms = new Intl.PluralRules(language).resolvedOptions().pluralCategories;
    assert.ok(single.size > 100 && plural.size > 5, `found ${single.size} and ${plural.size} texts`);
    assert.deepEqual([...single].filter((text) => typeof texts[text] !== 'string'), [], 'missing');
    assert.deepEqual([...plural].filter((text) => forms.some((form) => typeof texts[text]?.[form] !== 'string')), [], 'missing forms');
    assert.deepEqual(Object.keys(texts).filter((text) => !single.has(text) && !plural.has(text)), [], 'left over');
    for (const text of single) assert.deepEqual(names(texts[text]), names(text), text);
    for (const text of plural) assert.deepEqual(names(texts[text].other), names(text), text);
  });
}
