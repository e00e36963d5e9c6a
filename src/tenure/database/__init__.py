"""A store at a URL, and everything that stands on it: coordinators, plugins, resources and locks."""

from tenure.database.core import Database, lead

__all__ = ["Database", "lead"]
