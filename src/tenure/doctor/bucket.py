"""Settings of a bucket that cost money, surprise people or remove our objects: versioning, Object Lock, encryption,
replication, lifecycle rules.

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

SETTINGS = ("versioning", "object-lock", "encryption", "replication", "lifecycle")
_SECONDS = 8.0
_EXPIRES = "expires objects of ours: "
_OURS = ("plugin=", "resource=")
"""How the keys begin that processes write below the store's prefix. Scratch objects may be expired by anybody."""
_FROZEN = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes in which an object cannot be read at once."""
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


def objections_to(settings: Mapping[str, str], url: StoreUrl) -> list[str]:
    """Why tenure is not safe on a bucket with these settings."""
    found = settings.get("lifecycle", "")
    if not found.startswith(_EXPIRES):
        return []
    return [
        f"a lifecycle rule of the bucket expires objects of ours ({found.removeprefix(_EXPIRES)}): leases, messages "
        "and records would be lost that nobody deleted; limit the rule to keys that are not below "
        f"{url.prefix + _OURS[0]!r} and {url.prefix + _OURS[1]!r}, or use another prefix"
    ]


def asked_at(url: StoreUrl) -> str:
    """Which bucket, on which server: what a person has to check first."""
    if url.scheme in ("file", "memory"):
        return url.shown
    kind = "container" if url.scheme == "az" else "bucket"
    return f"{kind} {url.bucket!r}, endpoint {endpoint_of(url) or 'of the provider'}"


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

    def lifecycle() -> str:
        rules = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        told = [what for rule in rules if (what := _takes_ours(rule, url.prefix)) is not None]
        return _EXPIRES + "; ".join(told) if told else "on, for none of ours"

    return {
        "lifecycle": _read(lifecycle),
        "versioning": _read(versioning),
        "object-lock": _read(object_lock),
        "encryption": _read(encryption),
        "replication": _read(replication),
    }


def _takes_ours(rule: Mapping[str, Any], prefix: str) -> str | None:
    """What a lifecycle rule does to current objects below the prefix. None: nothing."""
    if rule.get("Status") != "Enabled":
        return None
    chosen = rule.get("Filter") or {}
    chosen = chosen.get("And") or chosen
    if chosen.get("Tag") or chosen.get("Tags"):
        return None  # ours have none
    if not _may_be_ours(str(chosen.get("Prefix") or rule.get("Prefix") or ""), prefix):
        return None
    name = f"rule {rule.get('ID') or 'without an id'!r}"
    expiration = rule.get("Expiration") or {}
    if "Days" in expiration:
        return f"{name}, after {expiration['Days']} days"
    if "Date" in expiration:
        return f"{name}, on {expiration['Date']}"
    moved = next((each for each in rule.get("Transitions") or () if each.get("StorageClass") in _FROZEN), None)
    return None if moved is None else f"{name}, by moving them to {moved['StorageClass']}"


def _may_be_ours(chosen: str, prefix: str) -> bool:
    """Does a rule for keys that begin with `chosen` meet what is written below `prefix`?"""
    begin = [prefix + each for each in _OURS]
    return any(chosen.startswith(each) or each.startswith(chosen) for each in begin)


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
