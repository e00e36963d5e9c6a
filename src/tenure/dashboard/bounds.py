"""How much is looked at, kept and sent at most: whoever can write to the bucket decides how much there is."""

from __future__ import annotations

MAX_WORKERS = 5000
MAX_QUEUES = 1000
MAX_SCHEDULES = 100
MAX_JOBS = 2000
MAX_COUNTERS = 200
MAX_SUPERVISORS = 50
MAX_CHILDREN = 1000
MAX_TERMS = 100
MAX_CHANGES = 200
MAX_POINTS = 600
MAX_CLIENTS = 64
MAX_SESSIONS = 100
MAX_ROWS_PER_PAGE = 200
MAX_INBOX_COUNTED = 10_000
"""Objects in an inbox that are counted: a page of a listing has a thousand."""
MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
"""Of one ledger, as it lies in the bucket ..."""
MAX_SNAPSHOTS_BYTES = 256 * 1024 * 1024
"""... and of all that are looked at."""
MAX_BODY_BYTES = 16 * 1024
"""Of a request to the dashboard."""
MAX_ACTIONS_AT_ONCE = 8

PULSES_PER_LISTING = 20
"""Workers whose records are read at each listing, beside the leader's: each in its turn."""
LOOKS_PER_SECOND = 20
"""At ledgers and supervisors, in the long run ..."""
LOOKS_AT_ONCE = 100
"""... and so many at once after a start or a pause, so that a page is soon complete."""
LOOKS_UNDER_WAY = 8

LONGEST_NAME = 256
LONGEST_TEXT = 300
