"""An election among real processes, with leader-only work, shown in seconds on a local directory.

`candidate` is one of the processes, `cast` starts and ends them, `story` has the acts, `judge` says whether all was
right, and `panel` draws it on a terminal.
"""
