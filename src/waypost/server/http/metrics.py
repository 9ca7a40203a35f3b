"""Metrics for Prometheus. Labels are routes and statuses, never ids or text of a caller.

Each process measures its own requests. With several processes, followers report to the leader, which shows the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import GCCollector, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
_LABELS = ("route", "method", "status")
_DURATION = "waypost_http_request_duration_seconds"
_DURATION_HELP = "Time from the head of a request to the start of its response."
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS = (*map(str, _BUCKETS), "+Inf")

# By labels: the cumulative count of each bucket, the sum of the durations.
_Durations = dict[tuple[str, str, str], list[float]]


class _Gauge(msgspec.Struct, frozen=True):
    help: str
    read: Callable[[], float]
    is_summed: bool  # over all processes


class _ProcessReport(msgspec.Struct, array_like=True):
    slot: int  # of the process among the workers
    process_id: int  # a restarted process counts from zero
    gauges: dict[str, float]
    durations: list[tuple[tuple[str, str, str], list[float]]]


_report_decoder = msgspec.json.Decoder(_ProcessReport)


class Metrics:
    """Complete for one service: nothing is registered with the library's global registry."""

    def __init__(self) -> None:
        self._histogram = Histogram(_DURATION, _DURATION_HELP, _LABELS, buckets=_BUCKETS, registry=None)
        self._by_labels: dict[tuple[str, str, int], Histogram] = {}
        self._gauges: dict[str, _Gauge] = {}
        self._reports: dict[int, _ProcessReport] = {}  # by slot
        self._ended: _Durations = {}  # of processes that were replaced
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        key = (route, method if method in _METHODS else "OTHER", status)
        histogram = self._by_labels.get(key)
        if histogram is None:
            histogram = self._by_labels[key] = self._histogram.labels(*key)  # 2 µs: three times the observation
        histogram.observe(seconds)

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float], *, is_summed: bool = False) -> None:
        self._gauges[name] = _Gauge(documentation, read, is_summed)

    def render(self, values: Mapping[str, tuple[str, float]]) -> bytes:
        """These values only: help text and value by name."""
        return generate_latest(_Families(_gauge_family(name, *value) for name, value in values.items()))

    def render_all(self, values: Mapping[str, tuple[str, float]]) -> bytes:
        """These values and everything that is measured."""
        gauges = {name: (gauge.help, self._read(name, gauge)) for name, gauge in self._gauges.items()}
        return self.render({**values, **gauges}) + generate_latest(self) + generate_latest(self._process)

    def _read(self, name: str, gauge: _Gauge) -> float:
        return gauge.read() + sum(report.gauges.get(name, 0.0) for report in self._reports.values())

    def collect(self) -> Iterator[Metric]:
        """Requests of all processes, as families of prometheus_client."""
        totals: _Durations = {}
        for durations in (self._durations(), self._ended, *(dict(each.durations) for each in self._reports.values())):
            _add(totals, durations)
        requests = CounterMetricFamily("waypost_requests", "Requests answered.", labels=_LABELS)
        histogram = HistogramMetricFamily(_DURATION, _DURATION_HELP, labels=_LABELS)
        for labels, (*counts, total_seconds) in sorted(totals.items()):
            requests.add_metric(labels, counts[-1])
            histogram.add_metric(labels, list(zip(_BOUNDS, counts, strict=True)), total_seconds)
        yield from (requests, histogram)

    # --- Several processes -----------------------------------------------------------------------

    def report(self, slot: int, process_id: int) -> bytes:
        """What this process measured, for the leader."""
        gauges = {name: gauge.read() for name, gauge in self._gauges.items() if gauge.is_summed}
        return msgspec.json.encode(_ProcessReport(slot, process_id, gauges, list(self._durations().items())))

    def merge_report(self, data: bytes) -> None:
        report = _report_decoder.decode(data)
        earlier = self._reports.get(report.slot)
        if earlier is not None and earlier.process_id != report.process_id:
            _add(self._ended, dict(earlier.durations))
        self._reports[report.slot] = report

    def _durations(self) -> _Durations:
        durations: _Durations = {}
        for family in self._histogram.collect():
            for sample in family.samples:  # of each label set: buckets, count, sum, time of creation
                if sample.name.endswith(("_bucket", "_sum")):
                    labels = (sample.labels["route"], sample.labels["method"], sample.labels["status"])
                    durations.setdefault(labels, []).append(sample.value)
        return durations


class _Families(Collector):
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def _gauge_family(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"waypost_{name}", documentation, value)


def _add(totals: _Durations, durations: Mapping[tuple[str, str, str], list[float]]) -> None:
    for labels, values in durations.items():
        known = totals.get(labels)
        totals[labels] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
