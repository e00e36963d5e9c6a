"""`make bench-store`: get, create, replace and list(1,000) on each store, beside boto3 on the same server.

Each figure is of one process. "serial" has one request under way, "32 at once" has 32 (boto3: 32 threads). Objects are
of 1,000 bytes. A server that is not installed (`make servers`) is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.form import finish
from lab.azurite import Azurite
from lab.buckets import make_bucket, make_container
from lab.ceph import Ceph
from lab.endpoint import S3Endpoint
from lab.ministack import Ministack
from tenure.entropy import new_id
from tenure.errors import StoreUnavailable
from tenure.store import Applied, Store, open_store

BODY = b"x" * 1000
COUNT = 1000
STORES = ["memory", "directory", "ministack", "ceph", "azurite"]
LISTED = 1000
Operation = Callable[[int], Awaitable[None]]
BlockingOperation = Callable[[int], None]


class Row:
    """One operation on one store by one client."""

    def __init__(self, store: str, client: str, operation: str, in_flight: int, seconds: list[float], wall: float):
        self.store, self.client, self.operation, self.in_flight = store, client, operation, in_flight
        self.seconds, self.wall = sorted(seconds), wall

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.wall

    def percentile_ms(self, share: float) -> float:
        return self.seconds[max(0, math.ceil(share * len(self.seconds)) - 1)] * 1000

    def as_json(self) -> dict[str, object]:
        return {
            "store": self.store,
            "client": self.client,
            "operation": self.operation,
            "in_flight": self.in_flight,
            "per_second": round(self.per_second, 1),
            "p50_ms": round(self.percentile_ms(0.5), 3),
            "p99_ms": round(self.percentile_ms(0.99), 3),
            "samples_ms": [round(seconds * 1000, 3) for seconds in self.seconds],
        }


async def run(operation: Operation, count: int, in_flight: int) -> tuple[list[float], float]:
    samples: list[float] = []
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            started = time.perf_counter()
            await operation(number)
            samples.append(time.perf_counter() - started)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return samples, time.perf_counter() - began


def run_blocking(operation: BlockingOperation, count: int, in_flight: int) -> tuple[list[float], float]:
    def timed(number: int) -> float:
        started = time.perf_counter()
        operation(number)
        return time.perf_counter() - started

    began = time.perf_counter()
    with ThreadPoolExecutor(in_flight) as threads:
        samples = list(threads.map(timed, range(count)))
    return samples, time.perf_counter() - began


async def bench_tenure(name: str, store: Store, count: int) -> AsyncIterator[Row]:
    folder = f"bench-{new_id()}"
    await asyncio.gather(*(store.put(f"{folder}/list/{number:04d}", BODY) for number in range(LISTED)))
    versions: dict[int, Any] = {}

    async def create(number: int) -> None:
        outcome = await store.create(f"{folder}/{in_flight}/{number:06d}", BODY)
        assert isinstance(outcome, Applied), outcome
        versions[number] = outcome.version

    async def get(number: int) -> None:
        await store.get(f"{folder}/{in_flight}/{number:06d}")

    async def replace(number: int) -> None:
        outcome = await store.replace(f"{folder}/{in_flight}/{number:06d}", BODY + b"!", versions[number])
        assert isinstance(outcome, Applied), outcome

    async def list_all(number: int) -> None:
        assert len([entry async for entry in store.list(f"{folder}/list/")]) == LISTED

    operations: list[tuple[str, Operation, int]] = [
        ("create", create, count),
        ("get", get, count),
        ("replace", replace, count),
        (f"list({LISTED:,})", list_all, max(10, count // 20)),
    ]
    for in_flight in (1, 32):
        for operation, function, times in operations:
            yield Row(name, "tenure", operation, in_flight, *await run(function, times, in_flight))
    keys = [entry.key async for entry in store.list(f"{folder}/")]
    for _ in range(3):
        with contextlib.suppress(StoreUnavailable):  # Azurite resets a connection now and then
            await store.delete(*keys)
            break


def bench_boto3(name: str, endpoint: S3Endpoint, count: int) -> Iterator[Row]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name=endpoint.region,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        config=Config(max_pool_connections=64, retries={"total_max_attempts": 1}),
    )
    folder = f"bench-{new_id()}"
    with ThreadPoolExecutor(32) as threads:
        list(
            threads.map(
                lambda n: client.put_object(Bucket="bucket", Key=f"{folder}/list/{n:04d}", Body=BODY), range(LISTED)
            )
        )
    tags: dict[int, str] = {}

    def create(number: int) -> None:
        key = f"{folder}/{in_flight}/{number:06d}"
        tags[number] = client.put_object(Bucket="bucket", Key=key, Body=BODY, IfNoneMatch="*")["ETag"]

    def get(number: int) -> None:
        client.get_object(Bucket="bucket", Key=f"{folder}/{in_flight}/{number:06d}")["Body"].read()

    def replace(number: int) -> None:
        tag = tags[number].strip('"') if name == "ceph" else tags[number]
        key = f"{folder}/{in_flight}/{number:06d}"
        client.put_object(Bucket="bucket", Key=key, Body=BODY + b"!", IfMatch=tag)

    def list_all(number: int) -> None:
        assert client.list_objects_v2(Bucket="bucket", Prefix=f"{folder}/list/")["KeyCount"] == LISTED

    operations: list[tuple[str, BlockingOperation, int]] = [
        ("create", create, count),
        ("get", get, count),
        ("replace", replace, count),
        (f"list({LISTED:,})", list_all, max(10, count // 20)),
    ]
    for in_flight in (1, 32):
        for operation, function, times in operations:
            yield Row(name, "boto3", operation, in_flight, *run_blocking(function, times, in_flight))


async def main(count: int, only: list[str]) -> None:
    console = Console(width=110)
    busy = [round(load, 1) for load in os.getloadavg()]
    rows: list[Row] = []
    left_out: list[str] = []

    async def measure(name: str, url: str, endpoint: S3Endpoint | None = None) -> None:
        console.print(f"[dim]{name} …[/]")
        async with open_store(url, timeout=30) as store:
            rows.extend([row async for row in bench_tenure(name, store, count)])
        if endpoint is not None:
            rows.extend(await asyncio.to_thread(lambda: list(bench_boto3(name, endpoint, count))))

    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as servers:
        for name in only:
            folder = Path(home) / name
            if name == "memory":
                await measure(name, "memory://")
            elif name == "directory":
                await measure(name, folder.as_uri())
            elif name == "azurite":
                if missing := Azurite.missing():
                    left_out.append(f"azurite ({', '.join(missing)} missing)")
                    continue
                azurite = Azurite(folder)
                servers.callback(azurite.stop)
                account = azurite.start()
                make_container(account, "container")
                await measure(name, account.store_url("container"))
            else:
                server: type[Ministack] | type[Ceph] = Ministack if name == "ministack" else Ceph
                if missing := server.missing():
                    left_out.append(f"{name} ({', '.join(missing)} missing)")
                    continue
                s3 = server(folder)
                servers.callback(s3.stop)
                endpoint = s3.start()
                make_bucket(endpoint, "bucket")
                await measure(name, endpoint.store_url("bucket"), endpoint)
    show(rows, console)
    for name in left_out:
        console.print(f"left out: {name}")
    result = {
        "seeds": "none: nothing here is drawn at random but ids",
        "load_average_before": busy,
        "count": count,
        "body_bytes": len(BODY),
        "left_out": left_out,
        "rows": [row.as_json() for row in rows],
    }
    finish("store", result, [], console, is_whole=count == COUNT and only == STORES and not left_out)


def show(rows: list[Row], console: Console) -> None:
    table = Table("store", "client", "operation", "at once", "per second", "p50 ms", "p99 ms", "× boto3")
    boto3 = {(row.store, row.operation, row.in_flight): row for row in rows if row.client == "boto3"}
    for row in rows:
        peer = boto3.get((row.store, row.operation, row.in_flight)) if row.client == "tenure" else None
        table.add_row(
            *(row.store, row.client, row.operation, str(row.in_flight), f"{row.per_second:,.0f}"),
            *(f"{row.percentile_ms(0.5):.2f}", f"{row.percentile_ms(0.99):.2f}"),
            f"{row.per_second / peer.per_second:.1f}" if peer else "",
        )
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="requests of each kind")
    parser.add_argument("--only", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    options = parser.parse_args()
    asyncio.run(main(100 if options.quick else options.count, options.only))
