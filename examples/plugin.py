"""Work for the leader alone, as a plugin with three hooks: `CoordinatorPlugin`.

    python examples/plugin.py [URL] [--seconds N]

Start it in two terminals. The plugin runs in both, and its hooks are called in one. It remembers in its storage how far
it got, so that its successor goes on where it ended.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import tenure

ME = f"worker-{os.getpid()}"


class Pages(tenure.CoordinatorPlugin):
    async def on_become_coordinator(self) -> None:
        self.page = await self.storage.get("page") or 0
        print(f"{ME}: epoch {self.epoch} begins after page {self.page}", flush=True)

    async def coordinator_work(self) -> None:
        self.page += 1
        print(f"{ME}: epoch {self.epoch} reads page {self.page}", flush=True)
        await self.storage.set("page", self.page)

    def on_stop_being_coordinator(self) -> None:
        print(f"{ME}: epoch {self.epoch} ends with {self.time_to_wind_up():.1f} s to spare", flush=True)


async def main(url: str) -> None:
    async with tenure.Database(url, worker_id=ME) as db:
        # A new namespace takes its first election slowly, 20 s, unless it is told not to. This is an example.
        plugin = Pages(
            namespace="pages",
            config=tenure.CoordinatorConfig.fast(),
            coordinator_work_interval=0.5,
            skip_cold_start=True,
        )
        await db.use_plugin(plugin)
        async for event in plugin.events("leader:changed"):
            print(f"{ME}: sees {event.new_leader or 'nobody'} lead", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
