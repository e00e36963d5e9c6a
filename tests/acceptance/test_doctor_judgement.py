"""The doctor's judgement: it accuses no store falsely for a bad moment, and is fooled by none of these liars."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy
from lab.faults import status_after_apply, status_before_apply
from lab.gcs import Gcs
from lab.racy import Oddities, RacyS3
from tenure.doctor import examine
from tests.support.command import tenure_process

QUICK = {"rounds": 2, "processes": 2, "samples": 2}
WRITES_BEFORE_RACES = 16
"""How many the probe and the questions send."""


@pytest.mark.slow
@pytest.mark.req("OP-3")
@pytest.mark.parametrize(
    ("fault", "first"), [(status_before_apply(503), 1), (status_after_apply(500), 2)], ids=["before", "after"]
)
async def test_one_bad_moment_makes_no_store_unfit(ministack: S3Endpoint, fault: object, first: int) -> None:
    make_bucket(ministack, "bucket")
    for number in range(first, WRITES_BEFORE_RACES + 1, 2):
        proxy = FaultProxy(ministack.url)
        url = ministack.store_url("bucket", f"blip{number}", endpoint=proxy.start())
        try:
            seen = 0

            def nth(request: object, number: int = number) -> bool:
                nonlocal seen
                if getattr(request, "method", "") != "PUT":
                    return False
                seen += 1
                return seen == number

            proxy.plan(fault, nth)  # type: ignore[arg-type]
            report = await examine(url, **QUICK)
            assert report.fit is not False, f"fault at write {number}: {report.reasons}"
        finally:
            proxy.stop()


@pytest.mark.slow
@pytest.mark.req("OP-3")
async def test_google_s_one_write_a_second_is_no_reason_to_refuse(tmp_path: Path) -> None:
    server = Gcs(writes_per_second=1.0)
    try:
        url = server.start().store_url("bucket", "app", key_file=tmp_path / "key.json")
        report = await examine(url, **QUICK)
    finally:
        server.stop()
    assert report.fit is True, report.reasons
    assert report.recommended is not None
    assert report.recommended.heartbeat_interval_seconds >= 2


@pytest.mark.req("OP-3")
@pytest.mark.parametrize(
    ("oddities", "says"),
    [
        (Oddities(window=0, always_304=True), "it answers 304, not modified, for an object that was modified"),
        (Oddities(window=0, unordered=True), "it does not list keys in order"),
        (Oddities(window=0, two_etags=True), "it names one version (ETag) when it writes and another when it reads"),
        (Oddities(window=0, undeletable=True), "it denies deleting"),
        (Oddities(window=0, no_etag=True), "answered without an ETag"),
        (Oddities(window=0, missing_key_status=403), "s3:ListBucket"),
        (Oddities(window=0, ignore=("if-match",)), "it ignores If-Match"),
        (Oddities(window=0, ignore=("if-none-match",)), "it ignores If-None-Match"),
    ],
    ids=["always-304", "unordered", "two-etags", "undeletable", "no-etag", "403", "if-match", "if-none-match"],
)
async def test_a_store_that_lies_is_refused(tmp_path: Path, oddities: Oddities, says: str) -> None:
    server = RacyS3(tmp_path, oddities)
    try:
        report = await examine(server.start().store_url("bucket", "app"), **QUICK)
    finally:
        server.stop()
    assert report.fit is False
    assert any(says in reason for reason in report.reasons), report.reasons


async def test_a_store_that_denies_writing_is_not_judged(tmp_path: Path) -> None:
    """WA-11. It was called unfit, though nothing had been asked of it: who is denied learns what is missing."""
    server = RacyS3(tmp_path, Oddities(window=0, denied=True))
    endpoint = server.start()
    try:
        report = await examine(endpoint.store_url("bucket", "app"), **QUICK)
    finally:
        server.stop()
    assert report.fit is None
    assert report.exit_code == 2
    (reason,) = report.reasons
    assert "403 AccessDenied" in reason
    assert "create needs s3:PutObject" in reason
    assert reason.endswith(f"(bucket 'bucket', endpoint {endpoint.url})")


async def test_a_bucket_that_is_not_there_is_not_judged(tmp_path: Path) -> None:
    """WA-11."""
    server = RacyS3(tmp_path, Oddities(window=0))
    endpoint = server.start()
    try:
        report = await examine(endpoint.store_url("nosuchbucket", "app"), **QUICK)
    finally:
        server.stop()
    assert report.exit_code == 2
    assert "there is no bucket" in report.reasons[0]
    assert report.reasons[0].endswith(f"(bucket 'nosuchbucket', endpoint {endpoint.url})")


async def test_a_bucket_that_expires_our_objects_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WA-11. It was called fit."""

    async def settings(url: object, *, versioned: bool | None) -> dict[str, str]:
        return {"lifecycle": "expires objects of ours: rule 'old', after 7 days"}

    monkeypatch.setattr(sys.modules["tenure.doctor.examine"], "read_settings", settings)
    server = RacyS3(tmp_path, Oddities(window=0))
    try:
        report = await examine(server.start().store_url("bucket", "app"), **QUICK)
    finally:
        server.stop()
    assert report.exit_code == 1
    assert "rule 'old', after 7 days" in report.reasons[0]


async def test_the_same_server_without_a_lie_is_fit(tmp_path: Path) -> None:
    server = RacyS3(tmp_path, Oddities(window=0))
    try:
        report = await examine(server.start().store_url("bucket", "app"), **QUICK)
    finally:
        server.stop()
    assert report.fit is True, report.reasons


async def test_a_store_that_falls_silent_leaves_the_question_open(ministack: S3Endpoint) -> None:
    make_bucket(ministack, "bucket")
    proxy = FaultProxy(ministack.url)
    url = ministack.store_url("bucket", "silent", endpoint=proxy.start())

    def fall_silent(step: str, done: int, total: int) -> None:
        if step == "questions" and done == total:
            proxy.plan(status_before_apply(503), times=None)

    try:
        report = await examine(url, progress=fall_silent, **QUICK)
    finally:
        proxy.stop()
    assert report.fit is None
    assert report.exit_code == 2
    assert report.reasons


@pytest.mark.slow
async def test_a_store_in_trouble_is_not_judged(ministack: S3Endpoint) -> None:
    make_bucket(ministack, "bucket")
    proxy = FaultProxy(ministack.url)
    url = ministack.store_url("bucket", "trouble", endpoint=proxy.start())
    proxy.plan(status_before_apply(503), times=None)
    try:
        report = await examine(url, **QUICK)
    finally:
        proxy.stop()
    assert report.fit is None
    assert "503 SlowDown" in report.reasons[0]


def test_a_doctor_that_is_told_to_stop_tidies_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenure", "doctor", tmp_path.as_uri(), "--rounds", "1000"]
    doctor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("tenure-race@/*@/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    doctor.send_signal(signal.SIGTERM)
    _, said = doctor.communicate(timeout=30)
    assert doctor.returncode == 130
    assert "interrupted" in said
    assert list(tmp_path.glob("tenure-*")) == []


def test_an_answer_that_could_not_be_printed_is_not_a_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenure", "doctor", tmp_path.as_uri(), "--rounds", "2", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_debug_shows_the_trace_and_keeps_the_exit_code() -> None:
    command = [sys.executable, "-m", "tenure", "--debug", "doctor", "s3://"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.strip().endswith("write s3://BUCKET/PREFIX")


@pytest.mark.parametrize(
    ("url", "environment", "says"),
    [
        (
            "s3://b?access_key_id=a&secret_access_key=b",
            {"AWS_ENDPOINT_URL_S3": "127.0.0.1:1"},
            "AWS_ENDPOINT_URL_S3 is",
        ),
        ("s3://b?secret_access_key=b", {}, "give both, or neither"),
        ("s3://b?access_key_id=a&secret_access_key=b&profile=p", {}, "both keys and 'profile'"),
    ],
)
def test_settings_that_contradict_each_other_are_asked_about(url: str, environment: dict[str, str], says: str) -> None:
    run = tenure_process("doctor", url, **environment)
    assert run.code == 2
    assert says in run.err
