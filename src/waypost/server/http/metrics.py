"""Metrics for Prometheus. Labels are routes and statuses, never ids or text of a caller.

Each process measures its own requests. With several processes, followers report to the leader, which shows the sums, and
the metrics of each process with the label `worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from waypost.server.http.admission import Priority

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS = (*map(str, _BUCKETS), "+Inf")
_REQUEST_DURATION = "waypost_http_request_duration_seconds"
_SHED_REASONS = {429: "rate_limit", 503: "unavailable", 507: "storage_full"}  # by status
_OVERLOAD_REASONS = {priority: f"overload_{priority.name.lower()}" for priority in Priority}
_REPORTED_WORKER = "worker"

# By the values of the labels: of a histogram the cumulative count of each bucket and the sum, of a counter the total.
_Series = dict[tuple[str, ...], list[float]]


class _Family(msgspec.Struct, frozen=True):
    """A metric of the library, which is summed over all processes."""

    name: str
    help: str
    labels: tuple[str, ...]
    metric: Histogram | Counter

    def series(self) -> _Series:
        """The values of this process."""
        found: _Series = {}
        for family in self.metric.collect():
            for sample in family.samples:  # of each label set: buckets, count, sum or total, time of creation
                if sample.name.endswith(("_bucket", "_sum", "_total")):
                    key = tuple(sample.labels[name] for name in self.labels)
                    found.setdefault(key, []).append(sample.value)
        return found

    def render(self, series: _Series) -> Iterator[Metric]:
        if isinstance(self.metric, Counter):
            counter = CounterMetricFamily(self.name, self.help, labels=self.labels)
            for labels, (total,) in sorted(series.items()):
                counter.add_metric(labels, total)
            yield counter
            return
        histogram = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, (*counts, total_seconds) in sorted(series.items()):
            histogram.add_metric(labels, list(zip(_BOUNDS, counts, strict=True)), total_seconds)
        yield histogram


def _make_histogram(name: str, documentation: str, labels: tuple[str, ...] = ()) -> _Family:
    metric = Histogram(name, documentation, labels, buckets=_BUCKETS, registry=None)
    return _Family(name, documentation, labels, metric)


def _make_counter(name: str, documentation: str, labels: tuple[str, ...] = ()) -> _Family:
    return _Family(name, documentation, labels, Counter(name, documentation, labels, registry=None))


class _Gauge(msgspec.Struct, frozen=True):
    help: str
    read: Callable[[], float]
    is_summed: bool  # over all processes


class _ProcessMetric(msgspec.Struct, array_like=True):
    """A metric about one process: memory, processor time, garbage collection."""

    name: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


class _ProcessReport(msgspec.Struct, array_like=True):
    slot: int  # of the process among the workers
    process_id: int  # a restarted process counts from zero
    gauges: dict[str, float]
    series: dict[str, list[tuple[tuple[str, ...], list[float]]]]  # by the name of the family
    process: list[_ProcessMetric]


_report_decoder = msgspec.json.Decoder(_ProcessReport)


LabelledValues = Iterable[tuple[Sequence[str], float]]


class Metrics:
    """Complete for one service: nothing is registered with the library's global registry."""

    def __init__(self, build: Mapping[str, str] | None = None) -> None:
        """`build` are the labels of `waypost_build_info`."""
        self._requests = _make_histogram(
            _REQUEST_DURATION,
            "Time from the head of a request to the start of its response.",
            ("route", "method", "status"),
        )
        self._by_labels: dict[tuple[str, str, int], Any] = {}  # the histogram of each set of labels
        self._searches = _make_histogram("waypost_search_duration_seconds", "Time to find and rank agents.")
        self._commits = _make_histogram(
            "waypost_commit_duration_seconds", "Time from the submission of a write until it is durable."
        )
        self._queue = _make_histogram(
            "waypost_queue_delay_seconds", "Time from the head of a request until the event loop gets to it."
        )
        self._shed = _make_counter(
            "waypost_requests_shed", "Requests that were refused to protect the service.", ("reason",)
        )
        for reason in (
            *_SHED_REASONS.values(),
            *_OVERLOAD_REASONS.values(),
        ):  # a rate can be computed from the first one on
            self._shed.metric.labels(reason)
        self._families = (self._requests, self._searches, self._commits, self._queue, self._shed)
        self._build = dict(build or {})
        self._gauges: dict[str, _Gauge] = {}
        self._labelled: list[tuple[str, str, tuple[str, ...], Callable[[], LabelledValues]]] = []
        self._reports: dict[int, _ProcessReport] = {}  # by slot
        self._ended: dict[str, _Series] = {}  # of processes that were replaced
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    # --- Measurements ----------------------------------------------------------------------------

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        key = (route, method if method in _METHODS else "OTHER", status)
        histogram: Any = self._by_labels.get(key)
        if histogram is None:
            histogram = self._requests.metric.labels(*key)  # 2 µs: three times the observation
            self._by_labels[key] = histogram
        histogram.observe(seconds)
        if status in _SHED_REASONS:
            self.count_shed(_SHED_REASONS[status])

    def observe_search(self, seconds: float) -> None:
        self._searches.metric.observe(seconds)  # type: ignore[union-attr]

    def observe_commit(self, seconds: float) -> None:
        self._commits.metric.observe(seconds)  # type: ignore[union-attr]

    def observe_queue_delay(self, seconds: float) -> None:
        self._queue.metric.observe(seconds)  # type: ignore[union-attr]

    def count_overload(self, priority: Priority) -> None:
        """One request that admission refused."""
        self.count_shed(_OVERLOAD_REASONS[priority])

    def count_shed(self, reason: str) -> None:
        """One request or connection that was refused. `reason` is one of a few words."""
        self._shed.metric.labels(reason).inc()  # type: ignore[union-attr]

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float], *, is_summed: bool = False) -> None:
        self._gauges[name] = _Gauge(documentation, read, is_summed)

    def add_labelled_gauge(
        self, name: str, documentation: str, labels: Sequence[str], read: Callable[[], LabelledValues]
    ) -> None:
        """A gauge with a value for each set of labels."""
        self._labelled.append((f"waypost_{name}", documentation, tuple(labels), read))

    # --- Rendering -------------------------------------------------------------------------------

    def render(self, values: Mapping[str, tuple[str, float]]) -> bytes:
        """These values only: help text and value by name."""
        return generate_latest(_Families(_gauge_family(name, *value) for name, value in values.items()))

    def render_all(self, values: Mapping[str, tuple[str, float]]) -> bytes:
        """These values and everything that is measured."""
        gauges = {name: (gauge.help, self._read(name, gauge)) for name, gauge in self._gauges.items()}
        return self.render({**values, **gauges}) + generate_latest(self) + generate_latest(self._process_collector())

    def _read(self, name: str, gauge: _Gauge) -> float:
        return gauge.read() + sum(report.gauges.get(name, 0.0) for report in self._reports.values())

    def collect(self) -> Iterator[Metric]:
        """What all processes measured, as families of prometheus_client."""
        if self._build:
            yield InfoMetricFamily("waypost_build", "The version of this service.", self._build)
        for name, documentation, labels, read in self._labelled:
            gauge = GaugeMetricFamily(name, documentation, labels=labels)
            for values, value in read():
                gauge.add_metric(values, value)
            yield gauge
        for family in self._families:
            totals: _Series = {}
            _add(totals, family.series())
            _add(totals, self._ended.get(family.name, {}))
            for report in self._reports.values():
                _add(totals, dict(report.series.get(family.name, ())))
            if family is self._requests:
                yield _request_counter(totals, family.labels)
            yield from family.render(totals)

    def _process_collector(self) -> Collector | CollectorRegistry:
        if not self._reports:
            return self._process
        reported = [(0, self._process_metrics()), *((slot, report.process) for slot, report in self._reports.items())]
        families: dict[str, Metric] = {}
        for slot, metrics in reported:
            for each in metrics:
                family = families.setdefault(each.name, Metric(each.name, each.help, each.type))
                for name, labels, value in each.samples:
                    family.add_sample(name, {**labels, _REPORTED_WORKER: str(slot)}, value)
        return _Families(families.values())

    # --- Several processes -----------------------------------------------------------------------

    def report(self, slot: int, process_id: int) -> bytes:
        """What this process measured, for the leader."""
        return msgspec.json.encode(
            _ProcessReport(
                slot,
                process_id,
                {name: gauge.read() for name, gauge in self._gauges.items() if gauge.is_summed},
                {family.name: list(family.series().items()) for family in self._families},
                self._process_metrics(),
            )
        )

    def merge_report(self, data: bytes) -> None:
        report = _report_decoder.decode(data)
        earlier = self._reports.get(report.slot)
        if earlier is not None and earlier.process_id != report.process_id:
            for name, series in earlier.series.items():
                _add(self._ended.setdefault(name, {}), dict(series))
        self._reports[report.slot] = report

    def _process_metrics(self) -> list[_ProcessMetric]:
        return [
            _ProcessMetric(
                family.name,
                family.documentation,
                family.type,
                [(sample.name, dict(sample.labels), sample.value) for sample in family.samples],
            )
            for family in self._process.collect()
        ]


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _gauge_family(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"waypost_{name}", documentation, value)


def _request_counter(totals: _Series, labels: tuple[str, ...]) -> Metric:
    """The count of each histogram under a name of its own."""
    requests = CounterMetricFamily("waypost_requests", "Requests answered.", labels=labels)
    for values, (*counts, _) in sorted(totals.items()):
        requests.add_metric(values, counts[-1])
    return requests


def _add(totals: _Series, series: Mapping[tuple[str, ...], list[Any]]) -> None:
    for labels, values in series.items():
        known = totals.get(labels)
        totals[labels] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
