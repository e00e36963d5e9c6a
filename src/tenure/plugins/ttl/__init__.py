"""Records that expire: by age or by a field; deleted, marked, archived or given to a function."""

from tenure.plugins.ttl.calling import Expired
from tenure.plugins.ttl.looking import FailedCallback, TTLStats
from tenure.plugins.ttl.plugin import TTLPlugin
from tenure.plugins.ttl.records import Cleanup, Counts
from tenure.plugins.ttl.settings import OnExpire, TTLSettings

__all__ = ["Cleanup", "Counts", "Expired", "FailedCallback", "OnExpire", "TTLPlugin", "TTLSettings", "TTLStats"]
