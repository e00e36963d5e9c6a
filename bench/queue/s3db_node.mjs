// One process of s3db.js: `node s3db_node.mjs '{"connection": …, "role": "worker" | "producer", …}'`. It obeys, like
// the other producers (bench/queue/obey.py), and writes a line for each message that it has handled.
import readline from 'node:readline';
import { S3QueuePlugin } from 's3db.js';
import { now, open, requests, say } from './s3db_open.mjs';

const options = JSON.parse(process.argv[2]);
const db = await open(options.connection);
const mail =
  db.resources.mail ?? (await db.createResource({ name: 'mail', attributes: { id: 'string|required', n: 'number|required', pad: 'string|required' } }));
const plugin = new S3QueuePlugin({
  resource: 'mail',
  logLevel: 'error',
  autoStart: options.role === 'worker',
  startupJitterMax: 0,
  heartbeatInterval: 5000,
  ...options.queue,
  ...(options.role === 'worker' ? { onMessage: async (record) => say({ n: record.n, at: now() }) } : {}),
});
await db.usePlugin(plugin, 's3-queue');
say({ ready: true });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.do === 'look') {
    say({ requests });
  } else {
    const began = now();
    for (let number = order.first; number < order.first + order.count; number++) {
      await mail.enqueue({ n: number, pad: 'x'.repeat(options.padding) });
    }
    say({ began, ended: now(), count: order.count });
  }
}
process.exit(0);
