"""Sessions that end when nobody uses them: `TTLPlugin`.

    python examples/expiring_sessions.py [URL] [--seconds N]

Start it in as many terminals as you like: they share one store of sessions, and one of them is elected to clean up.
Each logs in ada, who goes on clicking, and ben, who does not: his session expires four seconds later. End a copy, and
ada's session there expires as well, as another copy tells; if you end the last one, the next to start does it.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import tenure

ME = f"worker-{os.getpid()}"


async def main(url: str) -> None:
    async with tenure.Database(url, worker_id=ME) as db:
        sessions = db.resource("sessions")
        config = tenure.CoordinatorConfig.fast()
        ttl = await db.use_plugin(tenure.TTLPlugin(sessions, ttl=4, tick=2, namespace="sessions", config=config))
        ttl.on("plg:ttl:expired", lambda told: print(f"{ME}: expired {', '.join(told.event.ids)}", flush=True))

        async def log_in(user: str) -> None:
            await sessions.insert({"user": user, "at": ME}, id=f"{user}-{ME}")
            print(f"{ME}: {user}-{ME} has logged in", flush=True)

        await log_in("ben")
        await log_in("ada")
        while True:
            await asyncio.sleep(1)
            try:
                until = await ttl.touch(f"ada-{ME}")  # wins against the leader, as long as the session is there
                print(f"{ME}: ada is there until {until:%H:%M:%S}, {await sessions.count()} sessions", flush=True)
            except tenure.RecordNotFound:  # this process was suspended for long, for one
                await log_in("ada")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
