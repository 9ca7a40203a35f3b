"""profile.md §10: two services in processes of their own; one follows the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from support.server import RunningServer, running_server
from support.service import profile
from support.signing import key_of
from waypost.trust.document_signatures import sign_profile

KEY, OTHER = key_of(number=1), key_of(number=2)
SECONDS = 20.0


@pytest.fixture(scope="module")
def origin() -> Iterator[RunningServer]:
    with running_server("--anonymous-read") as server:
        yield server


@pytest.fixture(scope="module")
def mirror(origin: RunningServer) -> Iterator[RunningServer]:
    with running_server("--allow-cidrs", "127.0.0.0/8") as server:
        answer = httpx2.post(
            f"{server.url}/api/v1/peers", json={"url": origin.url, "name": "origin"}, headers=server.headers
        )
        assert answer.status_code == 201, answer.text
        yield server


def register(server: RunningServer, document: Any) -> None:
    answer = httpx2.post(f"{server.url}/api/v1/agents", json=document, headers=server.headers)
    assert answer.is_success, answer.text


def read(server: RunningServer, agent_id: str) -> httpx2.Response:
    return httpx2.get(f"{server.url}/api/v1/agents/{agent_id.replace('/', '%2F')}", headers=server.headers)


def eventually(server: RunningServer, agent_id: str, status: int = 200) -> httpx2.Response:
    until = time.monotonic() + SECONDS
    while True:
        answer = read(server, agent_id)
        if answer.status_code == status or time.monotonic() > until:
            assert answer.status_code == status, answer.text
            return answer
        time.sleep(0.05)


@pytest.mark.req("PRO-43")
def test_services_federate(origin: RunningServer, mirror: RunningServer) -> None:
    """Found on the other side, and gone with its withdrawal."""
    register(origin, profile("urn:ex:federated", description="Balances ledgers."))
    eventually(mirror, "urn:ex:federated")
    httpx2.delete(f"{origin.url}/profile/v1/agents/urn%3Aex%3Afederated", headers=origin.headers)
    eventually(mirror, "urn:ex:federated", 404)


@pytest.mark.req("PRO-44", "PRO-45")
def test_a_federated_result_tells_its_origin(origin: RunningServer, mirror: RunningServer) -> None:
    """In the record and in each candidate."""
    register(
        origin, profile("urn:ex:provenance", description="Classifies seashells.", updated_at="2026-05-01T00:00:00Z")
    )
    record = eventually(mirror, "urn:ex:provenance").json()
    expected = {
        "origin_service": origin.url,
        "origin_id": "urn:ex:provenance",
        "origin_updated_at": "2026-05-01T00:00:00Z",
        "via": [],
        "peer": "origin",
    }
    assert record["federation"].items() >= expected.items()
    assert record["federation"]["received_at"]
    found = httpx2.post(
        f"{mirror.url}/profile/v1/discover", json={"query": "classify seashells"}, headers=mirror.headers
    ).json()
    (candidate,) = [each for each in found["candidates"] if each["id"] == "urn:ex:provenance"]
    assert candidate["federation"].items() >= expected.items()


@pytest.mark.req("PRO-46")
def test_federation_keeps_what_a_trust_decision_needs(origin: RunningServer, mirror: RunningServer) -> None:
    """Freshness, status, credentials and signature are those of the origin."""
    document = profile(
        "urn:ex:kept",
        updated_at="2026-05-01T00:00:00Z",
        expires_at="2030-01-01T00:00:00Z",
        status="deprecated",
        credential_refs=["https://credentials.example/1"],
    )
    signed = sign_profile(document, KEY)
    register(origin, signed)
    copy = eventually(mirror, "urn:ex:kept").json()
    copy.pop("federation")
    assert copy == read(origin, "urn:ex:kept").json() == signed


@pytest.mark.req("PRO-59")
def test_a_copy_is_judged_by_the_policy_of_the_service_that_has_it(
    origin: RunningServer, mirror: RunningServer
) -> None:
    """The signature survives and is verified here, with keys bound here; what a peer says is a claim."""
    for server, key in ((origin, OTHER), (mirror, KEY)):
        pinned = {"agent_id": "urn:ex:judged", "public_key": key.public.pem()}
        assert httpx2.post(f"{server.url}/api/v1/keys", json=pinned, headers=server.headers).is_success
    register(origin, sign_profile(profile("urn:ex:judged", updated_at="2026-05-01T00:00:00Z"), OTHER))
    assert read(origin, "urn:ex:judged").headers["waypost-trust"] == "verified"
    register(origin, profile("urn:ex:after", description="Registered after it."))
    eventually(mirror, "urn:ex:after")
    assert read(mirror, "urn:ex:judged").status_code == 404  # the id is reserved for another key here
    parked = httpx2.get(f"{mirror.url}/api/v1/peers/origin", headers=mirror.headers).json()
    assert parked["parked_reasons"] == {"bound": 1}
