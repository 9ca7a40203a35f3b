"""Facts derived from records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.records import json_values
from waypost.model.facts import auth_name, facts_of
from waypost.model.record import AgentRecord, Example


def stated(**members: Any) -> set[str]:
    return set(facts_of(AgentRecord(id="a", name="a", description="d", **members)))


@pytest.mark.parametrize(
    ("constraints", "facts"),
    [
        ({"region": "EU"}, {"region:eu"}),
        ({"region": "eu, us"}, {"region:eu", "region:us"}),
        ({"regions": ["eu-west-1", "Global"]}, {"region:eu-west-1", "region:*"}),
        ({"region": {"allowed": ["apac"]}}, {"region:apac"}),
        ({"languages": ["en_US", "de"]}, {"language:en-us", "language:de"}),
        ({"latency_ms_p95": 50}, {"latency:50.0"}),
        ({"latency": "1.5 s"}, {"latency:1500.0"}),
        ({"latency": {"p50_ms": 10, "p95_ms": 80}}, {"latency:80.0"}),
        ({"latency_ms_p50": 10, "max_latency_ms": 200}, {"latency:200.0"}),
        ({"cost": 0.02}, {"cost:usd:0.02"}),
        ({"cost": 2, "currency": "EUR"}, {"cost:eur:2.0"}),
        ({"cost": "$0.02 per call"}, {"cost:usd:0.02"}),
        ({"price": "0.5 EUR/request"}, {"cost:eur:0.5"}),
        ({"cost_per_call_eur": 0.04}, {"cost:eur:0.04"}),
        ({"pricing": {"amount": 1, "currency": "CHF", "per": "call"}}, {"cost:chf:1.0"}),
        ({"pricing": {"amount": 9, "currency": "EUR", "per": "month"}}, set()),
        ({"cost": "free"}, {"cost:*:0.0"}),
        ({"pricing": {"chat": {"model": "free"}, "tips": {"price": 2}}}, {"cost:usd:2.0"}),
        ({"pricing": {"chat": {"model": "free"}, "tips": {"model": "per_use"}}}, set()),
        ({"region": 5, "latency": True, "cost": -1, "language": None}, set()),
    ],
)
def test_constraints_are_read_in_the_shapes_that_publishers_use(constraints: dict[str, Any], facts: set[str]) -> None:
    assert stated(constraints=constraints) == facts


def test_members_beside_constraints_are_read_as_well() -> None:
    assert stated(extra={"region": "eu", "cost": 1, "x": {}}) == {"region:eu", "cost:usd:1.0"}


@pytest.mark.parametrize(
    ("auth", "names"),
    [
        ({"schemes": [{"type": "oauth2"}, {"type": "http", "scheme": "Bearer"}]}, {"oauth2", "http", "bearer"}),
        ({"schemes": [{"type": "apiKey", "in": "header"}], "required": False}, {"apikey", "none"}),
        ({"schemes": []}, {"none"}),
        ({"type": "mutualTLS"}, {"mtls"}),
        ("api_key", {"apikey"}),
        (["openIdConnect", 5], {"oidc"}),
        ({"schemes": "x"}, set()),
        (7, set()),
    ],
)
def test_ways_to_authenticate_have_one_name_however_they_are_written(auth: Any, names: set[str]) -> None:
    assert stated(auth=auth) == {f"auth:{name}" for name in names}


def test_languages_are_also_detected_from_examples_and_tags() -> None:
    examples = (Example(text="Hallo", language="de-AT"), Example(text="Hi"))
    assert stated(tags=("lang-EN", "lang-"), examples=examples) == {"language:en", "language:de-at"}


def test_a_record_that_states_nothing_has_no_facts() -> None:
    assert stated(tags=("hr",), examples=(Example(text="x"),), constraints={"tenant": "t"}, extra={"x": 1}) == set()


NAMES = ("region", "regions", "language", "latency", "latency_ms", "cost", "pricing", "currency", "cost_per_call_eur")


@given(st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4), json_values)
def test_no_shape_breaks_the_reading(constraints: dict[str, Any], auth: Any) -> None:
    for fact in stated(constraints=constraints, auth=auth):
        kind, _, value = fact.partition(":")
        assert kind in ("region", "language", "latency", "cost", "auth")
        assert value
        if kind in ("latency", "cost"):
            assert float(value.rpartition(":")[2]) >= 0


def test_names_of_authentication_are_folded() -> None:
    assert {auth_name(text) for text in ("apiKey", "api_key", "API-Key", "ApiKey")} == {"apikey"}
