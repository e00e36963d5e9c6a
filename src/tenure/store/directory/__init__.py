"""A store in a local directory."""

from tenure.store.directory.store import DirectoryStore

__all__ = ["DirectoryStore"]
