"""Settings of a bucket that cost money or surprise people: versioning, Object Lock, encryption, replication.

S3 settings are read with boto3 (the extra `[aws]`), where it is installed and allowed to; what cannot be read is
"unknown", which is no reason to refuse a store.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from tenure.store.cloud.credentials import Credentials, find, in_own_thread
from tenure.store.cloud.place import endpoint_of, region_of
from tenure.store.url import StoreUrl

SETTINGS = ("versioning", "object-lock", "encryption", "replication")
_SECONDS = 8.0
_ABSENT = ("NotFound", "NoSuch")  # how S3 names a setting that nobody made


async def read_settings(url: StoreUrl, *, versioned: bool | None) -> dict[str, str]:
    """`versioned` is what the store's answers gave away: it names a version id for each write, or it does not."""
    if url.scheme in ("file", "memory"):
        return {}
    settings = dict.fromkeys(SETTINGS, "unknown")
    if versioned is not None and url.scheme != "gs":
        settings["versioning"] = "on" if versioned else "off"
    if url.scheme == "s3" and importlib.util.find_spec("boto3"):
        try:
            async with asyncio.timeout(_SECONDS):
                found = await in_own_thread(partial(_ask_s3, url, await find(url)))
            settings |= {name: value for name, value in found.items() if value != "unknown"}
        except Exception:  # noqa: S110 - "unknown" says it all
            pass
    return settings


def notes_on(settings: Mapping[str, str], url: StoreUrl) -> list[str]:
    """What a person should do about these settings."""
    notes = []
    if settings.get("versioning") == "on":
        rule = {
            "ID": "tenure-noncurrent",
            "Status": "Enabled",
            "Filter": {"Prefix": url.prefix},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        }
        notes.append(
            "The bucket keeps every version: a lease rewritten every 5 s leaves 17,280 versions a day. Add this rule "
            f"to its lifecycle configuration: {msgspec.json.encode(rule).decode()}"
        )
    if settings.get("object-lock") == "on":
        notes.append(
            "Object Lock is on: a default retention keeps every version of every lease for its whole term, and none "
            "can be deleted. Use a bucket without it."
        )
    if "kms" in settings.get("encryption", ""):
        notes.append(
            "Objects are encrypted with KMS: each request also costs a KMS request, and KMS limits apply. Switch on "
            "bucket keys, or use SSE-S3 for this bucket."
        )
    if settings.get("replication") == "on":
        notes.append(
            "The bucket is replicated: every process must use this bucket and none its replica, where conditional "
            "writes do not see each other."
        )
    return notes


def _ask_s3(url: StoreUrl, credentials: Credentials) -> dict[str, str]:
    client = _client(url, credentials)
    bucket = url.bucket

    def versioning() -> str:
        return "on" if client.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled" else "off"

    def object_lock() -> str:
        answer = client.get_object_lock_configuration(Bucket=bucket)
        enabled = answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled")
        return "on" if enabled == "Enabled" else "off"

    def encryption() -> str:
        rules = client.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        return str(rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"])

    def replication() -> str:
        return "on" if client.get_bucket_replication(Bucket=bucket)["ReplicationConfiguration"]["Rules"] else "off"

    return {
        "versioning": _read(versioning),
        "object-lock": _read(object_lock),
        "encryption": _read(encryption),
        "replication": _read(replication),
    }


def _read(setting: Callable[[], str]) -> str:
    try:
        return setting()
    except Exception as error:  # boto3's own errors are made at run time
        code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
        return "off" if any(word in code for word in _ABSENT) else "unknown"


def _client(url: StoreUrl, credentials: Credentials) -> Any:
    """The same server, region and identity as the store's own client."""
    boto3 = importlib.import_module("boto3")
    config = importlib.import_module("botocore.config").Config(
        connect_timeout=2,
        read_timeout=3,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "virtual" if url.flag("virtual_hosted") else "auto"},
    )
    keys = credentials.provider() if credentials.provider is not None else {}
    session = boto3.Session(
        aws_access_key_id=keys.get("access_key_id"),
        aws_secret_access_key=keys.get("secret_access_key"),
        aws_session_token=keys.get("token"),
        region_name=region_of(url),
    )
    return session.client("s3", endpoint_url=endpoint_of(url), config=config)
