"""What tenure stands on, shown in seconds on a local directory with real processes."""
