"""Only one of the copies works: `tenure.lead`.

    python examples/singleton_worker.py [URL] [--seconds N]

Start it in two terminals. One works and the other waits. End the first with Ctrl-C and the second goes on at once; kill
it with `kill -9`, and the second goes on when the lease of three seconds has run out.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import tempfile
from pathlib import Path

import tenure

ME = f"worker-{os.getpid()}"


async def work(lead: tenure.Lead) -> None:
    for item in itertools.count(1):
        print(f"{ME}: epoch {lead.epoch}, item {item}", flush=True)
        await asyncio.sleep(0.5)


async def main(url: str) -> None:
    # A service is ended by SIGTERM. Have that do what Ctrl-C does, so that the lease is handed on rather than left.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
    while True:
        print(f"{ME}: waits for its turn", flush=True)
        try:
            async with tenure.lead(url, "singleton", worker_id=ME, config=tenure.CoordinatorConfig.fast()) as lead:
                await work(lead)
        except tenure.LeadershipLost as lost:
            print(f"{ME}: {lost}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        asyncio.run(asyncio.wait_for(main(options.url), options.seconds))
