"""What an update changes: some fields of a job, as they are stored. Whatever else was changed meanwhile stays so."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.errors import ConfigError
from tenure.plugins.scheduler.job import Job, check_job

_NAMES = dict(zip(Job.__struct_fields__, Job.__struct_encode_fields__, strict=True))
_CHANGEABLE = frozenset(_NAMES.values()) - {"id", "origin"}


def changes_between(job: Job, changed: Job) -> dict[str, Any]:
    return {
        name: msgspec.to_builtins(getattr(changed, field))
        for field, name in _NAMES.items()
        if getattr(changed, field) != getattr(job, field)
    }


def changed_job(job: Job, changes: dict[str, Any]) -> Job:
    """The job with these changes. They come from the bucket: raises `ConfigError` for what cannot be."""
    for name in changes:
        if name not in _CHANGEABLE:
            raise ConfigError(f"job {job.id!r} has no {name!r:.80} that could be changed")
    try:
        return check_job(msgspec.convert({**msgspec.to_builtins(job), **changes}, Job))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"job {job.id!r} cannot be changed so: {error}") from None
