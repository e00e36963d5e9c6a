"""Servers for the tests that run the real command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from lab.ministack import Ministack


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Endpoint]:
    server = Ministack(Path(tmp_path_factory.mktemp("ministack")))
    try:
        endpoint = server.start()
        make_bucket(endpoint, "bucket")
        yield endpoint
    finally:
        server.stop()
