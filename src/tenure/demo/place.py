"""Where the demo happens: a directory, or a part of a store, that nobody else knows and that is removed afterwards."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tenure.demo.candidate import Part
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.store import open_store
from tenure.store.providers import SECONDS_BETWEEN_WRITES
from tenure.store.url import StoreUrl, parse_url

NAMESPACE = "demo"
LEDGER = "demo/ledger"
_LEASE_SECONDS = {"gs": 8.0}
"""The shortest that Google's one write a second allows."""
_DEFAULT_LEASE_SECONDS = 3.0
_WORK_SECONDS = 0.1
_ORDER_SECONDS = 0.2
_LOOK_SECONDS = 0.5
_ENCORE_SECONDS = 1.0
_CLEARING_SECONDS = 60.0


class Place(msgspec.Struct):
    url: StoreUrl
    left_behind: str = ""
    """What could not be removed and why; known once the place has been left."""

    @property
    def noun(self) -> str:
        return "directory" if self.url.path is not None else "bucket"

    @property
    def lease_seconds(self) -> float:
        return _LEASE_SECONDS.get(self.url.scheme, _DEFAULT_LEASE_SECONDS)

    def part(self, worker: str, parent: int) -> Part:
        between_writes = SECONDS_BETWEEN_WRITES.get(self.url.scheme, 0.0)
        return Part(
            url=self.url.text(),
            namespace=NAMESPACE,
            worker=worker,
            ledger=LEDGER,
            parent=parent,
            lease_seconds=self.lease_seconds,
            work_seconds=max(_WORK_SECONDS, between_writes),
            order_seconds=_ORDER_SECONDS,
            # Shorter than a lease, so that what a killed process had in hand is brought again before the curtain.
            visibility_seconds=self.lease_seconds * 2 / 3,
            look_seconds=max(_LOOK_SECONDS, between_writes),
        )

    def encore(self, worker: str, parent: int) -> Part:
        """After the story, with less haste: it may go on for hours."""
        part = self.part(worker, parent)
        return msgspec.structs.replace(
            part,
            work_seconds=max(part.work_seconds, _ENCORE_SECONDS),
            order_seconds=max(part.order_seconds, _ENCORE_SECONDS),
            queue_seconds=_ENCORE_SECONDS / 2,
            look_seconds=max(part.look_seconds, _ENCORE_SECONDS),
        )


def fresh_part_of(store: StoreUrl, draw_id: NewId = new_id) -> StoreUrl:
    """A place below `store` that nobody has used and nobody will use again, so that all of it may be removed."""
    if store.scheme == "memory":
        raise ConfigError("the demo's processes cannot share memory://: give a bucket, or a directory as file:///path")
    name = f"tenure-demo-{draw_id()[:12]}"
    if store.path is not None:
        return msgspec.structs.replace(store, path=store.path / name)
    return parse_url(msgspec.structs.replace(store, prefix=f"{store.prefix}{name}/").text())


@asynccontextmanager
async def demo_place(store: str | None) -> AsyncIterator[Place]:
    """A temporary directory, or a fresh part of `store`. Opened once, so that one that cannot do is refused at once."""
    if store is None:
        with tempfile.TemporaryDirectory(prefix="tenure-demo-", ignore_cleanup_errors=True) as directory:
            yield Place(parse_url(Path(directory).as_uri()))
        return
    place = Place(fresh_part_of(parse_url(store)))
    try:
        await _try(place.url)
        yield place
    finally:
        place.left_behind = await _clear(place.url)


async def _try(url: StoreUrl) -> None:
    try:
        async with open_store(url.text()):
            pass
    except (OSError, StoreError) as error:
        if url.path is None:
            raise  # a bucket's errors say what to do
        raise StoreUnavailable(
            f"the demo cannot play below {url.path.parent} ({error}): give a directory that can be written to, or no "
            "--store for a temporary one"
        ) from None


async def _clear(url: StoreUrl) -> str:
    try:
        if url.path is not None:
            await asyncio.to_thread(shutil.rmtree, url.path, ignore_errors=False)
        else:
            async with asyncio.timeout(_CLEARING_SECONDS), open_store(url.text()) as opened:
                await opened.delete(*[entry.key async for entry in opened.list("")])
                left = [entry.key async for entry in opened.list("")]
            if left:
                raise StoreUnavailable(f"{len(left)} objects are still there")
    except FileNotFoundError:
        pass
    except (OSError, StoreError) as error:
        return f"what the demo wrote is left at {url.shown} ({error}): remove everything below it, nothing else uses it"
    return ""
