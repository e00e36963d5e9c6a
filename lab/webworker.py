"""A WSGI application of which one gunicorn worker leads: `gunicorn -c lab/webworker.py lab.webworker:application`.

The file is gunicorn's configuration as well: each worker starts a coordinator of its own in `post_worker_init`, after
the fork, and works on a thread while it leads. LAB_URL is the store and LAB_FOLDER where beliefs and spans are noted
(see `lab.hosted`). With LAB_PRELOAD=1 the module also opens a Database when it is imported, which with --preload is
before the fork: a request is answered with what becomes of using it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lab.hosted import CONFIG, KEY, Diary
from tenure import blocking

_made_in = os.getpid()
_early: blocking.Coordinator | None = None
_mine: blocking.Coordinator | None = None

if os.environ.get("LAB_PRELOAD") == "1" and __name__ == "lab.webworker":
    _database = blocking.Database(os.environ["LAB_URL"], worker_id="master").connect()
    # A namespace of its own: this one leads in the master, and the workers inherit a copy of it.
    _early = _database.get_global_coordinator("early", config=CONFIG)
    _early.start()


def post_worker_init(worker: Any) -> None:
    import lab.webworker as module  # gunicorn reads its configuration as another module

    module.begin()


def begin() -> None:
    global _mine
    worker_id = f"web-{os.getpid()}"
    database = blocking.Database(os.environ["LAB_URL"], worker_id=worker_id).connect()
    _mine = database.get_global_coordinator(config=CONFIG)
    diary = Diary(Path(os.environ["LAB_FOLDER"]), worker_id)
    diary.follow(_mine._service)
    _mine.start()
    threading.Thread(target=_work, args=(_mine, diary), daemon=True).start()


def _work(coordinator: blocking.Coordinator, diary: Diary) -> None:
    for leader in coordinator.terms():
        began = diary.begin(leader.epoch)
        with leader:
            while True:
                leader.put(KEY, coordinator.worker_id.encode())
                leader.sleep(0.1)
        diary.end(leader.epoch, began)


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    answer = {
        "pid": os.getpid(),
        "leads": _mine is not None and _mine.is_leader(),
        "epoch": _mine.get_epoch() if _mine is not None else None,
        "forked": os.getpid() != _made_in,
        "early": _refusal(),
        "early_leads": _early is not None and _early.is_leader(),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def _refusal() -> str | None:
    if _early is None:
        return None
    try:
        return f"returned {_early.get_leader(fresh=True)}"
    except Exception as error:
        return type(error).__name__
