"""Lists and queries over HTTP: `GET /agents`, `GET /agents/{id}`, a query by `POST` (announce.md §2, §6.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, announce, announcement, error_of, key
from support.problems import complete
from support.service import NOW, Bench, profile, service
from waypost.errors import InvalidDocument, InvalidParameter
from waypost.protocols.announce.messages import AgentQuery, kind_of_message, parse_capability_requirement, parse_query
from waypost.trust.document_signatures import canonicalize

IDS = [f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d" for number in range(16)]


async def admitted(bench: Bench, *messages: dict[str, Any], subject: str = "alice") -> None:
    await bench.admin().post("/api/v1/allow", json={"rule": "*"})
    for sent in messages:
        answer = await announce(bench.as_(subject), sent)
        assert answer.status_code == 200, answer.text


def make_announcement(number: int, **more: Any) -> dict[str, Any]:
    return announcement(key(f"k{number}"), seq=1, at=NOW, agent_id=IDS[number], agent_name=f"agent-{number:02}", **more)


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["agent"]["agent_id"] for item in answer.json()["agents"]]


# --- Messages -------------------------------------------------------------------------------------


@pytest.mark.req("ANN-5")
def test_the_kind_of_a_message_follows_from_its_shape() -> None:
    assert kind_of_message({"protocol_version": "v1.0", "agent": {}}) == "announce"
    assert kind_of_message({"protocol_version": "v1.0", "agent": {}, "matched": True}) == "response"
    assert kind_of_message({"protocol_version": "v1.0", "query": {}, "agent": {}}) == "query"
    with pytest.raises(InvalidDocument):
        kind_of_message({"protocol_version": "v1.0"})


@pytest.mark.req("ANN-6")
def test_a_query_may_name_the_agent_in_two_places() -> None:
    inner = parse_query({"protocol_version": "v1.0", "query": {"capability": "*", "agent_id": AGENT_ID.upper()}})
    beside = parse_query({"protocol_version": "v1.0", "agent_id": AGENT_ID, "query": {"capability": "metrics"}})
    assert (inner.agent_id, beside.agent_id) == (AGENT_ID, AGENT_ID)
    assert inner.matches(AGENT_ID.upper(), {})
    assert not beside.matches(AGENT_ID, {"other": "1"})
    assert beside.matches(AGENT_ID, {"metrics": "1"})
    assert not beside.matches(IDS[1], {"metrics": "1"})


@pytest.mark.req("ANN-6")
@pytest.mark.parametrize(
    ("asked", "capabilities", "fits"),
    [
        ("metrics", {"metrics": "2.0"}, True),
        ("Metrics", {"metrics": "2.0"}, False),
        ("metrics@^2.0", {"metrics": "2.4"}, True),
        ("metrics@>=2.0 <3.0", {"metrics": "3.0"}, False),
        ("metrics@^2.0", {"metrics": "fast"}, False),
        ("metrics@^2.0", {"metrics": ""}, False),
        ("*", {}, True),
        ("data/clean", {"data/clean": ""}, True),
        ("@scope/tool", {"@scope/tool": "1"}, True),
        ("@scope/tool@^1", {"@scope/tool": "1.2"}, True),
    ],
)
def test_a_capability_matches_by_its_very_name_and_by_a_range_of_versions(
    asked: str, capabilities: dict[str, str], fits: bool
) -> None:
    assert AgentQuery(requirements=(parse_capability_requirement(asked),)).matches(AGENT_ID, capabilities) == fits


@pytest.mark.req("ANN-6")
@pytest.mark.parametrize("asked", ["", " ", "x" * 400, "metrics@nonsense"])
def test_an_invalid_capability_requirement_is_refused(asked: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_capability_requirement(asked)


@pytest.mark.req("ANN-6")
@pytest.mark.parametrize(
    "query", [{}, [], "metrics", {"capability": 7}, {"capability": ""}, {"capability": "m", "agent_id": 7}]
)
async def test_a_query_that_asks_nothing_is_malformed(tmp_path: Path, query: Any) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.as_("bob").post("/agents", json={"protocol_version": "v1.0", "query": query})
        assert error_of(answer)[:2] == (400, "ErrMalformedPayload")


# --- Asking ---------------------------------------------------------------------------------------


@pytest.mark.req("ANN-6", "ANN-7", "ANN-34")
async def test_a_query_is_answered_with_exactly_the_holders_and_their_signed_words(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        messages = [
            make_announcement(1, capabilities={"metrics": "2.0", "logs": "1.0"}),
            make_announcement(
                2, capabilities={"metrics": {"version": "3.1", "unit": "s"}}, metadata={"note": "é", "load": 1.0}
            ),
            make_announcement(3, capabilities={"Metrics": "2.0"}),
            make_announcement(4, capabilities={"data": {"clean": "1.0", "load": "2.0"}}),
        ]
        await admitted(bench, *messages)
        bob = bench.as_("bob", "discover:read")
        asked = {"protocol_version": "v1.0", "query_id": "q-7", "query": {"capability": "metrics"}}
        answer = (await bob.post("/agents", json=asked)).json()
        assert (answer["query_id"], answer["protocol_version"]) == ("q-7", "v1.0")
        assert [item["agent"]["agent_id"] for item in answer["agents"]] == [IDS[1], IDS[2]]
        for item, sent in zip(answer["agents"], messages[:2], strict=True):
            assert canonicalize(item["agent"]) == canonicalize(sent["agent"])
            assert (item["signature"], item["matched"]) == (sent["signature"], True)
        assert ids(await bob.get("/agents", params={"capability": "metrics@^3.0"})) == [IDS[2]]
        assert ids(await bob.get("/agents", params=[("capability", "metrics"), ("capability", "logs")])) == [IDS[1]]
        assert ids(await bob.get("/agents", params={"capability": "data/clean"})) == [IDS[4]]
        assert ids(await bob.get("/agents", params={"capability": "unknown"})) == []
        assert ids(await bob.get("/agents", params={"agent_id": IDS[3].upper()})) == [IDS[3]]
        assert ids(await bob.get("/agents", params={"agent_id": IDS[3], "capability": "metrics"})) == []
        assert ids(await bob.get("/agents", params={"agent_id": IDS[9]})) == []


@pytest.mark.req("ANN-6")
async def test_capabilities_beyond_the_limit_of_tags_are_found(tmp_path: Path) -> None:
    many = {f"capability-{number:02}": f"1.{number}" for number in range(64)}
    async with service(tmp_path) as bench:
        await admitted(bench, make_announcement(1, capabilities=many), make_announcement(2))
        bob = bench.as_("bob")
        for name in ("capability-00", "capability-31", "capability-32", "capability-63", "capability-63@^1.63"):
            assert ids(await bob.get("/agents", params={"capability": name})) == [IDS[1]], name


@pytest.mark.req("ANN-34")
async def test_pages_list_every_agent_once_and_cursors_belong_to_their_caller(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admitted(bench, *(make_announcement(number) for number in range(12)))
        bob = bench.as_("bob")
        seen: list[str] = []
        cursor: str | None = None
        while True:
            params = {"limit": "5", **({"cursor": cursor} if cursor else {})}
            answer = await bob.get("/agents", params=params)
            seen += ids(answer)
            cursor = answer.json().get("next_cursor")
            if cursor is None:
                break
        assert seen == IDS[:12]
        first = (await bob.get("/agents", params={"limit": "5"})).json()["next_cursor"]
        for other, params in (
            (bench.as_("carol"), {"cursor": first}),
            (bob, {"cursor": first, "capability": "metrics"}),
            (bob, {"cursor": "nonsense" * 4}),
        ):
            assert error_of(await other.get("/agents", params=params))[:2] == (400, "ErrMalformedPayload")


@pytest.mark.req("ANN-34")
async def test_a_page_is_filled_with_exact_matches_only(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        mixed = (
            make_announcement(number, capabilities={"metrics" if number % 2 else "METRICS": "1.0"})
            for number in range(12)
        )
        await admitted(bench, *mixed)
        answer = await bench.as_("bob").get("/agents", params={"capability": "metrics", "limit": "4"})
        assert ids(answer) == [IDS[1], IDS[3], IDS[5], IDS[7]]
        rest = {"capability": "metrics", "limit": "4", "cursor": answer.json()["next_cursor"]}
        assert ids(await bench.as_("bob").get("/agents", params=rest)) == [IDS[9], IDS[11]]


@pytest.mark.req("ANN-34")
@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "201"}, {"signed": "maybe"}, {"capability": ""}])
async def test_parameters_out_of_bounds_are_refused(tmp_path: Path, params: dict[str, str]) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.as_("bob").get("/agents", params=params)
        assert error_of(answer)[:2] == (400, "ErrMalformedPayload")
        complete(answer.json())


@pytest.mark.req("ANN-34")
async def test_an_unchanged_list_or_agent_gets_304(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admitted(bench, make_announcement(1))
        bob = bench.as_("bob")
        for path in ("/agents", f"/agents/{IDS[1]}"):
            first = await bob.get(path)
            again = await bob.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            since = {"If-Modified-Since": first.headers["last-modified"]}
            assert (await bob.get(path, headers=since)).status_code == 304
        before = (await bob.get("/agents")).headers["etag"]
        changed = announcement(
            key("k1"), seq=2, at=NOW, agent_id=IDS[1], agent_name="agent-01", capabilities={"metrics": "9"}
        )
        await admitted(bench, changed)
        assert (await bob.get("/agents", headers={"If-None-Match": before})).status_code == 200


@pytest.mark.req("ANN-34")
async def test_an_unknown_agent_is_not_found_by_name(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for path in (f"/agents/{IDS[1]}", "/agents/nobody"):
            answer = await bench.as_("bob").get(path)
            assert error_of(answer)[:2] == (404, "ErrNotFound")
            complete(answer.json())


# --- Agents of other dialects ---------------------------------------------------------------------


@pytest.mark.req("ANN-34", "ANN-7")
async def test_agents_that_were_never_announced_are_marked_as_derived(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await admitted(bench, make_announcement(1))
        document = profile(tags=["finance"], name="Zeta")
        await bench.as_("alice").put("/profile/v1/agents/zeta", json={**document, "id": "zeta"})
        bob = bench.as_("bob")
        shown = (await bob.get("/agents")).json()["agents"]
        assert len(shown) == 2
        derived = shown[1]
        assert derived["agent"]["metadata"]["__derived"] == "profile"
        assert "signature" not in derived
        assert derived["agent"]["capabilities"] == {"finance": ""}
        agent_id = derived["agent"]["agent_id"]
        assert agent_id[14] == "4"
        assert (await bob.get(f"/agents/{agent_id}")).json() == derived
        assert (await bob.get("/agents/zeta")).json() == derived
        assert ids(await bob.get("/agents", params={"agent_id": agent_id})) == [agent_id]
        assert ids(await bob.get("/agents", params={"capability": "finance"})) == [agent_id]
        assert ids(await bob.get("/agents", params={"signed": "true"})) == [IDS[1]]
    async with service(tmp_path, store="sqlite") as bench:
        bob = bench.as_("bob")
        assert (await bob.get(f"/agents/{agent_id}")).json() == derived, "the id is kept beside the record"
        assert ids(await bob.get("/agents", params={"signed": "true"})) == [IDS[1]]
        assert (await bench.as_("mallory").delete(f"/agents/{agent_id}")).status_code == 403
        assert (await bench.as_("alice").delete(f"/agents/{agent_id}")).status_code == 204
        assert (await bob.get("/agents/zeta")).status_code == 404


@pytest.mark.req("ANN-34")
async def test_a_derived_agent_id_stays_that_of_its_agent(tmp_path: Path) -> None:
    """Whoever registers it is a stranger, who must get neither the readers nor the withdrawal that are meant for the agent."""
    async with service(tmp_path) as bench:
        await bench.as_("alice").put("/profile/v1/agents/zeta", json={**profile(name="Zeta"), "id": "zeta"})
        bob, mallory = bench.as_("bob"), bench.as_("mallory")
        derived = (await bob.get("/agents")).json()["agents"][0]
        agent_id = derived["agent"]["agent_id"]
        for name in (agent_id, f"urn:uuid:{agent_id}", agent_id.upper()):
            await mallory.post("/api/v1/agents", json=profile(name, name="Impostor"))
            assert (await bob.get(f"/agents/{name}")).json() == derived
        assert (await bob.get("/agents", params={"agent_id": agent_id})).json()["agents"] == [derived]
        assert (await mallory.delete(f"/agents/{agent_id}")).status_code == 403
        assert (await bench.as_("alice").delete(f"/agents/{agent_id}")).status_code == 204
        assert (await bob.get("/agents/zeta")).status_code == 404


@pytest.mark.req("ANN-34")
async def test_an_owner_may_announce_under_the_derived_id_of_its_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        await alice.put("/profile/v1/agents/zeta", json={**profile(name="Zeta"), "id": "zeta"})
        agent_id = (await alice.get("/agents")).json()["agents"][0]["agent"]["agent_id"]
        assert (await alice.post("/api/v1/agents", json=profile(agent_id, name="Later"))).status_code == 201
        assert (await alice.get(f"/agents/{agent_id}")).json()["agent"]["agent_name"] == "Later"


@pytest.mark.req("ANN-34")
async def test_a_hidden_agent_leaves_no_trace(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admitted(bench, make_announcement(1))
        bob = bench.as_("bob")
        before = (await bob.get("/agents")).content, (await bob.get("/agents", params={"signed": "true"})).content
        alice = bench.as_("alice")
        hidden = await announce(alice, make_announcement(2), headers={"Waypost-Visibility": "private"})
        assert hidden.status_code == 200
        after = (await bob.get("/agents")).content, (await bob.get("/agents", params={"signed": "true"})).content
        assert before == after
        assert (await bob.get(f"/agents/{IDS[2]}")).status_code == 404
        assert ids(await bob.get("/agents", params={"agent_id": IDS[2]})) == []
        assert (await bob.delete(f"/agents/{IDS[2]}")).status_code == 404
        assert ids(await alice.get("/agents")) == [IDS[1], IDS[2]]


@pytest.mark.req("ANN-34")
async def test_withdrawing_is_for_the_owner_and_may_be_repeated(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admitted(bench, make_announcement(1), make_announcement(2))
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        refused = await mallory.delete(f"/agents/{IDS[1]}")
        assert error_of(refused)[:2] == (403, "ErrForbidden")
        with_body = await alice.request("DELETE", f"/agents/{IDS[1].upper()}", json={"action": "shutdown"})
        assert with_body.status_code == 204
        assert (await alice.delete(f"/agents/{IDS[1]}")).status_code == 204
        assert error_of(await alice.delete(f"/agents/{IDS[9]}"))[:2] == (404, "ErrNotFound")
        assert ids(await alice.get("/agents")) == [IDS[2]]


@pytest.mark.req("ANN-34")
async def test_announced_agents_are_found_through_the_other_apis(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admitted(bench, make_announcement(1))
        bob = bench.as_("bob")
        listed = (await bob.get("/.well-known/agentframework/v1/agents")).json()
        assert [item["name"] for item in listed["agents"]] == ["agent-01"]
        found = (await bob.post("/profile/v1/discover", json={"query": "metrics"})).json()
        assert [item["id"] for item in found["candidates"]] == [f"urn:uuid:{IDS[1]}"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"query": {}}}
        assert (await bob.post("/rtfs", json=call)).status_code == 200
        own = await bob.get(f"/api/v1/agents/urn:uuid:{IDS[1]}", params={"as": "announce"})
        assert own.json()["agent_id"] == IDS[1]
