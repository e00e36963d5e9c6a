"""Assumed roles: keys that the token service hands out, and a token service that never answers."""

from __future__ import annotations

import socket

import pytest

from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from tenure.errors import CredentialsNotFound
from tenure.store import Applied, open_store
from tenure.store.cloud import credentials

ROLE = "arn:aws:iam::000000000000:role/tenure"


@pytest.fixture(autouse=True)
def keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testtest")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


async def test_a_role_issues_the_keys(ministack: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bucket(ministack, "bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", ministack.url)
    async with open_store(f"s3://bucket/role?endpoint={ministack.url}&role_arn={ROLE}") as store:
        assert isinstance(await store.create("k", b"1"), Applied)


async def test_a_token_service_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "LOOK_UP_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(CredentialsNotFound, match="role/tenure gave no credentials within"):
            await open_store(f"s3://bucket/role?endpoint=http://127.0.0.1:1&role_arn={ROLE}")
