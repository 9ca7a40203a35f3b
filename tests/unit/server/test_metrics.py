"""Metrics in the text format of Prometheus, of one process and of several."""

from __future__ import annotations

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from waypost.server.http.admission import Priority
from waypost.server.http.metrics import Metrics


def samples(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_request_is_counted_and_timed_by_route_method_and_status() -> None:
    metrics = Metrics()
    for seconds in (0.004, 0.02, 20.0):
        metrics.observe("GET", "/healthz", 200, seconds)
    metrics.observe("BREW", "/healthz", 405, 0.001)
    found = samples(metrics.render_all({"agents": ("Agents that the caller may see.", 3)}))
    labels = (("method", "GET"), ("route", "/healthz"), ("status", "200"))
    other = (("method", "OTHER"), ("route", "/healthz"), ("status", "405"))
    assert found["waypost_requests_total"] == {labels: 3, other: 1}
    buckets = found["waypost_http_request_duration_seconds_bucket"]
    counts = {dict(key)["le"]: value for key, value in buckets.items() if ("method", "GET") in key}
    assert (counts["0.0025"], counts["0.005"], counts["0.025"], counts["10.0"], counts["+Inf"]) == (0, 1, 2, 2, 3)
    assert found["waypost_http_request_duration_seconds_count"][labels] == 3
    assert found["waypost_http_request_duration_seconds_sum"][labels] == 20.024
    assert found["waypost_agents"] == {(): 3}
    assert {"process_resident_memory_bytes", "python_info", "python_gc_collections_total"} <= found.keys()


def test_only_the_given_values_are_rendered_for_other_callers() -> None:
    metrics = Metrics()
    metrics.observe("GET", "/healthz", 200, 0.1)
    metrics.add_gauge("watchers", "Open watch streams.", lambda: 1)
    assert samples(metrics.render({"agents": ("Agents.", 3)})) == {"waypost_agents": {(): 3}}


def test_a_replaced_process_stays_counted() -> None:
    leader, first, second = Metrics(), Metrics(), Metrics()
    for metrics, times in ((leader, 1), (first, 2), (second, 4)):
        for _ in range(times):
            metrics.observe("GET", "/healthz", 200, 0.01)
    leader.merge_report(first.report(1, 100))
    leader.merge_report(second.report(1, 101))
    leader.merge_report(second.report(1, 101))
    found = samples(leader.render_all({}))
    assert list(found["waypost_requests_total"].values()) == [7]
    assert list(found["waypost_http_request_duration_seconds_count"].values()) == [7]


def test_gauges_are_summed_over_processes_where_that_makes_sense() -> None:
    leader, follower = Metrics(), Metrics()
    for metrics, value in ((leader, 2), (follower, 3)):
        metrics.add_gauge("websocket_sessions", "Open sessions.", lambda value=value: value, is_summed=True)  # type: ignore[misc]
        metrics.add_gauge("lan_dropped", "Dropped packets.", lambda: 7)
    leader.merge_report(follower.report(1, 100))
    found = samples(leader.render_all({}))
    assert (found["waypost_websocket_sessions"], found["waypost_lan_dropped"]) == ({(): 5}, {(): 7})


def test_services_in_one_process_share_nothing() -> None:
    one, other = Metrics(), Metrics()
    one.observe("GET", "/healthz", 200, 0.01)
    assert "waypost_requests_total" not in samples(other.render_all({}))
    assert b"waypost" not in prometheus_client.generate_latest()


def test_searches_commits_and_refusals_are_measured_and_summed() -> None:
    leader, follower = Metrics({"version": "1.2.3"}), Metrics()
    for metrics in (leader, follower):
        metrics.observe_search(0.002)
        metrics.observe_commit(0.02)
        metrics.observe("GET", "/x", 429, 0.001)
        metrics.count_overload(Priority.SEARCH)
        metrics.observe_queue_delay(0.03)
    leader.merge_report(follower.report(1, 100))
    found = samples(leader.render_all({}))
    assert found["waypost_build_info"] == {(("version", "1.2.3"),): 1}
    assert found["waypost_search_duration_seconds_count"] == {(): 2}
    assert found["waypost_commit_duration_seconds_sum"] == {(): 0.04}
    shed = {dict(labels)["reason"]: value for labels, value in found["waypost_requests_shed_total"].items()}
    overload = {"overload_essential": 0, "overload_write": 0, "overload_read": 0, "overload_search": 2}
    assert shed == {**overload, "rate_limit": 2, "storage_full": 0, "unavailable": 0}
    assert found["waypost_queue_delay_seconds_sum"] == {(): 0.06}


def test_metrics_of_the_processes_are_told_apart() -> None:
    leader, follower = Metrics(), Metrics()
    alone = samples(leader.render_all({}))
    assert list(alone["process_resident_memory_bytes"]) == [()]
    leader.merge_report(follower.report(3, 100))
    found = samples(leader.render_all({}))
    assert set(found["process_resident_memory_bytes"]) == {(("worker", "0"),), (("worker", "3"),)}
    assert set(found["process_cpu_seconds_total"]) == {(("worker", "0"),), (("worker", "3"),)}
