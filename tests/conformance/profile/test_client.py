"""Requirements of the profile for clients."""

from __future__ import annotations

import msgspec
import pytest

from waypost.responses.search import SearchResult


@pytest.mark.req("PRO-6")
def test_the_client_reads_answers_of_services_of_lower_levels() -> None:
    bare = {"candidates": [{"id": "a"}, {"id": "b", "score": 0.5, "score_components": {"novel": 1}, "extra": True}]}
    found = msgspec.convert(bare, SearchResult)
    assert [candidate.id for candidate in found.candidates] == ["a", "b"]
