"""How fast the processes of a cluster in the lab live: one lease for all of them, and everything in proportion.

TENURE_LAB_LEASE, in seconds, makes it longer: for a machine with so much else to do that a request may take a second.
"""

from __future__ import annotations

import os

from tenure import CoordinatorConfig

LEASE = float(os.environ.get("TENURE_LAB_LEASE", "3"))


def config() -> CoordinatorConfig:
    return CoordinatorConfig.for_lease(LEASE, startup_jitter_max=0)
