"""`tenure doctor` as a person or a script meets it: real processes, real servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from obstore.store import S3Store

from lab.buckets import make_bucket
from lab.endpoint import AzureEndpoint, S3Endpoint
from tests.support.command import Run, tenure

BUCKET = "tests"
KEYS = {"fit", "reasons", "dialect", "races", "latency_ms"}
SECRET = "do-not-show-me-4711"


def files_of(directory: Path) -> list[str]:
    """Every object of a directory store, past the store's own code."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and path.parent.name != "+locks"]


def keys_on(endpoint: S3Endpoint, bucket: str, prefix: str) -> list[str]:
    """Every object below a prefix, past the store's own code."""
    client = S3Store(
        bucket,
        endpoint=endpoint.url,
        region=endpoint.region,
        access_key_id=endpoint.access_key,
        secret_access_key=endpoint.secret_key,
        client_options={"allow_http": True},
    )
    return [row["path"] for page in client.list(prefix) for row in page]


def assert_fit(run: Run) -> None:
    report = run.json()
    assert run.code == 0, report
    assert report["fit"] is True
    assert report["reasons"] == []
    assert report.keys() >= KEYS
    assert all(check["ok"] for check in report["checks"])
    for race in report["races"].values():
        assert race["violations"] == []
        assert race["winners"] + race["undecided"] == race["rounds"] > 0
        assert race["undecided"] <= 0.2 * race["rounds"]  # more, and the doctor says that it could not tell
    for verb in ("get", "create", "replace", "list", "delete"):
        assert 0 < report["latency_ms"][verb]["p50"] <= report["latency_ms"][verb]["p99"]


def assert_quick(run: Run) -> None:
    """Ten seconds by the doctor's own watch; starting Python on a busy machine is not its doing."""
    assert run.json()["elapsed_seconds"] < 10
    assert run.seconds < 30


@pytest.mark.req("OP-3")
def test_a_directory_is_fit_and_nothing_is_left_behind(tmp_path: Path) -> None:
    run = tenure("doctor", (tmp_path / "store").as_uri(), "--json")
    assert_fit(run)
    assert files_of(tmp_path / "store") == []
    assert "create races: 25 of 25" in run.err  # progress, and not on standard output


@pytest.mark.req("OP-3")
def test_the_report_for_people_ends_with_the_verdict(tmp_path: Path) -> None:
    run = tenure("doctor", tmp_path.as_uri(), "--rounds", "5")
    assert run.code == 0
    assert "fit: tenure is safe on this store" in run.out
    assert "refuses to replace an old version" in run.out
    assert "p99 ms" in run.out


@pytest.mark.req("OP-3")
def test_ministack_is_fit_and_nothing_is_left_behind(ministack: S3Endpoint) -> None:
    assert_fit(tenure("doctor", ministack.store_url(BUCKET, "doctor"), "--json"))
    assert keys_on(ministack, BUCKET, "doctor") == []


def test_bucket_settings_are_read_and_the_lifecycle_rule_is_printed(ministack: S3Endpoint) -> None:
    import boto3

    make_bucket(ministack, "versioned")
    client = boto3.client(
        "s3",
        endpoint_url=ministack.url,
        region_name=ministack.region,
        aws_access_key_id=ministack.access_key,
        aws_secret_access_key=ministack.secret_key,
    )
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    client.put_bucket_encryption(
        Bucket="versioned",
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
        },
    )
    report = tenure("doctor", ministack.store_url("versioned", "app"), "--json", "--rounds", "3").json()
    assert report["fit"] is True
    assert report["bucket"]["versioning"] == "on"
    assert report["bucket"]["replication"] == "off"
    assert "kms" in report["bucket"]["encryption"]
    assert any("KMS" in note for note in report["notes"])
    (note,) = [note for note in report["notes"] if "17,280 versions a day" in note]
    assert '"NoncurrentVersionExpiration"' in note
    assert '"Prefix":"app/"' in note


@pytest.mark.req("OP-3")
@pytest.mark.parametrize("trials", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_store_that_waits_between_check_and_write_is_refused_every_time(racy: S3Endpoint, trials: int) -> None:
    for trial in range(trials):
        run = tenure("doctor", racy.store_url("bucket", f"trial{trial}"), "--json")
        report = run.json()
        assert run.code == 1, f"trial {trial}: {report}"
        assert report["fit"] is False
        assert any("does not hold between check and write" in reason for reason in report["reasons"])
        assert "were told that they won" in report["reasons"][0]


def test_a_bucket_that_does_not_exist(ministack: S3Endpoint) -> None:
    run = tenure("doctor", ministack.store_url("nosuchbucket"), "--json")
    assert run.code == 2  # nothing was asked of the store
    assert_quick(run)
    assert "there is no bucket" in run.json()["reasons"][0]


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [("127.0.0.1:1", "the connection was refused"), ("nobody.invalid", "its host name cannot be resolved")],
)
def test_an_unreachable_endpoint(endpoint: str, says: str) -> None:
    url = f"s3://bucket/p?endpoint=http://{endpoint}&access_key_id=key&secret_access_key={SECRET}"
    run = tenure("doctor", url, "--json")
    assert run.code == 2
    assert_quick(run)
    assert run.json()["fit"] is None  # a server that is down is not proved unfit
    assert says in run.json()["reasons"][0]
    assert SECRET not in run.out + run.err


@pytest.mark.slow
def test_an_endpoint_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        run = tenure(
            "doctor", f"s3://bucket/p?endpoint={endpoint}&access_key_id=k&secret_access_key={SECRET}", "--json"
        )
    assert run.code == 2
    assert_quick(run)
    assert "no answer" in run.json()["reasons"][0]
    assert SECRET not in run.out + run.err


@pytest.mark.slow
def test_no_credentials_at_all_is_said_within_ten_seconds(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        run = tenure(
            *("doctor", "s3://bucket/p?endpoint=http://127.0.0.1:1", "--json"),
            AWS_METADATA_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}",
            AWS_EC2_METADATA_DISABLED="true",
            HOME=str(tmp_path),
        )
    assert run.code == 2
    assert_quick(run)
    assert "no credentials were found" in run.json()["reasons"][0]


def test_a_directory_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = tenure("doctor", (tmp_path / "file").as_uri(), "--json")
    assert run.code == 1
    assert "it is not a directory" in run.json()["reasons"][0]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://somewhere", "does not begin with one of s3://"),
        ("/var/lib/app", "for a local directory write file:///var/lib/app"),
        ("s3://", "names no bucket"),
        (f"s3://bucket?pasword={SECRET}", "has no option 'pasword'"),
        (f"s3://user:{SECRET}@bucket/p", "give the server as ?endpoint="),
        ("s3://bucket/a b", "holds ' '"),
        ("file://relative/path", "write file:///relative/path"),
        ("az://container/p", "add ?account=NAME"),
    ],
)
def test_a_url_that_cannot_work_is_refused_in_one_sentence(url: str, says: str) -> None:
    run = tenure("doctor", url)
    assert run.code == 2
    assert says in run.err
    assert len(run.err.strip().splitlines()) == 1
    assert SECRET not in run.out + run.err


def test_wrong_options_are_refused_by_name(tmp_path: Path) -> None:
    run = tenure("doctor", tmp_path.as_uri(), "--rounds", "0")
    assert run.code == 2
    assert "--rounds" in run.err


def test_the_url_may_come_from_the_environment(tmp_path: Path) -> None:
    assert_fit(tenure("doctor", "--json", "--rounds", "3", TENURE_URL=tmp_path.as_uri()))


# On the servers of `make test-servers`.


@pytest.mark.servers
@pytest.mark.req("OP-3")
def test_ceph_is_fit_and_its_quirks_are_found(ceph: S3Endpoint) -> None:
    run = tenure("doctor", ceph.store_url(BUCKET, "doctor"), "--json")
    assert_fit(run)
    assert run.json()["dialect"]["if-match"] == "bare"
    assert keys_on(ceph, BUCKET, "doctor") == []


@pytest.mark.servers
@pytest.mark.req("OP-3")
def test_wrong_credentials_are_refused_with_the_reason(ceph: S3Endpoint) -> None:
    url = f"s3://{BUCKET}/p?endpoint={ceph.url}&region=default&access_key_id=test&secret_access_key={SECRET}"
    run = tenure("doctor", url, "--json")
    assert run.code == 2  # nothing was asked of the store
    assert_quick(run)
    assert "does not accept these credentials" in run.json()["reasons"][0]
    assert SECRET not in run.out + run.err


@pytest.mark.servers
@pytest.mark.req("OP-3")
def test_azurite_is_fit(azurite: AzureEndpoint) -> None:
    run = tenure("doctor", azurite.store_url(BUCKET, "doctor"), "--json")
    assert_fit(run)
    assert run.json()["dialect"]["lost-create"] == "409"


@pytest.mark.servers
@pytest.mark.req("OP-3")
def test_a_server_that_ignores_conditions_is_refused(s3rver: S3Endpoint) -> None:
    for _ in range(20):
        run = tenure("doctor", s3rver.store_url("bucket", "doctor"), "--json")
        assert run.code == 1
        assert any("it ignores If-Match" in reason for reason in run.json()["reasons"])
