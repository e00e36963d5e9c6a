// A database of s3db.js as the benchmarks open it, with its requests counted.
import diagnostics from 'node:diagnostics_channel';
import { S3db } from 's3db.js';

export const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
export const now = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC, as Python's time.monotonic()
export const requests = {};

diagnostics.subscribe('http.client.request.start', ({ request }) => {
  const isListing = request.method === 'GET' && /[?&]list-type=2/.test(request.path);
  const verbs = { GET: 'get', HEAD: 'get', PUT: 'put', DELETE: 'delete', POST: 'delete' };
  const verb = isListing ? 'list' : verbs[request.method] ?? 'put';
  requests[verb] = (requests[verb] ?? 0) + 1;
});

export async function open(connection) {
  const db = new S3db({
    connectionString: connection,
    logLevel: 'error',
    executorPool: { retries: 0 },
    clientOptions: { useReckerHandler: false, httpClientOptions: { useReckerHandler: false } },
  });
  await db.connect();
  return db;
}
