"""A distributed lock, for threads."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType

from tenure.blocking.portal import Body, Portal, must_not_wait
from tenure.coordinator import lock as locks
from tenure.errors import LockError, LockLost


class Held:
    """One grant of a lock, for threads. It ends once, for good, by itself when its deadline passes.

    It is true while it is held: `if held:` asks `is_held()`.
    """

    def __init__(self, portal: Portal, held: locks.Held) -> None:
        self._portal = portal
        self._held = held

    def __repr__(self) -> str:
        return repr(self._held)

    def __bool__(self) -> bool:
        return self.is_held()

    @property
    def name(self) -> str:
        return self._held.name

    @property
    def owner(self) -> str:
        return self._held.owner

    @property
    def token(self) -> int:
        """Higher than that of every holder before: have what you write to refuse a lower one."""
        return self._held.token

    @property
    def ended(self) -> str | None:
        """Why it is over; `None` while it is not."""
        return self._held.ended

    def is_held(self) -> bool:
        """Is it held by us, now? Once false, never true again; always false in a forked child."""
        return self._held.is_held()

    def remaining(self) -> float:
        """Seconds for which it is held even if no renewal gets through any more; 0.0: it is over."""
        return self._held.remaining()

    def ensure(self, seconds: float = 0.0) -> None:
        """Go on only if it is certain to be held for `seconds` more; raises `LockLost` otherwise."""
        self._portal.check_process()
        self._held.ensure(seconds)

    def renew(self) -> float:
        """Renew it now, beside the renewals that come by themselves; gives `remaining()`."""
        return self._portal.call(self._held.renew)

    def release(self) -> bool:
        """Give it back. True: it was ours until now. False: it had been lost, and another may have held it."""
        if self._portal.is_closed:
            self._portal.check_process()
            return False  # it was given back, or lapsed, when the database was closed
        return self._portal.call(self._held.release, goes_on=True)


class Lock:
    """A lock that at most one thread of the whole fleet holds, by name. Made by `Database.lock()`.

        with db.lock("nightly-report", ttl=30) as held:
            write_report(fencing_token=held.token)

    It renews itself while the body runs. A body whose lock is lost is not interrupted: `held.ensure()` tells, and
    `LockLost` is raised at the end. The object may be shared by threads; it is not reentrant.
    """

    def __init__(self, portal: Portal, lock: locks.DistributedLock, timeout: float | timedelta | None) -> None:
        self._portal = portal
        self._lock = lock
        self._timeout = timeout
        self._inside: dict[threading.Thread, tuple[Held, Body]] = {}

    def __repr__(self) -> str:
        return repr(self._lock)

    @property
    def name(self) -> str:
        return self._lock.name

    def acquire(self, timeout: float | timedelta | None = None) -> Held:
        """Wait until the lock is ours. It is then renewed until it is released, lost, or the process ends.

        After `timeout` seconds it raises `LockTimeout` if another holds it, and `LockNotAnswered` if the store gave no
        answer; `LockError` if its record is damaged.
        """
        if threading.current_thread() in self._inside and not self._portal.is_forked:
            raise LockError(
                f"this thread holds lock {self.name!r} already, and would wait for itself: a lock is not reentrant; "
                "pass the Held on to the code that needs it"
            )
        held = self._portal.call(lambda: self._lock.acquire(timeout), take_back=lambda held: held.release())
        return Held(self._portal, held)

    def try_acquire(self, timeout: float | timedelta = 0.0) -> Held | None:
        """The lock, if nobody holds it; `None` if somebody does. Raises `LockNotAnswered` if the store did not say.

        With a `timeout` it waits for so long at most to see whether the holder is alive: `None` as soon as that renews
        it, and the lock if it is released or its lease lapses. Give `1.1 * ttl + 1` to take over from a dead holder.
        """
        held = self._portal.call(lambda: self._lock.try_acquire(timeout), take_back=_give_back)
        return None if held is None else Held(self._portal, held)

    def holder(self) -> locks.LockHolder | None:
        """Who holds it, as the store shows it now (one request); `None` if nobody does. It may be over any time."""
        return self._portal.call(self._lock.holder)

    def __enter__(self) -> Held:
        held = self.acquire(self._timeout)
        body = Body(held._held.release)
        self._forget_the_dead()
        self._inside[threading.current_thread()] = (held, body)
        self._portal.enter(body)
        held._held.on_loss(_nothing)  # says that a body runs under it: then it is not given back over its head
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._portal.is_forked:
            if kind is None:
                self._portal.check_process()
            return
        held, body = self._left()
        self._portal.leave(body)
        if must_not_wait():
            self._portal.call_later(held._held.release)
            return
        why = None if held.is_held() else held.ended
        was_ours = held.release()
        if kind is None and not was_ours:
            raise LockLost(
                f"lock {self.name!r}, token {held.token}, was lost ({why or held.ended}) while this block ran, and "
                "another may have held it before it was over"
            )

    def _left(self) -> tuple[Held, Body]:
        """Left on another thread than it was entered on, it is that one's, if only one is inside."""
        inside = self._inside.pop(threading.current_thread(), None)
        if inside is None and len(self._inside) == 1:
            inside = self._inside.popitem()[1]
        if inside is None:
            raise LockError(f"lock {self.name!r} is left on a thread that is not inside: leave it where it was entered")
        return inside

    def _forget_the_dead(self) -> None:
        """Of a thread that ended inside, the lock is kept until somebody leaves it, or the database is closed."""
        for thread, (held, _) in list(self._inside.items()):
            if not thread.is_alive() and not held.is_held():
                self._inside.pop(thread, None)


async def _give_back(held: locks.Held | None) -> None:
    if held is not None:
        await held.release()


def _nothing() -> None:
    """A thread cannot be cancelled."""
