"""Everything that a process knows of itself, for OpenTelemetry: metrics, and spans.

    from tenure.telemetry.otel import instrument

    db = tenure.Database("s3://bucket/app")
    instrument(db)                      # with the global providers, or with those that you give

Guarantee: it depends on the API of OpenTelemetry alone; what is exported, and where, is the program's own set-up. No
request is made for it, and no key, body or secret is in a span: of a key its first folders, of an error from the store
its kind, and of one from a handler its text with secrets taken out.

Not guaranteed: that a span is exported whose process dies before it has ended, such as a leader's term.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tenure._version import __version__
from tenure.errors import ConfigError
from tenure.telemetry.limits import MAX_VALUES
from tenure.telemetry.sampling import Sampler

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ModuleNotFoundError(
        "tenure.telemetry.otel needs opentelemetry-api: pip install 'tenure[otel]'", name=error.name
    ) from None

from tenure.telemetry.otel.instruments import Instruments
from tenure.telemetry.otel.spans import Spans
from tenure.telemetry.otel.store import StoreSpans

__all__ = ["Instrumentation", "StoreSpans", "instrument"]

SCOPE = "tenure"


class Instrumentation:
    """What `instrument` gives. It ends with `close()`, or with its `with` block."""

    def __init__(self, instruments: Instruments, spans: Spans) -> None:
        self._instruments = instruments
        self._spans = spans

    def close(self) -> None:
        """Tell nothing more. Spans that are open end."""
        self._instruments.close()
        self._spans.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def instrument(
    database: object,
    meter_provider: metrics.MeterProvider | None = None,
    tracer_provider: trace.TracerProvider | None = None,
    *,
    store_spans: StoreSpans = StoreSpans.ALL,
    attributes: Mapping[str, str] | None = None,
    max_values: int = MAX_VALUES,
) -> Instrumentation:
    """Tell OpenTelemetry of `database` (or one of `tenure.blocking`), before or after it is connected.

    `store_spans`: which requests have a span. `attributes` are added to every metric: where a process has several
    databases, they tell them apart. `max_values`: as of `TenureCollector`.
    """
    if not isinstance(store_spans, StoreSpans):
        raise ConfigError(f"store_spans is {store_spans!r}: give StoreSpans.ALL, INSIDE or NONE")
    sampler = Sampler(database, max_values=max_values)
    spans = Spans(trace.get_tracer(SCOPE, __version__, tracer_provider), sampler.database, store_spans)
    sampler.database.trace(spans)
    meter = metrics.get_meter(SCOPE, __version__, meter_provider)
    return Instrumentation(Instruments(meter, sampler, dict(attributes or {})), spans)
