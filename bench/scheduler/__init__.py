"""`make bench-scheduler`."""
