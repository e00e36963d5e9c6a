"""Somebody else's program, on at most one machine: what `tenure run URL -- CMD` does.

Guarantee (Linux): CMD runs only under a held lease, and all of its process tree has ended before another machine may
start it, also if this process is frozen, killed or cut off from the store. See `tenure.plugins.supervisor.command` for
how, and for what escapes.

Not guaranteed: anything while the whole machine is frozen and right after it was thawed. CMD has the epoch to fence
with (`TENURE_EPOCH`, `TENURE_TOKEN`).
"""
