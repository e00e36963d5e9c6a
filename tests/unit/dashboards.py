"""A dashboard under test: in this process, asked without a network, on a store of this process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tenure.dashboard.app import Dashboard, build
from tenure.election.records import State

TOKEN = "correct-horse-battery-staple"
HERE = "http://127.0.0.1:8321"
PATIENCE = 30.0
_numbers = itertools.count()


def a_store() -> str:
    """The URL of a store that nobody else uses."""
    return f"memory://dashboard-{os.getpid()}-{next(_numbers)}"


class Page(httpx.AsyncClient):
    """What a browser, or a script, sends."""

    dashboard: Dashboard
    app: Any

    async def snapshot(self) -> dict[str, Any]:
        response = await self.get("/api/snapshot")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    async def until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first snapshot of which that is true."""
        found: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.snapshot()
                try:
                    if holds(found):
                        return found
                except (KeyError, IndexError, TypeError):
                    pass
                await asyncio.sleep(0.05)

    async def sign_in(self, token: str = TOKEN, **headers: str) -> dict[str, str]:
        """The headers that an action of this session needs."""
        response = await self.post("/api/sign-in", json={"token": token}, headers={"origin": HERE, **headers})
        assert response.status_code == 200, response.text
        return {"origin": HERE, "x-csrf-token": response.json()["csrf"]}


@asynccontextmanager
async def shown(
    url: str, namespace: str = "default", *, base: str = HERE, mount: Callable[[Any], Any] | None = None, **options: Any
) -> AsyncIterator[Page]:
    app, dashboard = build(url, namespace, interval=options.pop("interval", 0.1), **options)
    outer = app if mount is None else mount(app)
    async with dashboard.lifespan(app):
        transport = httpx.ASGITransport(app=outer, client=("127.0.0.1", 5))
        async with Page(transport=transport, base_url=base) as page:
            page.dashboard, page.app = dashboard, outer
            yield page


def a_lease(leader: str = "ada", epoch: int = 1, renewals: int = 0, **changes: Any) -> State:
    return State(
        **{
            "write_id": f"w{epoch}-{renewals}",
            "leader_id": leader,
            "uid": f"u-{leader}"[:64],
            "epoch": epoch,
            "grant_id": f"g{epoch}",
            "leader_write_id": f"w{epoch}-{renewals}",
            "lease_duration_ms": 15_000,
            "renewals": renewals,
            "elected_at": "2026-11-18T00:00:00.000+00:00",
            **changes,
        }
    )


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def events_in(text: str) -> list[tuple[str, Any]]:
    """What a stream of events said: name and data."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found
