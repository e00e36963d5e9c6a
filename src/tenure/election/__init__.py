"""Who leads: the pure rules of one lease record per namespace. No I/O, no clock, no randomness of its own.

Guarantee: under the assumption below, at no instant is the lease valid for two processes; each grant has a number one
above the last (after damage: above it); a process leads only under a grant that it issued itself in this process start.

Assumption: the store honours compare-and-swap, and every host's clock runs within `drift` (1 %) of true time, counted
through suspend (`tenure.clock`).

Not guaranteed: anything about the instant *after* `is_leader()` returned. An action that must not be done by a leader
of yesterday needs `lead.ensure()` and a fenced write. Nor is a guest noticed whose hypervisor stopped all its clocks,
or a cloned machine; fenced writes hold against those too.
"""
