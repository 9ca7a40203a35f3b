"""A pytest plugin: `--times` prints the time per folder and the slowest tests; `--long` also runs tests marked `long`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

SLOWEST = 15


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="print the time per folder and the slowest tests")
    parser.addoption(
        "--long", action="store_true", help="also run tests marked `long`, and look for new counterexamples"
    )


def skip_long_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long: run with --long"))


class TestTimes:
    """Adds up setup, call and teardown. With xdist, the process that prints receives the reports of all workers."""

    __test__ = False

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        folders, counts = Counter[str](), Counter[str]()
        for nodeid, seconds in self._seconds.items():
            folder = "/".join(nodeid.split("::")[0].split("/")[:2])
            folders[folder] += seconds  # type: ignore[assignment]
            counts[folder] += 1
        terminalreporter.section("time per folder, all processes together")
        for folder, seconds in folders.most_common():
            terminalreporter.write_line(f"{seconds:8.1f} s  {counts[folder]:6} tests  {folder}")
        terminalreporter.section(f"the {SLOWEST} slowest tests")
        for nodeid, seconds in self._seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f} s  {nodeid}")
