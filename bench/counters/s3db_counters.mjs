// One process of s3db.js that counts: `node s3db_counters.mjs '{"connection": …}'`. It obeys (bench/queue/obey.py).
import readline from 'node:readline';
import { EventualConsistencyPlugin } from 's3db.js';
import { now, open, requests, say } from './s3db_open.mjs';

const options = JSON.parse(process.argv[2]);
const db = await open(options.connection);
const pages =
  db.resources.pages ?? (await db.createResource({ name: 'pages', attributes: { id: 'string|required', title: 'string', views: 'number' } }));
const plugin = new EventualConsistencyPlugin({ resources: { pages: ['views'] }, logLevel: 'error', ...options.settings });
await db.usePlugin(plugin, 'eventual-consistency');
const idOf = (number) => `page-${number}`;
say({ ready: true });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const began = now();
  if (order.do === 'look') {
    say({ requests });
  } else if (order.do === 'seed') {
    for (let number = 0; number < order.count; number++) {
      await pages.insert({ id: idOf(number), title: `page ${number}`, views: 0 });
    }
    say({ began, ended: now() });
  } else if (order.do === 'add') {
    let next = 0;
    const call = async () => {
      while (next < order.count) {
        await pages.add(idOf(next++ % order.records), 'views', 1);
      }
    };
    await Promise.all(Array.from({ length: order.callers }, call));
    say({ began, ended: now() });
  } else if (order.do === 'consolidate') {
    await pages.consolidate(idOf(0), 'views');
    say({ began, ended: now() });
  } else if (order.do === 'total') {
    let total = 0;
    for (let number = 0; number < order.records; number++) {
      total += (await pages.get(idOf(number))).views ?? 0;
    }
    say({ total });
  }
}
process.exit(0);
