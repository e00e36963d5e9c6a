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
from tenure.coordinator.given import shown
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


def _checked(attributes: Mapping[str, str]) -> dict[str, str]:
    is_right = isinstance(attributes, Mapping) and all(
        isinstance(name, str) and name and isinstance(value, str) for name, value in attributes.items()
    )
    if not is_right:
        raise ConfigError(
            f"attributes are {shown(attributes)}: give names and their texts, such as {{'service.name': 'mailer'}}"
        )
    return dict(attributes)


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
        raise ConfigError(f"store_spans is {shown(store_spans)}: give StoreSpans.ALL, INSIDE or NONE")
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise ConfigError(f"meter_provider is {shown(meter_provider)}: give a MeterProvider of OpenTelemetry, or None")
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise ConfigError(
            f"tracer_provider is {shown(tracer_provider)}: give a TracerProvider of OpenTelemetry, or None"
        )
    given = _checked(attributes if attributes is not None else {})
    sampler = Sampler(database, max_values=max_values)
    spans = Spans(trace.get_tracer(SCOPE, __version__, tracer_provider), sampler.database, store_spans)
    sampler.database.trace(spans)
    meter = metrics.get_meter(SCOPE, __version__, meter_provider)
    return Instrumentation(Instruments(meter, sampler, given), spans)
