"""A store at a URL, and everything that stands on it: coordinators, plugins, resources, storage and locks."""

from tenure.database.core import Database, lead, terms
from tenure.database.records import Page, Record
from tenure.database.resource import REMOVE, Resource
from tenure.database.storage import PluginStorage

__all__ = ["REMOVE", "Database", "Page", "PluginStorage", "Record", "Resource", "lead", "terms"]
