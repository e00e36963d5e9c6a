"""What obstore's exceptions mean. The texts are recorded from obstore 0.12 against real servers."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError, UnauthenticatedError

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
from tenure.store.cloud.failures import explain, read

PLACE = "s3://bucket/app/"
DUMP = """

Debug source:
Generic {
    store: "S3",
    source: RetryError(
        RetryErrorImpl {
            method: GET,
            uri: Some(
                http://127.0.0.1:9000/bucket/k,
            ),
            inner: %s,
        },
    ),
}"""
REFUSED = (
    'ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111, kind: ConnectionRefused, message: "refused" })'
)


def answered(
    status: str, body: str = "", kind: type[BaseException] = GenericError, lead: str = "Generic S3 error"
) -> BaseException:
    return kind(
        f"{lead}: Error performing GET http://127.0.0.1:9000/bucket/k in 1.066821ms - Server returned non-2xx status "
        f"code: {status}: {body}" + DUMP % f'Status {{ status: {status[:3]}, body: Some("{body}") }}'
    )


def unanswered(inner: str, url: str = "http://127.0.0.1:9000/bucket/k") -> GenericError:
    return GenericError(
        f"Generic S3 error: Error performing GET {url} in 353.439µs - HTTP error: error sending request" + DUMP % inner
    )


def coded(code: str, message: str = "said so") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>"


DENIED = "The operation lacked the necessary privileges to complete for path k"
UNAUTHENTICATED = "The operation lacked valid authentication credentials for path k"


@pytest.mark.parametrize(
    ("error", "meaning", "words"),
    [
        (answered("404 Not Found", coded("NoSuchBucket"), FileNotFoundError), BucketMissing, "create it, or correct"),
        (
            answered("404 Not Found", coded("ContainerNotFound"), FileNotFoundError),
            BucketMissing,
            "bucket or container",
        ),
        (answered("409 Conflict", coded("ContainerBeingDeleted"), AlreadyExistsError), BucketMissing, "there is no"),
        (
            answered("403 Forbidden", coded("InvalidAccessKeyId"), PermissionDeniedError, DENIED),
            BadCredentials,
            "check key",
        ),
        (
            answered("403 Forbidden", coded("SignatureDoesNotMatch"), PermissionDeniedError),
            BadCredentials,
            "403 Signature",
        ),
        (answered("403 Forbidden", coded("AuthenticationFailed"), PermissionDeniedError), BadCredentials, "said so"),
        (answered("400 Bad Request", coded("ExpiredToken")), BadCredentials, "400 ExpiredToken"),
        (answered("401 Unauthorized", "", UnauthenticatedError, UNAUTHENTICATED), BadCredentials, r"\(401\)"),
        (answered("403 Forbidden", coded("RequestTimeTooSkewed"), PermissionDeniedError), ClockSkewed, "set the clock"),
        (
            answered("403 Forbidden", coded("AuthenticationFailed", "Request date header too old")),
            ClockSkewed,
            "chrony",
        ),
        (
            answered("403 Forbidden", coded("AccessDenied"), PermissionDeniedError, DENIED),
            AccessDenied,
            "403 AccessDenied said so.*allow",
        ),
        (answered("403 Forbidden", "", PermissionDeniedError, DENIED), AccessDenied, r"denies it \(403\)"),
        (answered("503 Service Unavailable", coded("SlowDown")), Throttled, "asks to slow down .503 SlowDown said so"),
        (answered("503 Service Unavailable", coded("ServerBusy")), Throttled, "ServerBusy"),
        (answered("429 Too Many Requests"), Throttled, r"\(429\)"),
        (answered("503 Service Unavailable", coded("ServiceUnavailable")), ServerError, "answered 503 Service"),
        (answered("500 Internal Server Error", "<html>oops</html>"), ServerError, "answered 500$"),
        (
            answered("409 Conflict", coded("ConditionalRequestConflict"), AlreadyExistsError),
            StoreUnavailable,
            "409 Cond",
        ),
        (
            answered("400 Bad Request", coded("AuthorizationHeaderMalformed", "the region 'x' is wrong")),
            StoreUnavailable,
            "the region 'x' is wrong: check region and endpoint",
        ),
        (answered("307 Temporary Redirect", coded("TemporaryRedirect")), StoreUnavailable, "check region and endpoint"),
        (
            GenericError(
                "Generic S3 error: Error performing GET http://h/bucket/k in 1ms - Received redirect "
                "without LOCATION, this normally indicates an incorrectly configured region" + DUMP % "BareRedirect"
            ),
            StoreUnavailable,
            "served elsewhere: check region and endpoint",
        ),
        (unanswered(REFUSED), StoreUnavailable, "no answer from s3://bucket/app/ .the connection was refused"),
        (
            unanswered('Custom { kind: Other, error: "dns error: failed to lookup" }'),
            StoreUnavailable,
            "cannot be resolved",
        ),
        (unanswered("Http(HttpError { kind: Timeout, source: TimedOut })"), StoreUnavailable, "it timed out"),
        (
            unanswered("InvalidMessage(InvalidContentType)"),
            StoreUnavailable,
            "does not speak TLS: is the endpoint http:",
        ),
        (unanswered("InvalidCertificate(UnknownIssuer)"), StoreUnavailable, "its TLS certificate is not trusted"),
        (unanswered("hyper::Error(IncompleteMessage)"), StoreUnavailable, "was closed before an answer came"),
        (unanswered("Os { code: 104, kind: ConnectionReset }"), StoreUnavailable, "the connection was reset"),
        (unanswered("Something new"), StoreUnavailable, "the connection failed"),
        (TimeoutError("timed out"), StoreUnavailable, "it timed out"),
        (
            unanswered(REFUSED, "http://169.254.169.254/latest/api/token"),
            CredentialsNotFound,
            "no credentials were found",
        ),
        (unanswered(REFUSED, "http://127.0.0.1:1/latest/api/token"), CredentialsNotFound, "AWS_ACCESS_KEY_ID"),
        (unanswered(REFUSED, "http://metadata.google.internal/computeMetadata"), CredentialsNotFound, "auth=login"),
        (
            unanswered(REFUSED, "http://169.254.169.254/metadata/identity/oauth2/token"),
            CredentialsNotFound,
            "AZURE_STOR",
        ),
        (
            GenericError(
                "Generic S3 error: Error performing GET http://127.0.0.1:1/latest/meta-data/iam/security-credentials/"
                " in 1ms - Server returned non-2xx status code: 404 Not Found: <html>404</html>"
            ),
            CredentialsNotFound,
            "run where a role is attached",
        ),
        (
            GenericError(
                "Generic S3 error: Error performing PUT http://127.0.0.1:1/latest/api/token "
                "in 1ms - Server returned non-2xx status code: 403 Forbidden: "
            ),
            CredentialsNotFound,
            "no credentials were found for s3://bucket/app/",
        ),
        (
            UnauthenticatedError(
                f"{UNAUTHENTICATED} External AWS credential provider: SSOTokenLoadError: run aws sso login"
                + DUMP % "PyErr"
            ),
            CredentialsNotFound,
            "the login for s3://bucket/app/ gave no credentials: SSOTokenLoadError: run aws sso login$",
        ),
    ],
)
def test_meaning(error: BaseException, meaning: type[StoreError], words: str) -> None:
    explained = explain("get 'k'", error, PLACE)
    assert type(explained) is meaning
    with pytest.raises(meaning, match=words):
        raise explained
    assert PLACE in str(explained)


@pytest.mark.parametrize("status", ["400 Bad Request", "403 Forbidden", "500 Oops", "503 Service Unavailable"])
def test_the_debug_dump_is_never_shown(status: str) -> None:
    error = answered(status, coded("Odd"))
    assert "Debug source" in str(error)
    for text in (str(explain("get 'k'", error, PLACE)), read(error).text):
        assert "Debug source" not in text
        assert "RetryError" not in text
    assert "RetryError" not in str(explain("get 'k'", unanswered("x"), PLACE))


def test_status_and_code_come_from_the_answer_and_not_from_the_dump() -> None:
    failure = read(
        GenericError("Generic S3 error: odd" + DUMP % "non-2xx status code: 412 <Code>PreconditionFailed</Code>")
    )
    assert (failure.status, failure.code) == (None, None)


def test_status_and_code() -> None:
    failure = read(answered("412 Precondition Failed", coded("PreconditionFailed"), BaseError))
    assert (failure.status, failure.code) == (412, "PreconditionFailed")


def test_only_the_first_line_of_a_long_message_is_shown() -> None:
    long = "Server failed to authenticate. " + "x" * 500 + "\nRequestId:1\nTime:2"
    said = str(explain("get 'k'", answered("403 Forbidden", coded("AuthenticationFailed", long)), PLACE))
    assert "Server failed to authenticate" in said
    assert "RequestId" not in said
    assert len(said) < 400


def test_a_message_about_the_metadata_address_is_no_metadata_failure() -> None:
    error = answered("403 Forbidden", coded("AccessDenied", "from 169.254.169.254 it is denied"), PermissionDeniedError)
    assert type(explain("get 'k'", error, PLACE)) is AccessDenied
