"""What every process of a namespace must agree on: `metadata.json`, written by the first."""

from __future__ import annotations

import logging

import msgspec

from tenure.clock import Clock
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.layout import METADATA, STATE
from tenure.election.records import Damage, Metadata, State, TooNew, decode, decode_state, encode, time_of_day
from tenure.entropy import NewId
from tenure.errors import ConfigConflict, NotFound, SchemaTooNew, StoreError, StoreUnavailable
from tenure.store import Applied, Store, Stored, Unknown

_log = logging.getLogger("tenure.coordinator")
_TRIES = 4
_COMPARED = ("lease_timeout", "heartbeat_interval", "worker_timeout")


class Agreement:
    """`longest_lease` is the namespace's; `differences` are settings in which this process is unlike the founder."""

    def __init__(self, metadata: Metadata, differences: list[tuple[str, str, str]]) -> None:
        self.longest_lease = metadata.longest_lease_ms / 1000
        self.trim_delay = metadata.trim_delay_ms / 1000
        self.differences = differences


async def agree(store: Store, namespace: str, config: CoordinatorConfig, clock: Clock, draw_id: NewId) -> Agreement:
    """Read what the namespace was founded with, or found it.

    Raises `ConfigConflict` naming the field, `SchemaTooNew`, or a `StoreError`.
    """
    ours = Metadata(
        write_id=draw_id(),
        created_at=time_of_day(clock.read().wall_ns),
        drift=config.drift,
        longest_lease_ms=_ms(config.longest_lease_seconds),
        trim_delay_ms=_ms(config.trim_delay_seconds),
        timing={name: _ms(getattr(config, name)) for name in _COMPARED},
    )
    error: StoreError | str = "others kept writing it"
    for _ in range(_TRIES):
        try:
            stored = await store.get(METADATA)
        except NotFound:
            ours = await _no_shorter_than_the_lease(store, ours)
            outcome = await store.create(METADATA, encode(ours))
        except StoreUnavailable as failed:
            error = failed
            continue
        else:
            assert isinstance(stored, Stored)
            theirs = decode(stored.body, Metadata)
            if isinstance(theirs, TooNew):
                raise SchemaTooNew(
                    f"namespace {namespace!r} was written by a newer tenure (schemaVersion {theirs.schema_version}): "
                    "update this process"
                )
            if isinstance(theirs, Metadata):
                _check(namespace, config, ours, theirs)
                return Agreement(theirs, _differences(ours, theirs))
            assert isinstance(theirs, Damage)
            _log.warning("metadata.json of %r is damaged (%s): it is written anew", namespace, theirs.reason)
            ours = await _no_shorter_than_the_lease(store, ours)
            outcome = await store.replace(METADATA, encode(ours), stored.version)
        if isinstance(outcome, Applied):
            return Agreement(ours, [])
        if isinstance(outcome, Unknown):
            error = outcome.error
    raise StoreUnavailable(f"metadata.json of {namespace!r} could not be read or written: {error}")


async def _no_shorter_than_the_lease(store: Store, ours: Metadata) -> Metadata:
    """Metadata that was lost is founded anew, maybe by a process with short leases: one that is held still counts."""
    try:
        stored = await store.get(STATE)
    except NotFound:
        return ours
    assert isinstance(stored, Stored)
    state = decode_state(stored.body)
    if not isinstance(state, State) or state.lease_duration_ms <= ours.longest_lease_ms:
        return ours
    return msgspec.structs.replace(
        ours,
        longest_lease_ms=state.lease_duration_ms,
        trim_delay_ms=max(ours.trim_delay_ms, 2 * state.lease_duration_ms),
    )


def _check(namespace: str, config: CoordinatorConfig, ours: Metadata, theirs: Metadata) -> None:
    if ours.drift != theirs.drift:
        raise _conflict(namespace, "drift", ours.drift, theirs.drift)
    if config.longest_lease is not None and ours.longest_lease_ms != theirs.longest_lease_ms:
        raise _conflict(namespace, "longest_lease", config.longest_lease, theirs.longest_lease_ms / 1000)
    if config.trim_delay is not None and ours.trim_delay_ms != theirs.trim_delay_ms:
        raise _conflict(namespace, "trim_delay", config.trim_delay, theirs.trim_delay_ms / 1000)
    if _ms(config.lease_timeout) > theirs.longest_lease_ms:
        raise ConfigConflict(
            f"lease_timeout is {config.lease_timeout:g} s, and namespace {namespace!r} allows at most "
            f"{theirs.longest_lease_ms / 1000:g} s (longest_lease in its metadata.json): shorten it, or use another "
            "namespace"
        )


def _conflict(namespace: str, field: str, ours: float, theirs: float) -> ConfigConflict:
    return ConfigConflict(
        f"{field} is {ours:g} here, and namespace {namespace!r} was founded with {theirs:g} (metadata.json): every "
        "process of a namespace must use the same; change this one, or stop the fleet and remove that object"
    )


def _differences(ours: Metadata, theirs: Metadata) -> list[tuple[str, str, str]]:
    return [
        (name, f"{value / 1000:g} s", f"{theirs.timing[name] / 1000:g} s")
        for name, value in ours.timing.items()
        if name in theirs.timing and theirs.timing[name] != value
    ]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
