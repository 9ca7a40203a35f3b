"""A2A cards of agents at base URLs of their own."""

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
        upgraded = (await anyone.get(card_path(older))).json()
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
        for form, path in (("current", card_path(older)), ("0.3", card_path(current, "?v=0.3"))):
            name = older if form == "current" else current
            same = await reader.get(f"/api/v1/agents/{quote(name, safe='')}?as=a2a&form={form}")
            assert same.json() == (await anyone.get(path)).json()


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
