"""Settings of a bucket: what is read of them, and what a person is told to do about them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tenure.doctor.bucket import SETTINGS, asked_at, notes_on, objections_to, read_settings
from tenure.store.url import StoreUrl, parse_url

S3 = parse_url("s3://bucket/app?region=eu-west-1&access_key_id=key&secret_access_key=secret")
PLAIN = {"versioning": "off", "object-lock": "off", "encryption": "AES256", "replication": "off", "lifecycle": "off"}
UNKNOWN = dict.fromkeys(SETTINGS, "unknown")


class Bucket:
    """Answers as boto3's client does: with a value, or with the error that is set for the call."""

    def __init__(self, **answers: dict[str, Any] | str) -> None:
        self._answers = answers

    def __getattr__(self, call: str) -> Callable[..., dict[str, Any]]:
        def answer(**options: str) -> dict[str, Any]:
            assert options == {"Bucket": "bucket"}
            found = self._answers[call]
            if isinstance(found, str):
                raise ClientError({"Error": {"Code": found}}, call)
            return found

        return answer


ABSENT = {
    "get_bucket_versioning": {},
    "get_object_lock_configuration": "ObjectLockConfigurationNotFoundError",
    "get_bucket_encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "get_bucket_replication": "ReplicationConfigurationNotFoundError",
    "get_bucket_lifecycle_configuration": "NoSuchLifecycleConfiguration",
}
PRESENT = {
    "get_bucket_versioning": {"Status": "Enabled"},
    "get_object_lock_configuration": {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}},
    "get_bucket_encryption": {
        "ServerSideEncryptionConfiguration": {
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
        }
    },
    "get_bucket_replication": {"ReplicationConfiguration": {"Rules": [{"Status": "Enabled"}]}},
    "get_bucket_lifecycle_configuration": {
        "Rules": [{"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}}]
    },
}
DENIED = dict.fromkeys(ABSENT, "AccessDenied")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Let boto3 find a bucket that answers like this."""

    def install(given: dict[str, Any]) -> None:
        class Session:
            def __init__(self, **options: object) -> None: ...

            def client(self, service: str, **options: object) -> Bucket:
                assert service == "s3"
                return Bucket(**given)

        monkeypatch.setattr(boto3, "Session", Session)

    return install


@pytest.fixture
def no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "boto3" else find_spec(name, package)

    def session(**options: object) -> None:
        pytest.fail("boto3 was used")

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(boto3, "Session", session)


@pytest.mark.parametrize("settings", [{}, PLAIN, UNKNOWN])
def test_nothing_is_said_of_a_plain_bucket_or_of_what_is_unknown(settings: dict[str, str]) -> None:
    assert notes_on(settings, S3) == []


@pytest.mark.parametrize(("url", "prefix"), [(S3, "app/"), (parse_url("s3://bucket"), "")])
def test_versioning_comes_with_the_rule_to_add(url: StoreUrl, prefix: str) -> None:
    (note,) = notes_on({**PLAIN, "versioning": "on"}, url)
    assert "17,280 versions a day" in note
    rule = json.loads(note[note.index("{") :])
    assert rule["Filter"] == {"Prefix": prefix}
    assert rule["Status"] == "Enabled"
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("object-lock", "on", "Use a bucket without it"),
        ("encryption", "aws:kms", "costs a KMS request"),
        ("encryption", "aws:kms:dsse", "costs a KMS request"),
        ("replication", "on", "none its replica"),
    ],
)
def test_a_setting_with_consequences_is_explained(setting: str, value: str, says: str) -> None:
    (note,) = notes_on({**PLAIN, setting: value}, S3)
    assert says in note


def test_every_setting_has_its_own_note() -> None:
    assert (
        len(notes_on({"versioning": "on", "object-lock": "on", "encryption": "aws:kms", "replication": "on"}, S3)) == 4
    )


@pytest.mark.parametrize("versioned", [None, True, False])
async def test_a_directory_and_memory_have_no_settings(tmp_path: Path, versioned: bool | None) -> None:
    for url in (tmp_path.as_uri(), "memory://", "memory://name"):
        assert await read_settings(parse_url(url), versioned=versioned) == {}


async def test_settings_that_were_made(answers: Callable[[dict[str, Any]], None]) -> None:
    answers(PRESENT)
    found = await read_settings(S3, versioned=None)
    assert found == {
        **{"versioning": "on", "object-lock": "on", "encryption": "aws:kms", "replication": "on"},
        "lifecycle": "on, for none of ours",
    }


async def test_settings_that_nobody_made_are_off(answers: Callable[[dict[str, Any]], None]) -> None:
    answers(ABSENT)
    assert await read_settings(S3, versioned=None) == dict.fromkeys(SETTINGS, "off")


@pytest.mark.parametrize(("versioned", "shown"), [(None, "unknown"), (True, "on"), (False, "off")])
async def test_without_boto3_only_evidence_counts(no_boto3: None, versioned: bool | None, shown: str) -> None:
    assert await read_settings(S3, versioned=versioned) == {**UNKNOWN, "versioning": shown}


@pytest.mark.parametrize(("versioned", "shown"), [(None, "unknown"), (True, "on"), (False, "off")])
async def test_a_denied_setting_is_unknown_and_undoes_no_evidence(
    answers: Callable[[dict[str, Any]], None], versioned: bool | None, shown: str
) -> None:
    answers(DENIED)
    assert await read_settings(S3, versioned=versioned) == {**UNKNOWN, "versioning": shown}


async def test_one_denied_setting_hides_no_other(answers: Callable[[dict[str, Any]], None]) -> None:
    answers({**PRESENT, "get_bucket_versioning": "AccessDenied", "get_bucket_replication": "AccessDenied"})
    found = await read_settings(S3, versioned=True)
    assert found["replication"] == "unknown"
    assert found["versioning"] == found["object-lock"] == "on"


async def test_a_client_that_cannot_be_made_leaves_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(**options: object) -> None:
        raise RuntimeError("no such profile")

    monkeypatch.setattr(boto3, "Session", session)
    assert await read_settings(S3, versioned=True) == {**UNKNOWN, "versioning": "on"}


@pytest.mark.parametrize(
    ("url", "shown"), [("gs://bucket/app", "unknown"), ("az://container/app?account=name&account_key=a2V5", "on")]
)
async def test_other_providers_are_not_asked(url: str, shown: str, no_boto3: None) -> None:
    """Google names a generation with every write, versioned or not: that is no evidence."""
    assert await read_settings(parse_url(url), versioned=True) == {**UNKNOWN, "versioning": shown}


DAYS = {"Expiration": {"Days": 7}}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"Filter": {}, **DAYS}, "after 7 days"),
        ({"Filter": {"Prefix": ""}, **DAYS}, "after 7 days"),
        ({"Prefix": "app/", **DAYS}, "after 7 days"),
        ({"Filter": {"Prefix": "ap"}, **DAYS}, "after 7 days"),
        ({"Filter": {"Prefix": "app/plugin=coordinator/"}, **DAYS}, "after 7 days"),
        ({"Filter": {"And": {"Prefix": "app/", "ObjectSizeGreaterThan": 100}}, **DAYS}, "after 7 days"),
        ({"Filter": {}, "Expiration": {"Date": "2027-01-01"}}, "on 2027-01-01"),
        ({"Filter": {}, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, "by moving them to GLACIER"),
    ],
)
async def test_a_rule_that_takes_our_objects_is_an_objection(
    rule: dict[str, Any], says: str, answers: Callable[[dict[str, Any]], None]
) -> None:
    """WA-11. Nothing was said of it, and the bucket was called fit."""
    rules = {"Rules": [{"ID": "old", "Status": "Enabled", **rule}]}
    answers({**ABSENT, "get_bucket_lifecycle_configuration": rules})
    (reason,) = objections_to(await read_settings(S3, versioned=None), S3)
    assert f"rule 'old', {says}" in reason
    assert "'app/plugin='" in reason


@pytest.mark.parametrize(
    "rule",
    [
        {"Status": "Disabled", "Filter": {}, **DAYS},
        {"Filter": {"Prefix": "logs/"}, **DAYS},
        {"Filter": {"Prefix": "app/tenure-race/"}, **DAYS},
        {"Filter": {"Tag": {"Key": "a", "Value": "b"}}, **DAYS},
        {"Filter": {"And": {"Prefix": "app/", "Tags": [{"Key": "a", "Value": "b"}]}}, **DAYS},
        {"Filter": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}},
        {"Filter": {}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}},
        {"Filter": {}, "Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]},
    ],
)
async def test_a_rule_that_leaves_our_objects_is_none(
    rule: dict[str, Any], answers: Callable[[dict[str, Any]], None]
) -> None:
    answers({**ABSENT, "get_bucket_lifecycle_configuration": {"Rules": [{"Status": "Enabled", **rule}]}})
    settings = await read_settings(S3, versioned=None)
    assert settings["lifecycle"] == "on, for none of ours"
    assert objections_to(settings, S3) == []


@pytest.mark.parametrize("settings", [{}, PLAIN, UNKNOWN])
def test_what_is_not_known_of_rules_is_no_objection(settings: dict[str, str]) -> None:
    assert objections_to(settings, S3) == []


def test_bucket_and_endpoint_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert asked_at(S3) == "bucket 'bucket', endpoint of the provider"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    assert asked_at(S3) == "bucket 'bucket', endpoint http://minio:9000"
    assert asked_at(parse_url("az://c/app?account=a&account_key=a2V5")).startswith("container 'c', endpoint")
    assert asked_at(parse_url("file:///tmp/x")) == "file:///tmp/x"
