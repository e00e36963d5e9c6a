"""From a URL to a store that is fit to be used."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, StoreError, StoreUnfit
from tenure.store.directory import DirectoryStore
from tenure.store.directory.mounts import MOUNT_TABLE, filesystem_of, is_network
from tenure.store.given import check_choice
from tenure.store.learned import Learned
from tenure.store.memory import Contents, MemoryStore
from tenure.store.protocol import Access, Store
from tenure.store.readonly import ReadOnly
from tenure.store.url import StoreUrl, parse_url

DEFAULT_TIMEOUT = 5.0
_MIN_TIMEOUT, _MAX_TIMEOUT = 0.1, 60.0
_shared_memory: dict[str, Contents] = {}  # by name, until the process ends


class Opening:
    """A store about to be opened: `await` it, or use it as `async with`, which closes the store as well."""

    def __init__(self, url: StoreUrl, access: Access, timeout: float, clock: Clock, draw_id: NewId) -> None:
        self._url = url
        self._access = access
        self._timeout = timeout
        self._clock = clock
        self._draw_id = draw_id
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._store is not None
        await self._store.aclose()

    async def _open(self) -> Store:
        url = self._url
        store = await connect(url, access=self._access, timeout=self._timeout, clock=self._clock, draw_id=self._draw_id)
        if self._access is Access.READ_ONLY:
            return ReadOnly(store)
        try:
            await _check(store, url, self._draw_id, self._clock)
        except BaseException:
            await store.aclose()
            raise
        return store


def open_store(
    url: str,
    *,
    access: Access = Access.READ_WRITE,
    timeout: float = DEFAULT_TIMEOUT,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
) -> Opening:
    """Open the store at `url`, having made sure that it honours conditional writes.

        async with open_store("s3://bucket/app") as store:
            match await store.create("greeting", b"hello"):
                case Applied(version): ...
                case Rejected(): ...    # somebody was first
                case Unknown(error): ...  # ask again with tenure.store.settle

    `timeout` is for each request, in seconds. Raises `InvalidUrl` at once, and on opening a `StoreError` that says what
    to do: `StoreUnfit` for a store on which tenure would not be safe.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not _MIN_TIMEOUT <= timeout <= _MAX_TIMEOUT:
        raise ConfigError(f"timeout is {timeout!r:.80}: give seconds between {_MIN_TIMEOUT} and {_MAX_TIMEOUT:g}")
    check_choice("access", access, Access)
    return Opening(parse_url(url), access, timeout, clock, draw_id)


async def connect(
    url: StoreUrl,
    *,
    access: Access = Access.READ_WRITE,
    timeout: float = DEFAULT_TIMEOUT,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
) -> Store:
    """The store at `url`, not yet tried out."""
    if url.scheme == "memory":
        contents = _shared_memory.setdefault(url.bucket, Contents()) if url.bucket else None
        return MemoryStore(name=url.bucket, contents=contents, clock=clock)
    if url.path is not None:
        return await asyncio.to_thread(
            DirectoryStore, url.path, access=access, timeout=timeout, clock=clock, draw_id=draw_id
        )
    # obstore takes a moment to import, which a directory has no use for.
    from tenure.store.cloud.bucket import BucketStore
    from tenure.store.cloud.credentials import find
    from tenure.store.cloud.handles import connect as connect_handles
    from tenure.store.cloud.store import CloudStore

    credentials = await find(url)
    bucket = CloudStore(url, connect_handles(url, credentials, timeout), credentials, timeout=timeout)
    return BucketStore(bucket, url.prefix)


async def _check(store: Store, url: StoreUrl, draw_id: NewId, clock: Clock) -> None:
    reasons = (await learn(store, url, draw_id=draw_id, clock=clock)).reasons
    if url.path is not None:
        reasons += await shared_folder_reasons(url)
    if reasons:
        raise StoreUnfit(store.info.url, reasons)


async def learn(store: Store, url: StoreUrl, *, draw_id: NewId = new_id, clock: Clock = SYSTEM_CLOCK) -> Learned:
    """Let a cloud store learn its dialect. Others have none."""
    if url.scheme in ("file", "memory"):
        return Learned()
    from tenure.store.cloud.bucket import BucketStore

    assert isinstance(store, BucketStore)
    return await store.learn(draw_id, clock)


async def shared_folder_reasons(url: StoreUrl) -> tuple[str, ...]:
    """Why a directory is unfit because of the file system that it is on."""
    assert url.path is not None
    filesystem = await asyncio.to_thread(filesystem_of, url.path, MOUNT_TABLE)
    if filesystem is None or not is_network(filesystem):
        return ()
    if not url.flag("shared"):
        return (
            f"it is on a {filesystem} file system, where locks may not hold between machines: use a bucket or a local "
            "disk; ?shared=1 has it tried by races, which show only what one machine can see",
        )
    from tenure.store.races import RaceKind, race

    try:
        reports = [await race(url, kind, rounds=10, processes=2) for kind in RaceKind]
    except StoreError as error:
        return (f"it is on a {filesystem} file system, and the races could not be run: {error}",)
    reasons = [violation for report in reports for violation in report.violations]
    reasons += [f"{report.undecided} {report.kind} races had no clear winner" for report in reports if report.undecided]
    return tuple(reasons)
