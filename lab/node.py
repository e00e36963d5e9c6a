"""Where the servers that come from npm are installed."""

from __future__ import annotations

import os
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1] / ".servers" / "node"


def node_home() -> Path:
    """The folder that holds `node_modules`: TENURE_SERVERS_NODE, or `.servers/node` in the repository."""
    return Path(os.environ.get("TENURE_SERVERS_NODE") or _HOME)


def node_program(name: str) -> Path:
    return node_home() / "node_modules" / ".bin" / name


def missing_program(name: str) -> list[str]:
    return [] if node_program(name).exists() else [str(node_program(name))]
