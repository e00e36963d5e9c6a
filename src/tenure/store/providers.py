"""Facts about providers. Prices of requests are the public list prices of their first US region, standard storage
class, in USD.

Checked against the providers' price pages in 2026; a contract, another region or another class differs, so every place
that takes a provider also takes `Prices` of your own.
"""

from __future__ import annotations

import msgspec


class Prices(msgspec.Struct, frozen=True):
    """USD per 1,000 requests."""

    write: float
    read: float
    list: float
    delete: float

    def of(self, verb: str) -> float:
        """USD for one request."""
        per_thousand = {"get": self.read, "list": self.list, "delete": self.delete, "discard": self.delete}.get(
            verb, self.write
        )
        return per_thousand / 1000


FREE = Prices(write=0.0, read=0.0, list=0.0, delete=0.0)
PRICES = {
    "s3": Prices(write=0.005, read=0.0004, list=0.005, delete=0.0),
    "gs": Prices(write=0.005, read=0.0004, list=0.005, delete=0.0),
    "az": Prices(write=0.0065, read=0.0005, list=0.0065, delete=0.0),
    "file": FREE,
    "memory": FREE,
}
SECONDS_BETWEEN_WRITES = {"gs": 1.2}
"""Google allows about one write, or delete, a second for one object."""
DELETES_PER_REQUEST = {"s3": 1000, "gs": 1, "az": 256}
KEYS_PER_LISTING = {"s3": 1000, "gs": 1000, "az": 5000}
