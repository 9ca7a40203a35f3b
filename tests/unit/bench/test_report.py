"""The figures in the documentation are those that were measured."""

from __future__ import annotations

import json

from bench.registry import DOCUMENT, RESULTS, documented


def test_the_documentation_shows_the_results_that_are_kept() -> None:
    results = json.loads(RESULTS.read_text())["results"]
    text = DOCUMENT.read_text()
    assert documented(text, results) == text
    assert {result["agents"] for result in results} == {1_000, 10_000, 100_000}
