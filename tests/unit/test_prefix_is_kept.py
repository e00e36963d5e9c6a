"""Whatever a name holds, nothing is read or written outside of the place that it was meant for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator.layout import namespace_store, worker_key
from tenure.coordinator.lock.records import lock_key
from tenure.database import PluginStorage, Resource
from tenure.errors import ConfigError, TenureError
from tenure.ledger import ledger_store
from tenure.plugins.supervisor.status import folder_of
from tenure.store import Prefixed, Store, open_store
from tenure.store.url import parse_url

HOSTILE = [
    *("..", ".", "../victim", "../../victim", "a/../../victim", "/etc/passwd", "//victim", "./victim"),
    *("..%2fvictim", "%2e%2e/victim", "%2e%2e%2fvictim", "..%c0%afvictim", "~2e~2e~2fvictim", "..;/victim"),
    *("..\\victim", "C:\\victim", "C:victim", "\\\\host\\share", "\\\\?\\C:\\victim", "CON", "NUL.json", "a:b", "a."),
    *("a\0b", "a\nb", "~", "+locks", "+tmp", "plugin=coordinator", "..\u2044victim", "\uff0e\uff0e\uff0fvictim"),
]  # fmt: skip

DOORS: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "record id": lambda store, name: Resource(store, "pages").insert({"a": 1}, id=name),
    "resource": lambda store, name: Resource(store, name).insert({"a": 1}, id="one"),
    "storage key": lambda store, name: PluginStorage(store, "slug", "mine").set(name, 1),
    "storage name": lambda store, name: PluginStorage(store, "slug", name).set("key", 1),
    "namespace": lambda store, name: namespace_store(store, name).put("state.json", b"x"),
    "worker": lambda store, name: namespace_store(store, "default").put(worker_key(name), b"x"),
    "lock": lambda store, name: store.put(lock_key(name), b"x"),
    "ledger": lambda store, name: ledger_store(store, "s3-queue", name).put("log/1", b"x"),
    "supervisor": lambda store, name: store.put(f"{folder_of(name)}children.json", b"x"),
    "plain key": lambda store, name: store.put(name, b"x"),
    "key below a prefix": lambda store, name: Prefixed(store, "mine/").put(name, b"x"),
}


@pytest.mark.parametrize("door", DOORS)
async def test_nothing_leaves_the_prefix(door: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    victim = root / "victim"
    victim.mkdir(parents=True)
    (victim / "kept").write_text("kept")
    async with open_store((root / "store").as_uri()) as outer:
        store = Prefixed(outer, "fleet/")
        await outer.put("victim", b"kept")
        written = refused = 0
        for name in HOSTILE:
            try:
                await DOORS[door](store, name)
                written += 1
            except TenureError as error:
                assert isinstance(error, ConfigError), f"{name!r} came as far as the store: {error}"
                assert len(str(error)) < 500
                refused += 1
        keys = [entry.key async for entry in outer.list()]
    assert written + refused == len(HOSTILE)
    assert all(key == "victim" or key.startswith("fleet/") for key in keys), keys
    assert not any(set(key.split("/")) & {".", ".."} for key in keys)
    if door in ("plain key", "key below a prefix"):
        assert refused > written, "a key is not encoded, and most of these are none"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]
    assert sorted(path.name for path in root.iterdir()) == ["store", "victim"]
    assert [path.read_text() for path in victim.iterdir()] == ["kept"]


@pytest.mark.parametrize("prefix", ["../other", "a/../b", "%2e%2e/b", "a//b", "a\\b", "a%5cb", "a%00b", "%2fa//b"])
def test_a_prefix_that_leads_elsewhere_is_refused(prefix: str) -> None:
    for scheme in ("s3", "gs", "az"):
        with pytest.raises(ConfigError):
            parse_url(f"{scheme}://bucket/{prefix}")
