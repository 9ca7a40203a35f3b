"""The strict JSON parser against JSONTestSuite."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from property.test_json_parser import check_rules
from support.vectors import load_shared_vectors
from waypost.errors import WaypostError
from waypost.model.json import parse_json

SUITE: dict[str, dict[str, Any]] = load_shared_vectors("jsontestsuite/test_parsing")


def bytes_of(case: dict[str, Any]) -> bytes:
    if "b64" in case:
        return base64.b64decode(case["b64"])
    text, times = case["repeat"]
    return (text * times + case.get("suffix", "")).encode()


@pytest.mark.parametrize("name", sorted(name for name in SUITE if name.startswith("n_")))
def test_nothing_that_is_not_json_is_read(name: str) -> None:
    with pytest.raises(WaypostError):
        parse_json(bytes_of(SUITE[name]), max_bytes=10**7)


@pytest.mark.parametrize(
    "name", sorted(name for name in SUITE if name.startswith("y_") and "duplicated_key" not in name)
)
def test_everything_that_is_json_is_read(name: str) -> None:
    data = bytes_of(SUITE[name])
    assert parse_json(data) == json.loads(data)


@pytest.mark.parametrize("name", sorted(name for name in SUITE if name.startswith("i_")))
def test_implementation_defined_json_is_accepted_or_refused_by_the_rules(name: str) -> None:
    check_rules(bytes_of(SUITE[name]))
