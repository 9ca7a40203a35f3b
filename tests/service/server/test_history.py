"""Earlier versions over HTTP: retention, and hidden versions stay hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.responses.agents import DiffResult, HistoryResult
from waypost.server.http.openapi import answer_schema

AGENTS = "/api/v1/agents"
ONE = "urn:agent:one"
PATH = f"{AGENTS}/urn%3Aagent%3Aone"


async def _write(client: httpx2.AsyncClient, text: str, visibility: str = "public", **members: Any) -> str:
    answer = await client.post(
        AGENTS, json=profile(ONE, description=text, **members), headers={"Waypost-Visibility": visibility}
    )
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["etag"])


async def _versions(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get(f"{PATH}:history")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-cache"
    assert "Authorization" in answer.headers["vary"]
    return list(answer.json()["versions"])


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_versions_are_listed_with_their_changes(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path, store=kind) as bench:
        alice = bench.as_("alice")
        first = await _write(alice, "One.")
        bench.clock.advance(60)
        second = await _write(alice, "Two.", tags=["new"])
        bench.clock.advance(60)
        await alice.post(f"{PATH}:renew")
        third = await _write(alice, "Two.", tags=["newer"])
        versions = await _versions(alice)
        assert [each["etag"] for each in versions] == [third, second, first]
        assert [each.get("changed") for each in versions] == [["$.tags"], ["$.description", "$.tags"], None]
        assert [each["current"] for each in versions] == [True, False, False]
        assert {each["subject"] for each in versions} == {"alice"}
        assert versions[0]["at"] > versions[1]["at"] > versions[2]["at"]
        assert len((await alice.get(f"{PATH}:history?limit=2")).json()["versions"]) == 2


async def test_answers_fit_their_shapes(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        await _write(alice, "One.")
        await _write(alice, "Two.", tags=["a"])
        for path, shape in {
            f"{PATH}:history": answer_schema(HistoryResult),
            f"{PATH}:diff": answer_schema(DiffResult),
        }.items():
            answer = (await alice.get(path)).json()
            jsonschema.validate(answer, shape)
            assert set(answer) <= set(shape["properties"])


async def test_a_stranger_does_not_learn_the_author(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await _write(bench.as_("alice"), "One.")
        await _write(bench.as_("alice"), "Two.")
        assert all("subject" not in each and "digests" not in each for each in await _versions(bench.as_("bob")))
        assert all(each["subject"] == "alice" for each in await _versions(bench.admin()))


async def test_a_version_that_was_private_stays_hidden(tmp_path: Path, kind: str) -> None:
    """P8: making an agent public does not publish its earlier versions."""
    async with service(tmp_path, store=kind) as bench:
        alice, bob, admin = bench.as_("alice"), bench.as_("bob"), bench.admin()
        first = await _write(alice, "Public at first.")
        hidden = await _write(alice, "The secret plan.", "private")
        assert (await bob.get(f"{PATH}:history")).status_code == 404
        last = await _write(alice, "Public again.")
        for seeing in (alice, admin):
            assert [each["etag"] for each in await _versions(seeing)] == [last, hidden, first]
        seen = await _versions(bob)
        assert [each["etag"] for each in seen] == [last, first]
        assert seen[0]["changed"] == ["$.description"]
        missing = await bob.get(f"{PATH}:diff?from={hidden}")
        unknown = await bob.get(f"{PATH}:diff?from=AAAAAAAAAAAAAAAAAAAAAA")
        assert missing.status_code == unknown.status_code == 404
        assert missing.json()["message"] == unknown.json()["message"]
        default = (await bob.get(f"{PATH}:diff")).json()
        assert default["differences"] == [
            {"path": "$.description", "before": "Public at first.", "after": "Public again."}
        ]
        for answer in (missing.text, str(default), str(seen)):
            assert "secret" not in answer


async def test_two_versions_are_compared_in_either_order(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path, store=kind) as bench:
        alice = bench.as_("alice")
        first = await _write(alice, "One.", version="1.0.0")
        await _write(alice, "Two.", version="1.1.0")
        last = await _write(alice, "Three.", version="1.2.0")
        forward = (await alice.get(f"{PATH}:diff", params={"from": first, "to": last})).json()
        assert (forward["id"], forward["from"], forward["to"], forward["complete"]) == (ONE, first, last, True)
        assert forward["differences"] == [
            {"path": "$.description", "before": "One.", "after": "Three."},
            {"path": "$.version", "before": "1.0.0", "after": "1.2.0"},
        ]
        backward = (await alice.get(f"{PATH}:diff", params={"from": f'"{last}"', "to": first})).json()
        assert [(each["before"], each["after"]) for each in backward["differences"]] == [
            ("Three.", "One."),
            ("1.2.0", "1.0.0"),
        ]


async def test_an_agent_without_earlier_versions_has_nothing_to_compare(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await _write(bench.as_("alice"), "One.")
        answer = await bench.as_("alice").get(f"{PATH}:diff")
        assert (answer.status_code, answer.json()["path"]) == (404, "from")


async def test_withdrawal_deletes_the_history(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path, store=kind) as bench:
        alice = bench.as_("alice")
        await _write(alice, "One.")
        await _write(alice, "Two.")
        await alice.delete(PATH)
        assert (await alice.get(f"{PATH}:history")).status_code == 404
        await _write(alice, "Three.")
        assert len(await _versions(alice)) == 1


async def test_expiry_deletes_the_history(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        for text in ("One.", "Two."):
            await alice.post(f"{AGENTS}?ttl_seconds=10", json=profile(ONE, description=text))
        bench.clock.advance(60)
        assert (await alice.get(f"{PATH}:history")).status_code == 404
        await bench.registry.leader.expire_leases()
        await _write(alice, "Three.")
        assert len(await _versions(alice)) == 1


async def test_a_history_is_bounded(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        for number in range(limits.HISTORY_VERSIONS + 4):
            await _write(alice, f"Number {number}.")
        assert len(await _versions(alice)) == limits.HISTORY_VERSIONS + 1
        assert (await alice.get(f"{PATH}:history?limit=34")).status_code == 400


async def test_an_agent_whose_id_ends_like_the_verb_is_still_read(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        await alice.post(AGENTS, json=profile("urn:agent:history"))
        assert (await alice.get(f"{AGENTS}/urn%3Aagent%3Ahistory")).json()["id"] == "urn:agent:history"


async def test_invitees_see_the_versions_of_their_time(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await _invited(bench)


async def _invited(bench: Bench) -> None:
    alice, bob = bench.as_("alice"), bench.as_("bob")
    await _write(alice, "Before bob.", "private")
    await _write(alice, "Still before bob.", "private")
    shared = await alice.post(f"{PATH}:share", json={"add": ["bob"]})
    assert shared.status_code == 200
    await _write(alice, "With bob.", "private")
    told = [each["etag"] for each in await _versions(bob)]
    assert len(told) == 2
    assert len(await _versions(alice)) == 4
