"""As many coordinators as a large fleet has, a queue near its limit, and leaders that are killed.

    make load MINUTES=5

`plan` says how many and how fast. `conductor` starts processes (`node`), each with many coordinators, finds out how
much the queue takes, gives it 80 % of that, and kills whoever leads. `verdict` judges, and reads nothing but files.
"""
