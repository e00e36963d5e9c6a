"""A process of the demo: `python -m tenure.demo.candidate`, told its `Part` in a line on standard input.

Fifty times a second it asks itself whether it leads, and prints the answer, a JSON object to a line (`Report`). While
it leads it works: each piece of work is an entry in a ledger that all of them share, added by a fenced write, and
announced before and after (`Deed`). Besides, whether it leads or not, it keeps a shop (`shop`). Whoever started it can
tell from these lines alone whether two ever believed at once that they lead, and together with the bucket whether any
work was lost or done twice.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database
from tenure.demo.lines import Deed, Line, Outcome, Report
from tenure.demo.shop import Shop
from tenure.errors import Damaged, Fenced, LeadershipLost, StoreError, TenureError

MAX_ENTRIES = 5000
"""A ledger is written anew with every piece of work, so it must not grow without bound."""
CLOSE_THE_SHOP = signal.SIGUSR1
"""Asks a process to take no more orders."""
_PERIOD_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


class Part(msgspec.Struct, frozen=True):
    """What the process is to do. Not among its arguments: a URL may hold secrets, and everyone can read those."""

    url: str
    namespace: str
    worker: str
    ledger: str
    """The key of the ledger."""
    parent: int
    lease_seconds: float
    work_seconds: float
    """From one piece of work to the next."""
    order_seconds: float = 0.2
    """From one order to the next."""
    visibility_seconds: float = 2.0
    """For which the queue leaves an order to whoever it gave it to."""
    queue_seconds: float = 0.1
    """From one look of the queue's leader, or of a worker, to the next while there is work."""
    look_seconds: float = 0.5
    """From one write of the counter's record to the next."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A piece of work that was done."""

    epoch: int
    process: int
    serial: int


class Ledger(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()


def read_ledger(body: bytes | None) -> Ledger:
    if body is None:
        return Ledger()
    try:
        return msgspec.json.decode(body, type=Ledger)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"the demo's ledger is not what the demo writes ({error}): somebody else wrote there") from None


def config_for(lease_seconds: float) -> CoordinatorConfig:
    return CoordinatorConfig.for_lease(lease_seconds, startup_jitter_max=0)


def ask(coordinator: GlobalCoordinatorService, clock: Clock) -> Report:
    before = clock.read()
    lead = coordinator.lead
    leads = lead is not None and lead.is_current()
    after = clock.read()
    epoch = lead.epoch if lead is not None and leads else 0
    return Report(before.boottime_ns, after.boottime_ns, os.getpid(), leads, epoch)


class Worker:
    """Works whenever this process leads."""

    def __init__(self, lead: Callable[[], Lead | None], part: Part, clock: Clock, say: Callable[[Deed], None]) -> None:
        self._lead = lead
        self._part = part
        self._clock = clock
        self._say = say
        self._serial = 0

    async def run(self) -> None:
        while True:
            lead = self._lead()
            if lead is not None:
                await self._term(lead)
            await self._clock.sleep(self._part.work_seconds)

    async def _term(self, lead: Lead) -> None:
        """Work until a write is refused. It does not ask first whether it still leads: the writes do, and that is what
        the demo is to show."""
        ledger: Ledger | None = None
        while True:
            try:
                if ledger is None:
                    ledger = await self._claim(lead)
                elif len(ledger.entries) < MAX_ENTRIES:
                    ledger = await self._work(lead, ledger)
            except LeadershipLost:
                return
            except Fenced as fenced:
                if not fenced.maybe_written:
                    return
                ledger = None
            except StoreError:
                ledger = None  # claim it again, to see what became of the write or be refused
            await self._clock.sleep(self._part.work_seconds)

    async def _claim(self, lead: Lead) -> Ledger:
        began_ns = self._clock.read().boottime_ns
        try:
            ledger = read_ledger(await lead.claim(self._part.ledger))
        except (LeadershipLost, Fenced):
            self._tell(lead, began_ns, 0, Outcome.REFUSED)
            raise
        self._tell(lead, began_ns, 0, Outcome.CLAIMED)
        return ledger

    async def _work(self, lead: Lead, ledger: Ledger) -> Ledger:
        self._serial += 1
        serial = self._serial
        began_ns = self._clock.read().boottime_ns
        self._tell(lead, began_ns, serial, Outcome.BEGUN)
        longer = Ledger((*ledger.entries, Entry(lead.epoch, os.getpid(), serial)))
        try:
            await lead.put(self._part.ledger, msgspec.json.encode(longer))
        except LeadershipLost:
            self._tell(lead, began_ns, serial, Outcome.REFUSED)
            raise
        except Fenced as fenced:
            self._tell(lead, began_ns, serial, Outcome.UNKNOWN if fenced.maybe_written else Outcome.REFUSED)
            raise
        except StoreError:
            self._tell(lead, began_ns, serial, Outcome.UNKNOWN)
            raise
        self._tell(lead, began_ns, serial, Outcome.DONE)
        return longer

    def _tell(self, lead: Lead, began_ns: int, serial: int, outcome: Outcome) -> None:
        self._say(Deed(began_ns, self._clock.read().boottime_ns, os.getpid(), lead.epoch, serial, outcome))


def say(line: Line) -> None:
    # One write, so that a kill never tears a line; and a broken pipe ends this process: whoever started it has gone.
    os.write(1, msgspec.json.encode(line) + b"\n")


async def stand(part: Part, clock: Clock = SYSTEM_CLOCK) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    config = config_for(part.lease_seconds)
    async with Database(part.url, worker_id=part.worker) as database:
        coordinator = await database.get_global_coordinator(part.namespace, config=config)
        shop = Shop(
            part.namespace,
            config,
            order_seconds=part.order_seconds,
            visibility_seconds=part.visibility_seconds,
            queue_seconds=part.queue_seconds,
            look_seconds=part.look_seconds,
            clock=clock,
            say=say,
        )
        asyncio.get_running_loop().add_signal_handler(CLOSE_THE_SHOP, shop.close)
        await coordinator.start()
        await shop.open(database)
        selling = asyncio.create_task(shop.sell())

        async def leave() -> None:
            shop.close()
            await selling
            await database.disconnect()

        tasks = [
            asyncio.create_task(Worker(lambda: coordinator.lead, part, clock, say).run()),
            asyncio.create_task(shop.watch_the_till(lambda: coordinator.lead is not None)),
        ]
        leaving: asyncio.Task[None] | None = None
        while leaving is None or not leaving.done():
            say(ask(coordinator, clock))
            for task in (selling, *tasks):
                if task.done():
                    await task  # it ends by an error only, or with the last order
            if ended.is_set() and leaving is None:
                leaving = asyncio.create_task(leave())
            await clock.sleep(_PERIOD_SECONDS)
        await leaving
        for task in tasks:
            task.cancel()


def die_with(parent: int) -> None:
    """A process that is frozen notices no broken pipe. The kernel can end it all the same, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it has gone already


def main() -> None:
    part = msgspec.json.decode(sys.stdin.buffer.readline(), type=Part)
    die_with(part.parent)
    code = 0
    try:
        asyncio.run(stand(part))
    except TenureError as error:
        print(error, file=sys.stderr, flush=True)
        code = 1
    except BrokenPipeError:
        code = 1
    # As in the command itself: the threads of a client library may abort an interpreter that is taken down.
    os._exit(code)


if __name__ == "__main__":
    main()
