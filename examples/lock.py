"""A lock whose token keeps out those who held it before: `db.lock`.

    python examples/lock.py [URL] [--seconds N]

Start it in two terminals: they take turns. Each takes an apple from a stock that remembers the highest token it was
shown, and refuses a lower one: so does what comes late from an earlier turn.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import tenure

ME = f"worker-{os.getpid()}"


class Refused(Exception):
    """By the stock."""


async def take_apple(stock: tenure.Resource[dict[str, Any]], token: int) -> int:
    """Whatever you write to must do this. In SQL: UPDATE … SET token = :token WHERE token <= :token."""
    found = await stock.get("apples")
    if token < found.data["token"]:
        raise Refused(f"token {token} is lower than {found.data['token']}")
    changes = {"left": found.data["left"] - 1, "token": token}
    return int((await stock.patch("apples", changes, if_version=found.version)).data["left"])


async def main(url: str) -> None:
    async with tenure.Database(url, worker_id=ME) as db:
        stock = db.resource("stock")
        with contextlib.suppress(tenure.Conflict):  # somebody else has put it there
            await stock.insert({"left": 1_000_000, "token": 0}, id="apples")
        earlier = None
        while True:
            async with db.lock("apples", ttl=3) as held:
                print(f"{ME}: token {held.token}, {await take_apple(stock, held.token)} apples left", flush=True)
                if earlier is not None:
                    try:
                        await take_apple(stock, earlier.token)
                    except Refused as why:
                        print(f"{ME}: refused, {why}", flush=True)
                await asyncio.sleep(0.2)
            earlier = held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
