"""One leader, fencing, membership and leader-only work for a fleet of processes, on nothing but a bucket.

Nothing happens on import: no thread, no request, no signal handler, no logging set-up.
"""

from tenure._version import __version__
from tenure.errors import TenureError

__all__ = ["TenureError", "__version__"]
