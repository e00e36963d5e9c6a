"""One process that counts on Redis: `python -m bench.counters.peer_redis '{"port": …}'`. It obeys (`bench.queue.obey`).

redis-py with the parser that makes it fast, blocking, one connection: what a Python program has.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import redis  # type: ignore[import-not-found, unused-ignore]  # in an environment of its own

from bench.queue.obey import say


def add(client: Any, seconds: float, together: int, records: int) -> dict[str, Any]:
    """INCRBY by 1 on so many keys in turn, for so long; `together`: in one pipeline, which is awaited."""
    keys = [f"page-{number:06d}" for number in range(records)]
    began, cpu, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - began < seconds:
        if together == 1:
            client.incrby(keys[count % records], 1)
        else:
            with client.pipeline(transaction=False) as pipeline:
                for number in range(count, count + together):
                    pipeline.incrby(keys[number % records], 1)
                pipeline.execute()
        count += together
    return {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu, "count": count}


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    client = redis.Redis(port=options["port"])
    client.ping()
    say(ready=True)
    for line in sys.stdin:
        say(**add(client, **json.loads(line)))
