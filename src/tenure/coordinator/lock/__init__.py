"""A lock by name on a bucket, with a fencing token.

Guarantee: at no instant is `Held.is_held()` true for two holders of one name; tokens rise by at least one with every
grant, for as long as the record exists. `is_held()` is a local comparison with this host's clock, and turns false by
itself. When a lock is lost, the body of its scope has been cancelled before anybody else can hold it.

Assumption: each clock runs within 1 % of true time, counted through suspend; the store honours conditional writes;
nobody deletes the record or puts an old one back.

Not guaranteed: anything about the instant after `is_held()` returned, code that does not yield, a machine whose
hypervisor stopped all its clocks. What you write to must refuse a token lower than one it has seen.
"""

from tenure.coordinator.lock.held import Held
from tenure.coordinator.lock.keeper import LockKeeper
from tenure.coordinator.lock.lock import DistributedLock, LockHolder

__all__ = ["DistributedLock", "Held", "LockHolder", "LockKeeper"]
