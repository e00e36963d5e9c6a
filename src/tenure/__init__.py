"""One leader, fencing, membership and leader-only work for a fleet of processes, on nothing but a bucket.

    async with tenure.lead("s3://bucket/app") as lead:
        await only_one_of_us_does_this(lead.epoch)

Nothing happens on import: no thread, no request, no signal handler, no logging set-up. In a program that sets up no
logging either, tenure's warnings and errors reach standard error, as Python sees to by itself.
"""

from tenure._version import __version__
from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.coordinator.hooks import HookOverrun
from tenure.coordinator.lead import Lead
from tenure.coordinator.lock import DistributedLock, Held
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database, PluginStorage, Record, Resource, lead, terms
from tenure.errors import (
    ConfigError,
    Conflict,
    Fenced,
    LeadershipLost,
    LockLost,
    LockTimeout,
    RecordNotFound,
    RequestRefused,
    TenureError,
    WorkerReplaced,
    WriteUnknown,
)
from tenure.plugins.supervisor import Child, Command, Context, CoordinatorCandidate, CoordinatorSupervisor, Restart

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
    "Database",
    "DistributedLock",
    "Fenced",
    "GlobalCoordinatorService",
    "Held",
    "HookOverrun",
    "Lead",
    "LeadershipLost",
    "LockLost",
    "LockTimeout",
    "MandateEnd",
    "PluginStorage",
    "Record",
    "RecordNotFound",
    "RequestRefused",
    "Resource",
    "Restart",
    "TenureError",
    "WorkerReplaced",
    "WriteUnknown",
    "__version__",
    "lead",
    "terms",
]
