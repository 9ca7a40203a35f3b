"""The zone of an agent over HTTP and through the client."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.certificates import Authority
from support.service import Bench, profile, service
from waypost import Client
from waypost.protocols.adp.codec import ADP
from waypost.responses.agents import AgentZone
from waypost.server.http.openapi import answer_schema

DESK = "desk.example.com"
ZONE = f"/api/v1/agents/{DESK}:zone"


async def _host(bench: Bench, name: str, domain: str, **members: Any) -> None:
    admin = bench.admin()
    await admin.post("/api/v1/agents", json=profile(f"urn:agent:{name}", name=name.title(), **members))
    answer = await admin.post(f"/api/v1/agents/urn%3Aagent%3A{name}:host", json={"domain": domain})
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path, base_url="https://registry.example.com") as made:
        await _host(made, "desk", DESK, tags=["invoices"])
        yield made


async def _zone(bench: Bench, path: str = ZONE, **params: Any) -> dict[str, Any]:
    answer = await bench.as_("alice").get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    jsonschema.validate(found, answer_schema(AgentZone))
    return found


def _data(zone: dict[str, Any], name: str, kind: str) -> list[str]:
    return [each["data"] for each in zone["records"] if (each["name"], each["type"]) == (name, kind)]


async def test_the_zone_names_the_bytes_and_the_key_that_are_served(bench: Bench) -> None:
    zone = await _zone(bench)
    served = await bench.anonymous().get("/.well-known/agent-capabilities.json", headers={"Host": DESK})
    digest = base64.urlsafe_b64encode(hashlib.sha256(served.content).digest()).rstrip(b"=").decode()
    (svcb,) = _data(zone, DESK, "SVCB")
    assert f'key65401="{digest}"' in svcb
    fingerprint = served.json()["identity"]["publicKey"]["fingerprint"]
    (txt,) = _data(zone, f"_agent.{DESK}", "TXT")
    assert fingerprint in txt


async def test_an_agent_is_named_by_its_id_its_domain_or_as_the_service_itself(bench: Bench) -> None:
    by_domain = await _zone(bench)
    by_id = await _zone(bench, "/api/v1/agents/urn%3Aagent%3Adesk:zone")
    assert by_domain == by_id
    for name in ("registry.example.com", "agent:registry.example.com"):
        assert (await _zone(bench, f"/api/v1/agents/{name}:zone"))["domain"] == "registry.example.com"


async def test_under_a_provider_the_zone_leads_to_the_provider(bench: Bench) -> None:
    zone = await _zone(bench, target="registry.example.com")
    (svcb,) = _data(zone, DESK, "SVCB")
    assert svcb.startswith("1 registry.example.com. ")
    assert f'key65409="agents/{DESK}.json"' in svcb
    path = f"/.well-known/agents/{DESK}.json"
    assert f"wk=https://registry.example.com{path};" in _data(zone, f"_agent.{DESK}", "TXT")[0]
    assert (await bench.anonymous().get(path)).status_code == 200


async def test_the_index_of_an_organisation_lists_its_public_agents(bench: Bench) -> None:
    await _host(bench, "bob", "bob.example.com")
    await _host(bench, "far", "far.example.net")
    await _host(bench, "carol", "carol.example.com")
    await bench.admin().post(
        "/api/v1/agents", json=profile("urn:agent:carol", name="Carol"), headers={"Waypost-Visibility": "private"}
    )
    zone = await _zone(bench, org="example.com")
    assert _data(zone, "_agents.example.com", "SVCB") == ["0 bob.example.com.", "0 desk.example.com."]
    assert _data(zone, "_index._agents.example.com", "TXT") == ['"agents=bob:https,desk:https"']
    assert _data(zone, "_index._agents.example.com", "SVCB")[0].startswith("1 registry.example.com. ")


async def test_an_agent_that_is_not_public_has_no_zone(bench: Bench) -> None:
    hidden = profile("urn:agent:desk", name="Desk", tags=["invoices"])
    await bench.admin().post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "private"})
    assert (await bench.admin().get(ZONE)).status_code == 409
    stranger, nobody = await bench.as_("alice").get(ZONE), await bench.as_("alice").get("/api/v1/agents/nobody:zone")
    assert (stranger.status_code, nobody.status_code) == (404, 404)


async def test_an_agent_that_others_serve_is_found_where_its_document_says(bench: Bench) -> None:
    await bench.as_("alice").post("/api/v1/agents", json=ADP.examples()[0])
    zone = await _zone(bench, "/api/v1/agents/alice.example.com:zone")
    (svcb,) = _data(zone, "alice.example.com", "SVCB")
    assert "key65400" not in svcb  # the served bytes are unknown here
    assert (
        ADP.examples()[0]["identity"]["publicKey"]["fingerprint"] in _data(zone, "_agent.alice.example.com", "TXT")[0]
    )


async def test_an_agent_with_a_domain_that_is_not_hosted_is_told_to_host_it(bench: Bench) -> None:
    await bench.admin().post("/api/v1/agents", json=profile("agent:afar.example.com"))
    answer = await bench.admin().get("/api/v1/agents/afar.example.com:zone")
    assert (answer.status_code, "not hosted here" in answer.json()["message"]) == (409, True)
    assert "waypost host afar.example.com agent:afar.example.com" in answer.json()["hint"]


async def test_an_agent_without_a_domain_gets_a_hint(bench: Bench) -> None:
    await bench.admin().post("/api/v1/agents", json=profile("urn:agent:bare"))
    answer = await bench.admin().get("/api/v1/agents/urn%3Aagent%3Abare:zone")
    assert answer.status_code == 409
    assert "waypost host" in answer.json()["hint"]


@pytest.mark.parametrize(
    "params",
    [
        {"format": "csv"},
        {"ttl": "1"},
        {"port": "0"},
        {"port": "x"},
        {"target": "_x.example.com"},
        {"org": "-"},
        {"address": "999.1.1.1"},
        {"spki": "abc"},
        {"spki": "zz" * 32},
        {"address": ["192.0.2.1"] * 17},
    ],
)
async def test_invalid_zone_parameters_are_refused_with_their_names(bench: Bench, params: dict[str, Any]) -> None:
    answer = await bench.as_("alice").get(ZONE, params=params)
    assert (answer.status_code, answer.json()["path"]) == (400, next(iter(params)))


async def test_the_certificate_of_the_service_is_the_one_that_is_named(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).server_files(DESK)
    async with service(tmp_path, base_url=f"https://{DESK}:8443", tls_cert=certificate, tls_key=key) as bench:
        zone = await _zone(bench)
        (tlsa,) = _data(zone, f"_8443._tcp.{DESK}", "TLSA")
        assert tlsa.startswith("3 1 1 ")
        assert 'alpn="a2a,http/1.1"' in _data(zone, DESK, "SVCB")[0]  # only the protocols of the listener
        given = await _zone(bench, spki=["00" * 32, "11" * 32])
        assert _data(given, f"_8443._tcp.{DESK}", "TLSA") == ["3 1 1 " + "00" * 32, "3 1 1 " + "11" * 32]


async def test_the_client_gives_the_same_answer(bench: Bench) -> None:
    transport = httpx2.ASGITransport(bench.application.http_app)
    async with Client("https://registry.example.com", bench.token("alice"), transport=transport) as client:
        zone = await client.zone(DESK, "managed", org="example.com", addresses=["192.0.2.1"], spki=["ab" * 32], ttl=60)
    params = {"format": "managed", "org": "example.com", "address": "192.0.2.1", "spki": "ab" * 32, "ttl": 60}
    assert zone.document == await _zone(bench, **params)
    assert {line.ttl for line in zone.records} == {60}
    assert "key654" not in zone.text


_AT_HOME = "https://desk.example.com/x"


@pytest.mark.parametrize(
    ("bindings", "labels"),
    [
        ([("https", "https://other.example/x")], ["https desk.example.com."]),
        ([("mcp", "https://desk.example.com/mcp")], ["mcp desk.example.com."]),
        ([("a2a+jsonrpc", _AT_HOME), ("mcp", "https://m.example/mcp")], ["a2a desk.example.com.", "mcp m.example."]),
        ([("mcp", _AT_HOME), ("a2a", _AT_HOME)], ["mcp desk.example.com.", "a2a desk.example.com."]),
        ([("mcp", "https://m.example:8443/mcp")], ["https desk.example.com.", "mcp m.example."]),
        ([("agp", "wss://desk.example.com/agent/chat")], ["a2a desk.example.com."]),
        ([("tcp", "10.0.0.1:9000")], ["https desk.example.com."]),
    ],
)
async def test_labels_name_the_protocols_that_the_agent_itself_speaks(
    bench: Bench, bindings: list[tuple[str, str]], labels: list[str]
) -> None:
    """Conversations that this service relays do not count."""
    listed = [{"protocol": protocol, "endpoint": endpoint} for protocol, endpoint in bindings]
    await bench.admin().post("/api/v1/agents", json=profile("urn:agent:desk", name="Desk", bindings=listed))
    zone = await _zone(bench)
    found = [data.split() for data in _data(zone, DESK, "SVCB")]
    shown = [
        f"{next(word for word in words if word.startswith('alpn=')).split(chr(34))[1].split(',')[0]} {words[1]}"
        for words in sorted(found)
    ]
    assert shown == labels


async def test_the_host_of_a_document_that_a_catalog_names_speaks_no_protocol(bench: Bench) -> None:
    link = {"protocol": "a2a", "endpoint": "https://cards.example/desk.json", "unresolved": True}
    await bench.admin().post("/api/v1/agents", json=profile("urn:agent:desk", name="Desk", bindings=[link]))
    (svcb,) = _data(await _zone(bench), DESK, "SVCB")
    assert svcb.split()[1] == f"{DESK}."
    assert 'alpn="https,' in svcb
