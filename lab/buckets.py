"""Make the bucket or container that a test needs. Signed by hand, so that no cloud SDK is needed for one PUT."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from urllib.parse import urlsplit

from lab.endpoint import AzureEndpoint, S3Endpoint

_AZURE_VERSION = "2021-08-06"


def make_bucket(endpoint: S3Endpoint, bucket: str) -> None:
    """PUT the bucket; one that is there already is fine. Works on ministack, Ceph, s3rver and lab.racy."""
    _put(f"{endpoint.url}/{bucket}", _sigv4(endpoint, "PUT", f"/{bucket}"))


def put_empty(endpoint: S3Endpoint, path: str) -> None:
    """PUT an object without content at `/bucket/key`."""
    _put(f"{endpoint.url}{path}", _sigv4(endpoint, "PUT", path))


def make_container(endpoint: AzureEndpoint, container: str) -> None:
    path = f"{urlsplit(endpoint.url).path}/{container}"
    date = formatdate(usegmt=True)
    # Azurite has the account in the path as well, so it stands twice in the canonical resource.
    resource = f"/{endpoint.account}{path}\nrestype:container"
    # The eleven empty lines are standard headers which this request does not have.
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_AZURE_VERSION}\n{resource}"
    mac = hmac.digest(base64.b64decode(endpoint.account_key), text.encode(), "sha256")
    headers = {
        "x-ms-date": date,
        "x-ms-version": _AZURE_VERSION,
        "Authorization": f"SharedKey {endpoint.account}:{base64.b64encode(mac).decode()}",
        "Content-Length": "0",
    }
    _put(f"{endpoint.url}/{container}?restype=container", headers)


def _put(url: str, headers: dict[str, str]) -> None:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=30).close()
    except urllib.error.HTTPError as answer:
        with answer:
            text = answer.read().decode(errors="replace")
        if answer.code != 409:
            raise RuntimeError(f"PUT {url} was answered {answer.code}: {text[:500]}") from None


def _sigv4(endpoint: S3Endpoint, method: str, path: str) -> dict[str, str]:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{stamp[:8]}/{endpoint.region}/s3/aws4_request"
    headers = {
        "host": urlsplit(endpoint.url).netloc,
        "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(),
        "x-amz-date": stamp,
    }
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{endpoint.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{endpoint.access_key}/{scope}"
    headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
    return headers
