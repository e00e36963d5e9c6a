"""How the cluster is: nodes up and down, a periodic check, and a response for a health endpoint."""

from tenure.plugins.cluster_health.report import ChildHealth, HealthReport, Observation, Thresholds, judge
from tenure.plugins.cluster_health.watch import ClusterHealth, HealthChanged, NodeDown, NodeUp

__all__ = [
    "ChildHealth",
    "ClusterHealth",
    "HealthChanged",
    "HealthReport",
    "NodeDown",
    "NodeUp",
    "Observation",
    "Thresholds",
    "judge",
]
