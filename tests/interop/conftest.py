"""Judges: other people's software that tells whether ours works with it.

A test names its judge by `@pytest.mark.judge(system, version, what was tried)`. If INTEROP_RESULTS names a file, the outcomes
are written there as JSON; `scripts/interop.py` makes `docs/reference/interop.md` of them. A test that tries many things at
once says how many with `record_property("passed", …)` and `record_property("total", …)`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_OUTCOMES: list[dict[str, Any]] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    marker = item.get_closest_marker("judge")
    if marker is None or (report.when != "call" and report.passed):
        return
    counted = dict(item.user_properties)
    total = int(counted.get("total", 1))
    passed = int(counted.get("passed", total)) if report.passed else 0
    system, version, tried = marker.args
    _OUTCOMES.append(
        {
            "system": system,
            "version": version,
            "tried": tried,
            "passed": passed,
            "total": total,
            "skipped": report.skipped,
        }
    )


def pytest_sessionfinish() -> None:
    path = os.environ.get("INTEROP_RESULTS")
    if path and _OUTCOMES:
        Path(path).write_text(json.dumps(_OUTCOMES, indent=1) + "\n", encoding="utf-8")
