"""The twin of `tenure.until_terminated` for threads."""

from __future__ import annotations

from types import TracebackType

from tenure.blocking.database import Database
from tenure.database.terminating import Signalled
from tenure.errors import ConfigError


class _Ended(KeyboardInterrupt):
    """Raised in the main thread by a signal, as Python itself does at Ctrl-C."""


class until_terminated:  # noqa: N801 - used like a function
    """Run the body until it ends, or SIGTERM or SIGINT comes; then close the database, which gives back what it holds.

        db = tenure.blocking.Database("s3://bucket/app")
        with tenure.blocking.until_terminated(db) as ended:
            coordinator = db.get_global_coordinator()
            coordinator.start()
            for leader in coordinator.terms():
                with leader:
                    work(leader)
        print("ended by", ended.signal)     # None: the body ended by itself

    The database is connected if it is not yet. A signal interrupts the body as Ctrl-C does, with a `KeyboardInterrupt`
    in the main thread, and the block ends without an exception. A second signal, over a second later, ends the process
    at once, and the lease lapses.

    For the main thread. Handlers that were set before are set again at the end.
    """

    def __init__(self, database: Database) -> None:
        if not isinstance(database, Database):
            raise ConfigError(
                f"database is {type(database).__name__}: give a tenure.blocking.Database; in an async program use "
                "tenure.until_terminated"
            )
        self._database = database

    def __enter__(self) -> Signalled:
        self._is_over = False
        self._signalled = Signalled(self._database.underlying.clock, self._interrupt, "until_terminated()")
        self._database.connect()
        self._signalled.install()
        return self._signalled

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_over = True
        try:
            self._database.close()
        finally:
            self._signalled.restore()
        return isinstance(error, _Ended)

    def _interrupt(self) -> None:
        if not self._is_over:
            raise _Ended
