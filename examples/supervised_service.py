"""A service that runs on one node of many and is kept running there: `CoordinatorCandidate`.

    python examples/supervised_service.py [URL] [--seconds N]

Start it in two terminals. One node runs both children, the other tells what it knows of them. The program fails now and
then and is started again, with a higher token. Ctrl-C the first: the second starts them at once.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import tenure

NODE = f"node-{os.getpid()}"
PROGRAM = 'echo "$TENURE_WORKER_ID: epoch $TENURE_EPOCH, program with token $TENURE_TOKEN"; sleep 2; exit 1'


async def mailer(context: tenure.Context) -> None:
    while True:
        print(f"{NODE}: epoch {context.epoch}, mailer", flush=True)
        await asyncio.sleep(1)


async def main(url: str) -> None:
    children = [tenure.Child("mailer", mailer), tenure.Child("program", tenure.Command("sh", "-c", PROGRAM))]
    async with tenure.Database(url, worker_id=NODE) as db:
        candidate = await db.use_plugin(tenure.CoordinatorCandidate(children, namespace="mailing"))
        while True:
            await asyncio.sleep(2)
            if not candidate.is_leader() and (seen := await candidate.children()) is not None:
                states = ", ".join(f"{child.name} is {child.state.value}" for child in seen.children)
                print(f"{NODE}: on {seen.node}, {states}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
