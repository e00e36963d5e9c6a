"""A script that does one thing on a bucket and ends says by its exit code that all went well."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.endpoint import S3Endpoint
from tests.conftest import BUCKET

SCRIPT = """
import asyncio, sys
from tenure.store import open_store

async def main(url):
    async with open_store(url) as store:
        await store.get("small")

asyncio.run(main(sys.argv[1]))
"""
WRITES = SCRIPT.replace('get("small")', 'put("small", b"x")')


@pytest.mark.servers
def test_none_is_aborted_at_its_end(ministack: S3Endpoint) -> None:
    """Without `tenure.store.cloud.ending` one in ten ended with signal 6 (Python 3.11, four at once on two cores)."""
    url = ministack.store_url(BUCKET, "short-scripts")

    def run(script: str) -> int:
        return subprocess.run([sys.executable, "-c", script, url], timeout=60, check=False).returncode

    assert run(WRITES) == 0
    with ThreadPoolExecutor(4) as pool:
        assert Counter(pool.map(run, [SCRIPT] * 100)) == {0: 100}
