"""Where the credentials of a cloud store come from. Nothing here leaves the loopback interface."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import CredentialsNotFound, InvalidUrl, MissingExtra
from tenure.store import open_store
from tenure.store.cloud import credentials
from tenure.store.cloud.credentials import METADATA, Credentials, find
from tenure.store.cloud.handles import connect
from tenure.store.cloud.store import CloudStore
from tenure.store.outcome import Applied, Unknown
from tenure.store.url import parse_url

KEY_ID, SECRET = "AKIAENVIRONMENT", "sEcReTsEcReT"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")


def write_profile(path: Path, name: str, key_id: str, secret: str) -> Path:
    path.write_text(f"[{name}]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n")
    return path


class Bucket:
    """A server on the loopback interface that accepts everything and remembers how it was signed."""

    def __init__(self) -> None:
        self.authorizations: list[str] = []
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                bucket.authorizations.append(self.headers.get("authorization") or "")
                self.send_response(200)
                self.send_header("etag", '"1"')
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def signed_with(self) -> tuple[str, str]:
        """Key id and region of the only request."""
        (authorization,) = self.authorizations
        found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/s3/", authorization)
        assert found
        return found[1], found[2]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    thread = threading.Thread(target=bucket.server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    yield bucket
    bucket.server.shutdown()
    bucket.server.server_close()
    thread.join()


async def write_through(text: str) -> None:
    url = parse_url(text)
    found = await find(url)
    store = CloudStore(url, connect(url, found, timeout=2.0), found, timeout=2.0)
    assert isinstance(await store.create("k", b""), Applied)


# Which source is chosen.


@pytest.mark.parametrize(
    ("url", "environment", "source"),
    [
        ("s3://b", {}, METADATA),
        ("s3://b", {"AWS_ACCESS_KEY_ID": "x", "AWS_WEB_IDENTITY_TOKEN_FILE": "/t"}, "environment"),
        ("s3://b", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "u"}, "web identity"),
        ("s3://b", {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/u"}, "container role"),
        ("s3://b", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "u"}, "container role"),
        ("s3://b", {"AWS_SKIP_SIGNATURE": "true", "AWS_ACCESS_KEY_ID": "x"}, "none: requests are not signed"),
        ("s3://b", {"AWS_ACCESS_KEY_ID": ""}, METADATA),
        ("gs://b", {}, METADATA),
        ("gs://b?service_account=/k.json", {}, "store URL"),
        ("gs://b?bearer_token=t", {}, "store URL"),
        ("gs://b", {"GOOGLE_APPLICATION_CREDENTIALS": "/k"}, "application credentials"),
        ("gs://b", {"GOOGLE_SERVICE_ACCOUNT": "/k", "GOOGLE_APPLICATION_CREDENTIALS": "/k"}, "service account"),
        ("gs://b", {"GOOGLE_SKIP_SIGNATURE": "1"}, "none: requests are not signed"),
        ("az://b", {}, METADATA),
        ("az://b?account_key=k", {}, "store URL"),
        ("az://b?sas_token=k", {"AZURE_STORAGE_ACCOUNT_KEY": "k"}, "store URL"),
        ("az://b", {"AZURE_STORAGE_ACCOUNT_KEY": "k"}, "environment"),
        ("az://b", {"AZURE_FEDERATED_TOKEN_FILE": "/t"}, "workload identity"),
        ("az://b", {"AZURE_CLIENT_SECRET": "s"}, "client secret"),
    ],
)
async def test_what_obstore_finds_by_itself(url: str, environment: dict[str, str], source: str) -> None:
    found = await find(parse_url(url), environment)
    assert (found.source, found.provider) == (source, None)


async def test_keys_in_the_url_are_used_and_nothing_is_added_to_them() -> None:
    in_environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_SESSION_TOKEN": "z"}
    found = await find(parse_url("s3://b?access_key_id=a&secret_access_key=b"), in_environment)
    assert found.source == "store URL"
    assert found.provider() == {"access_key_id": "a", "secret_access_key": "b", "token": None, "expires_at": None}
    with_token = await find(parse_url("s3://b?access_key_id=a&secret_access_key=b&session_token=c"), {})
    assert with_token.provider()["token"] == "c"


async def test_half_of_a_key_in_the_url_is_refused() -> None:
    with pytest.raises(InvalidUrl, match="has only one: give both, or neither"):
        await find(parse_url("s3://b?access_key_id=a"), {"AWS_SECRET_ACCESS_KEY": "y"})


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
async def test_a_profile_is_ignored_where_static_keys_are_given(variable: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", variable: "no-such-profile"}
    assert (await find(parse_url("s3://b"), keys)).source == "environment"
    in_url = parse_url("s3://b?access_key_id=x&secret_access_key=y")
    assert (await find(in_url, {variable: "no-such-profile"})).source == "store URL"


async def test_a_profile_in_the_url_wins_over_keys_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "ops", "AKIAOPS", "s")))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    found = await find(parse_url("s3://b?profile=ops"))
    assert found.source == "the AWS profile 'ops'"
    assert found.provider()["access_key_id"] == "AKIAOPS"


async def test_the_url_names_the_profile_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "ops", "AKIAOPS", "s")))
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    assert (await find(parse_url("s3://b?profile=ops"))).source == "the AWS profile 'ops'"


# Profiles through boto3.


async def test_a_profile_gives_its_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "ops", "AKIAOPS", SECRET)))
    monkeypatch.setenv("AWS_PROFILE", "ops")
    found = await find(parse_url("s3://b"))
    assert found.source == "the AWS profile 'ops'"
    given = found.provider()
    assert (given["access_key_id"], given["secret_access_key"]) == ("AKIAOPS", SECRET)


async def test_the_default_profile_is_used_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "default", "AKIADEF", SECRET)))
    found = await find(parse_url("s3://b"))
    assert found.source == "the default AWS profile"
    assert found.provider()["access_key_id"] == "AKIADEF"


async def test_requests_are_signed_with_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bucket: Bucket
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "ops", "AKIAOPS", SECRET)))
    (tmp_path / "config").write_text("[profile ops]\nregion = sa-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    await write_through(f"s3://b?profile=ops&endpoint={bucket.url}")
    assert bucket.signed_with == ("AKIAOPS", "sa-east-1")


async def test_the_region_of_the_url_wins_over_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bucket: Bucket
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(write_profile(tmp_path / "c", "ops", "AKIAOPS", SECRET)))
    (tmp_path / "config").write_text("[profile ops]\nregion = sa-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    await write_through(f"s3://b?profile=ops&region=eu-west-1&endpoint={bucket.url}")
    assert bucket.signed_with == ("AKIAOPS", "eu-west-1")


async def test_a_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(CredentialsNotFound, match=r"the AWS profile 'nobody' gave no credentials: .*nobody"):
        await find(parse_url("s3://b?profile=nobody"))


async def test_a_login_without_any_credentials_names_the_remedy() -> None:
    with pytest.raises(CredentialsNotFound, match=r"set them in the environment .AWS_ACCESS_KEY_ID"):
        await find(parse_url("s3://b?auth=login"))


# Optional parts that are not installed.


@pytest.mark.parametrize(
    ("url", "environment", "module", "complaint"),
    [
        ("s3://b", {"AWS_PROFILE": "ops"}, "boto3", r"the AWS profile 'ops' is asked for.*pip install 'tenure\[aws\]'"),
        ("s3://b?profile=ops", {}, "boto3", r"pip install 'tenure\[aws\]' \(missing: boto3"),
        ("s3://b?auth=login", {}, "obstore.auth.boto3", r"\?auth=login is asked for.*tenure\[aws\]"),
        ("s3://b?role_arn=arn:aws:iam::1:role/r", {}, "boto3", r"\?role_arn= is asked for.*tenure\[aws\]"),
        ("az://b?auth=login", {}, "obstore.auth.azure", r"\?auth=login is asked for.*pip install 'tenure\[azure\]'"),
        ("gs://b?auth=login", {}, "obstore.auth.google", r"\?auth=login is asked for.*pip install 'tenure\[gcp\]'"),
    ],
)
async def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], module: str, complaint: str
) -> None:
    monkeypatch.delitem(sys.modules, "obstore.auth.boto3", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=complaint):
        await find(parse_url(url), environment)


# Look-ups that hang.


def test_a_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up for good: the program can end although the look-up does not."""
    released = threading.Event()
    monkeypatch.setattr(credentials, "LOOK_UP_SECONDS", 0.05)
    monkeypatch.setattr(credentials, "_aws_session", lambda why, profile: released.wait(5))
    try:
        with pytest.raises(CredentialsNotFound, match=r"the AWS profile 'ops' gave no credentials within 0\.05 s"):
            asyncio.run(find(parse_url("s3://b?profile=ops")))
        assert not released.is_set()
        assert any(thread.name == "tenure-login" and thread.daemon for thread in threading.enumerate())
    finally:
        released.set()


@pytest.mark.parametrize("answer", ["refuses", "hangs"])
async def test_without_credentials_the_metadata_service_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if answer == "hangs":
            monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(CredentialsNotFound, match=r"no credentials were found for s3://bucket.*AWS_ACCESS_KEY_ID"):
            await open_store("s3://bucket?endpoint=http://127.0.0.1:1&region=us-east-1", timeout=0.1)


async def test_a_login_that_fails_later_is_told_apart_from_the_store(bucket: Bucket) -> None:
    def expired() -> dict[str, str]:
        raise RuntimeError("the SSO session has expired")

    url = parse_url(f"s3://b?region=us-east-1&endpoint={bucket.url}")
    found = credentials.Credentials("the AWS login", expired)
    outcome = await CloudStore(url, connect(url, found, timeout=2.0), found, timeout=2.0).create("k", b"")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, CredentialsNotFound)
    assert "the SSO session has expired" in str(outcome.error)


# Endpoint and region.


@pytest.mark.parametrize(
    ("url", "environment", "region"),
    [
        ("s3://b", {"AWS_ENDPOINT_URL_S3": "{}", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "us-east-1"),
        ("s3://b", {"AWS_ENDPOINT_URL": "{}", "AWS_REGION": "eu-north-1"}, "eu-north-1"),
        ("s3://b", {"AWS_ENDPOINT": "{}", "AWS_DEFAULT_REGION": "eu-south-1"}, "eu-south-1"),
        ("s3://b", {"AWS_ENDPOINT_URL": "{}", "AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "x"}, "eu-north-1"),
        ("s3://b?endpoint={}", {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, "us-east-1"),
        ("s3://b?endpoint={}", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "us-east-1"),
        ("s3://b?endpoint={}&region=eu-west-1", {"AWS_REGION": "eu-north-1"}, "eu-west-1"),
        ("s3://b?endpoint={}&region=eu-west-1", {"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-west-1"),
    ],
)
async def test_the_environment_is_honoured_and_the_url_wins(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, url: str, environment: dict[str, str], region: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(bucket.url))
    await write_through(url.format(bucket.url))
    assert bucket.signed_with == (KEY_ID, region)


async def test_keys_in_the_url_win_over_the_environment(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    await write_through(f"s3://b?access_key_id=AKIAURL&secret_access_key=x&region=r&endpoint={bucket.url}")
    assert bucket.signed_with == ("AKIAURL", "r")


async def test_a_url_without_a_storage_account_is_refused() -> None:
    url = parse_url("az://container/app?sas_token=sig%3DsEcReT")
    with pytest.raises(InvalidUrl, match=r"names no storage account: add \?account=NAME") as caught:
        connect(url, await find(url), timeout=1.0)
    assert "sEcReT" not in str(caught.value)


async def test_writes_are_never_repeated_by_the_client() -> None:
    url = parse_url("s3://b?region=r&access_key_id=a&secret_access_key=b")
    handles = connect(url, await find(url), timeout=1.0)
    assert handles.writes.retry_config["max_retries"] == 0
    assert handles.reads.retry_config["max_retries"] > 0


# What the client's parser says of a credential quotes it.

TWICE_ENCODED = json.dumps(
    json.dumps({"type": "service_account", "private_key": f"-----BEGIN PRIVATE KEY-----{SECRET}"})
)


@pytest.mark.parametrize(
    ("url", "variable", "value", "named"),
    [
        ("gs://b/p", "GOOGLE_SERVICE_ACCOUNT_KEY", TWICE_ENCODED, "^gs://b/p/.* GOOGLE_SERVICE_ACCOUNT_KEY .* as JSON"),
        ("gs://b/p", "GOOGLE_SERVICE_ACCOUNT", "FILE", "GOOGLE_SERVICE_ACCOUNT "),
        ("gs://b/p", "GOOGLE_APPLICATION_CREDENTIALS", "FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://b/p", "GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://b/p?service_account=FILE", "X", "", "option 'service_account'"),
        ("gs://b/p?service_account=FILE", "GOOGLE_SERVICE_ACCOUNT_KEY", TWICE_ENCODED, "option 'service_account' or G"),
        ("az://b/p?account=a", "AZURE_STORAGE_ACCOUNT_KEY", f"{SECRET}!", "AZURE_STORAGE_ACCOUNT_KEY .* base64"),
        (f"az://b/p?account=a&account_key={SECRET}!", "X", "", "option 'account_key'"),
        (f"az://b/p?account=a&sas_token={SECRET}", "X", "", "option 'sas_token'"),
    ],
)
async def test_a_credential_that_cannot_be_parsed_is_named_and_not_quoted(
    url: str, variable: str, value: str, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    file.write_text(TWICE_ENCODED)
    monkeypatch.setenv(variable, value.replace("FILE", str(file)))
    url = url.replace("FILE", str(file)) + ("&" if "?" in url else "?") + "endpoint=http://127.0.0.1:1"
    with pytest.raises(InvalidUrl, match=named) as caught:
        await open_store(url, timeout=0.5)
    said = "".join(traceback.format_exception(caught.value))
    assert SECRET not in said
    assert "PRIVATE KEY" not in said


async def test_a_setting_that_cannot_be_parsed_is_told_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", SECRET)
    with pytest.raises(InvalidUrl, match=r"cannot be used: .*failed to parse") as caught:
        await open_store("s3://b/p?endpoint=http://127.0.0.1:1", timeout=0.5)
    assert SECRET not in str(caught.value)


async def test_a_login_that_fails_does_not_bring_its_own_error_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up() -> None:
        raise RuntimeError(f"credential_process said token={SECRET}")

    monkeypatch.setattr(credentials, "_login", lambda url, environment: ("the AWS profile 'x'", look_up))
    with pytest.raises(CredentialsNotFound, match=r"the AWS profile 'x' gave no credentials: .*token=") as caught:
        await find(parse_url("s3://b"))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("ending", ["\r", "\n", "\r\n", "\0", "\x7f"])
@pytest.mark.parametrize(
    ("scheme", "variable"),
    [
        *(("s3", name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN")),
        *(("gs", name) for name in ("GOOGLE_BEARER_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS")),
        *(("az", name) for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET")),
    ],
)
async def test_a_variable_that_ends_as_a_line_of_windows_is_refused(scheme: str, variable: str, ending: str) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"} | {variable: SECRET + ending}
    with pytest.raises(CredentialsNotFound, match=f"{variable} holds a control character") as caught:
        await find(parse_url(f"{scheme}://b"), environment)
    assert SECRET not in str(caught.value)


async def test_a_variable_that_is_not_used_may_hold_anything() -> None:
    await find(parse_url("s3://b?access_key_id=a&secret_access_key=b"), {"AWS_SESSION_TOKEN": "x\r"})
    await find(parse_url("gs://b"), {"AWS_SESSION_TOKEN": "x\r"})
    await find(parse_url("gs://b"), {"GOOGLE_SERVICE_ACCOUNT_KEY": '{\n  "type": "service_account"\r\n}\n'})


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("az://c?account_key=QUFB", "AZURE_STORAGE_SAS_TOKEN"),
        ("az://c?sas_token=sv%3D1%26sig%3Dx", "AZURE_CLIENT_SECRET"),
        ("gs://b?service_account=/k.json", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://b?bearer_token=t", "GOOGLE_BEARER_TOKEN"),
    ],
)
async def test_a_variable_may_hold_anything_if_the_url_brings_its_own_key(url: str, variable: str) -> None:
    assert await find(parse_url(url), {variable: "x\r"}) == Credentials("store URL")


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("az://c?account_key=QUFB", "AZURE_STORAGE_TOKEN"),
        ("gs://b?service_account=/k.json", "GOOGLE_BEARER_TOKEN"),
    ],
)
async def test_but_one_that_obstore_prefers_may_not(url: str, variable: str) -> None:
    with pytest.raises(CredentialsNotFound, match=f"{variable} holds a control character"):
        await find(parse_url(url), {variable: "x\r"})


@pytest.mark.parametrize(("scheme", "option"), [("s3", "access_key_id"), ("s3", "session_token"), ("az", "sas_token")])
@pytest.mark.parametrize("ending", ["%0D", "%0A", "%00"])
def test_an_option_that_holds_a_control_character_is_refused(scheme: str, option: str, ending: str) -> None:
    with pytest.raises(InvalidUrl, match=f"option '{option}' of the store URL holds a control character") as caught:
        parse_url(f"{scheme}://b?{option}={SECRET}{ending}")
    assert SECRET not in str(caught.value)
