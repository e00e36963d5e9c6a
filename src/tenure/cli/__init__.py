"""The `tenure` command."""

from tenure.cli.main import main

__all__ = ["main"]
