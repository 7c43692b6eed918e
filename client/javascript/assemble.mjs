// SPDX-License-Identifier: Apache-2.0
// Assembles the package: node assemble.mjs FOLDER. Its scripts are those of bff/pages/assets.
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? here);
const scripts = ['browser.js', 'clock.js', 'link.js', 'outbox.js', 'playhead.js', 'reporter.js', 'requests.js', 'store.js'];

mkdirSync(join(target, 'lib'), { recursive: true });
for (const name of scripts) cpSync(join(here, '../../bff/pages/assets', name), join(target, 'lib', name));
cpSync(join(here, '../../LICENSE'), join(target, 'LICENSE'));
if (target !== here) {
  for (const name of readdirSync(here)) if (/^(package\.json|README\.md|.*\.d\.ts)$/.test(name)) cpSync(join(here, name), join(target, name));
}
