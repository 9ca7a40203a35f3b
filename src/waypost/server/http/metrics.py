"""Counters in the Prometheus text format. Labels are routes and statuses, never ids or text of a caller.

With several processes each counts what it answers; those that follow report to the one that writes, which shows the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

_Key = tuple[str, str, int]


class _WorkerReport(msgspec.Struct, array_like=True):
    place: int  # of the process among its kind
    life: int  # its process id: after a restart it counts from nothing
    watchers: int
    requests: list[tuple[str, str, int, int]]
    sessions: int = 0  # WebSockets


_report_decoder = msgspec.json.Decoder(_WorkerReport)


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[_Key, int] = {}
        self._others: dict[int, _WorkerReport] = {}  # by place
        self._before: dict[_Key, int] = {}  # what processes counted that have ended
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._sessions: Callable[[], int] = lambda: 0

    def count(self, method: str, route: str, status: int) -> None:
        key = (method if method in _METHODS else "OTHER", route, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def observe_sessions(self, sessions: Callable[[], int]) -> None:
        """How many WebSockets are open here."""
        self._sessions = sessions

    def show(self, name: str, text: str, value: Callable[[], float]) -> None:
        """One more figure, for operators."""
        self._gauges[name] = (text, value)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """What is to be shown to an operator besides requests."""
        others = sum(told.sessions for told in self._others.values())
        shown = {"websocket_sessions": ("Open WebSocket sessions of the announce protocol.", self._sessions() + others)}
        return shown | {name: (text, value()) for name, (text, value) in self._gauges.items()}

    def render(self, gauges: Mapping[str, tuple[str, float]], *, requests: bool = True) -> bytes:
        lines = self._request_lines() if requests else []
        for name, (text, value) in gauges.items():
            lines += [f"# HELP waypost_{name} {text}", f"# TYPE waypost_{name} gauge", f"waypost_{name} {value:g}"]
        return ("\n".join(lines) + "\n").encode()

    def _request_lines(self) -> list[str]:
        lines = ["# HELP waypost_requests_total Requests answered.", "# TYPE waypost_requests_total counter"]
        for (method, route, status), number in sorted(self._totals().items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"waypost_requests_total{{{labels}}} {number}")
        return lines

    # --- Several processes -----------------------------------------------------------------------

    def report(self, place: int, life: int, watchers: int) -> bytes:
        """What was counted here, for the process that shows it."""
        counted = [(*key, number) for key, number in self._requests.items()]
        return msgspec.json.encode(_WorkerReport(place, life, watchers, counted, self._sessions()))

    def merge_report(self, report: bytes) -> None:
        told = _report_decoder.decode(report)
        known = self._others.get(told.place)
        if known is not None and known.life != told.life:
            _add_counts(self._before, known)
        self._others[told.place] = told

    @property
    def remote_watchers(self) -> int:
        return sum(told.watchers for told in self._others.values())

    def _totals(self) -> dict[_Key, int]:
        totals = dict(self._requests)
        for key, number in self._before.items():
            totals[key] = totals.get(key, 0) + number
        for told in self._others.values():
            _add_counts(totals, told)
        return totals


def _add_counts(totals: dict[_Key, int], told: _WorkerReport) -> None:
    for method, route, status, number in told.requests:
        key = (method, route, status)
        totals[key] = totals.get(key, 0) + number


_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
