// The types of the package are those of its code: tsc -p client/javascript/test
import { browser } from 'playhead/browser';
import type { Page } from 'playhead/browser';
import { Playhead, PlayheadError } from 'playhead';
import type { Heartbeat, HistoryRecord, PlayheadConfig } from 'playhead';
import { Reporter } from 'playhead/reporter';
import { browser as realBrowser } from '../../../bff/pages/assets/browser.js';
import { Playhead as RealPlayhead, PlayheadError as RealError } from '../../../bff/pages/assets/playhead.js';
import { Reporter as RealReporter } from '../../../bff/pages/assets/reporter.js';

// All that the package declares is there, and takes and returns the types that it declares.
type Public<T> = { [K in Exclude<keyof T, keyof EventTarget>]: T[K] };
export const target = (client: RealPlayhead): EventTarget => client;
export const page: Page = realBrowser;
export const failed: typeof PlayheadError = RealError;
export const make = (config: PlayheadConfig): Public<Playhead> => new RealPlayhead(config);
export const report = (client: RealPlayhead, media: HTMLMediaElement): Public<Reporter> => new RealReporter(client, media, { object: { id: '100', type: 1 } });
// And the other way round: nothing is missing.
export const all: Exclude<keyof RealPlayhead, keyof Playhead> | Exclude<keyof RealReporter, keyof Reporter> | Exclude<keyof typeof realBrowser, keyof Page> = undefined as never;

// As a user of the package writes it.
const client = new Playhead({ url: 'https://edge.example.com', token: async () => 'token', page: { ...browser, visible: () => true } });
client.addEventListener('answered', ({ detail: { heartbeat, result } }) => console.log(heartbeat.kind, result.status, result.record?.position_ms));
client.addEventListener('conflict', ({ detail: { record, heartbeats } }) => {
  client.seen(record);
  for (const heartbeat of heartbeats) client.report({ ...heartbeat, if_match: undefined, dated: true });
});
client.addEventListener('push', ({ detail: { items, removed } }) => console.log(items.map((r: HistoryRecord) => r.etag), removed.map((o) => o.id)));
client.addEventListener('close', ({ detail: { wait_ms } }) => console.log(wait_ms.toFixed()));
client.addEventListener('resync', () => console.log(client.waiting));
// @ts-expect-error there is no such event
client.addEventListener('opened', () => {});
const beat: Heartbeat = { object: { id: '100', type: 1 }, kind: 'progress', position_ms: 61_000, event_time: new Date().toISOString(), meta: { title: 'Low Tide', series: null } };
client.report(beat);
// @ts-expect-error there is no such kind
client.report({ ...beat, kind: 'watch' });
client.connect();
client.viewings(beat.object).then(([newest]) => console.log(newest?.begin, newest?.state === 'stopped'));
client.stats({ by: 'object', since: new Date(0) }).then(({ buckets: [most], total }) => console.log(most?.object?.id, total.watched_ms));
export const reporter = new Reporter(client, document.createElement('video'), { object: beat.object });
