"""obstore's clients for one bucket: one that retries, for reads, and one that never does, for writes.

With retries obstore reports a rejection for its own first write, whose answer was lost; a delete that is repeated may
remove what was written in between.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from obstore.store import AzureStore, GCSStore, S3Store

from tenure.errors import ConfigError, ForkedProcess, InvalidUrl
from tenure.store.cloud.credentials import Credentials
from tenure.store.cloud.ending import wait_at_exit
from tenure.store.cloud.place import endpoint_of, region_of
from tenure.store.url import StoreUrl, redact

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Handle: TypeAlias = S3Store | GCSStore | AzureStore

_READ_RETRIES = 3
_CONNECT_SECONDS = 3.0

# Credentials that obstore parses when a client is made: options, variables, and what would be right.
_PARSED = {
    "gs": (
        ("service_account",),
        (
            *("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY"),
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        "give one readable file as Google made it, or in GOOGLE_SERVICE_ACCOUNT_KEY its text as JSON, which begins "
        "with { and not with a quotation mark",
    ),
    "az": (
        ("account_key", "sas_token"),
        (
            *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
            *("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
        ),
        "an account key is base64, and a SAS token is NAME=VALUE&NAME=VALUE…",
    ),
}
_OF_CREDENTIALS = ("credential", "service account", "access key", "sas ")
_QUOTATION = re.compile(r"[\"'`\n{]")


class Handles(msgspec.Struct, frozen=True):
    reads: Handle
    writes: Handle


def connect(
    url: StoreUrl, credentials: Credentials, timeout: float, environment: Mapping[str, str] = os.environ
) -> Handles:
    """Make both clients. Nothing is sent yet."""
    _check_process(url)
    wait_at_exit()
    try:
        return Handles(
            reads=_handle(url, credentials, timeout, _retries(_READ_RETRIES, timeout), environment),
            writes=_handle(url, credentials, timeout, _retries(0, timeout), environment),
        )
    except ConfigError:
        raise
    except Exception as error:
        raise InvalidUrl(f"{url.shown} cannot be used: {_reason(url, str(error), environment)}") from None


def _reason(url: StoreUrl, said: str, environment: Mapping[str, str]) -> str:
    """obstore's parsers quote what they cannot read, and may have been given a private key: of a credential nothing
    is passed on, and of anything else only what comes before the first quotation."""
    lowered = said.lower()
    if url.scheme in _PARSED and any(sign in lowered for sign in _OF_CREDENTIALS):
        options, variables, right = _PARSED[url.scheme]
        given = [f"option {name!r}" for name in options if name in url.options]
        given += [name for name in variables if environment.get(name)]
        return f"{' or '.join(given) or 'the login of this machine'} cannot be read as a credential: {right}"
    return redact(_QUOTATION.split(said, maxsplit=1)[0])[:300].strip()


_used_in: int | None = None


def _check_process(url: StoreUrl) -> None:
    """obstore keeps threads, which do not live on in a forked child: every request there would wait in vain."""
    global _used_in
    if _used_in is not None and _used_in != os.getpid():
        raise ForkedProcess(
            f"{url.shown} cannot be opened in process {os.getpid()}: its parent {_used_in} had used a cloud store "
            "before it forked, and the client's threads do not live on in a child; open cloud stores only after the "
            "fork (gunicorn: in post_fork, and not in what --preload loads), or start children with 'spawn'"
        )
    _used_in = os.getpid()


def _handle(
    url: StoreUrl, credentials: Credentials, timeout: float, retries: RetryConfig, environment: Mapping[str, str]
) -> Handle:
    endpoint = endpoint_of(url, environment)
    client: ClientConfig = {
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(timeout, _CONNECT_SECONDS)),
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[url.scheme]
    handle: Handle = kind(
        url.bucket,
        config=_config(url, endpoint, environment),
        client_options=client,
        retry_config=retries,
        credential_provider=credentials.provider,
    )
    return handle


def _config(url: StoreUrl, endpoint: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """What is particular to a provider, under obstore's names."""
    options = url.options
    if url.scheme == "s3":
        # Both names, because obstore prefers the second, and the URL must win over the environment.
        config: dict[str, Any] = {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint} if endpoint else {}
        if region := region_of(url, environment):
            config["region"] = region
        config["virtual_hosted_style_request"] = url.flag("virtual_hosted")
        config["conditional_put"] = "etag"  # an environment variable could switch it off
        return config
    if url.scheme == "gs":
        return _chosen(options, "service_account", "bearer_token") | ({"base_url": endpoint} if endpoint else {})
    config = _chosen(options, "account_key") | ({"endpoint": endpoint} if endpoint else {})
    if "account" in options:
        config["account_name"] = options["account"]
    elif not environment.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise InvalidUrl(f"{url.shown} names no storage account: add ?account=NAME or set AZURE_STORAGE_ACCOUNT_NAME")
    if "sas_token" in options:
        config["sas_key"] = options["sas_token"]
    return config


def _chosen(options: Mapping[str, str], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _retries(count: int, timeout: float) -> RetryConfig:
    return {
        "max_retries": count,
        "retry_timeout": timedelta(seconds=timeout),
        "backoff": {
            "init_backoff": timedelta(milliseconds=50),
            "max_backoff": timedelta(seconds=1),
            "base": 2,
        },
    }
