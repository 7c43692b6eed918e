// The page's words about a backup that was taken in: node --test
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

Object.assign(globalThis, { document: { documentElement: { translate: false } } });
const { outcome } = await import('../assets/backup.js');
const api = JSON.parse(readFileSync(new URL('../../../docs/api/openapi.json', import.meta.url), 'utf8'));
const other = ['conflict', 'unavailable', 'unknown']; // no line has these: it names no etag, the whole import fails, the service is newer

test('each status that a line may have is told', () => {
  for (const status of api.components.schemas.HeartbeatResult.properties.status.enum.filter((name) => !other.includes(name))) {
    const text = outcome({ rows: 2, statuses: { stored: 1, [status]: status === 'stored' ? 2 : 1 }, refused: [] }, false);
    assert.match(text, status === 'stored' ? /^2 entries were/ : /^1 entry was taken in\. 1 entry /, status);
  }
});
