"""Everything that a process knows of itself, for Prometheus.

    from tenure.telemetry.prometheus import serve

    async with tenure.Database("s3://bucket/app") as db:
        with serve(db, 9464):           # http://127.0.0.1:9464/metrics
            ...

Guarantee: a scrape makes no request to the store and changes nothing. It may come on any thread.

`TenureCollector` is for a registry of your own, and `metrics_app` for an ASGI application. The metrics are listed in
docs/telemetry.md.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

from tenure.coordinator.given import check_count, shown
from tenure.errors import ConfigError
from tenure.telemetry.catalogue import CATALOGUE, Buckets, Family, Kind
from tenure.telemetry.limits import MAX_VALUES
from tenure.telemetry.sampling import Sampler

try:
    from prometheus_client import CollectorRegistry, make_asgi_app, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("prometheus_client"):
        raise
    raise ModuleNotFoundError(
        "tenure.telemetry.prometheus needs prometheus-client: pip install 'tenure[prometheus]'", name=error.name
    ) from None

__all__ = ["MetricsServer", "TenureCollector", "metrics_app", "registry_of", "serve"]

AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9._\-:%]{1,255}")
MAX_LABELS = 16


class TenureCollector(Collector):
    """For `registry.register(TenureCollector(db))`.

    `labels` are added to every series. A registry has one collector: where a process has several databases, the others
    are added to it, each with other values of the same labels. `max_values`: the first so many namespaces, queues and
    so on of a database have series of their own; the rest are together `other`.
    """

    def __init__(
        self, database: object, *, labels: Mapping[str, str] | None = None, max_values: int = MAX_VALUES
    ) -> None:
        self._max_values = max_values
        self._labels: tuple[str, ...] = ()
        self._sources: tuple[tuple[tuple[str, ...], Sampler], ...] = ()  # replaced, never changed: scrapes walk it
        self.add(database, labels=labels)

    def add(self, database: object, *, labels: Mapping[str, str] | None = None) -> None:
        """Tell of another database as well."""
        given = checked_labels(labels if labels is not None else {})
        names, values = tuple(sorted(given)), tuple(given[name] for name in sorted(given))
        if self._sources and (names != self._labels or values in (known for known, _ in self._sources)):
            raise ConfigError(
                f"labels are {given!r}: give those of the first database ({', '.join(self._labels) or 'it has none'}), "
                "with values by which this one is told from the others"
            )
        self._labels = names
        self._sources = (*self._sources, (values, Sampler(database, max_values=self._max_values)))

    def describe(self) -> Iterator[Metric]:
        """What there may be; so a registry need not look in order to know the names."""
        for family in CATALOGUE:
            yield self._metric(family)

    def collect(self) -> Iterator[Metric]:
        """Every family of which there is something to tell."""
        metrics: dict[str, Metric] = {}
        for given, sampler in self._sources:
            for sample in sampler.sample():
                family, value = sample.family, sample.value
                metric = metrics.get(family.name)
                if metric is None:
                    metric = metrics[family.name] = self._metric(family)
                labels = (*given, *sample.labels)
                if isinstance(value, Buckets):
                    assert isinstance(metric, HistogramMetricFamily)
                    metric.add_metric(labels, [*value.cumulative], value.sum)
                else:
                    assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
                    metric.add_metric(labels, value)
        yield from metrics.values()

    def _metric(self, family: Family) -> Metric:
        kinds: dict[Kind, type[Metric]] = {
            Kind.COUNTER: CounterMetricFamily,
            Kind.GAUGE: GaugeMetricFamily,
            Kind.HISTOGRAM: HistogramMetricFamily,
        }
        make: Callable[..., Metric] = kinds[family.kind]
        return make(family.name, family.help, labels=(*self._labels, *family.labels))


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Refuses what cannot be a label, or is one of ours."""
    ours = {label for family in CATALOGUE for label in family.labels} | {"le"}
    if not isinstance(labels, Mapping):
        raise ConfigError(f"labels are {shown(labels)}: give names and their texts, such as {{'service': 'mailer'}}")
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"labels are {len(labels)}: give at most {MAX_LABELS}")
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name) or name in ours:
            raise ConfigError(f"labels has {name!r}: give letters, digits and _, and none of {', '.join(sorted(ours))}")
        if not isinstance(value, str):
            raise ConfigError(f"label {name!r} is {value!r}: give a text")
    return dict(labels)


def registry_of(database: object, **options: Any) -> CollectorRegistry:
    """A registry with nothing else in it. `options` are those of `TenureCollector`."""
    registry = CollectorRegistry()
    registry.register(TenureCollector(database, **options))
    return registry


class MetricsServer:
    """What `serve` gives. It ends with `close()`, or with its `with` block."""

    def __init__(self, server: Any, thread: threading.Thread) -> None:
        self._server: Any = server
        self._thread = thread
        self.host: str = server.server_address[0]
        self.port: int = server.server_address[1]

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url}>"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(database: object, port: int = 9464, host: str = "127.0.0.1", **options: Any) -> MetricsServer:
    """Answer scrapes on a thread of its own, also while the event loop stands still. `port=0`: any that is free.

    Only this machine may ask, unless another `host` is given: whoever reaches the port sees the names of queues and
    what the store costs, and needs no password.
    """
    check_count("port", port, least=0, most=65535)
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise ConfigError(
            f"host is {shown(host)}: give a name or an address of this machine, such as '0.0.0.0' for all"
        )
    return MetricsServer(*start_http_server(port, addr=host, registry=registry_of(database, **options)))


def metrics_app(database: object, **options: Any) -> AsgiApp:
    """An ASGI application that answers scrapes: `Mount("/metrics", metrics_app(db))`."""
    app: AsgiApp = make_asgi_app(registry=registry_of(database, **options))
    return app
