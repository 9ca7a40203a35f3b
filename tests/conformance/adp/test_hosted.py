"""Documents of hosted agents: signed with the key that the service has for their domain, or not served."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.records import CODECS
from support.schemas import written_schema
from support.service import Bench, profile, service
from waypost.protocols.adp.codec import ADP
from waypost.trust.checks.adp import check_adp
from waypost.trust.document_signatures import adp_payload
from waypost.trust.keys.public_key import parse_pem

DESK = "desk.example.com"
CAPABILITIES = "/.well-known/agent-capabilities.json"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path, base_url="https://registry.example.com") as made:
        admin = made.admin()
        await admin.post("/api/v1/agents", json=profile("urn:agent:desk", name="Desk", tags=["invoices"]))
        answer = await admin.post("/api/v1/agents/urn%3Aagent%3Adesk:host", json={"domain": DESK})
        assert answer.status_code == 200, answer.text
        yield made


async def _at(bench: Bench, path: str, host: str = DESK) -> httpx2.Response:
    return await bench.anonymous().get(path, headers={"Host": host})


def _is_proved(document: dict[str, Any]) -> bool:
    stated = document["identity"]["publicKey"]
    key = parse_pem(stated["full"])
    assert stated["fingerprint"] == key.fingerprint()
    signature = base64.b64decode(stated["proof"].removeprefix("signature:"))
    return key.verify(signature, adp_payload(document["identity"]["domain"]))


@pytest.mark.req("ADP-21", "ADP-22", "ADP-25", "ADP-26", "ADP-27", "ADP-29")
async def test_a_hosted_agent_has_a_signed_document_under_its_domain(bench: Bench) -> None:
    answer = await _at(bench, "/.well-known/agent.json")
    assert answer.headers["content-type"] == "application/vnd.adp+json"
    assert "max-age" in answer.headers["cache-control"]
    document = answer.json()
    jsonschema.validate(document, written_schema(CODECS["adp"]))
    identity = document["identity"]
    assert (identity["id"], identity["domain"], identity["name"]) == (f"agent:{DESK}", DESK, "Desk")
    assert _is_proved(document)
    assert {verdict.state for verdict in check_adp(document, (), 0.0)} == {
        "unknown"
    }  # proven, but bound by nothing yet
    assert document["security"]["tlsRequired"] is True
    assert "pubkey" in document["security"]["authMethods"]
    assert document["endpoints"] == {
        "wellKnown": f"https://{DESK}/.well-known/agent.json",
        "discovery": f"https://{DESK}/",
        "chat": f"wss://{DESK}/agent/chat",
        "tasks": f"https://{DESK}/agent/tasks",
        "swarm": f"https://{DESK}/agent/swarm/join",
        "webhook": f"https://{DESK}/agent/webhook",
    }


@pytest.mark.req("ADP-27")
@pytest.mark.parametrize(
    ("bindings", "paths"),
    [
        ({"a2a+jsonrpc": f"https://{DESK}/a/desk", "mcp": f"https://{DESK}/mcp"}, {"a2a": "/a/desk", "mcp": "/mcp"}),
        ({"a2a+jsonrpc": f"https://{DESK}:443/a/desk?tenant=7"}, {"a2a": "/a/desk?tenant=7"}),
        ({"a2a+grpc": f"https://{DESK}/grpc", "a2a+jsonrpc": f"https://{DESK}/a/desk"}, {"a2a": "/a/desk"}),
        ({"a2a+jsonrpc": f"https://{DESK}"}, {}),
        ({"a2a+jsonrpc": f"https://{DESK}:8443/a/desk"}, {}),
        ({"a2a+jsonrpc": f"http://{DESK}/a/desk"}, {}),
        ({"a2a+jsonrpc": "https://other.example.com/a/desk", "mcp": f"https://{DESK}/mcp"}, {"mcp": "/mcp"}),
        ({"a2a+grpc": "https://other.example.com/grpc", "a2a+jsonrpc": f"https://{DESK}/a/desk"}, {}),  # as the zone
    ],
)
async def test_the_path_of_an_endpoint_at_the_host_of_the_agent_is_named(
    bench: Bench, bindings: dict[str, str], paths: dict[str, str]
) -> None:
    """A DNS-AID client joins it to the host and the port of the SVCB record."""
    listed = [{"protocol": protocol, "endpoint": endpoint} for protocol, endpoint in bindings.items()]
    document = profile("urn:agent:desk", name="Desk", bindings=listed)
    assert (await bench.admin().post("/api/v1/agents", json=document)).is_success
    for path in ("/.well-known/agent.json", CAPABILITIES):
        served = (await _at(bench, path)).json()
        jsonschema.validate(served, written_schema(CODECS["adp"]))
        assert {name: served["endpoints"][name] for name in ("a2a", "mcp") if name in served["endpoints"]} == paths
    provided = (await bench.anonymous().get(f"/.well-known/agents/{DESK}.json")).json()
    assert "a2a" not in provided["endpoints"]


@pytest.mark.req("ADP-27")
@pytest.mark.parametrize(
    "endpoint", ["https://[x/y", "https://h.example:99999/x", "https://h.example:a/x", "pkg:npm/desk"]
)
async def test_an_endpoint_that_is_no_address_is_left_out_of_documents_and_zone(bench: Bench, endpoint: str) -> None:
    document = profile("urn:agent:desk", name="Desk", bindings=[{"protocol": "mcp", "endpoint": endpoint}])
    assert (await bench.admin().post("/api/v1/agents", json=document)).is_success
    served = await _at(bench, "/.well-known/agent.json")
    assert served.status_code == 200
    assert "mcp" not in served.json()["endpoints"]
    assert (await bench.admin().get("/api/v1/agents/urn:agent:desk:zone")).status_code == 200


@pytest.mark.req("ADP-26", "ADP-27")
async def test_the_service_proves_its_key_and_names_its_endpoints(bench: Bench) -> None:
    document = (await bench.anonymous().get("/.well-known/agent.json")).json()
    jsonschema.validate(document, written_schema(CODECS["adp"]))
    assert _is_proved(document)
    assert document["identity"]["domain"] == "registry.example.com"
    assert document["endpoints"]["chat"] == "wss://registry.example.com/agent/chat"
    assert document["endpoints"]["tasks"] == "https://registry.example.com/agent/tasks"


@pytest.mark.req("ADP-21", "ADP-23")
async def test_a_document_that_came_as_adp_is_given_back_as_it_came(bench: Bench, tmp_path: Path) -> None:
    sent = json.dumps(ADP.examples()[0], indent=3).encode()
    await bench.admin().post("/api/v1/agents", content=sent, headers={"content-type": "application/json"})
    answer = await bench.admin().post(
        "/api/v1/agents/agent:alice.example.com:host", json={"domain": "alice.example.com"}
    )
    assert answer.status_code == 200
    assert not (tmp_path / "keys/hosted/alice.example.com.pem").exists()  # it has a key of its own
    for path in ("/.well-known/agent.json", CAPABILITIES):
        assert (await _at(bench, path, "alice.example.com")).content == sent


@pytest.mark.req("ADP-6")
async def test_the_capability_document_does_not_change_with_a_renewal(bench: Bench) -> None:
    first = (await _at(bench, CAPABILITIES)).content
    bench.clock.advance(5000)
    admin = bench.admin()
    await admin.post("/api/v1/agents/urn%3Aagent%3Adesk:renew", json={"ttl_seconds": 3600})
    assert (await _at(bench, CAPABILITIES)).content == first
    document = json.loads(first)
    jsonschema.validate(document, written_schema(CODECS["adp"]))
    assert [each["id"] for each in document["capabilities"]] == ["invoices"]
    await admin.post("/api/v1/agents", json=profile("urn:agent:desk", name="Desk", tags=["invoices", "tax"]))
    changed = await _at(bench, CAPABILITIES)
    assert hashlib.sha256(changed.content).digest() != hashlib.sha256(first).digest()
    again = await bench.anonymous().get(CAPABILITIES, headers={"Host": DESK, "If-None-Match": changed.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.req("ADP-6")
async def test_the_bytes_that_a_zone_names_are_served_after_the_agent_has_changed(bench: Bench, tmp_path: Path) -> None:
    admin = bench.admin()
    zone = (await admin.get(f"/api/v1/agents/{DESK}:zone")).json()
    (svcb,) = [each["data"] for each in zone["records"] if each["type"] == "SVCB"]
    url = svcb.partition('key65400="')[2].partition('"')[0]
    digest = svcb.partition('key65401="')[2].partition('"')[0]
    path = url.removeprefix(f"https://{DESK}")
    assert path == f"{CAPABILITIES}?sha256={digest}"
    named = (await _at(bench, path)).content
    for number in range(3):
        await admin.post("/api/v1/agents", json=profile("urn:agent:desk", name=f"Desk {number}", tags=["tax"]))
        assert (await _at(bench, path)).content == named
    assert (await _at(bench, CAPABILITIES)).content != named
    assert _digest(named) == digest
    other = "A" * 43
    for wrong in (other, "x", "../../keys/identity", ""):
        assert (
            await bench.anonymous().get(CAPABILITIES, params={"sha256": wrong}, headers={"Host": DESK})
        ).status_code == 404
    hidden = profile("urn:agent:desk", name="Desk", tags=["tax"])
    await admin.post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "private"})
    assert (await _at(bench, path)).status_code == 404
    (tmp_path / "capabilities" / DESK / f"{digest}.json").write_bytes(b"{}")  # a damaged file is not served
    await admin.post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "public"})
    assert (await _at(bench, path)).status_code == 404


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


@pytest.mark.req("ADP-7")
async def test_an_agent_is_served_under_the_name_of_its_provider_too(bench: Bench) -> None:
    answer = await bench.anonymous().get(f"/.well-known/agents/{DESK}.json")
    document = answer.json()
    assert document["identity"]["domain"] == DESK
    assert _is_proved(document)
    assert document["endpoints"] == {"wellKnown": f"https://registry.example.com/.well-known/agents/{DESK}.json"}
    capabilities = await bench.anonymous().get(f"/.well-known/agent-capabilities/{DESK}.json")
    assert capabilities.json()["identity"]["domain"] == DESK
    for path in ("agents", "agent-capabilities"):
        assert (await bench.anonymous().get(f"/.well-known/{path}/nobody.example.com.json")).status_code == 404


@pytest.mark.req("ADP-55")
@pytest.mark.parametrize("visibility", ["private", "internal"])
async def test_nothing_is_answered_for_an_agent_that_is_not_public(bench: Bench, visibility: str) -> None:
    document = profile("urn:agent:desk", name="Desk", tags=["invoices"])
    await bench.admin().post("/api/v1/agents", json=document, headers={"Waypost-Visibility": visibility})
    for path in (
        "/.well-known/agent.json",
        CAPABILITIES,
        "/.well-known/agent-card.json",
        "/.well-known/agent-card",
        "/",
    ):
        answer = await _at(bench, path)
        assert answer.status_code == 404, path
        assert "Desk" not in answer.text
    assert (await bench.anonymous().get(f"/.well-known/agents/{DESK}.json")).status_code == 404


@pytest.mark.req("ADP-26")
async def test_a_key_that_was_replaced_signs_the_next_answer(bench: Bench, tmp_path: Path) -> None:
    first = await _at(bench, "/.well-known/agent.json")
    (tmp_path / "keys/hosted" / f"{DESK}.pem").unlink()
    unsigned = await _at(bench, "/.well-known/agent.json")
    assert "publicKey" not in unsigned.json()["identity"]
    assert "chat" not in unsigned.json()["endpoints"]
    await bench.admin().post("/api/v1/agents/urn%3Aagent%3Adesk:host", json={"domain": DESK})
    other = await _at(bench, "/.well-known/agent.json")
    assert _is_proved(other.json())
    assert other.json()["identity"]["publicKey"]["full"] != first.json()["identity"]["publicKey"]["full"]
    assert len({first.headers["etag"], unsigned.headers["etag"], other.headers["etag"]}) == 3
