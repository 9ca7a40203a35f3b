"""Counters in the Prometheus text format. Labels are routes and statuses, never ids or text of a caller."""

from __future__ import annotations

from collections.abc import Mapping


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}

    def count(self, method: str, route: str, status: int) -> None:
        key = (method if method in _METHODS else "OTHER", route, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def render(self, gauges: Mapping[str, tuple[str, float]]) -> bytes:
        lines = ["# HELP waypost_requests_total Requests answered.", "# TYPE waypost_requests_total counter"]
        for (method, route, status), number in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"waypost_requests_total{{{labels}}} {number}")
        for name, (text, value) in gauges.items():
            lines += [f"# HELP waypost_{name} {text}", f"# TYPE waypost_{name} gauge", f"waypost_{name} {value:g}"]
        return ("\n".join(lines) + "\n").encode()


_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
