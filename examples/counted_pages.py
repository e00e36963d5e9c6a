"""Views of pages, counted by many at the same time: `EventualConsistencyPlugin`.

    python examples/counted_pages.py [URL] [--seconds N]

Start it in as many terminals as you like: each has visitors, who view three pages, and all of them count on the same
records. One copy is elected, and brings what all have counted to the records. End it, however roughly: another goes on,
and every view whose call returned is there, once.
"""

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
from pathlib import Path

import tenure

ME = f"worker-{os.getpid()}"
PAGES = ("home", "about", "contact")


async def main(url: str) -> None:
    async with tenure.Database(url, worker_id=ME) as db:
        pages = db.resource("pages")
        config = tenure.CoordinatorConfig.fast()
        plugin = tenure.EventualConsistencyPlugin("pages", ["views"], namespace="pages", config=config, interval=1)
        counters = await db.use_plugin(plugin)
        for page in PAGES:
            with contextlib.suppress(tenure.Conflict):  # another copy was first
                await pages.insert({"title": page.title()}, id=page)

        counted = 0
        while True:
            visits = random.choices(PAGES, weights=(5, 2, 1), k=100)
            await asyncio.gather(*(counters.add(page, "views") for page in visits))  # a hundred calls, few requests
            counted += len(visits)
            print(f"{ME}: has counted {counted}, all of them durable", flush=True)
            now = {page: await counters.get(page, "views", consistent=True) for page in PAGES}
            there = {page: (await pages.get(page)).data.get("views", 0) for page in PAGES}
            print(f"{ME}: together {now}, in the records {there}", flush=True)
            await asyncio.sleep(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
