"""Where the credentials for a cloud store come from.

obstore finds most by itself: environment variables, web identity (IRSA), container and instance roles, service account
files, managed identities. Logins of the providers' own tools (AWS profiles, SSO and assumed roles, `az login`,
`gcloud auth`) need the provider's own library, which is an optional extra.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from tenure.errors import CredentialsNotFound, InvalidUrl, MissingExtra, StoreError
from tenure.store.cloud.failures import no_credentials
from tenure.store.cloud.place import region_of
from tenure.store.url import CONTROL_CHARACTER, StoreUrl, redact

T = TypeVar("T")

LOOK_UP_SECONDS = 5.0
METADATA = "metadata service of the machine"

_AMBIENT = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "environment"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "web identity"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "container role"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "container role"),
    ),
    "gs": (
        ("GOOGLE_SERVICE_ACCOUNT", "service account"),
        ("GOOGLE_SERVICE_ACCOUNT_PATH", "service account"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "service account"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "application credentials"),
        ("GOOGLE_BEARER_TOKEN", "environment"),
    ),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY", "environment"),
        ("AZURE_STORAGE_ACCESS_KEY", "environment"),
        ("AZURE_STORAGE_SAS_KEY", "environment"),
        ("AZURE_STORAGE_SAS_TOKEN", "environment"),
        ("AZURE_STORAGE_TOKEN", "environment"),
        ("AZURE_FEDERATED_TOKEN_FILE", "workload identity"),
        ("AZURE_CLIENT_SECRET", "client secret"),
        ("AZURE_STORAGE_CLIENT_SECRET", "client secret"),
    ),
}
_IN_URL = {
    "s3": ("access_key_id",),
    "gs": ("service_account", "bearer_token"),
    "az": ("account_key", "sas_token"),
}
# What goes into a request as it is. A key of Google's is JSON, and may have lines.
_ONE_LINE = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN"),
    "gs": tuple(name for name, _ in _AMBIENT["gs"] if name != "GOOGLE_SERVICE_ACCOUNT_KEY"),
    "az": tuple(name for name, _ in _AMBIENT["az"]),
}
_BEFORE_THE_URL: dict[str, tuple[str, ...]] = {
    "s3": (),
    "gs": ("GOOGLE_BEARER_TOKEN",),
    "az": ("AZURE_STORAGE_TOKEN",),
}
"""What obstore takes though the URL brings a key of another kind."""
_SKIP_SIGNATURE = {"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}


class Credentials(msgspec.Struct, frozen=True):
    source: str
    """For people: where they come from."""
    provider: Any = None
    """A callable for obstore, or None where it finds them by itself."""


async def find(url: StoreUrl, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Decide where this URL's credentials come from; logins are looked up, for at most five seconds."""
    if url.scheme == "s3" and url.options.keys() & {"access_key_id", "secret_access_key", "session_token"}:
        return Credentials("store URL", _static(url))
    make = _login(url, environment)
    if make is None:
        _check_lines(url, environment)
        return Credentials(_ambient(url, environment))
    source, look_up = make
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            return Credentials(source, await in_own_thread(look_up))
    except TimeoutError:
        raise CredentialsNotFound(f"{source} gave no credentials within {LOOK_UP_SECONDS:g} s") from None
    except (StoreError, MissingExtra):
        raise
    except Exception as error:
        # Not from it: a traceback tells a cause as well, and that one is not redacted.
        raise CredentialsNotFound(f"{source} gave no credentials: {redact(str(error))[:300]}") from None


async def in_own_thread(look_up: Callable[[], T]) -> T:
    """Not in the loop's own threads: a program waits for those when it ends, and a look-up may hang for good."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result(cast("T", result)) if error is None else answer.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = look_up()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any longer

    threading.Thread(target=work, name="tenure-login", daemon=True).start()
    return await answer


def _static(url: StoreUrl) -> Callable[[], dict[str, str | None]]:
    """Keys from the URL, and from there alone: obstore would add a session token that is in the environment."""
    options = url.options
    if "access_key_id" not in options or "secret_access_key" not in options:
        raise InvalidUrl("of access_key_id and secret_access_key the store URL has only one: give both, or neither")
    if clash := next((name for name in ("profile", "role_arn", "auth") if name in options), None):
        raise InvalidUrl(f"the store URL has both keys and {clash!r}: give one of them")

    def keys() -> dict[str, str | None]:
        return {
            "access_key_id": options["access_key_id"],
            "secret_access_key": options["secret_access_key"],
            "token": options.get("session_token"),
            "expires_at": None,
        }

    return keys


def _check_lines(url: StoreUrl, environment: Mapping[str, str]) -> None:
    """A variable from a file with the line ends of Windows ends in one: obstore would panic over it at each request,
    which looks like a server that does not answer."""
    names = _ONE_LINE[url.scheme]
    if _has_own_key(url):
        names = () if "bearer_token" in url.options else _BEFORE_THE_URL[url.scheme]
    for name in names:
        if CONTROL_CHARACTER.search(environment.get(name, "")):
            raise CredentialsNotFound(
                f"{name} holds a control character, such as the end of a line: set it without (a file of variables "
                "that was written on Windows has \\r at the end of each line)"
            )


def _has_own_key(url: StoreUrl) -> bool:
    return any(option in url.options for option in _IN_URL[url.scheme])


def _ambient(url: StoreUrl, environment: Mapping[str, str]) -> str:
    if _has_own_key(url):
        return "store URL"
    if environment.get(_SKIP_SIGNATURE[url.scheme], "").lower() in ("1", "true"):
        return "none: requests are not signed"
    for variable, source in _AMBIENT[url.scheme]:
        if environment.get(variable):
            return source
    return METADATA


def _login(url: StoreUrl, environment: Mapping[str, str]) -> tuple[str, Callable[[], Any]] | None:
    """How to look up a login, or None if obstore is to find the credentials by itself."""
    asked = url.options.get("auth") == "login"
    if url.scheme == "az":
        return ("the Azure login", _azure_login) if asked else None
    if url.scheme == "gs":
        return ("the Google login", _google_login) if asked else None
    ambient = _ambient(url, environment)
    role = url.options.get("role_arn")
    profile = url.options.get("profile")
    if profile is None and ambient not in ("store URL", "environment"):
        profile = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    if role is not None:
        region = region_of(url, environment)
        return f"the role {role}", lambda: _aws_role(role, profile, region)
    if profile is not None:
        return f"the AWS profile {profile!r}", lambda: _aws_session(
            f"the AWS profile {profile!r} is asked for", profile
        )
    if asked:
        return "the AWS login", lambda: _aws_session("?auth=login is asked for", None)
    if ambient == METADATA and _has_aws_files(environment) and importlib.util.find_spec("boto3"):
        return "the default AWS profile", lambda: _aws_session("there is an AWS configuration", None)
    return None


def _has_aws_files(environment: Mapping[str, str]) -> bool:
    home = Path(environment.get("HOME", "/nonexistent"))
    return Path(environment.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws/credentials")).is_file()


def _aws_session(why: str, profile: str | None) -> Any:
    auth = _import("obstore.auth.boto3", why, "aws")
    session = importlib.import_module("boto3").Session(profile_name=profile)
    if session.get_credentials() is None:
        raise CredentialsNotFound(no_credentials("s3://"))
    return _tried(auth.Boto3CredentialProvider(session))


def _aws_role(role: str, profile: str | None, region: str | None) -> Any:
    auth = _import("obstore.auth.boto3", "?role_arn= is asked for", "aws")
    session = importlib.import_module("boto3").Session(profile_name=profile, region_name=region)
    assume = auth.StsCredentialProvider(session, RoleArn=role, RoleSessionName="tenure")

    def keys() -> Any:
        found = assume()
        # boto3 gives a time zone of its own for UTC, and obstore takes only Python's.
        return {**found, "expires_at": found["expires_at"].astimezone(UTC)}

    return _tried(keys)


def _azure_login() -> Any:
    return _tried(_import("obstore.auth.azure", "?auth=login is asked for", "azure").AzureCredentialProvider())


def _google_login() -> Any:
    return _tried(_import("obstore.auth.google", "?auth=login is asked for", "gcp").GoogleCredentialProvider())


def _tried(provider: Any) -> Any:
    """Ask once now, while somebody waits for it, so that a login that hangs or fails is named as the cause."""
    provider()
    return provider


def _import(module: str, why: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{why}, and that needs an optional part of tenure: pip install 'tenure[{extra}]' "
            f"(missing: {error.name or 'a module'})"
        ) from None
