"""An election among real processes, shown in seconds on a local directory."""
