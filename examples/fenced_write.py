"""A former leader cannot overwrite what its successor wrote: `lead.put` and `lead.claim`.

    python examples/fenced_write.py [URL]

A write of ada's is held up on its way, as by a bad network or a long pause, and leadership passes to ben meanwhile.
When it arrives, it is refused. Ends by itself after some seconds.
"""

import argparse
import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import tenure

KEY = "reports/latest"


def hold_up_writes(store: Any, until: asyncio.Event) -> None:
    async def late(key: str, body: bytes, expected: Any, replace: Any = store.replace) -> Any:
        if key == KEY:
            await until.wait()
        return await replace(key, body, expected)

    store.replace = late


async def main(url: str) -> None:
    config, ben_has_written = tenure.CoordinatorConfig.fast(), asyncio.Event()
    async with tenure.Database(url, worker_id="ada") as db:
        coordinator = await db.get_global_coordinator("reports", config=config)
        await coordinator.start()
        async with coordinator.leadership() as ada:
            await ada.put(KEY, b"by ada")
            print(f"ada leads, epoch {ada.epoch}, and has written the report")
            hold_up_writes(db.store, until=ben_has_written)
            write = asyncio.create_task(ada.put(KEY, b"by ada, again"))
            await asyncio.sleep(0.2)
            print(f"ada writes it again, and may: it leads is {ada.is_current()}. The write is held up")
        await coordinator.stop()
        async with tenure.lead(url, "reports", config=config, worker_id="ben") as ben:
            print(f"ben leads, epoch {ben.epoch}, and claims the report: {await ben.claim(KEY)!r}")
            await ben.put(KEY, b"by ben")
            ben_has_written.set()
            for attempt in (write, asyncio.create_task(ada.put(KEY, b"by ada, once more"))):
                try:
                    await attempt
                except (tenure.Fenced, tenure.LeadershipLost) as why:
                    print(f"a write of ada's: {type(why).__name__}, {why}")
            print(f"the report is {await ben.claim(KEY)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args().url))
