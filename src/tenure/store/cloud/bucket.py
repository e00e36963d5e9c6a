"""A bucket's folder as a store that can be tried out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenure.clock import Clock
from tenure.entropy import NewId
from tenure.store.cloud.probe import Probe
from tenure.store.cloud.store import CloudStore, Dialect
from tenure.store.learned import Learned
from tenure.store.prefixed import Prefixed


class BucketStore(Prefixed):
    def __init__(self, bucket: CloudStore, prefix: str) -> None:
        super().__init__(bucket, prefix)
        self._bucket = bucket
        self._folder = prefix

    async def learn(self, draw_id: NewId, clock: Clock) -> Learned:
        """Find out the store's dialect and use it from now on; say why it is unfit, if it is."""
        findings = await Probe(self._bucket, self._folder, draw_id=draw_id, clock=clock).run()
        return Learned(
            reasons=findings.reasons,
            dialect=msgspec.structs.asdict(findings.dialect),
            versioned=findings.dialect.versioned,
            credentials=self._bucket.credentials_source,
        )

    def adopt(self, dialect: Mapping[str, object]) -> None:
        """Use a dialect that another process has learned on the same store."""
        self._bucket.dialect = msgspec.convert(dict(dialect), Dialect)
