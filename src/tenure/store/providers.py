"""Facts about providers. Prices are the public list prices of their first US region, standard storage class, in USD.

As of 2026, from what was published of them; not every figure could be checked. A contract, another region or class
differs, so every place that takes a provider also takes `Prices` of your own.
"""

from __future__ import annotations

import msgspec

from tenure.store.given import check_number

_MOST_USD = 1e6


class Prices(msgspec.Struct, frozen=True):
    """USD per 1,000 requests."""

    write: float
    read: float
    list: float
    delete: float

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_number(name, getattr(self, name), least=0.0, most=_MOST_USD)

    def of(self, verb: str) -> float:
        """USD for one request."""
        per_thousand = {"get": self.read, "list": self.list, "delete": self.delete, "discard": self.delete}.get(
            verb, self.write
        )
        return per_thousand / 1000


FREE = Prices(write=0.0, read=0.0, list=0.0, delete=0.0)
PRICES = {
    # Amazon S3 pricing, S3 Standard, US East (N. Virginia): tier 1 requests, tier 2 requests.
    "s3": Prices(write=0.005, read=0.0004, list=0.005, delete=0.0),
    # Google Cloud Storage pricing, Standard storage in one region: class A, class B. A multi-region doubles class A.
    "gs": Prices(write=0.005, read=0.0004, list=0.005, delete=0.0),
    # Azure Blob Storage pricing, hot tier, locally redundant, hierarchical namespace; a flat one costs a quarter less.
    "az": Prices(write=0.0065, read=0.0005, list=0.0065, delete=0.0),
    "file": FREE,
    "memory": FREE,
}
SECONDS_BETWEEN_WRITES = {"gs": 1.2}
"""Google allows about one write, or delete, a second for one object."""
DELETES_PER_REQUEST = {"s3": 1000, "gs": 1, "az": 256}
KEYS_PER_LISTING = {"s3": 1000, "gs": 1000, "az": 5000}
USD_PER_GB_MONTH = {"s3": 0.023, "gs": 0.020, "az": 0.0208, "file": 0.0, "memory": 0.0}
"""Of the first terabytes, by the same price pages. What they call a GB is 2**30 bytes."""
BYTES_PER_GB = 2**30
USD_PER_KMS_REQUEST = {"s3": 0.03 / 10_000}
"""AWS KMS pricing, symmetric keys. S3 without bucket keys asks KMS at each request for an encrypted object. What the
others' key services charge is not known here."""
