"""`make bench-ttl`: what it costs to have records expire, and whether that depends on how many are stored."""
