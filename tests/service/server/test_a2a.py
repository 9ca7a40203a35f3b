"""A2A cards of agents at base URLs of their own, and the service as an A2A agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from support.records import CODECS
from support.service import Bench, profile, service

CURRENT: dict[str, Any] = {
    "name": "Routes",
    "description": "Plans routes.",
    "supportedInterfaces": [
        {"url": "https://routes.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "1.0.0",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "plan", "name": "Plan", "description": "Plans a route.", "tags": ["travel"]}],
    "signatures": [{"protected": "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ", "signature": "AA"}],
}
OLDER: dict[str, Any] = {
    "protocolVersion": "0.3.0",
    "name": "Recipes",
    "description": "Finds recipes.",
    "url": "https://recipes.example/a2a",
    "version": "1.0.0",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "find", "name": "Find", "description": "Finds one.", "tags": ["food"]}],
}


def card_path(agent_id: str, query: str = "") -> str:
    return f"/a2a/{quote(agent_id, safe='')}/.well-known/agent-card.json{query}"


async def register(bench: Bench, document: dict[str, Any], **headers: str) -> str:
    answer = await bench.as_("alice").post("/api/v1/agents", content=json.dumps(document, indent=1), headers=headers)
    assert answer.status_code == 201
    return str(answer.json()["id"])


async def test_a_card_has_the_requested_form_and_its_own_bytes_where_that_is_how_it_came(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        current, older = await register(bench, CURRENT), await register(bench, OLDER)
        anyone = bench.anonymous()
        verbatim = {
            card_path(current): CURRENT,
            card_path(current, "?v=1.0"): CURRENT,
            card_path(older, "?v=0.3"): OLDER,
        }
        for path, document in verbatim.items():
            answer = await anyone.get(path)
            assert (answer.status_code, answer.text) == (200, json.dumps(document, indent=1))
        upgraded = (await anyone.get(card_path(older, "?v=1.0"))).json()
        jsonschema.validate(upgraded, CODECS["a2a"].schema())
        assert upgraded["supportedInterfaces"] == [
            {"url": "https://recipes.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3.0"}
        ]
        downgraded = (await anyone.get(card_path(current, "?v=0.3"))).json()
        assert (downgraded["url"], downgraded["preferredTransport"], downgraded["protocolVersion"]) == (
            "https://routes.example/a2a",
            "JSONRPC",
            "0.3.0",
        )
        assert "signatures" not in downgraded
        reader = bench.as_("alice")
        for form, path in (("current", card_path(older, "?v=1.0")), ("0.3", card_path(current, "?v=0.3"))):
            name = older if form == "current" else current
            same = await reader.get(f"/api/v1/agents/{quote(name, safe='')}?as=a2a&form={form}")
            assert same.json() == (await anyone.get(path)).json()


def members_of_both(current: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    """What a card has that clients of both versions read: everything of 1.0, and what only 0.3 has."""
    skills = [old | new for old, new in zip(older["skills"], current["skills"], strict=True)]
    schemes = {name: older["securitySchemes"][name] | scheme for name, scheme in current["securitySchemes"].items()}
    return older | current | {"skills": skills, "securitySchemes": schemes}


SECURED: dict[str, Any] = {
    **{name: value for name, value in CURRENT.items() if name != "signatures"},
    "capabilities": {"extendedAgentCard": True},
    "supportedInterfaces": [
        {"url": "https://secured.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://secured.example/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ],
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
    "skills": [CURRENT["skills"][0] | {"securityRequirements": [{"schemes": {"key": {"list": ["plan"]}}}]}],
}


async def test_without_a_version_a_card_has_the_members_of_both(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        anyone, agent_id = bench.anonymous(), await register(bench, SECURED)
        answers = [await anyone.get(card_path(agent_id, query)) for query in ("", "?v=1.0", "?v=0.3")]
        both, current, older = (answer.json() for answer in answers)
        assert len({answer.headers["etag"] for answer in answers}) == 3
        assert current == SECURED
        assert both == members_of_both(current, older)
        assert (both["url"], both["protocolVersion"]) == ("https://secured.example/old", "0.3.0")
        assert both["security"] == [{"key": []}]
        assert both["supportsAuthenticatedExtendedCard"] is True
        assert both["skills"][0]["security"] == [{"key": ["plan"]}]
        assert both["securitySchemes"]["key"] == {
            "type": "apiKey",
            "in": "header",
            "name": "X-Key",
            "apiKeySecurityScheme": {"location": "header", "name": "X-Key"},
        }
        # As it was received where that is what the address is for.
        for path in (f"/.well-known/agent-card.json?agent={quote(agent_id, safe='')}", card_path(agent_id, "?v=1.0")):
            assert (await anyone.get(path)).text == json.dumps(SECURED, indent=1)
        again = await bench.as_("bob").post("/api/v1/agents", json=both | {"name": "A copy"})
        assert again.status_code == 409, "the same agent"


async def test_a_card_that_was_received_with_the_members_of_both_has_one_form_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as bench:
        anyone, agent_id = bench.anonymous(), await register(bench, SECURED)
        both, older = [(await anyone.get(card_path(agent_id, query))).json() for query in ("", "?v=0.3")]
        moved = json.loads(json.dumps(both).replace("secured.example", "moved.example"))
        again = await register(bench, moved)
        forms = [(await anyone.get(card_path(again, query))).text for query in ("", "?v=1.0", "?v=0.3")]
        assert [json.loads(form.replace("moved.example", "secured.example")) for form in forms] == [
            both,
            SECURED,
            older,
        ]
        as_received = await bench.as_("alice").get(f"/api/v1/agents/{quote(again, safe='')}?as=a2a")
        assert as_received.json() == moved
        signed = json.loads(json.dumps(both).replace("secured.example", "signed.example"))
        signed["signatures"] = [{"protected": "e30", "signature": "AA"}]
        name = await register(bench, signed)
        for query in ("", "?v=1.0"):
            assert (await anyone.get(card_path(name, query))).json() == signed


async def test_cards_of_other_dialects_and_of_the_service_have_the_members_of_both(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile("a", auth={"schemes": [{"id": "b", "type": "bearer"}], "required": True}))
        paths = (card_path("a"), "/.well-known/agent-card.json?agent=a", "/.well-known/agent-card.json")
        for path in paths:
            mark = "&" if "?" in path else "?"
            answers = [await bench.anonymous().get(f"{path}{query}") for query in ("", f"{mark}v=1.0", f"{mark}v=0.3")]
            both, current, older = (answer.json() for answer in answers)
            jsonschema.validate(both, CODECS["a2a"].schema())
            assert {"url", "preferredTransport", "protocolVersion", "supportedInterfaces"} <= both.keys()
            assert "url" not in current
            assert "supportedInterfaces" not in older
            assert {name: both[name] for name in current if name != "securitySchemes"} == {
                name: value for name, value in current.items() if name != "securitySchemes"
            }
            assert len({answer.headers["etag"] for answer in answers}) == 3
            same = await bench.anonymous().get(path, headers={"If-None-Match": answers[0].headers["etag"]})
            assert same.status_code == 304


async def test_an_agent_that_does_not_speak_a2a_has_a_card_that_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile())
        path = card_path("https://agents.example.net/id/minimal")
        card = (await bench.anonymous().get(path)).json()
        assert [item["protocolBinding"] for item in card["supportedInterfaces"]] == ["urn:waypost:binding:https"]
        older = (await bench.anonymous().get(f"{path}?v=0.3")).json()
        assert (older["url"], older["preferredTransport"]) == (
            "https://example.net/agent/invoke",
            "urn:waypost:binding:https",
        )


async def test_forms_have_entity_tags_of_their_own_and_are_cached_until_the_agent_changes(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile())
        anyone, path = bench.anonymous(), card_path("https://agents.example.net/id/minimal")
        first, older = await anyone.get(path), await anyone.get(f"{path}?v=0.3")
        assert first.headers["etag"] != older.headers["etag"]
        same = await anyone.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert same.status_code == 304
        changed = await bench.as_("alice").post("/api/v1/agents", json=profile(name="Other name"))
        assert changed.status_code == 200
        assert (await anyone.get(path)).json()["name"] == "Other name"
        assert (await anyone.get(f"{path}?v=0.3")).json()["name"] == "Other name"


@pytest.mark.parametrize("visibility", ["private", "internal"])
async def test_a_hidden_agent_is_answered_as_an_unknown_one(tmp_path: Path, visibility: str) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile("hidden"), **{"Waypost-Visibility": visibility})
        for client in (bench.anonymous(), bench.as_("alice")):
            answers = [await client.get(card_path(name)) for name in ("hidden", "absent")]
            assert [answer.status_code for answer in answers] == [404, 404]
            bodies = [answer.json() for answer in answers]
            for body in bodies:
                del body["correlation_id"]
            assert json.dumps(bodies[0]).replace("hidden", "absent") == json.dumps(bodies[1])


async def test_the_url_of_the_service_s_interface_is_a_base_url_for_its_card(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        anyone = bench.anonymous()
        for form in ("", "?v=1.0", "?v=0.3"):
            card = await anyone.get(f"/a2a/.well-known/agent-card.json{form}")
            assert card.headers["content-type"] == "application/a2a-agent-card+json"
            assert card.json() == (await anyone.get(f"/.well-known/agent-card.json{form}")).json()


async def test_an_unknown_version_or_path_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile("seen"))
        anyone = bench.anonymous()
        wrong = await anyone.get(card_path("seen", "?v=2.0"))
        assert (wrong.status_code, wrong.json()["path"]) == (400, "v")
        assert (await anyone.get("/a2a/seen/.well-known/other.json")).status_code == 404
        assert (await anyone.get("/a2a//.well-known/agent-card.json")).status_code == 404
        assert (await anyone.post(card_path("seen"))).status_code == 405
        assert (await anyone.options(card_path("seen"))).headers["allow"] == "GET, HEAD, OPTIONS"


# --- The service as an A2A agent ------------------------------------------------------------------


def message(*parts: dict[str, Any], **members: Any) -> dict[str, Any]:
    sent = {"messageId": "m-1", "role": "ROLE_USER", "parts": [*parts], **members}
    return {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": sent}}


async def test_a_text_is_a_search_of_public_agents_whoever_asks(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile("seen", description="Waters tulips."))
        await register(bench, profile("hidden", description="Waters tulips."), **{"Waypost-Visibility": "private"})
        for client in (bench.anonymous(), bench.as_("alice"), bench.admin()):
            answer = await client.post("/a2a", json=message({"text": "water tulips"}, contextId="c-1"))
            reply = answer.json()
            assert (answer.status_code, reply["id"]) == (200, 7)
            sent = reply["result"]["message"]
            assert (sent["role"], sent["contextId"]) == ("ROLE_AGENT", "c-1")
            text, data = sent["parts"]
            assert "id: seen" in text["text"]
            assert [candidate["id"] for candidate in data["data"]["candidates"]] == ["seen"]


async def test_data_is_a_discovery_request(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number in range(3):
            await register(bench, profile(f"a-{number}", description="Waters tulips.", tags=[f"t-{number}"]))
        asked = message({"text": "water tulips"}, {"data": {"required_tags": ["t-2"], "query": "other"}})
        answer = (await bench.anonymous().post("/a2a", json=asked)).json()
        data = answer["result"]["message"]["parts"][1]["data"]
        assert [candidate["id"] for candidate in data["candidates"]] == ["a-2"]


async def test_a_message_of_0_3_is_answered_in_its_form(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, profile("seen", description="Waters tulips."))
        asked = message({"kind": "text", "text": "water tulips"}) | {"method": "message/send"}
        result = (await bench.anonymous().post("/a2a", json=asked)).json()["result"]
        assert (result["kind"], result["role"]) == ("message", "agent")
        assert [part["kind"] for part in result["parts"]] == ["text", "data"]


@pytest.mark.parametrize(
    ("method", "params", "number", "reason"),
    [
        ("GetTask", {"id": "t"}, -32001, "TASK_NOT_FOUND"),
        ("tasks/get", {"id": "t"}, -32001, "TASK_NOT_FOUND"),
        ("CancelTask", {"id": "t"}, -32001, "TASK_NOT_FOUND"),
        ("GetTask", {}, -32602, "INVALID_PARAMS"),
        ("CreateTaskPushNotificationConfig", {}, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("SendStreamingMessage", {}, -32004, "UNSUPPORTED_OPERATION"),
        ("GetExtendedAgentCard", {}, -32004, "UNSUPPORTED_OPERATION"),
        ("Nothing", {}, -32601, "METHOD_NOT_FOUND"),
        ("SendMessage", {}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": {"messageId": "m", "parts": []}}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": {"messageId": "m", "parts": [{"text": " "}]}}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": {"messageId": "m", "parts": [{"data": [1]}]}}, -32602, "INVALID_PARAMS"),
        (
            "SendMessage",
            {"message": {"messageId": "m", "parts": [{"raw": "AA"}]}},
            -32005,
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (
            "SendMessage",
            {"message": {"messageId": "m", "taskId": "t", "parts": [{"text": "x"}]}},
            -32001,
            "TASK_NOT_FOUND",
        ),
        (
            "SendMessage",
            {
                "message": {"messageId": "m", "parts": [{"text": "x"}]},
                "configuration": {"acceptedOutputModes": ["image/png"]},
            },
            -32005,
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (
            "SendMessage",
            {"message": {"messageId": "m", "parts": [{"data": {"query": "x", "detail": "all"}}]}},
            -32602,
            "INVALID_PARAMS",
        ),
    ],
)
async def test_errors_have_the_numbers_and_reasons_of_a2a(
    tmp_path: Path, method: str, params: dict[str, Any], number: int, reason: str
) -> None:
    async with service(tmp_path) as bench:
        call = {"jsonrpc": "2.0", "id": "x", "method": method, "params": params}
        answer = await bench.anonymous().post("/a2a", json=call)
        error = answer.json()["error"]
        assert (answer.status_code, answer.json()["id"], error["code"]) == (200, "x", number)
        assert (error["data"][0]["reason"], error["data"][0]["domain"]) == (reason, "a2a-protocol.org")


async def test_what_is_no_message_is_refused_with_a_status_of_its_own(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        anyone = bench.anonymous()
        assert (await anyone.get("/a2a")).status_code == 405
        assert (await anyone.options("/a2a")).headers["allow"] == "POST, OPTIONS"
        text = await anyone.post("/a2a", content=b"hello", headers={"Content-Type": "text/plain"})
        assert (text.status_code, text.json()["error"]["code"]) == (415, -32600)
        large = await anyone.post("/a2a", json=message({"text": "x" * 3_000_000}))
        assert (large.status_code, large.json()["error"]["code"]) == (413, -32600)
        broken = await anyone.post("/a2a", content=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)
        batch = await anyone.post("/a2a", json=[message({"text": "x"})])
        assert (batch.status_code, batch.json()["error"]["code"]) == (400, -32600)
        listed = await anyone.post("/a2a", json={**message(), "params": []})
        assert (listed.status_code, listed.json()["error"]["code"]) == (400, -32600)
        version = await anyone.post("/a2a", json=message({"text": "x"}), headers={"A2A-Version": "2.0"})
        assert version.json()["error"]["code"] == -32009
        silent = message({"text": "x"})
        del silent["id"]
        assert (await anyone.post("/a2a", json=silent)).status_code == 202


async def test_messages_are_limited_as_other_anonymous_reads(tmp_path: Path) -> None:
    async with service(tmp_path, rate_limit_reads=2, base_url="https://waypost.example") as bench:
        client = bench.anonymous()
        statuses = [(await client.post("/a2a", json=message({"text": "x"}))).status_code for _ in range(8)]
        assert statuses[0] == 200
        assert statuses[-1] == 429


async def test_the_card_of_the_service_names_the_interface(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        base = bench.application.base_url
        card = (await bench.anonymous().get("/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0] == {
            "url": f"{base}/a2a",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        older = (await bench.anonymous().get("/.well-known/agent-card.json?v=0.3")).json()
        assert (older["url"], older["preferredTransport"]) == (f"{base}/a2a", "JSONRPC")
