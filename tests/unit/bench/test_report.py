"""The documentation shows measured figures."""

from __future__ import annotations

import json

from bench import privacy, saved_results
from bench.registry import DOCUMENT, RESULTS, documented


def test_the_documentation_shows_the_saved_results() -> None:
    results = json.loads(RESULTS.read_text())["results"]
    text = DOCUMENT.read_text()
    assert documented(text, results) == text
    assert {result["agents"] for result in results} == {1_000, 10_000, 100_000}


def test_the_documentation_shows_the_timing_results() -> None:
    results, text = saved_results.load(privacy.RESULTS), privacy.DOCUMENT.read_text(encoding="utf-8")
    assert privacy.documented(text, results) == text
    assert set(results) == set(privacy.ASKED)
    assert all(abs(found["longer_percent"]) < privacy.MOST_PERCENT for found in results.values())
