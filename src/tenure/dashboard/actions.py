"""What somebody who has the token may ask of the fleet: the same as with the `tenure` command, by the same means.

The store is opened for writing when something is asked, and closed again: who only looks writes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, check_name
from tenure.dashboard.bounds import MAX_ACTIONS_AT_ONCE
from tenure.dashboard.refusal import Refused
from tenure.dashboard.sections import shown
from tenure.errors import ConfigError, RequestNotAnswered, RequestRefused, StoreError, TenureError
from tenure.ledger import ledger_store
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.observe import handover, queue_orders
from tenure.observe.handover import Verdict
from tenure.observe.schedule_orders import asking
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.wire import Command
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.scheduler.looking import machine_of, read_schedule
from tenure.store import Access, open_store
from tenure.store.url import redact

_log = logging.getLogger("tenure.dashboard")

HANDED_OVER_WITHIN = 30.0
DECIDED_WITHIN = 15.0


class StepDown(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False


class Transfer(msgspec.Struct, forbid_unknown_fields=True):
    to: str
    force: bool = False


class OfQueue(msgspec.Struct, forbid_unknown_fields=True):
    queue: str


class OfSchedule(msgspec.Struct, forbid_unknown_fields=True):
    schedule: str
    job: str | None = None


class OfJob(msgspec.Struct, forbid_unknown_fields=True):
    schedule: str
    job: str


class Done(msgspec.Struct, frozen=True):
    ok: bool
    says: str


class Actions:
    def __init__(self, url: str, namespace: str, clock: Clock) -> None:
        self._url = url
        self._namespace = namespace
        self._clock = clock
        self._by = f"tenure dashboard on {os.uname().nodename}"
        self._under_way = 0
        self.all: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Awaitable[str]]]] = {
            "step-down": (StepDown, lambda given: self._hand_over(None, given.force)),
            "transfer": (Transfer, lambda given: self._hand_over(given.to, given.force)),
            "queue-pause": (OfQueue, lambda given: self._queue(given.queue, "pause")),
            "queue-resume": (OfQueue, lambda given: self._queue(given.queue, "resume")),
            "queue-redrive": (OfQueue, lambda given: self._queue(given.queue, "redrive")),
            "schedule-pause": (OfSchedule, lambda given: self._schedule(given.schedule, given.job, "pause")),
            "schedule-resume": (OfSchedule, lambda given: self._schedule(given.schedule, given.job, "resume")),
            "schedule-run": (OfJob, lambda given: self._schedule(given.schedule, given.job, "run")),
        }
        """By name: what it takes, and what it does."""

    async def do(self, name: str, given: msgspec.Struct, who: str) -> Done:
        """Raises `Refused`. `who`: the address that asks, for the log."""
        if self._under_way >= MAX_ACTIONS_AT_ONCE:
            raise Refused(
                429, f"{MAX_ACTIONS_AT_ONCE} actions are under way: wait for one to end", {"retry-after": "5"}
            )
        self._under_way += 1
        try:
            says = await self.all[name][1](given)
        except ConfigError as error:
            raise self._refused(name, given, who, 422, error) from None
        except RequestNotAnswered as error:
            raise self._refused(name, given, who, 504, error) from None
        except StoreError as error:
            raise self._refused(name, given, who, 503, error) from None
        except TenureError as error:  # the leader's no, a ledger that is damaged, a newer tenure's bucket
            raise self._refused(name, given, who, 409, error) from None
        finally:
            self._under_way -= 1
        says = shown(says, 1000)  # the leader's words come from the bucket, and must not forge a line of the log
        _log.info("%s asked for %s %s: %s", who, name, _told(given), says)
        return Done(ok=True, says=says)

    def _refused(self, name: str, given: msgspec.Struct, who: str, status: int, error: Exception) -> Refused:
        sentence = shown(redact(str(error)), 1000)
        _log.info("%s asked for %s %s, in vain: %s", who, name, _told(given), sentence)
        return Refused(status, sentence)

    async def _hand_over(self, to: str | None, force: bool) -> str:
        if to is not None:
            check_name("to", to, MAX_WORKER_ID_CHARACTERS)
        answer = await handover.ask(
            self._url,
            self._namespace,
            by=self._by,
            to=to,
            force=force,
            timeout=HANDED_OVER_WITHIN,
            clock=self._clock,
        )
        if answer.handover is not None:
            return handover.told(answer.handover)
        reason = answer.reason or "it was not done"
        raise RequestNotAnswered(reason) if answer.verdict is Verdict.UNCLEAR else RequestRefused(reason)

    async def _queue(self, name: str, op: str) -> str:
        check_name("queue", name, MAX_NAME_CHARACTERS)
        await self._ensure_there("queue", S3QueuePlugin.slug, name)
        async with open_store(self._url, access=Access.READ_WRITE) as store:
            own = ledger_store(store, S3QueuePlugin.slug, name)
            receipt = await queue_orders.send(own, name, Command(op, [], self._by[:256]), self._clock)
            followed = await queue_orders.follow(own, receipt, DECIDED_WITHIN, self._clock)
        if followed is None:
            raise RequestNotAnswered(
                f"{op} of {name!r} is durable, and no leader has read it in {DECIDED_WITHIN:g} s: does anybody work on "
                "this queue? It takes effect when one does"
            )
        what = "its dead letters are back in the queue" if op == "redrive" else f"it is {op}d"
        return f"{name}: {what}; the leader of epoch {followed.epoch} has read it"

    async def _schedule(self, name: str, job: str | None, op: str) -> str:
        check_name("schedule", name, MAX_NAME_CHARACTERS)
        await self._ensure_there("schedule", SchedulerPlugin.slug, name)
        if job is not None:
            await self._ensure_job(name, job)
        what = f"everything in {name!r}" if job is None else repr(job)
        async with asking(self._url, name, self._by) as schedule:
            try:
                if op == "run":
                    assert job is not None
                    run = await schedule.run_now(job, within=DECIDED_WITHIN)
                    return f"{what} runs, as {run}"
                await (schedule.pause if op == "pause" else schedule.resume)(job, within=DECIDED_WITHIN)
            except RequestNotAnswered:
                raise RequestNotAnswered(
                    f"{op} of {what} is durable, and nobody has decided on it in {DECIDED_WITHIN:g} s: it is followed "
                    "once somebody leads who has this schedule"
                ) from None
        return f"{what} {'is paused' if op == 'pause' else 'fires again'}"

    async def _ensure_there(self, what: str, slug: str, name: str) -> None:
        """Opening for writing makes a directory that is missing; to command nobody nothing should be made."""
        async with open_store(self._url, access=Access.READ_ONLY) as store:
            async for _ in ledger_store(store, slug, name).list():
                return
        raise ConfigError(f"there is no {what} {name!r}: nothing was ever put into it")

    async def _ensure_job(self, name: str, job: str) -> None:
        async with open_store(self._url, access=Access.READ_ONLY) as store:
            state = await read_schedule(ledger_store(store, SchedulerPlugin.slug, name))
        if job not in machine_of(state).jobs:
            raise ConfigError(f"the schedule {name!r} has no job {job[:100]!r}")


def _told(given: msgspec.Struct) -> str:
    """For the log: nothing that it holds is a secret."""
    pairs = ((field, getattr(given, field)) for field in given.__struct_fields__)
    return shown(" ".join(f"{field}={value!r}" for field, value in pairs))
