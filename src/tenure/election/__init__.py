"""Who leads: the pure rules of one lease record per namespace. No I/O, no clock, no randomness of its own."""
