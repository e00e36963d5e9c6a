"""Every part of tenure at once, in real processes on a real store, and everything that may go wrong with them.

    make chaos STORE=ministack MINUTES=30 SEED=1

`plan` draws what goes wrong, and when, from a seed. `conductor` starts the processes (`node`) on a `site` and does it
to them. `verdict` has the logs judged, by programs that see nothing else.
"""
