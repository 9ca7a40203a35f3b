"""The figures of the announce benchmark as a table, with their goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.saved_results import DOCS, HERE, with_block

RESULTS = HERE / "results" / "announce.json"
DOCUMENT = DOCS / "lan.md"

Results = Mapping[str, Any]
Value = Callable[[Results, str], float | None]


class Row(NamedTuple):
    part: str
    text: str
    value: Value
    goal: float | None = None  # at most; negative: at least
    form: str = "{:.2f}"


def _ratio(part: str, figure: str) -> Value:
    def value(results: Results, size: str) -> float | None:
        measured = results.get(part, {}).get(size)
        if measured is None or not measured["bare"][figure]:
            return None
        return float(measured["ours"][figure] / measured["bare"][figure])

    return value


def _own(part: str, figure: str) -> Value:
    def value(results: Results, size: str) -> float | None:
        measured = results.get(part, {}).get(size)
        return None if measured is None else measured["ours"][figure]

    return value


def _missing(results: Results, size: str) -> float | None:
    measured = results.get("lan", {}).get(size)
    return None if measured is None else int(size) - measured["ours"]["known"]


ROWS = (
    Row("lan", "seconds until all are known", _own("lan", "seconds"), 10.0),
    Row("lan", "… ÷ bare zeroconf", _ratio("lan", "seconds"), 1.0),
    Row("lan", "agents that were never known", _missing, 0.0, "{:.0f}"),
    Row("lan", "packets per agent ÷ bare zeroconf", _ratio("lan", "packets_per_agent"), 1.0),
    Row("lan", "bytes per agent ÷ bare zeroconf", _ratio("lan", "bytes_per_agent"), 1.0),
    Row("lan", "packets per agent", _own("lan", "packets_per_agent"), None, "{:.1f}"),
    Row("lan", "bytes per agent", _own("lan", "bytes_per_agent"), None, "{:,.0f}"),
    Row("lan", "CPU of who listens, ms per agent", _own("lan", "listener_cpu_ms_per_agent")),
    Row("lan", "… ÷ bare zeroconf", _ratio("lan", "listener_cpu_ms_per_agent"), 2.0),
    Row("lan", "CPU of the hosts ÷ bare zeroconf", _ratio("lan", "host_cpu_ms_per_agent"), 2.0),
    Row("sockets", "memory per session, KiB", _own("sockets", "kib_per_session"), None, "{:.0f}"),
    Row("sockets", "… ÷ bare websockets", _ratio("sockets", "kib_per_session"), 3.0),
    Row("sockets", "… with the agent that it announced, KiB", _own("sockets", "kib_with_its_agent"), None, "{:.0f}"),
    Row("sockets", "p99 of an announcement, ms", _own("sockets", "p99_ms"), 50.0, "{:.1f}"),
    Row("sockets", "… ÷ bare websockets", _ratio("sockets", "p99_ms")),
    Row("sockets", "CPU of an announcement ÷ bare websockets", _ratio("sockets", "cpu_us_per_announcement")),
    Row("bus", "announcements per second", _own("bus", "announced_per_second"), None, "{:,.0f}"),
    Row("bus", "… ÷ bare nats-py", _ratio("bus", "announced_per_second"), -0.2),
    Row("bus", "known per second ÷ bare nats-py", _ratio("bus", "known_per_second"), -0.1),
    Row("bus", "questions per second ÷ bare nats-py", _ratio("bus", "questions_per_second"), -0.2),
)
HEADS = {"lan": "agents on one LAN", "sockets": "WebSocket sessions", "bus": "agents on a bus"}
FLOODS = (
    ("p99 of HTTP ÷ without a flood", "flooded_p99_ms", "quiet_p99_ms", 2.0),
    ("p99 of HTTP ÷ the same flood elsewhere", "flooded_p99_ms", "elsewhere_p99_ms", 2.0),
)
FLOOD_FIGURES = (
    ("p99 of HTTP, ms", "flooded_p99_ms", None, "{:.1f}"),
    ("… without a flood", "quiet_p99_ms", None, "{:.1f}"),
    ("… the same flood elsewhere", "elsewhere_p99_ms", None, "{:.1f}"),
    ("median of HTTP, ms", "flooded_p50_ms", None, "{:.1f}"),
    ("… without a flood", "quiet_p50_ms", None, "{:.1f}"),
    ("… the same flood elsewhere", "elsewhere_p50_ms", None, "{:.1f}"),
    ("CPU of the registry, of one core", "flooded_cpu_share", None, "{:.0%}"),
    ("… without a flood", "quiet_cpu_share", None, "{:.0%}"),
    ("memory grown, MiB", "grown_mib", 64.0, "{:.0f}"),
)


def report(results: Results) -> str:
    blocks = [_table(part, results) for part in HEADS if results.get(part)]
    if results.get("flood"):
        blocks.append(_flood_table(results["flood"]))
    return "\n\n".join(blocks)


def documented(text: str, results: Results) -> str:
    return with_block(text, "announce", report(results))


def _table(part: str, results: Results) -> str:
    sizes = list(results[part])
    lines = [f"| {HEADS[part]} | goal | {' | '.join(f'{int(size):,}' for size in sizes)} |"]
    lines.append("|---|---|" + "---|" * len(sizes))
    for row in ROWS:
        if row.part == part:
            cells = [_cell(row, row.value(results, size)) for size in sizes]
            lines.append(f"| {row.text} | {_goal(row.goal)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _flood_table(floods: Results) -> str:
    kinds = list(floods)
    lines = [f"| flood, 20,000 packets a second | goal | {' | '.join(kinds)} |", "|---|---|" + "---|" * len(kinds)]
    for text, above, below, goal in FLOODS:
        values = [floods[kind][above] / max(1e-9, floods[kind][below]) for kind in kinds]
        lines.append(f"| {text} | {_goal(goal)} | {' | '.join(_marked(each, goal, '{:.2f}') for each in values)} |")
    for label, figure, most, form in FLOOD_FIGURES:
        if all(figure in floods[kind] for kind in kinds):
            cells = [_marked(floods[kind][figure], most, form) for kind in kinds]
            lines.append(f"| {label} | {_goal(most)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row, value: float | None) -> str:
    return "not measured" if value is None else _marked(value, row.goal, row.form)


def _marked(value: float, goal: float | None, form: str) -> str:
    is_missed = goal is not None and (value > goal if goal >= 0 else value < -goal)
    return form.format(value) + (" (missed)" if is_missed else "")


def _goal(goal: float | None) -> str:
    if goal is None:
        return "–"
    return f"≤ {goal:g}" if goal >= 0 else f"≥ {-goal:g}"
