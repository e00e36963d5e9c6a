"""Where the time goes, and what a change took out: the same work with two versions of the sources, in one run."""
