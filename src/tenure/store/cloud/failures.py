"""What obstore's exceptions mean. They carry no status, only text; this is the one module that reads it.

The text is `… Server returned non-2xx status code: 412 Precondition Failed: <Error><Code>PreconditionFailed</Code>…`,
then a blank line and a dump for debugging, which may hold signed URLs and is never shown.
"""

from __future__ import annotations

import re

import msgspec

from tenure.errors import (
    AccessDenied,
    BadCredentials,
    BucketMissing,
    ClockSkewed,
    CredentialsNotFound,
    ServerError,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from tenure.store.url import redact

KEY_MISSING = frozenset({"NoSuchKey", "BlobNotFound", "NoSuchVersion"})
BUCKET_MISSING = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"})
_BAD_CREDENTIALS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"}
    | {"AuthenticationFailed", "AuthorizationFailure", "InvalidAuthenticationInfo", "InvalidSecurity", "NotSignedUp"}
    | {"AuthenticationRequired", "NoAuthenticationInformation"}
)
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_THROTTLED_CODES = frozenset({"SlowDown", "ServerBusy", "TooManyRequests", "RequestLimitExceeded"})
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([\w.]+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)")
_METADATA_SERVICE = re.compile(
    r"169\.254\.169\.254|169\.254\.170\.2|fd00:ec2|metadata\.google|latest/api/token|latest/meta-data|/identity/oauth2"
)
_CREDENTIAL_PROVIDER = re.compile(r"External \w+ credential provider: (.*)")
_LONGEST = 16_384
"""Characters of what a server said that are looked at: whoever answers may say as much as he likes."""
_NO_ETAG = re.compile(r"etag header missing|gave no etag", re.IGNORECASE)
_PERMISSIONS = {
    "s3": {"get": "s3:GetObject", "list": "s3:ListBucket", "delete": "s3:DeleteObject", "write": "s3:PutObject"},
    "gs": {
        "get": "storage.objects.get",
        "list": "storage.objects.list",
        "delete": "storage.objects.delete",
        "write": "storage.objects.create and storage.objects.delete",
    },
}
_MOVED = frozenset({301, 307, 308, 400})


class NoETag(StoreUnavailable):
    """An answer without the version that everything here is built on. A write may have happened."""


class Failure(msgspec.Struct, frozen=True):
    """Status and error code of one failed request; None where the server said nothing."""

    status: int | None
    code: str | None
    text: str


def read(error: BaseException) -> Failure:
    text = str(error).partition("\n\nDebug source:")[0][:_LONGEST]
    status = _STATUS.search(text)
    code = _CODE.search(text)
    return Failure(int(status[1]) if status else None, code[1] if code else None, redact(text))


def explain(what: str, error: BaseException, place: str) -> StoreError:
    """The error to raise for a request that failed otherwise than by a condition or a missing key.

    `what` was tried at `place`, the store's URL without secrets.
    """
    failure = read(error)
    said = _said(failure)
    # First, because the metadata service has statuses of its own: 404 is "this machine has no role".
    if _METADATA_SERVICE.search(failure.text.partition("Server returned")[0]):
        return CredentialsNotFound(no_credentials(place))
    if provider := _CREDENTIAL_PROVIDER.search(failure.text):
        return CredentialsNotFound(f"{what}: the login for {place} gave no credentials: {provider[1][:300]}")
    if failure.code in BUCKET_MISSING:
        return BucketMissing(f"{what}: there is no bucket or container at {place}: create it, or correct the name")
    if failure.code in _CLOCK or "Request date header too old" in failure.text:
        return ClockSkewed(
            f"{what}: {place} refuses requests for their time: set the clock of this host (chrony or ntpd)"
        )
    if failure.code in _BAD_CREDENTIALS or failure.status == 401:
        return BadCredentials(
            f"{what}: {place} does not accept these credentials ({said}): check key, secret and token"
        )
    if failure.status == 403:
        return AccessDenied(
            f"{what}: {place} denies it ({said}): allow this identity to get, put, list and delete below the prefix"
            f"{_permission(what, place)}"
        )
    if failure.status == 429 or failure.code in _THROTTLED_CODES:
        return Throttled(f"{what}: {place} asks to slow down ({said})")
    if failure.status in _MOVED:
        return StoreUnavailable(f"{what}: {place} answered {said}: check region and endpoint of the store URL")
    if failure.status is not None:
        kind = ServerError if failure.status >= 500 else StoreUnavailable
        return kind(f"{what}: {place} answered {said}")
    if "redirect without LOCATION" in failure.text:  # S3's 301 for a bucket of another region
        return StoreUnavailable(f"{what}: {place} is served elsewhere: check region and endpoint of the store URL")
    if _NO_ETAG.search(failure.text):
        return NoETag(
            f"{what}: {place} answered without an ETag, which is the version of an object here: use a server, and a "
            "proxy before it, that name one with every object that they write or send"
        )
    return StoreUnavailable(f"{what}: no answer from {place} ({_network_reason(str(error))})")


def no_credentials(place: str) -> str:
    return (
        f"no credentials were found for {place}: set them in the environment (AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY), run where a role is "
        "attached, or use a login with ?auth=login or ?profile= (pip install 'tenure[aws]' for those of AWS)"
    )


def _permission(what: str, place: str) -> str:
    """What is missing, in the provider's own words."""
    verb = what.partition(" ")[0]
    of_provider = _PERMISSIONS.get(place.partition(":")[0], {})
    name = of_provider.get(verb if verb in ("get", "list", "delete") else "write")
    return f"; {verb} needs {name}" if name else ""


def _said(failure: Failure) -> str:
    message = _MESSAGE.search(failure.text)
    words = [
        str(failure.status or ""),
        failure.code or "",
        (message[1].strip().splitlines() or [""])[0][:200] if message else "",
    ]
    return " ".join(filter(None, words)) or "an error without a code"


def _network_reason(text: str) -> str:
    """One of our own phrases for a dump that is not fit to be shown."""
    lowered = text.lower()
    for sign, reason in (
        ("timed out", "it timed out"),
        ("timedout", "it timed out"),
        ("dns error", "its host name cannot be resolved"),
        ("connectionrefused", "the connection was refused"),
        ("certificate", "its TLS certificate is not trusted"),
        ("invalidcontenttype", "it does not speak TLS: is the endpoint http:// rather than https://?"),
        ("connection closed", "the connection was closed before an answer came"),
        ("incompletemessage", "the connection was closed before an answer came"),
        ("connectionreset", "the connection was reset"),
    ):
        if sign in lowered:
            return reason
    return "the connection failed"
