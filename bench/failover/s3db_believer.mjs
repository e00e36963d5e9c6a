// One process with a coordinator of s3db.js: `node s3db_believer.mjs '{"connection": …, "config": …, …}'`.
// It notes a hundred times a second whether it believes that it leads (lab/judge.py): `isLeader` of its coordinator.
import fs from 'node:fs';
import { S3db } from 's3db.js';

const options = JSON.parse(process.argv[2]);
const db = new S3db({
  connectionString: options.connection,
  logLevel: 'error',
  executorPool: { retries: 0 },
  // Otherwise its own handler ends the process at once, and nobody is told that it leaves.
  exitOnSignal: false,
  clientOptions: { useReckerHandler: false, httpClientOptions: { useReckerHandler: false } },
});
await db.connect();
const coordinator = await db.getGlobalCoordinator('default', { autoStart: true, config: options.config });

const log = fs.openSync(options.log, 'a');
// CLOCK_MONOTONIC, which is all that Node has, differs from CLOCK_BOOTTIME by what the machine was suspended.
const now = () => process.hrtime.bigint() + BigInt(options.suspended_ns);
let term = 0;
let was = false;
setInterval(() => {
  const before = now();
  const leads = coordinator.isLeader === true;
  const after = now();
  if (leads && !was) term += 1;
  was = leads;
  fs.writeSync(log, `${before} ${after} ${options.name}:${process.pid} ${leads ? term : 0} ${+leads} ${+leads}\n`);
}, 10);

process.on('SIGTERM', async () => {
  await db.disconnect();
  setTimeout(() => process.exit(0), 100);
});
