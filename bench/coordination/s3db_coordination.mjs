// One worker of s3db.js that takes part in an election and does nothing else:
// `node s3db_coordination.mjs '{"connection": …, "role": "make" | "worker" | "first", …}'`. It obeys (bench/queue/obey.py).
import readline from 'node:readline';
import { CoordinatorPlugin, S3db } from 's3db.js';
import { now, say } from './s3db_open.mjs';

const options = JSON.parse(process.argv[2]);
const heartbeat = { heartbeatInterval: options.heartbeat * 1000 };

class Nothing extends CoordinatorPlugin {
  async onStart() {
    await this.startCoordination();
  }
}

async function connect() {
  const db = new S3db({
    connectionString: options.connection,
    logLevel: 'error',
    ...(options.retries === undefined ? {} : { executorPool: { retries: options.retries } }),
    clientOptions: { useReckerHandler: false, httpClientOptions: { useReckerHandler: false } },
  });
  await db.connect();
  return db;
}

async function work() {
  const db = await connect();
  const plugins = Array.from(
    { length: options.plugins },
    // Without coordinatorWorkInterval: of two plugins with one, the second fails, since their jobs have the same name.
    () => new Nothing({ logLevel: 'error', startupJitterMax: 0, ...heartbeat }),
  );
  const use = (plugin, number) => db.usePlugin(plugin, `nothing-${number}`);
  if (options.parallel) {
    await Promise.all(plugins.map(use));
  } else {
    for (const [number, plugin] of plugins.entries()) {
      await use(plugin, number);
    }
  }
  say({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (JSON.parse(line).do === 'look') {
      const leads = plugins.some((plugin) => plugin.isCoordinator) ? 1 : 0;
      say({ leads, epoch: Math.max(...plugins.map((plugin) => plugin._globalCoordinator?.currentEpoch ?? 0)) });
    }
  }
}

// From an empty bucket to a leader, by a coordinator without plugins.
async function first() {
  const began = now();
  const db = await connect();
  const connected = now();
  const coordinator = await db.getGlobalCoordinator('default', { autoStart: false, config: heartbeat });
  const starting = coordinator.start();
  while (!coordinator.isLeader) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  say({ connect: connected - began, lead: now() - connected });
  await starting;
}

if (options.role === 'make') {
  await connect();
  say({ ready: true });
} else {
  await { worker: work, first }[options.role]();
}
process.exit(0);
