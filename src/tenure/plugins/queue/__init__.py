"""A durable queue on nothing but a bucket: `S3QueuePlugin`."""

from tenure.plugins.queue.looking import DeadLetter, PeekedMessage, QueueStats
from tenure.plugins.queue.message import Message, Reject
from tenure.plugins.queue.outgoing import Outgoing
from tenure.plugins.queue.plugin import S3QueuePlugin
from tenure.plugins.queue.settings import Blocking, Delivery, Ordering, QueueSettings

__all__ = [
    "Blocking",
    "DeadLetter",
    "Delivery",
    "Message",
    "Ordering",
    "Outgoing",
    "PeekedMessage",
    "QueueSettings",
    "QueueStats",
    "Reject",
    "S3QueuePlugin",
]
