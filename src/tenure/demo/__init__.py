"""An election among real processes, and the work that they do together, shown in seconds on a local directory.

`candidate` is one of the processes and `shop` what it does besides leading; `lines` is what they say. `cast` starts and
ends them, `story` has the acts and `stage` what is seen of them. `judge` and `accounts` say whether all was right, by
what was said and what the bucket has (`books`); `verdicts` puts that into words. `panel` and `shopfront` draw it on a
terminal; `encore` goes on.
"""
