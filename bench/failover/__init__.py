"""`make bench-failover`."""
