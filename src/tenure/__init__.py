"""One leader, fencing, membership and leader-only work for a fleet of processes, on nothing but a bucket.

    async with tenure.lead("s3://bucket/app") as lead:
        await only_one_of_us_does_this(lead.epoch)

Nothing happens on import: no thread, no request, no signal handler, no logging set-up. In a program that sets up no
logging either, tenure's warnings and errors reach standard error, as Python sees to by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tenure._version import __version__

if TYPE_CHECKING:
    from tenure.coordinator.config import CoordinatorConfig, MandateEnd
    from tenure.coordinator.hooks import HookFailure, HookOverrun
    from tenure.coordinator.lead import Lead
    from tenure.coordinator.lock import DistributedLock, Held, LockHolder
    from tenure.coordinator.plugin import CoordinatorPlugin
    from tenure.coordinator.service import GlobalCoordinatorService
    from tenure.database import Database, PluginStorage, Record, Resource, lead, terms
    from tenure.database.terminating import until_terminated
    from tenure.errors import (
        ConfigError,
        Conflict,
        Fenced,
        LeadershipLost,
        LedgerBusy,
        LockLost,
        LockTimeout,
        RecordNotFound,
        RequestRefused,
        TenureError,
        WorkerReplaced,
        WriteUnknown,
    )
    from tenure.plugins.counters import Counter, EventualConsistencyPlugin
    from tenure.plugins.queue import Message, Outgoing, Reject, S3QueuePlugin
    from tenure.plugins.scheduler import Run, SchedulerPlugin, at, cron, every
    from tenure.plugins.supervisor import Child, Command, Context, CoordinatorCandidate, CoordinatorSupervisor, Restart
    from tenure.plugins.ttl import Expired, OnExpire, TTLPlugin

__all__ = [
    "Child",
    "Command",
    "ConfigError",
    "Conflict",
    "Context",
    "CoordinatorCandidate",
    "CoordinatorConfig",
    "CoordinatorPlugin",
    "CoordinatorSupervisor",
    "Counter",
    "Database",
    "DistributedLock",
    "EventualConsistencyPlugin",
    "Expired",
    "Fenced",
    "GlobalCoordinatorService",
    "Held",
    "HookFailure",
    "HookOverrun",
    "Lead",
    "LeadershipLost",
    "LedgerBusy",
    "LockHolder",
    "LockLost",
    "LockTimeout",
    "MandateEnd",
    "Message",
    "OnExpire",
    "Outgoing",
    "PluginStorage",
    "Record",
    "RecordNotFound",
    "Reject",
    "RequestRefused",
    "Resource",
    "Restart",
    "Run",
    "S3QueuePlugin",
    "SchedulerPlugin",
    "TTLPlugin",
    "TenureError",
    "WorkerReplaced",
    "WriteUnknown",
    "__version__",
    "at",
    "cron",
    "every",
    "lead",
    "terms",
    "until_terminated",
]

_HOMES = {
    "Child": "tenure.plugins.supervisor",
    "Command": "tenure.plugins.supervisor",
    "ConfigError": "tenure.errors",
    "Conflict": "tenure.errors",
    "Context": "tenure.plugins.supervisor",
    "CoordinatorCandidate": "tenure.plugins.supervisor",
    "CoordinatorConfig": "tenure.coordinator.config",
    "CoordinatorPlugin": "tenure.coordinator.plugin",
    "CoordinatorSupervisor": "tenure.plugins.supervisor",
    "Counter": "tenure.plugins.counters",
    "Database": "tenure.database",
    "DistributedLock": "tenure.coordinator.lock",
    "EventualConsistencyPlugin": "tenure.plugins.counters",
    "Expired": "tenure.plugins.ttl",
    "Fenced": "tenure.errors",
    "GlobalCoordinatorService": "tenure.coordinator.service",
    "Held": "tenure.coordinator.lock",
    "HookFailure": "tenure.coordinator.hooks",
    "HookOverrun": "tenure.coordinator.hooks",
    "Lead": "tenure.coordinator.lead",
    "LeadershipLost": "tenure.errors",
    "LedgerBusy": "tenure.errors",
    "LockHolder": "tenure.coordinator.lock",
    "LockLost": "tenure.errors",
    "LockTimeout": "tenure.errors",
    "MandateEnd": "tenure.coordinator.config",
    "Message": "tenure.plugins.queue",
    "OnExpire": "tenure.plugins.ttl",
    "Outgoing": "tenure.plugins.queue",
    "PluginStorage": "tenure.database",
    "Record": "tenure.database",
    "RecordNotFound": "tenure.errors",
    "Reject": "tenure.plugins.queue",
    "RequestRefused": "tenure.errors",
    "Resource": "tenure.database",
    "Restart": "tenure.plugins.supervisor",
    "Run": "tenure.plugins.scheduler",
    "S3QueuePlugin": "tenure.plugins.queue",
    "SchedulerPlugin": "tenure.plugins.scheduler",
    "TTLPlugin": "tenure.plugins.ttl",
    "TenureError": "tenure.errors",
    "WorkerReplaced": "tenure.errors",
    "WriteUnknown": "tenure.errors",
    "at": "tenure.plugins.scheduler",
    "cron": "tenure.plugins.scheduler",
    "every": "tenure.plugins.scheduler",
    "lead": "tenure.database",
    "terms": "tenure.database",
    "until_terminated": "tenure.database.terminating",
}
"""Where each name lives. It is imported when it is first asked for: a command that only looks needs few of them."""

_PARTS = ("clock", "coordinator", "database", "election", "entropy", "errors", "plugins", "store")


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"tenure.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tenure' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
