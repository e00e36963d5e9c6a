"""A store cannot be used in a forked child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from tenure.errors import ForkedProcess
from tenure.store import Version
from tenure.store.opening import connect
from tenure.store.url import parse_url

async def refused(store):
    async def listing():
        return [entry async for entry in store.list()]
    for call in (store.get("k"), store.put("k", b""), store.create("k", b""), store.replace("k", b"", Version("1")),
                 store.delete("k"), listing()):
        try:
            await call
        except ForkedProcess as error:
            assert "open stores after the fork" in str(error), error
        else:
            return 1
    return 0

store = asyncio.run(connect(parse_url(sys.argv[1])))
child = os.fork()
if child == 0:
    try:
        code = asyncio.run(asyncio.wait_for(refused(store), 5))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        code = 2
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["memory", "file", "s3"])
def test_a_store_raises_in_a_forked_child(kind: str, tmp_path: Path) -> None:
    url = {
        "memory": "memory://",
        "file": (tmp_path / "store").as_uri(),
        "s3": "s3://b?region=r&endpoint=http://127.0.0.1:1&access_key_id=a&secret_access_key=b",
    }[kind]
    ran = subprocess.run([sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, timeout=30)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


OPENED_AGAIN = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from tenure.errors import ForkedProcess
from tenure.store.opening import connect
from tenure.store.url import parse_url

url = parse_url("s3://b?region=r&endpoint=http://127.0.0.1:1&access_key_id=a&secret_access_key=b")
asyncio.run(connect(url))
child = os.fork()
if child == 0:
    try:
        asyncio.run(connect(url))
    except ForkedProcess as error:
        os._exit(0 if "'spawn'" in str(error) else 1)
    os._exit(2)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.req("EL-21")
def test_a_cloud_store_cannot_be_opened_in_the_child_of_a_process_that_used_one() -> None:
    done = subprocess.run([sys.executable, "-c", OPENED_AGAIN], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
