"""Store URLs: what is accepted, what is refused and how that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.errors import InvalidUrl
from tenure.store.url import OPTIONS, StoreUrl, parse_url


@pytest.mark.req("DB-1")
@pytest.mark.parametrize(
    ("url", "scheme", "bucket", "prefix", "path", "options"),
    [
        ("memory://", "memory", "", "", None, {}),
        ("memory://NAME", "memory", "NAME", "", None, {}),
        ("file:///var/lib/app", "file", "", "", "/var/lib/app", {}),
        ("file://localhost/var/lib/app", "file", "", "", "/var/lib/app", {}),
        ("file:///with%20space/%23x?shared=1", "file", "", "", "/with space/#x", {"shared": "1"}),
        ("s3://bucket", "s3", "bucket", "", None, {}),
        ("S3://bucket/", "s3", "bucket", "", None, {}),
        ("s3://bucket/a/b", "s3", "bucket", "a/b/", None, {}),
        ("s3://bucket/a/b/", "s3", "bucket", "a/b/", None, {}),
        ("gs://bucket/prefix", "gs", "bucket", "prefix/", None, {}),
        ("az://container/prefix", "az", "container", "prefix/", None, {}),
        (
            "s3://b/p?region=eu-west-1&endpoint=http://127.0.0.1:9000&profile=ops&role_arn=arn:aws:iam::1:role/r"
            "&auth=login&virtual_hosted=1",
            *("s3", "b", "p/", None),
            {
                "region": "eu-west-1",
                "endpoint": "http://127.0.0.1:9000",
                "profile": "ops",
                "role_arn": "arn:aws:iam::1:role/r",
                "auth": "login",
                "virtual_hosted": "1",
            },
        ),
        (
            "gs://b?auth=login&service_account=/etc/key.json&endpoint=https://proxy:8443/base",
            *("gs", "b", "", None),
            {"auth": "login", "service_account": "/etc/key.json", "endpoint": "https://proxy:8443/base"},
        ),
        ("az://c?account=acc&auth=login", "az", "c", "", None, {"account": "acc", "auth": "login"}),
        ("s3://b?secret_access_key=a%2Bb%2Fc", "s3", "b", "", None, {"secret_access_key": "a+b/c"}),
        ("s3://b?secret_access_key=a+b/c", "s3", "b", "", None, {"secret_access_key": "a+b/c"}),
        ("az://$web", "az", "$web", "", None, {}),
    ],
)
def test_accepted_forms(
    url: str, scheme: str, bucket: str, prefix: str, path: str | None, options: dict[str, str]
) -> None:
    expected = StoreUrl(scheme, bucket, prefix, None if path is None else Path(path), options)
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ftp://host/x", "does not begin with one of s3://, gs://, az://, file://, memory://$"),
        ("data/app", "for a local directory write file:///.*data/app"),
        ("/var/lib/app", "for a local directory write file:///var/lib/app"),
        ("", "does not begin with one of"),
        ("s3://bucket/a#b", "has a #fragment: write # in a name as %23"),
        ("s3://bucket:9000/x", "has a user, password or port before the bucket: give the server as .endpoint="),
        ("s3://me@bucket", "has a user, password or port"),
        ("s3://", r"names no bucket: write s3://BUCKET/PREFIX"),
        ("az:///prefix", "names no bucket: write az://BUCKET/PREFIX"),
        ("s3://../x", "names no possible bucket: they have letters, digits and - _ ."),
        ("s3://a%2Fb", "names no possible bucket"),
        ("gs://b?service_account=%7B%22private_key%22", "holds a key itself: give the path of its file"),
        ("s3://[bucket", "begins with s3:// cannot be read: .* the bucket alone, without user, password or port"),
        ("s3://bucket:port/x", "begins with s3:// cannot be read"),
        ("s3://bucket/a//b", "the prefix of store URL .* cannot be used: .* empty segment"),
        ("s3://bucket/a/../b", "which names a folder elsewhere"),
        ("s3://bucket/a%20b", "holds ' '"),
        ("s3://bucket/" + "a/" * 101, "is over 200 characters"),
        ("s3://bucket?colour=red", "a s3:// URL has no option 'colour'; it takes: access_key_id, auth, endpoint, "),
        ("memory://x?shared=1", "a memory:// URL has no option 'shared'; it takes: none"),
        ("file:///x?region=eu", "a file:// URL has no option 'region'; it takes: shared"),
        ("s3://b?region=a&region=b", "option 'region' is given twice"),
        ("s3://b?region=", "option 'region' of the store URL is empty: give it a value or leave it out"),
        ("s3://b?region", "option 'region' of the store URL is empty"),
        ("file:///x?shared=yes", "option 'shared' of the store URL is 'yes': write 1 or 0"),
        ("s3://b?virtual_hosted=true", "option 'virtual_hosted' of the store URL is 'true'"),
        ("s3://b?auth=key", "option 'auth' of the store URL is 'key': the only value is 'login'"),
        ("s3://b?endpoint=minio:9000", r"option 'endpoint' is 'minio:9000': write it as https://HOST\[:PORT\]"),
        ("s3://b?endpoint=ftp://minio", "option 'endpoint' is 'ftp://minio'"),
        ("s3://b?endpoint=http://me@minio", "option 'endpoint' is 'http://.*@minio': write it .* without a user"),
        ("s3://b?endpoint=http://", "option 'endpoint' is 'http://'"),
        ("file://var/lib", "names the host 'var': write file:///var/lib with three slashes"),
        ("file://", "names no directory: write file:///absolute/path"),
        ("file:///", "names no directory"),
        ("file:relative/path", "names no directory"),
        ("file:///a%00b", "names no directory"),
    ],
)
def test_refusals_say_what_to_do(url: str, complaint: str) -> None:
    with pytest.raises(InvalidUrl, match=complaint) as caught:
        parse_url(url)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/p/q?region=eu-west-1&secret_access_key=a%2Bb%2Fc%26d%3De&access_key_id=AKIA",
        "gs://b?bearer_token=x%20y",
        "az://c/p?sas_token=sv%3D2020%26sig%3Dabc%253D",
        "file:///with%20space/%23x%3F?shared=1",
    ],
)
def test_the_text_for_our_own_processes_is_the_same_url(url: str) -> None:
    parsed = parse_url(url)
    assert parse_url(parsed.text()) == parsed


def test_flags() -> None:
    assert parse_url("file:///x?shared=1").flag("shared")
    assert not parse_url("file:///x?shared=0").flag("shared")
    assert not parse_url("file:///x").flag("shared")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("s3://b/p?region=eu-west-1&endpoint=http://h:9000", "s3://b/p/?region=eu-west-1&endpoint=http://h:9000"),
        ("file:///with%20space?shared=1", "file:///with%20space?shared=1"),
    ],
)
def test_what_is_no_secret_is_shown(url: str, shown: str) -> None:
    assert parse_url(url).shown == shown
    assert repr(parse_url(url)) == f"StoreUrl({shown!r})"


def test_every_scheme_states_its_options() -> None:
    assert set(OPTIONS) == {"memory", "file", "s3", "gs", "az"}
