"""Constraints, preferences, facets and empty results of a Discovery Request (profile.md §5–8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.service import Bench, profile, service
from waypost.responses.search import DiscoveryResponse
from waypost.server.http.openapi import answer_schema

AGENTS = (
    profile("silent", name="Ledger", description="Checks an invoice and books it in the ledger.", tags=["invoice"]),
    profile(
        "vienna",
        name="Tax Desk Vienna",
        description="Knows the tax law of Austria and checks whether an invoice keeps to it.",
        tags=["invoice", "finance"],
        constraints={"region": "eu-west-1", "latency_ms_p95": 80, "cost": {"amount": 0.02, "currency": "EUR"}},
        auth={"schemes": [{"type": "oauth2"}], "required": True},
        examples=[{"text": "Prüfe diese Rechnung.", "language": "de-AT"}],
    ),
    profile(
        "tokyo",
        name="Tokyo Import Clerk",
        description="Reads the papers of a shipment: customs forms, freight bills, and the invoice, which it checks.",
        tags=["invoice", "translation"],
        constraints={"regions": ["apac"], "max_latency_ms": 900, "cost": "$0.50 per call", "languages": ["ja", "en"]},
        auth={"schemes": [{"type": "http", "scheme": "bearer"}, {"type": "apiKey"}], "required": True},
    ),
    profile(
        "anywhere",
        name="Double Entry",
        description="Finds an invoice that was paid twice. Check it before the month ends.",
        tags=["invoice"],
        constraints={"region": "global", "cost": "free"},
        auth={"required": False},
        bindings=[{"protocol": "a2a+jsonrpc", "endpoint": "https://a.example.net/a2a"}],
    ),
)


async def filled(bench: Bench) -> httpx2.AsyncClient:
    alice = bench.as_("alice")
    for document in AGENTS:
        assert (await alice.post("/api/v1/agents", json=document)).status_code == 201
    return alice


async def discover(client: httpx2.AsyncClient, query: str = "check an invoice", **request: Any) -> dict[str, Any]:
    answer = await client.post("/profile/v1/discover", json={"query": query, **request})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    jsonschema.validate(found, answer_schema(DiscoveryResponse))
    return found


def ids(found: dict[str, Any]) -> set[str]:
    return {candidate["id"] for candidate in found["candidates"]}


@pytest.mark.req("PRO-24", "PRO-37")
@pytest.mark.parametrize(
    ("constraints", "fit"),
    [
        ({"region": "eu"}, {"vienna", "anywhere"}),
        ({"region": ["EU-West-1", "apac"]}, {"vienna", "tokyo", "anywhere"}),
        ({"region": "eu-west-2"}, {"anywhere"}),
        ({"language": "de"}, {"vienna"}),
        ({"language": ["en-GB", "fr"]}, {"tokyo"}),
        ({"auth": "oauth2"}, {"vienna"}),
        ({"auth_type": ["api_key", "none"]}, {"tokyo", "anywhere"}),
        ({"max_latency_ms": 100}, {"vienna"}),
        ({"latency": {"max_ms": 900}}, {"vienna", "tokyo"}),
        ({"max_cost": 0.5}, {"tokyo", "anywhere"}),
        ({"cost": {"max": 0.02, "currency": "EUR"}}, {"vienna", "anywhere"}),
        ({"cost": {"max": 0.01, "currency": "EUR", "per": "call"}}, {"anywhere"}),
        ({"region": "eu", "max_latency_ms": 100, "language": "de"}, {"vienna"}),
    ],
)
async def test_a_constraint_excludes_agents_that_do_not_state_it(
    tmp_path: Path, constraints: dict[str, Any], fit: set[str]
) -> None:
    async with service(tmp_path) as bench:
        found = await discover(await filled(bench), constraints=constraints, include_evidence=True)
        assert ids(found) == fit
        assert found["applied_filters"]["constraints"] == constraints
        assert "unsupported_filters" not in found
        if len(constraints) == 1:
            assert found["rejected_constraints"] == {next(iter(constraints)): len(AGENTS) - len(fit)}


@pytest.mark.req("PRO-24", "PRO-53", "PRO-60")
async def test_unknown_constraints_are_named_beside_those_that_are_applied(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        asked = {"region": "eu", "carbon_class": "A", "reputation": 5}
        found = await discover(await filled(bench), constraints=asked)
        assert found["unsupported_filters"] == ["carbon_class", "reputation"]
        assert found["applied_filters"] == {"constraints": {"region": "eu"}}
        assert ids(found) == {"vienna", "anywhere"}


@pytest.mark.req("PRO-24")
@pytest.mark.parametrize(
    ("constraints", "path"),
    [
        ({"region": 5}, "$.constraints.region"),
        ({"language": []}, "$.constraints.language"),
        ({"region": ["eu", " "]}, "$.constraints.region"),
        ({"region": "x" * 65}, "$.constraints.region"),
        ({"language": ["de"] * 65}, "$.constraints.language"),
        ({"auth": ["oauth2", 7]}, "$.constraints.auth"),
        ({"max_latency_ms": "fast"}, "$.constraints.max_latency_ms"),
        ({"latency": {"max_ms": -1}}, "$.constraints.latency.max_ms"),
        ({"latency": {"max_ms": 5, "p95": 3}}, "$.constraints.latency.p95"),
        ({"cost": {"currency": "EUR"}}, "$.constraints.cost.max"),
        ({"cost": {"max": 1, "currency": 978}}, "$.constraints.cost.currency"),
        ({"cost": {"max": 1, "per": "month"}}, "$.constraints.cost.per"),
        ({"max_results_age_seconds": True}, "$.constraints.max_results_age_seconds"),
    ],
)
async def test_a_constraint_of_the_wrong_shape_is_refused_with_its_path(
    tmp_path: Path, constraints: dict[str, Any], path: str
) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.as_("alice").post("/profile/v1/discover", json={"query": "x", "constraints": constraints})
        assert (answer.status_code, answer.json()["path"]) == (400, path)


@pytest.mark.req("PRO-24", "PRO-31")
async def test_an_agent_far_behind_the_best_matches_is_found_when_only_it_fits(tmp_path: Path) -> None:
    """Constraints filter agents before the ranking is cut, so no matching agent is lost."""
    async with service(tmp_path, agents_per_owner=0) as bench:
        alice = bench.as_("alice")
        lines = [profile(f"crowd-{number}", name="Invoice invoice", tags=["invoice"]) for number in range(1200)]
        fitting = profile(
            "fitting", description="Does many things, and an invoice now and then.", constraints={"region": "eu"}
        )
        body = "\n".join(httpx2.Response(200, json=line).text for line in [*lines, fitting])
        await alice.post("/api/v1/agents:batch", content=body.encode())
        found = await discover(alice, "invoice", constraints={"region": "eu"}, limit=1)
        assert ids(found) == {"fitting"}
        assert found["rejected_constraints"] == {"region": 1200}


@pytest.mark.req("PRO-24", "PRO-31")
async def test_many_that_fit_are_found_behind_many_better_matches_that_do_not(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=0) as bench:
        alice = bench.as_("alice")
        better = [profile(f"b-{number}", name=f"Invoice {number}", tags=["invoice"]) for number in range(200)]
        fitting = [profile(f"f-{number}", constraints={"region": "eu"}) for number in range(5001)]
        fitting[77]["description"] = "Does many things, and an invoice now and then."
        body = "\n".join(httpx2.Response(200, json=line).text for line in [*better, *fitting])
        assert "error" not in (await alice.post("/api/v1/agents:batch", content=body.encode())).text
        found = await discover(alice, "invoice", constraints={"region": "eu"}, limit=1)
        assert ids(found) == {"f-77"}
        assert found["rejected_constraints"] == {"region": 200}


@pytest.mark.req("PRO-21", "PRO-24")
async def test_max_results_age_counts_changes_and_renewals(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = await filled(bench)
        leased = {"ttl_seconds": "3600"}
        await client.post("/api/v1/agents", json=profile("renewed", description="Checks invoices."), params=leased)
        bench.clock.advance(600)
        await client.post("/api/v1/agents", json=profile("new", description="Checks invoices."))
        assert (await client.post("/api/v1/agents/renewed:renew")).status_code == 200
        asked = {"max_results_age_seconds": 300}
        assert ids(await discover(client, constraints=asked)) == {"renewed", "new"}
        assert len(ids(await discover(client, constraints={"max_results_age_seconds": 601}))) == len(AGENTS) + 2


@pytest.mark.req("PRO-28")
async def test_a_context_orders_equal_agents_and_excludes_none(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("alice")
        for agent in AGENTS[1:3]:
            twin = {**agent, "name": "Invoice Checker", "description": "Checks invoices."}
            assert (await client.post("/api/v1/agents", json=twin)).status_code == 201
        for context, first in (
            ({"locale": "de-AT"}, "vienna"),
            ({"language": "ja"}, "tokyo"),
            ({"domain": "Finance"}, "vienna"),
        ):
            found = await discover(client, client_context={**context, "device": 7}, include_evidence=True)
            assert found["candidates"][0]["id"] == first
            assert found["candidates"][0]["score_components"]["preference"] > 0
            assert ids(found) == {"vienna", "tokyo"}
            scores = [candidate["score"] for candidate in found["candidates"]]
            assert scores == sorted(scores, reverse=True)
        plain = await discover(client, include_evidence=True)
        assert "preference" not in plain["candidates"][0]["score_components"]


@pytest.mark.req("PRO-19")
async def test_candidates_below_the_floor_are_omitted_with_the_reason(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = await filled(bench)
        scores = {hit["id"]: hit["score"] for hit in (await discover(client))["candidates"]}
        floor = max(scores.values())
        found = await discover(client, min_score=floor)
        assert ids(found) == {agent_id for agent_id, score in scores.items() if score >= floor}
        assert found["applied_filters"] == {"min_score": floor}
        empty = await discover(client, min_score=1.0)
        assert empty["candidates"] == []
        assert (empty["empty"]["reason"], empty["empty"]["best_score"]) == ("below_min_score", floor)
        for wrong in (-0.1, 1.5, True, "high"):
            answer = await client.post("/profile/v1/discover", json={"query": "x", "min_score": wrong})
            assert (answer.status_code, answer.json()["path"]) == (400, "$.min_score")


@pytest.mark.req("PRO-19")
async def test_facets_count_all_that_the_hard_filters_admit_not_only_the_candidates(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = await filled(bench)
        asked = {"facets": ["tag", "protocol", "status", "owner"], "limit": 1}
        whole = (await discover(client, **asked))["facets"]
        assert whole["tag"][0] == {"value": "invoice", "count": 4}
        assert whole["tag"][1:] == [{"value": "finance", "count": 1}, {"value": "translation", "count": 1}]
        assert whole["protocol"] == [
            {"value": "https", "count": 3}, {"value": "a2a", "count": 1}, {"value": "a2a+jsonrpc", "count": 1}
        ]  # fmt: skip
        assert whole["status"] == [{"value": "active", "count": 4}]
        assert whole["owner"] == [{"value": "alice", "count": 4}]
        part = (await discover(client, **asked, constraints={"region": "eu"}, excluded_tags=["finance"]))["facets"]
        assert part["tag"] == [{"value": "invoice", "count": 1}]
        refused = await client.post("/profile/v1/discover", json={"query": "x", "facets": ["tag", "colour"]})
        assert (refused.status_code, refused.json()["path"]) == (400, "$.facets[1]")


@pytest.mark.req("PRO-19", "PRO-24")
@pytest.mark.parametrize("member", ["required_tags", "preferred_tags", "excluded_tags"])
async def test_an_unknown_tag_brings_a_suggestion(tmp_path: Path, member: str) -> None:
    async with service(tmp_path) as bench:
        client = await filled(bench)
        found = await discover(client, **{member: ["transaltion", "invoice"]})
        assert found["suggestions"] == {"tags": {"transaltion": ["translation"]}}
        assert any("'translation'" in warning for warning in found["warnings"])
        assert "suggestions" not in await discover(client, **{member: ["translation"]})
        assert "suggestions" not in await discover(client, **{member: ["xylophone"]})


@pytest.mark.req("PRO-24")
async def test_an_empty_result_names_the_filter_that_emptied_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("alice")
        empty = (await discover(client))["empty"]
        assert empty == {"reason": "nothing_registered", "visible": 0}
        await filled(bench)
        found = await discover(client, required_tags=["finance"], protocols=["a2a"], constraints={"region": "apac"})
        assert found["empty"] == {
            "reason": "filtered",
            "visible": 4,
            "filters": [
                {"filter": "required_tags", "value": "finance", "matching": 1, "remaining": 1},
                {"filter": "protocols", "value": ["a2a"], "matching": 1, "remaining": 0},
                {"filter": "constraints.region", "value": "apac", "matching": 2, "remaining": 0},
            ],
        }
        nobody = await discover(client, required_tags=["xylophone"])
        assert nobody["warnings"] == ["Of 4 agents none carries the tag 'xylophone'."]
        unmatched = await discover(client, "zebra")
        assert unmatched["empty"] == {"reason": "no_match", "visible": 4}
        assert "empty" not in await discover(client)


@pytest.mark.req("PRO-24")
async def test_a_search_returns_only_the_requested_statuses(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = await filled(bench)
        await client.post("/api/v1/agents", json=profile("trial", description="Checks an invoice.", status="testing"))
        tried = await discover(client, statuses=["testing"])
        assert ids(tried) == {"trial"}
        assert tried["applied_filters"]["statuses"] == ["testing"]
        assert "trial" not in ids(await discover(client, statuses=["active"]))
        assert ids(await discover(client, statuses=["testing", "active"])) == ids(await discover(client))
        nobody = await discover(client, statuses=["deprecated"])
        assert nobody["warnings"] == ["Of 5 agents none is 'deprecated'."]
        refused = await client.post("/profile/v1/discover", json={"query": "x", "statuses": ["active", "gone"]})
        assert (refused.status_code, refused.json()["path"]) == (400, "$.statuses[1]")
