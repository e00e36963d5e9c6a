"""Every planted history: a module that imports this has them in `checks.PLANTED`."""

from __future__ import annotations

from . import planted_counters as planted_counters
from . import planted_election as planted_election
from . import planted_polling as planted_polling
from . import planted_queue as planted_queue
from . import planted_schedule as planted_schedule
from . import planted_ttl as planted_ttl
