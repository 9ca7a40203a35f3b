"""The documented cost of resolving a domain is the measured one, and meets its goals."""

from __future__ import annotations

from bench import saved_results
from bench.domains import DOCUMENT, RESULTS, documented

RESULTS_KEPT = saved_results.load(RESULTS)


def test_the_documentation_shows_the_saved_results() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert documented(text, RESULTS_KEPT) == text


def test_a_domain_takes_one_round_trip_and_its_key_at_most_four() -> None:
    rungs = RESULTS_KEPT["rungs"]
    assert rungs["dns"]["round_trips"] == 1
    assert rungs["key"]["round_trips"] <= 4


def test_a_thousand_domains_at_once_are_all_found_within_the_usual_number_of_files() -> None:
    for rung in ("dns", "key"):
        found = RESULTS_KEPT["together"]["1000"][rung]
        assert found["found"] == 1000
        assert found["files"] < 1024 / 2
        assert found["grown_mib"] < 100
