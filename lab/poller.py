"""A process that executes checks and, while it leads, orchestrates them.

    python -m lab.poller URL --worker-id ID --schedules JSON [--only lead | --only execute]

The schedules are a list such as `[{"name": "web", "http": "http://127.0.0.1:8080/", "every": 2}]`, with `http` (a URL),
`tcp` (host and port) or `command` (argv), and `every`, `timeout`, `partition`, `on`. On standard output it says what
happens, a JSON object to a line. SIGTERM ends it gracefully.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

from tenure import CoordinatorConfig, Database, GlobalCoordinatorService
from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.poll import (
    Anywhere,
    CommandCheck,
    HttpCheck,
    InPartition,
    On,
    PollOrchestrator,
    PollSchedule,
    PollWorker,
    TcpCheck,
)
from tenure.plugins.supervisor.child import Context, token_of

LIMITS: dict[str, Any] = {"tick": 0.2, "dispatch_within": 4.0, "pickup_within": 4.0, "allowance": 2.0}


def say(what: str, **fields: object) -> None:
    os.write(1, json.dumps({"said": what, **fields}, default=repr).encode() + b"\n")


def schedule_of(spec: dict[str, Any]) -> PollSchedule:
    if "http" in spec:
        check: Any = HttpCheck(spec["http"])
    elif "tcp" in spec:
        check = TcpCheck(*spec["tcp"])
    else:
        check = CommandCheck(*spec["command"])
    assign: Any = (
        InPartition(spec["partition"]) if "partition" in spec else On(spec["on"]) if "on" in spec else Anywhere()
    )
    return PollSchedule(spec["name"], check, spec.get("every", 2), assign=assign, timeout=spec.get("timeout", 5.0))


async def orchestrate(
    database: Database, coordinator: GlobalCoordinatorService, schedules: list[PollSchedule], clock: Any
) -> None:
    async for lead in coordinator.terms():
        async with lead:
            say("leads", epoch=lead.epoch)
            children: list[Any] = [PollOrchestrator(schedules, **LIMITS), ClusterHealth(1.0)]
            children[0].on("*", lambda event: say(event.name, job=event.job.id, failure=str(event.job.failure)))
            children[1].on("*", lambda event: say(event.name))
            try:
                for number, child in enumerate(children, 1):
                    await child.start(
                        Context(
                            name=type(child).__name__,
                            token=token_of(lead.epoch, number),
                            node=coordinator.worker_id,
                            database=database,
                            coordinator=coordinator,
                            lead=lead,
                            clock=clock,
                        )
                    )
                await asyncio.gather(*(child.wait() for child in children))
            finally:
                for child in reversed(children):
                    await asyncio.shield(child.stop())


async def poll(arguments: argparse.Namespace) -> None:
    from tenure.clock import SYSTEM_CLOCK

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    schedules = [schedule_of(spec) for spec in json.loads(arguments.schedules)]
    async with Database(arguments.url, worker_id=arguments.worker_id) as database:
        # One that only executes would lead without doing a leader's work.
        config = CoordinatorConfig.fast(startup_jitter_max=0, eligible=arguments.only != "execute")
        coordinator = await database.get_global_coordinator(config=config)
        await coordinator.start()
        worker = PollWorker(
            database, coordinator, schedules, partition=arguments.partition, poll_interval=0.2, drain_timeout=0.5
        )
        leading = None
        if arguments.only != "lead":
            await worker.start()
        if arguments.only != "execute":
            leading = asyncio.create_task(orchestrate(database, coordinator, schedules, SYSTEM_CLOCK))
        say("joined", worker=arguments.worker_id)
        await ended.wait()
        if leading is not None:
            leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading
        await worker.stop()
        say("stopped", **{name: getattr(worker.status(), name) for name in ("executed", "late", "reported")})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.poller", description="Poll, and orchestrate while leading.")
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--schedules", required=True, metavar="JSON")
    parser.add_argument("--partition")
    parser.add_argument("--only", choices=("lead", "execute"))
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(poll(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)
