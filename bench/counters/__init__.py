"""`make bench-counters`."""
