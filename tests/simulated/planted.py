"""Every history that is planted, by kind of fleet."""

from . import planted_counters as planted_counters
from . import planted_ttl as planted_ttl
