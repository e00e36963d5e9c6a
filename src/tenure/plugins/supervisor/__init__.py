"""Runs things on the leader and nowhere else, and keeps them running.

children = [Child("mailer", send_mails), Child("sync", Command("rsync", "-a", "in/", "out/"))]
await db.use_plugin(CoordinatorCandidate(children))
"""

from tenure.plugins.supervisor.candidate import CoordinatorCandidate, candidate_config
from tenure.plugins.supervisor.child import Child, ChildState, ChildStatus, Command, Context, Restart, Service
from tenure.plugins.supervisor.restarts import GiveUp, RestartPolicy
from tenure.plugins.supervisor.status import SupervisorStatus, read_status
from tenure.plugins.supervisor.supervisor import CoordinatorSupervisor

__all__ = [
    "Child",
    "ChildState",
    "ChildStatus",
    "Command",
    "Context",
    "CoordinatorCandidate",
    "CoordinatorSupervisor",
    "GiveUp",
    "Restart",
    "RestartPolicy",
    "Service",
    "SupervisorStatus",
    "candidate_config",
    "read_status",
]
