"""One bucket of S3, Google Cloud Storage or Azure, through obstore.

The error contract: 412 is `Rejected`. 409 is `Rejected` only where it is a provider's word for "exists already" (a
create on Azure); elsewhere it means "not decided". A missing key on replace is `Rejected`. All else is `Unknown`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, TypeVar

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, InvalidPathError, NotModifiedError, PreconditionError

from tenure.errors import ConfigError, CredentialsNotFound, NotFound, StoreError, StoreUnavailable, StoreUnfit
from tenure.store.cloud.credentials import METADATA, Credentials
from tenure.store.cloud.failures import KEY_MISSING, Failure, explain, no_credentials, read
from tenure.store.cloud.handles import Handles
from tenure.store.guard import OpenGuard, check_body, check_conditional_delete, check_size
from tenure.store.keys import MAX_FULL_KEY_BYTES, check_after, check_key, check_prefix, is_key
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.protocol import StoreInfo
from tenure.store.providers import DELETES_PER_REQUEST
from tenure.store.url import StoreUrl

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult, UpdateVersion

T = TypeVar("T")

_PAGE = 1000
_GONE_IN_BATCH = re.compile(r"Bulk delete request failed for key .*\(code: 404\)", re.DOTALL)
_PATH_IN_ERROR = re.compile(r'[Pp]ath "([^"]*)"')
_DELETES_AT_ONCE = 8


class Dialect(msgspec.Struct, frozen=True):
    """What a store does in its own way; found by `tenure.store.cloud.probe`, never configured."""

    quoted_if_match: bool = True
    """Ceph compares `If-Match` with the ETag without its quotes, and with quotes rejects every write."""
    lost_create_status: int = 412
    """What a create gets whose key exists: 412, on Azure 409."""
    conditional_get: bool = True
    """False: `If-None-Match` on a GET is ignored, and the body comes anyway."""
    versioned: bool = False
    """The bucket keeps every version of every object."""

    def described(self) -> dict[str, str]:
        return {
            "if-match": "quoted" if self.quoted_if_match else "bare",
            "lost-create": str(self.lost_create_status),
            "conditional-get": "honoured" if self.conditional_get else "ignored",
        }


class CloudStore:
    def __init__(self, url: StoreUrl, handles: Handles, credentials: Credentials, *, timeout: float) -> None:
        self._url = url
        self._reads = handles.reads
        self._writes = handles.writes
        self._credentials = credentials
        self._timeout = timeout
        self._guard = OpenGuard(f"the store {url.shown}")
        self._ever_answered = False
        self.gives_version_ids = False
        """S3 and Azure name a version id for each write where the bucket keeps old versions."""
        self.sends_unchanged = False
        """It ignored `If-None-Match` on a GET, and sent a body that we have."""
        self.dialect = Dialect()

    @property
    def info(self) -> StoreInfo:
        return StoreInfo(provider=self._url.scheme, url=self._url.shown, dialect=self.dialect.described())

    @property
    def credentials_source(self) -> str:
        return self._credentials.source

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        self._check(key)
        what = f"get {key!r}"
        try:
            return await self._within(self._get(key, unless))
        except NotModifiedError as error:
            if unless is None:  # an answer to a question that was not asked
                raise self._explain(what, error) from None
            return NotModified(unless)
        except FileNotFoundError as error:
            if read(error).code in KEY_MISSING:
                raise NotFound(key) from None
            raise self._explain(what, error) from None
        except Exception as error:
            raise self._explain(what, error) from None

    async def put(self, key: str, body: bytes) -> Version:
        self._check(key, body)
        try:
            return self._written(await self._within(self._send(key, body, "overwrite")))
        except Exception as error:
            raise self._explain(f"put {key!r}", error) from None

    async def create(self, key: str, body: bytes) -> Outcome:
        return (await self.try_create(key, body))[0]

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        return (await self.try_replace(key, body, expected))[0]

    async def try_create(self, key: str, body: bytes) -> tuple[Outcome, Failure | None]:
        """`create`, with what the server said if it said no."""
        self._check(key, body)
        try:
            result = await self._within(self._send(key, body, "create"))
            return Applied(self._written(result)), None
        except (AlreadyExistsError, PreconditionError) as error:
            failure = read(error)
            exists = failure.status == 412 or (failure.status == 409 and failure.code == "BlobAlreadyExists")
            return Rejected() if exists else Unknown(self._explain(f"create {key!r}", error)), failure
        except Exception as error:
            return Unknown(self._explain(f"create {key!r}", error)), read(error)

    async def try_replace(self, key: str, body: bytes, expected: Version) -> tuple[Outcome, Failure | None]:
        """`replace`, with what the server said if it said no."""
        self._check(key, body)
        mode = self._condition(expected)
        try:
            result = await self._within(self._send(key, body, mode))
            return Applied(self._written(result)), None
        except (PreconditionError, FileNotFoundError) as error:
            failure = read(error)
            moved = failure.status == 412 or failure.code in KEY_MISSING
            return Rejected() if moved else Unknown(self._explain(f"replace {key!r}", error)), failure
        except Exception as error:
            return Unknown(self._explain(f"replace {key!r}", error)), read(error)

    async def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        self._guard.check()
        check_prefix(prefix, MAX_FULL_KEY_BYTES)
        check_after(after, MAX_FULL_KEY_BYTES)
        last = ""
        pages = self._reads.list(prefix.rstrip("/") or None, offset=after, chunk_size=_PAGE)
        try:
            while True:
                try:
                    page = await self._within(anext(pages))
                except StopAsyncIteration:
                    return
                for row in page:
                    key = row["path"]
                    # Not every server heeds the offset, and prefixes are matched by whole segments or by characters.
                    if not (key.startswith(prefix) and is_key(key, MAX_FULL_KEY_BYTES) and key > (after or "")):
                        continue
                    # A folder's marker (`a/`, of no size) is listed as `a`, perhaps beside a true `a`.
                    if row["size"] == 0 and (key <= last or not await self._exists(key)):
                        continue
                    if key <= last:
                        raise StoreUnfit(self._url.shown, [f"it does not list keys in order: {key!r} after {last!r}"])
                    last = key
                    version = _version(row, self._url.scheme)
                    yield Entry(key=key, version=version, size=row["size"], modified=row["last_modified"])
        except InvalidPathError as error:
            raise StoreUnfit(self._url.shown, [_unlistable(error)]) from None
        except Exception as error:
            raise self._explain(f"list {prefix!r}", error) from None

    async def delete(self, *keys: str) -> None:
        for key in keys:
            self._check(key)
        size = DELETES_PER_REQUEST[self._url.scheme]
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        for start in range(0, len(batches), _DELETES_AT_ONCE):
            await asyncio.gather(*(self._delete(batch) for batch in batches[start : start + _DELETES_AT_ONCE]))

    async def discard(self, key: str, expected: Version) -> Outcome:
        self._check(key)
        check_conditional_delete(self.info)
        raise AssertionError("a bucket says that it has a conditional delete")

    async def _delete(self, keys: tuple[str, ...]) -> None:
        """One request."""
        try:
            await self._within(self._writes.delete_async(list(keys)))
        except FileNotFoundError as error:
            failure = read(error)
            if failure.code not in KEY_MISSING and not _GONE_IN_BATCH.search(failure.text):
                raise self._explain(f"delete {len(keys)} keys", error) from None
            # One of them was gone already. Whether the others were reached is not said, so each is asked for again.
            if len(keys) > 1:
                for key in keys:
                    await self._delete((key,))
        except Exception as error:
            raise self._explain(f"delete {len(keys)} keys", error) from None

    async def aclose(self) -> None:
        self._guard.close()

    async def _get(self, key: str, unless: Version | None) -> Stored | NotModified:
        options: obstore.GetOptions = {"if_none_match": f'"{unless.e_tag}"'} if unless is not None else {}
        response = await self._reads.get_async(key, options=options)
        version = _version(response.meta, self._url.scheme)
        if unless is not None and unless.matches(version):
            self.sends_unchanged = True
            return NotModified(version)
        check_size(key, response.meta["size"])
        return Stored(bytes(await response.bytes_async()), version)

    async def _exists(self, key: str) -> bool:
        try:
            await self._within(self._reads.head_async(key))
        except FileNotFoundError:
            return False
        return True

    async def _send(self, key: str, body: bytes, mode: PutMode) -> PutResult:
        return await self._writes.put_async(key, body, mode=mode, use_multipart=False)

    async def _within(self, request: Awaitable[T]) -> T:
        """Bound a request by more than the client's own timeout, which leaves out the look-up of credentials."""
        try:
            async with asyncio.timeout(self._timeout + 0.5):
                result = await request
        except (FileNotFoundError, NotModifiedError, PreconditionError, AlreadyExistsError):
            self._ever_answered = True
            raise
        self._ever_answered = True
        return result

    def _condition(self, expected: Version) -> UpdateVersion:
        if self._url.scheme == "gs":
            if expected.generation is None:
                raise ConfigError(
                    "this version has no generation, which Google Cloud Storage needs: use one from get() or a write"
                )
            return {"e_tag": expected.e_tag, "version": expected.generation}
        return {"e_tag": f'"{expected.e_tag}"' if self.dialect.quoted_if_match else expected.e_tag}

    def _check(self, key: str, body: bytes = b"") -> None:
        self._guard.check()
        check_key(key, MAX_FULL_KEY_BYTES)
        check_body(key, body)

    def _written(self, result: PutResult) -> Version:
        if result["e_tag"] is None:
            raise ValueError("the store gave no ETag for what it wrote")
        if self._url.scheme == "gs":
            return Version(_bare(result["e_tag"]), result["version"])
        self.gives_version_ids |= result["version"] not in (None, "null")
        return Version(_bare(result["e_tag"]))

    def _explain(self, what: str, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if not self._ever_answered and self._credentials.source == METADATA and isinstance(error, TimeoutError):
            return CredentialsNotFound(no_credentials(self._url.shown))
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"{what}: no answer from {self._url.shown} within {self._timeout:g} s")
        return explain(what, error, self._url.shown)


def _unlistable(error: InvalidPathError) -> str:
    found = _PATH_IN_ERROR.search(str(error))
    name = repr(found[1][:200]) if found else "an object"
    return (
        f"{name} below the prefix, put there by another program, has a name that stops every listing (an empty "
        "segment, . or .., or a control character): move it away"
    )


def _bare(e_tag: str) -> str:
    """Listings of some stores leave the quotes out; without them all sources of a version agree."""
    return e_tag[1:-1] if len(e_tag) >= 2 and e_tag[0] == e_tag[-1] == '"' else e_tag


def _version(meta: ObjectMeta, scheme: str) -> Version:
    if meta["e_tag"] is None:
        raise ValueError("the store gave no ETag for what it sent")
    return Version(_bare(meta["e_tag"]), meta["version"] if scheme == "gs" else None)
