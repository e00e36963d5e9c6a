"""Every error that tenure raises on purpose.

    TenureError
    ├── ConfigError (ValueError)      a setting that cannot work; says which rule it breaks
    │   ├── InvalidUrl                a store URL that cannot be used
    │   ├── InvalidKey                a key or name that no store may hold
    │   ├── MissingExtra              an optional dependency is needed: says which to install
    │   └── ConfigConflict            two parts of a fleet, or of a process, are set differently; names the field
    ├── ForkedProcess                 a store or coordinator was used in a forked child
    ├── CoordinationError             leadership: lost, refused or not possible
    │   ├── LeadershipLost            this process no longer leads, or not for long enough
    │   ├── LeadershipTimeout (TimeoutError)  this process did not come to lead in the time given
    │   ├── Fenced                    a newer epoch has written or claimed the object: nothing was written
    │   ├── NotFenced                 the object was not written through a leadership, or through another namespace's
    │   ├── WorkerReplaced            a newer process start uses this worker id
    │   ├── RequestRefused            the leader, or its mandate, says no to a step-down, transfer or command
    │   │   └── RequestNotAnswered    nothing has come of it yet
    │   ├── LockError                 a lock cannot be had or kept: its record is damaged, its database closed
    │   │   ├── LockLost              a lock is not held any more, or not for long enough
    │   │   ├── LockTimeout           a lock was not acquired within the timeout: another holds it (`owner`, `token`)
    │   │   └── LockNotAnswered (StoreUnavailable)  not acquired: the store gave no answer in that time
    │   ├── CommandStillRunning       an OS command was killed, and something of it has not ended
    │   └── SchemaTooNew              the bucket was written by a newer tenure
    ├── LedgerError                   what a plugin decided, and what it is to decide
    │   ├── LedgerBusy                more calls wait to be written than are allowed to
    │   ├── LedgerDamaged             the log or a snapshot is not what was written: nothing is decided until then
    │   └── LedgerHalted              an entry cannot be applied here: nothing is decided until that is mended
    ├── Conflict                      the record is not what was expected, because others wrote it: nothing was written
    ├── Damaged                       an object, or its value, is not what should lie there: nothing was changed
    ├── RecordError                   a record of a resource: `resource` and `id` say which
    │   ├── RecordNotFound (LookupError)  there is none, or it was deleted
    │   ├── RecordConflict (Conflict)     somebody else wrote first: `expected` and `found` versions
    │   │   └── RecordExists          an insert under an id that is taken
    │   ├── InvalidRecord (ValueError)    data that cannot be stored, or does not fit the schema; names the field
    │   └── DamagedRecord (Damaged)   what is stored is no record, or does not fit the schema
    └── StoreError                    the store said no, or said nothing
        ├── NotFound                  there is no such key
        ├── BodyTooLarge              a body over the store's limit, refused before it is sent or read
        ├── ReadOnlyStore             a write through a store opened for reading
        ├── NoConditionalDelete       `discard` on a store that has none
        ├── StoreUnavailable          no usable answer: unreachable, timed out, throttled, 5xx
        │   ├── WriteUnknown          a write got no decisive answer: it may have happened, or may still
        │   └── ServerError           it answered, with an error of its own (5xx)
        │       └── Throttled         it asked us to slow down
        ├── AccessDenied              the store knows us, or does not, and refuses
        │   ├── BadCredentials        wrong key, secret, token or signature
        │   └── ClockSkewed           the request's signature was refused for its time: this host's clock is off
        ├── CredentialsNotFound       nothing to sign requests with
        ├── BucketMissing             the bucket or container does not exist
        └── StoreUnfit                reachable, but tenure would not be safe on it; `reasons` says why

Messages are one sentence for the person who is paged: what happened, to what, and what to do. None of them holds a
secret: text that came from a server or a client library passes through `tenure.store.url.redact` first.
"""

from __future__ import annotations

from collections.abc import Sequence


class TenureError(Exception):
    """Base of every error that tenure raises on purpose."""


class ConfigError(TenureError, ValueError):
    """A setting that cannot work."""


class InvalidUrl(ConfigError):
    """A store URL that cannot be used."""


class InvalidKey(ConfigError):
    """A key or name that no store may hold."""


class MissingExtra(ConfigError):
    """A feature was asked for whose optional dependency is not installed."""


class ConfigConflict(ConfigError):
    """Two parts of a fleet, or of a process, are set differently."""


class ForkedProcess(TenureError):
    """A store or coordinator was used in a forked child; open a new one there."""


class CoordinationError(TenureError):
    """Leadership was lost, refused or is not possible."""


class LeadershipLost(CoordinationError):
    """This process does not lead any more, or not for as long as was asked for."""


class LeadershipTimeout(CoordinationError, TimeoutError):
    """This process did not come to lead in the time given."""


class Fenced(CoordinationError):
    """A newer epoch has written or claimed the object; what it wrote is untouched.

    `maybe_written`: a copy of this write was sent before that was seen, and may have come before the newer epoch's.
    """

    def __init__(self, message: str, *, maybe_written: bool = False) -> None:
        super().__init__(message)
        self.maybe_written = maybe_written


class NotFenced(CoordinationError):
    """The object was not written through a leadership, or through one of another namespace."""


class LedgerError(TenureError):
    """The log of a plugin cannot be written or read as it should be."""


class LedgerBusy(LedgerError):
    """More calls wait to be written than are allowed to; nothing of this one was written."""


class LedgerDamaged(LedgerError):
    """The log or a snapshot is not what was written."""


class TicketLost(LedgerError):
    """The time for a message is over: it may be with another worker by now. Stop, and write nothing more for it."""


class LedgerHalted(LedgerError):
    """An entry cannot be applied by this process, or the log cannot be continued."""


class WorkerReplaced(CoordinationError):
    """A newer process start uses this worker id, so this one has stopped."""


class RequestRefused(CoordinationError):
    """A step-down, a transfer, or what a plugin's leader was told to do, did not happen; the message says why."""


class RequestNotAnswered(RequestRefused):
    """It was asked for, and nothing has come of it yet; it may still happen."""


class LockError(CoordinationError):
    """A lock cannot be had or kept."""


class LockLost(LockError):
    """A lock is not held any more, or not for as long as was asked for."""


class LockTimeout(LockError):
    """A lock was not acquired within the timeout, because another holds it.

    `owner` and `token`: of the holder that the store showed last; `None` if no holder was seen, as where others wrote
    the record first each time.
    If the store gave no answer, it is `LockNotAnswered` that is raised, which is no `LockTimeout`.
    """

    def __init__(self, message: str, *, owner: str | None = None, token: int | None = None) -> None:
        super().__init__(message)
        self.owner = owner
        self.token = token


class CommandStillRunning(CoordinationError):
    """An OS command was told to end and killed, and `pids` of its process tree have not ended: they hang in a system
    call, or run as another user. Nobody else may be assumed to run alone until they have."""

    def __init__(self, program: str, pids: Sequence[int]) -> None:
        named = ", ".join(str(pid) for pid in pids) or "unknown"
        super().__init__(
            f"{program!r} was killed and has not ended (pids {named}): it hangs in a system call or is another user's"
        )
        self.program = program
        self.pids = tuple(pids)

    def __reduce__(self) -> tuple[type[CommandStillRunning], tuple[str, tuple[int, ...]]]:
        return (CommandStillRunning, (self.program, self.pids))


class SchemaTooNew(CoordinationError):
    """The bucket was written by a newer tenure: update this process."""


class Conflict(TenureError):
    """A record is not what the write expected, because somebody else wrote it: nothing was written."""


class Damaged(TenureError):
    """An object, or the value in it, is not what should lie there: nothing was changed."""


class RecordError(TenureError):
    """Something about one record of a resource."""

    def __init__(self, message: str, *, resource: str = "", id: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        self.id = id


class RecordNotFound(RecordError, LookupError):
    """There is no such record, or it was deleted."""


class RecordConflict(RecordError, Conflict):
    """The record is not in the version that was expected: somebody else wrote first, and nothing was changed."""

    def __init__(
        self, message: str, *, resource: str = "", id: str = "", expected: int | None = None, found: int | None = None
    ) -> None:
        super().__init__(message, resource=resource, id=id)
        self.expected = expected
        self.found = found


class RecordExists(RecordConflict):
    """A record cannot be inserted under an id that is taken."""


class InvalidRecord(RecordError, ValueError):
    """Data that cannot be stored, or that does not fit the schema; nothing was sent."""


class DamagedRecord(RecordError, Damaged):
    """What is stored is no record of tenure's, or does not fit the schema. It is left as it is."""


class StoreError(TenureError):
    """The store said no, or said nothing."""


class NotFound(StoreError):
    """There is no such key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no object {key!r}")
        self.key = key

    def __reduce__(self) -> tuple[type[NotFound], tuple[str]]:
        return (NotFound, (self.key,))


class BodyTooLarge(StoreError):
    """A body over the store's limit."""


class ReadOnlyStore(StoreError):
    """A write was tried through a store that was opened for reading only."""


class NoConditionalDelete(StoreError):
    """The store cannot remove an object only if it has a certain version."""


class StoreUnavailable(StoreError):
    """The store gave no usable answer."""


class WriteUnknown(StoreUnavailable):
    """A write got no decisive answer: it may have happened, or may still. `record_id`: of which record, if of one."""

    def __init__(self, message: str, *, record_id: str | None = None) -> None:
        super().__init__(message)
        self.record_id = record_id


class LockNotAnswered(LockError, StoreUnavailable):
    """A lock was not acquired, because the store gave no answer in time: whether it is held is not known."""


class ServerError(StoreUnavailable):
    """The store answered, with an error of its own."""


class Throttled(ServerError):
    """The store asked us to slow down."""


class AccessDenied(StoreError):
    """The store refused for want of permission."""


class BadCredentials(AccessDenied):
    """The key, secret, token or signature is wrong."""


class ClockSkewed(AccessDenied):
    """The store refused the request's time: the clock of this host is off."""


class CredentialsNotFound(StoreError):
    """There is nothing to sign requests with."""


class BucketMissing(StoreError):
    """The bucket or container does not exist."""


class StoreUnfit(StoreError):
    """The store answers, but tenure would not be safe on it."""

    def __init__(self, place: str, reasons: Sequence[str]) -> None:
        super().__init__(f"{place} is unfit: {'; '.join(reasons)}")
        self.place = place
        self.reasons = tuple(reasons)

    def __reduce__(self) -> tuple[type[StoreUnfit], tuple[str, tuple[str, ...]]]:
        return (StoreUnfit, (self.place, self.reasons))
