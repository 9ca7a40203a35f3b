"""rtfs.md §5: register, heartbeat, deregister."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.rtfs import WEATHER_CARD, WEATHER_PROFILE, Rpc, card
from support.service import NOW, Bench, profile, service
from waypost.model.times import to_rfc3339


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as started:
        yield started


@pytest.fixture
def rpc(bench: Bench) -> Rpc:
    return Rpc(bench.as_("alice"))


@pytest.mark.req("RTFS-40")
async def test_a_registration_answers_with_its_id_and_its_end(rpc: Rpc) -> None:
    result = await rpc.call(
        "register", agent_card=card(), endpoint_url="http://agent.example.com/rtfs", ttl_seconds=3600
    )
    assert result == {
        "status": "registered",
        "agent_id": "weather",
        "expires_at": to_rfc3339(NOW + 3600),
        "ttl_seconds": 3600,
        "outcome": "created",
    }


@pytest.mark.req("RTFS-40")
async def test_the_outcome_distinguishes_created_refreshed_and_updated(rpc: Rpc) -> None:
    assert (await rpc.register(card()))["outcome"] == "created"
    again = await rpc.register(card())
    assert (again["status"], again["outcome"]) == ("registered", "refreshed")
    assert (await rpc.register(card(description="Tells more.")))["outcome"] == "updated"
    assert "registration_token" not in again


@pytest.mark.req("RTFS-40")
@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        ({}, "$.agent_id", -32001),
        (card(agent_id="two words"), "$.agent_id", -32001),
        (card(agent_id="x" * 257), "$.agent_id", -32001),
        (card(agent_id=7), "$.agent_id", -32001),
        (card(name=7), "$.name", -32001),
        (card(capabilities={}), "$.capabilities", -32001),
        (card(capabilities=[{"capability_id": f"c{at}"} for at in range(257)]), "$.capabilities", -32001),
        (card(discovery_tags="weather"), "$.discovery_tags", -32001),
        (card(discovery_tags=["x"] * 65), "$.discovery_tags", -32001),
        (card(discovery_tags=["ok", "x" * 65]), "$.discovery_tags[1]", -32001),
        (card(communication=[]), "$.communication", -32001),
        (card(communication={"endpoints": [{}]}), "$.communication.endpoints[0].uri", -32001),
        (card(communication={"endpoints": [{"uri": "a b"}]}), "$.communication.endpoints[0].uri", -32001),
        (card(communication={"endpoints": [{"uri": "http://x"}] * 33}), "$.communication.endpoints", -32001),
        (card(communication=None), "$.communication.endpoints", -32001),
        (card(metadata=[]), "$.metadata", -32001),
        (card(metadata={"visibility": "secret"}), "$.metadata.visibility", -32001),
        (card(metadata={"blob": "x" * 66_000}), "$", -32001),
        (card(capabilities=[{"capability_id": "ok"}, {"description": "no id"}]), "$.capabilities[1].capability_id", -32006),
        (card(capabilities=["text"]), "$.capabilities[0]", -32006),
    ],
)  # fmt: skip
async def test_a_bad_card_is_refused_with_the_place_of_the_fault(
    rpc: Rpc, document: dict[str, Any], path: str, code: int
) -> None:
    error = await rpc.error("register", agent_card=document)
    assert error["code"] == code
    assert error["message"].startswith("Registration failed: ")
    assert error["data"]["code"] == "invalid_request"
    assert path in [fault["path"] for fault in error["data"]["errors"]]


@pytest.mark.req("RTFS-40")
async def test_every_fault_of_a_card_is_listed_at_once(rpc: Rpc) -> None:
    error = await rpc.error("register", agent_card=card(name=7, discovery_tags=[1], metadata=[]))
    assert [fault["path"] for fault in error["data"]["errors"]] == ["$.name", "$.discovery_tags[0]", "$.metadata"]


@pytest.mark.req("RTFS-40")
async def test_missing_and_mistyped_parameters_are_refused(rpc: Rpc) -> None:
    assert await rpc.code("register") == -32602
    assert await rpc.code("register", agent_card=[]) == -32001
    assert await rpc.code("register", agent_card=card(), endpoint_url=5) == -32602
    for address in ("agent.example.com", "file:///etc/passwd", "http://user:secret@a.example/", "http:///x"):
        assert await rpc.code("register", agent_card=card(), endpoint_url=address) == -32005
    for address in ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "224.0.0.1"):
        assert await rpc.code("register", agent_card=card(), endpoint_url=f"http://{address}/latest") == -32005
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"d": deep}
    assert await rpc.code("register", agent_card=card(metadata=deep)) == -32001


@pytest.mark.req("RTFS-40")
async def test_a_card_that_no_other_dialect_could_write_is_refused(rpc: Rpc) -> None:
    for endpoint in ({"protocol": "json rpc", "uri": "https://a.example"}, {"uri": "tab\t:https://a.example"}):
        assert await rpc.code("register", agent_card=card(communication={"endpoints": [endpoint]})) == -32001


@pytest.mark.req("RTFS-40")
async def test_the_endpoint_url_reaches_a_card_that_names_no_endpoint(rpc: Rpc) -> None:
    bare = card(communication=None)
    await rpc.register(bare, endpoint_url="https://bare.example/rpc")
    (found,) = (await rpc.call("discover", agent_id="weather"))["agents"]
    assert {name: value for name, value in found.items() if name != "registry"} == bare
    record = (await rpc.client.get("/api/v1/agents/weather")).json()
    assert [binding["endpoint"] for binding in record["bindings"]] == ["https://bare.example/rpc"]


@pytest.mark.req("RTFS-41")
@pytest.mark.parametrize(
    ("asked", "granted"),
    [(None, 3600), (1, 10), (9, 10), (10, 10), (60.0, 60), (86_400, 86_400), (86_401, 86_400), (2**31, 86_400)],
)
async def test_a_ttl_is_clamped_and_the_granted_one_is_returned(rpc: Rpc, asked: float | None, granted: int) -> None:
    params = {} if asked is None else {"ttl_seconds": asked}
    result = await rpc.register(card(), **params)
    assert result["ttl_seconds"] == granted
    assert result["expires_at"] == to_rfc3339(NOW + granted)


@pytest.mark.req("RTFS-41")
async def test_a_card_that_is_known_gets_the_default_ttl_too_when_it_names_none(rpc: Rpc) -> None:
    assert (await rpc.register(card(), ttl_seconds=100))["ttl_seconds"] == 100
    again = await rpc.register(card())
    assert (again["outcome"], again["ttl_seconds"]) == ("refreshed", 3600)


@pytest.mark.req("RTFS-41")
@pytest.mark.parametrize("asked", [0, -1, 1.5, "60", True, [], {}, 2**31 + 1])
async def test_a_ttl_that_is_no_whole_positive_number_is_refused(rpc: Rpc, asked: Any) -> None:
    assert await rpc.code("register", agent_card=card(), ttl_seconds=asked) == -32602
    assert await rpc.found(agent_id="weather") == []


@pytest.mark.req("RTFS-41")
async def test_a_registration_lives_until_the_second_it_ends(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card(), ttl_seconds=60)
    bench.clock.advance(59)
    assert await rpc.found(agent_id="weather") == ["weather"]
    bench.clock.advance(1)
    assert await rpc.found(agent_id="weather") == []
    assert await rpc.code("heartbeat", agent_id="weather") == -32002


@pytest.mark.req("RTFS-42")
async def test_an_owner_replaces_the_whole_card_and_restarts_the_lease(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card(extra="member"), ttl_seconds=3600)
    bench.clock.advance(100)
    result = await rpc.register(card(metadata=None), ttl_seconds=60)
    assert result["expires_at"] == to_rfc3339(NOW + 160)
    (found,) = (await rpc.call("discover", agent_id="weather"))["agents"]
    assert "extra" not in found
    assert "metadata" not in found


@pytest.mark.req("RTFS-42")
async def test_an_id_belongs_to_its_owner_while_it_lives_and_for_a_while_after(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card(), ttl_seconds=60)
    other = Rpc(bench.as_("mallory"))
    assert await other.code("register", agent_card=card()) == -32007
    bench.clock.advance(60)
    assert await other.code("register", agent_card=card()) == -32007
    bench.clock.advance(61)
    assert (await other.register(card()))["outcome"] == "created"


@pytest.mark.req("RTFS-42")
async def test_without_authentication_a_token_proves_the_creator(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        anybody = Rpc(bench.anonymous())
        token = (await anybody.register(card()))["registration_token"]
        assert "registration_token" not in await anybody.register(card(), registration_token=token)
        await anybody.register(card("other"))
        assert await anybody.code("register", agent_card=card(), registration_token="wpr_made-up") == -32007
        assert await anybody.code("deregister", agent_id="other", registration_token=token) == -32003
        holder = Rpc(bench.client(token))
        assert (await holder.call("heartbeat", agent_id="weather"))["status"] == "refreshed"
        assert await holder.code("heartbeat", agent_id="other") == -32003
        assert (await holder.call("deregister", agent_id="weather"))["status"] == "deregistered"


@pytest.mark.req("RTFS-43")
@pytest.mark.parametrize("method", ["heartbeat", "refresh"])
async def test_a_heartbeat_lets_the_lease_run_on(bench: Bench, rpc: Rpc, method: str) -> None:
    await rpc.register(card(), ttl_seconds=60)
    bench.clock.advance(50)
    assert await rpc.call(method, agent_id="weather") == {
        "status": "refreshed",
        "agent_id": "weather",
        "expires_at": to_rfc3339(NOW + 110),
        "ttl_seconds": 60,
    }
    assert (await rpc.call(method, agent_id="weather", ttl_seconds=600))["expires_at"] == to_rfc3339(NOW + 650)
    bench.clock.advance(599)
    assert await rpc.found(agent_id="weather") == ["weather"]


@pytest.mark.req("RTFS-43")
async def test_a_heartbeat_needs_a_live_registration_of_the_caller(bench: Bench, rpc: Rpc) -> None:
    assert await rpc.code("heartbeat", agent_id="nobody") == -32002
    assert await rpc.code("heartbeat") == -32602
    await rpc.register(card(), ttl_seconds=60)
    assert await Rpc(bench.as_("mallory")).code("heartbeat", agent_id="weather") == -32003
    assert await rpc.code("heartbeat", agent_id="weather", ttl_seconds=0) == -32602


@pytest.mark.req("RTFS-44")
async def test_deregistering_removes_at_once_and_may_be_repeated(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card())
    assert await Rpc(bench.as_("mallory")).code("deregister", agent_id="weather") == -32003
    assert await rpc.call("deregister", agent_id="weather") == {"status": "deregistered", "agent_id": "weather"}
    assert await rpc.found(agent_id="weather") == []
    bench.clock.advance(86_000)
    rpc = Rpc(bench.as_("alice"))  # a token is valid for an hour
    again = await rpc.call("deregister", agent_id="weather")
    assert again == {"status": "deregistered", "agent_id": "weather", "already": True}
    assert await Rpc(bench.as_("mallory")).code("deregister", agent_id="weather") == -32002
    assert await rpc.code("deregister", agent_id="nobody") == -32002
    assert await rpc.code("deregister") == -32602


@pytest.mark.req("RTFS-44")
async def test_a_hidden_agent_looks_absent_to_callers_without_access(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card(metadata={"visibility": "private"}))
    assert await rpc.found(agent_id="weather") == ["weather"]
    other = Rpc(bench.as_("mallory"))
    assert await other.found(agent_id="weather") == []
    assert await other.code("heartbeat", agent_id="weather") == -32002
    assert await other.code("deregister", agent_id="weather") == -32002


@pytest.mark.req("RTFS-40", "RTFS-46")
async def test_a_card_is_read_in_every_other_dialect_and_back_as_it_was(rpc: Rpc) -> None:
    document = {**WEATHER_CARD, "x-unknown": {"kept": [1, 2.5, None]}}
    await rpc.register(document)
    for dialect in ("profile", "af", "announce", "adp", "a2a", "ard", "mcp", "oasf"):
        response = await rpc.client.get(f"/api/v1/agents/{document['agent_id']}", params={"as": dialect})
        assert response.status_code == 200, response.text
    response = await rpc.client.get(f"/api/v1/agents/{document['agent_id']}", params={"as": "rtfs"})
    assert response.json() == document


@pytest.mark.req("RTFS-10")
async def test_a_profile_text_is_registered_over_http_and_found_as_its_card(rpc: Rpc) -> None:
    response = await rpc.client.post(
        "/api/v1/agents", content=WEATHER_PROFILE.encode(), headers={"content-type": "text/plain"}
    )
    assert response.status_code == 201, response.text
    (found,) = (await rpc.call("discover", capability_id="get-current-weather"))["agents"]
    assert {name: value for name, value in found.items() if name != "registry"} == WEATHER_CARD
    shown = await rpc.client.get(f"/api/v1/agents/{WEATHER_CARD['agent_id']}", params={"as": "rtfs"})
    assert shown.json() == WEATHER_CARD


@pytest.mark.req("RTFS-46")
async def test_agents_of_other_dialects_are_found_as_cards(rpc: Rpc) -> None:
    document = profile(tags=["facts"], examples=[{"id": "answer", "text": "Answer a question."}], version="2.0.0")
    assert (await rpc.client.post("/api/v1/agents", json=document)).status_code == 201
    (found,) = (await rpc.call("discover", discovery_tags=["facts"], capability_id="answer"))["agents"]
    assert found["agent_id"] == document["id"]
    assert found["communication"]["endpoints"] == [{"protocol": "https", "uri": "https://example.net/agent/invoke"}]
    assert "expires_at" not in found["registry"]


@pytest.mark.req("RTFS-34")
async def test_an_error_names_the_agent_as_the_protocol_does(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card())
    unknown = await rpc.error("heartbeat", agent_id="nobody")
    taken = await Rpc(bench.as_("bob")).error("register", agent_card=card())
    refused = await rpc.error("register", agent_card=card(capabilities={}))
    assert [error["data"]["errors"][0]["path"] for error in (unknown, taken, refused)] == [
        "agent_id",
        "$.agent_id",
        "$.capabilities",
    ]
    assert not refused["data"]["errors"][0]["reason"].startswith("Registration failed")
