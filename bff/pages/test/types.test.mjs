// The types of the npm package are those of the API: node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const read = (name) => readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8');
const declared = read('client/javascript/playhead.d.ts');
const { schemas } = JSON.parse(read('docs/api/openapi.json')).components;

/** The fields of an interface, each with the comment before it. */
function fieldsOf(name) {
  const [, text] = declared.match(new RegExp(`^export interface ${name} \\{\\n([^]*?)^\\}`, 'm'));
  return [...text.matchAll(/^ {2}(?:\/\*\* (.*) \*\/\n {2})?(\w+)(\??):/gm)].map(([, comment = '', field, optional]) => ({ field, optional: optional === '?', comment }));
}

/** The names of object types in a description, such as "1 video". */
const typesIn = (text) => text.match(/\d+ \w+/g);

test('each object type that the API names has its name in the package', () => {
  const { comment } = fieldsOf('PlayheadObject').find(({ field }) => field === 'type');
  const named = typesIn(schemas.MediaObject.properties.type.description);
  assert.ok(named.includes('1 video'), `found ${named}`);
  assert.deepEqual(typesIn(comment), named);
});

test('a heartbeat has the fields of the API, and the same ones are optional', () => {
  const fields = fieldsOf('Heartbeat');
  const { properties, required } = schemas.Heartbeat;
  const namesOf = (optional) => fields.filter((one) => one.optional === optional).map(({ field }) => field).sort();
  assert.deepEqual(namesOf(false), [...required].sort());
  assert.deepEqual(namesOf(true), Object.keys(properties).filter((name) => !required.includes(name)).sort());
});
