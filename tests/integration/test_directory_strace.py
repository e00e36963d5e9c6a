"""The order of the real system calls, as the kernel sees them: no kill can show a missing fsync."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, sys
from tenure.store import Applied, open_store

async def main(url):
    async with open_store(url) as store:
        created = await store.create("folder/key", b"one")
        assert isinstance(created, Applied)
        print("told: created", flush=True)
        assert isinstance(await store.replace("folder/key", b"two", created.version), Applied)
        print("told: replaced", flush=True)

asyncio.run(main(sys.argv[1]))
"""
CALL = re.compile(r"(?P<call>openat|fsync|renameat|linkat|write)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")


@pytest.fixture
def calls(tmp_path: Path) -> list[str]:
    """What was done to files of the store, in order, in words."""
    assert shutil.which("strace"), "make servers installs strace"
    root, trace = tmp_path / "store", tmp_path / "trace"
    watched = "trace=openat,fsync,renameat,linkat,write"
    command = ["strace", "-f", "-y", "-s", "200", "-o", str(trace), "-e", watched, sys.executable, "-c", SCRIPT]
    subprocess.run([*command, root.as_uri()], check=True, capture_output=True, timeout=120)
    words = []
    for line in trace.read_text(errors="replace").splitlines():
        found = CALL.search(line)
        if found is None or int(found["result"]) < 0:
            continue
        call, arguments = found["call"], found["arguments"]
        if call == "write" and "told: " in arguments:
            words.append("told")
        elif call == "write" and "/+tmp/" in arguments:
            words.append("write file")
        elif call == "fsync":
            words.append(
                "fsync file" if "/+tmp/" in arguments else "fsync folder@" if "folder@>" in arguments else "fsync"
            )
        elif call in ("linkat", "renameat") and 'folder@>, "key"' in arguments:
            words.append(call.removesuffix("at"))
    return words


@pytest.mark.servers
def test_nobody_is_told_before_it_is_on_the_disk(calls: list[str]) -> None:
    first, second = calls.index("told"), len(calls) - 1 - calls[::-1].index("told")
    relevant = ("write file", "fsync file", "link", "rename", "fsync folder@")
    create = [call for call in calls[:first] if call in relevant]
    replace = [call for call in calls[first:second] if call in relevant]
    assert create[-4:] == ["write file", "fsync file", "link", "fsync folder@"]
    assert replace == ["write file", "fsync file", "rename", "fsync folder@"]
