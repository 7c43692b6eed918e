import { Configuration, HeartbeatKindEnum, HistoryApi, RemovalApi, ReportsApi, ResponseError } from './index.js';

declare const process: { env: Record<string, string> };

const configuration = new Configuration({ basePath: process.env.PLAYHEAD_URL, accessToken: process.env.PLAYHEAD_TOKEN });
const history = new HistoryApi(configuration);
const object = { id: '100', type: 1 };

const { results } = await new ReportsApi(configuration).reportHeartbeats({
  heartbeatsBody: {
    heartbeats: [{
      object, kind: HeartbeatKindEnum.Stop, positionMs: 90_000, durationMs: 600_000, eventTime: new Date(),
      meta: { title: 'Low Tide' }, removedMeta: ['image'],
    }],
  },
});
if (results[0].status !== 'stored') throw new Error(results[0].status);
const point = await history.getResumePoint(object);
if (point.meta?.title !== 'Low Tide') throw new Error(JSON.stringify(point));
const listed = await history.listHistory({ limit: 10 });
await new RemovalApi(configuration).deleteObject(object);
const left = await history.listHistory();
await history.getResumePoint(object).then(
  () => { throw new Error('the record is still there'); },
  (error: unknown) => { if (!(error instanceof ResponseError && error.response.status === 404)) throw error; },
);
console.log(`resume at ${point.resumeMs} ms, ${listed.items.length} listed, ${left.items.length} after the delete`);
