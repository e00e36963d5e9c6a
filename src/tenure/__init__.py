"""One leader, fencing, membership and leader-only work for a fleet of processes, on nothing but a bucket.

    async with tenure.lead("s3://bucket/app") as lead:
        await only_one_of_us_does_this(lead.epoch)

Nothing happens on import: no thread, no request, no signal handler, no logging set-up.
"""

import logging

from tenure._version import __version__
from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database import Database, lead
from tenure.errors import Fenced, LeadershipLost, TenureError, WorkerReplaced

__all__ = [
    "CoordinatorConfig",
    "Database",
    "Fenced",
    "GlobalCoordinatorService",
    "Lead",
    "LeadershipLost",
    "MandateEnd",
    "TenureError",
    "WorkerReplaced",
    "__version__",
    "lead",
]

logging.getLogger("tenure").addHandler(logging.NullHandler())
