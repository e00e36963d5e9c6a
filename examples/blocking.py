"""Only one of the copies works, without `async`: `tenure.blocking`.

    python examples/blocking.py [URL] [--seconds N]

Start it in two terminals. One works and the other waits. End the first with Ctrl-C and the second goes on at once; kill
it with `kill -9`, and the second goes on when the lease of three seconds has run out.
"""

import argparse
import contextlib
import itertools
import os
import signal
import tempfile
import threading
from pathlib import Path

import tenure
from tenure import blocking

ME = f"worker-{os.getpid()}"


def work(leader: blocking.Leader) -> None:
    for item in itertools.count(1):
        leader.ensure(0.5)  # a thread cannot be cancelled, so it asks: is there time enough for one more?
        print(f"{ME}: epoch {leader.epoch}, item {item}", flush=True)
        leader.put("blocking/latest", f"{ME}, item {item}".encode())
        leader.sleep(0.5)


def main(url: str) -> None:
    print(f"{ME}: waits for its turn", flush=True)
    config = tenure.CoordinatorConfig.fast()
    for leader in blocking.terms(url, "blocking", worker_id=ME, config=config):
        with leader:
            work(leader)
        print(f"{ME}: epoch {leader.epoch} ended ({leader.ended}), and it waits again", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default=Path(tempfile.gettempdir(), "tenure-examples").as_uri())
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    # A service is ended by SIGTERM. Have that do what Ctrl-C does, so that the lease is handed on rather than left.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.seconds is not None:
        alarm = threading.Timer(options.seconds, os.kill, [os.getpid(), signal.SIGINT])
        alarm.daemon = True
        alarm.start()
    with contextlib.suppress(KeyboardInterrupt):
        main(options.url)
