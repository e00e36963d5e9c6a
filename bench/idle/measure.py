"""Two workers on each store, of which one leads, all at the same time: none of them has anything to do."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.idle.plan import Plan
from bench.idle.process import figures, look
from bench.queue.obey import ROOT, Node

ROLES = ("leader", "follower")


def measure(urls: Mapping[str, str], home: Path, plan: Plan, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each store and role."""
    with contextlib.ExitStack() as stack:
        nodes = {(store, role): _worker(stack, url, role, home) for store, url in urls.items() for role in ROLES}
        baseline = _bare(stack, home)
        tell(f"{len(nodes)} workers run; {plan.settle_seconds:g} s to settle, then {plan.seconds:g} s are counted")
        time.sleep(plan.settle_seconds)
        looked: dict[Any, list[dict[str, Any]]] = {who: [look(node.pid)] for who, node in nodes.items()}
        end = time.monotonic() + plan.seconds
        while time.monotonic() < end:
            time.sleep(min(plan.every_seconds, max(0.0, end - time.monotonic())))
            for who, node in nodes.items():
                looked[who].append(look(node.pid))
        bare = look(baseline.pid)
        rows = []
        for (store, role), node in nodes.items():
            told = _dismissed(node)
            if told["leads"] != (role == "leader"):
                raise RuntimeError(f"the {role} on {store} {'leads' if told['leads'] else 'does not lead'} in the end")
            rows.append(
                {
                    "store": store,
                    "role": role,
                    **figures(looked[store, role]),
                    "heartbeats": told["heartbeats"],
                    "needless_modules": told["needless_modules"],
                    "bare_python_megabytes": round(bare["megabytes"], 2),
                }
            )
    return rows


def _worker(stack: contextlib.ExitStack, url: str, role: str, home: Path) -> Node:
    """The leader comes first, and is the first in rank."""
    name = "a-leader" if role == "leader" else "b-follower"
    command = [sys.executable, "-m", "bench.idle.worker", url, name]
    node = Node(command, home / f"{name}.log", {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": ""})
    stack.callback(node.end)
    if node.answer(120)["leads"] != (role == "leader"):
        raise RuntimeError(f"{name} was to be the {role}, and is not")
    return node


def _dismissed(node: Node) -> dict[str, Any]:
    assert node.process.stdin is not None
    node.process.stdin.close()
    return node.answer(60)


def _bare(stack: contextlib.ExitStack, home: Path) -> Node:
    """Python with asyncio, and nothing else: what a process has before tenure."""
    code = "import asyncio, sys; print('{\"ready\": true}', flush=True); asyncio.run(asyncio.to_thread(sys.stdin.read))"
    node = Node([sys.executable, "-c", code], home / "bare.log", {"PYTHONDONTWRITEBYTECODE": ""})
    stack.callback(node.end)
    node.answer(60)
    return node
