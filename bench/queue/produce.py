"""A peer's producer: `python -m bench.queue.produce bench.queue.peer_celery`."""

from __future__ import annotations

import importlib
import sys

from bench.queue.obey import obey

if __name__ == "__main__":
    peer = importlib.import_module(sys.argv[1])
    peer.begin()
    obey(peer.send, peer.many, peer.marks, 1000)
