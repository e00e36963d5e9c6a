"""Leader-only work: queue, scheduler, TTL, counters, supervised services."""
