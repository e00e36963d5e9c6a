"""Where somebody who wants to follow work through the fleet is told of it: OpenTelemetry, or tests.

A database has one `Tracing`, with nobody in it. What could be followed asks `tracing.tracer` each time: as long as that
is `None`, nothing else happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tenure.coordinator.service import GlobalCoordinatorService
from tenure.store import Store


class Delivered(Protocol):
    """A message, as far as it concerns whoever follows it."""

    @property
    def id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def headers(self) -> dict[str, str]: ...


class Followed(Protocol):
    """Something that is being followed."""

    def failed(self, error: str) -> None:
        """It ended badly, without raising."""
        ...


class Tracer(Protocol):
    """Each context is entered where the work is done, and what it raises is passed on. None may raise by itself."""

    def store(self, inner: Store) -> Store:
        """The same store, with every request followed."""
        ...

    def coordinator(self, coordinator: GlobalCoordinatorService) -> None:
        """A coordinator was made."""
        ...

    def enqueueing(self, queue: str, count: int) -> AbstractContextManager[Mapping[str, str]]:
        """Messages are being enqueued. Gives headers for them, from which `handling` knows where they came from."""
        ...

    def handling(self, queue: str, messages: Sequence[Delivered]) -> AbstractContextManager[Followed]:
        """A handler is called with a message, or with several."""
        ...

    def running(
        self, schedule: str, job: str, run: str, *, scheduled_ms: int, attempt: int, epoch: int
    ) -> AbstractContextManager[Followed]:
        """A scheduled job runs."""
        ...


class Tracing:
    """Of one database."""

    __slots__ = ("tracer",)

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


UNTRACED = Tracing()
"""For what belongs to no database: nobody is ever put in it."""
