"""`make soak`: does anything grow that should not, in a fleet that simply works for a long time?

`fleet` runs real processes with every part for an hour, `simulated` eight days of the production classes in simulated
time. `judge` says of both what grew: memory, files, threads, tasks, objects in the bucket. `--broken NAME` plants a
leak, and the judge has to find it.
"""
