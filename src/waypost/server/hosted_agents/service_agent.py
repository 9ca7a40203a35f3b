"""The service as an agent: its own record, which is rendered in every dialect like any other."""

from __future__ import annotations

import hashlib

from waypost import __version__
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.model.times import to_rfc3339
from waypost.server.hosted_agents.keys import OwnKeys
from waypost.trust.keys.public_key import PublicKey

CAPABILITY, CAPABILITY_NAME = "discover", "Discover agents"
_DESCRIPTION = (
    "Agent discovery service. Give it a task in words; it answers with the agents that fit, "
    "the evidence for why they match and how far they can be trusted."
)


class ServiceAgent:
    """The service as a registration to render. It is not in the registry and cannot be changed through it. It follows the
    identity key."""

    def __init__(self, base_url: str, host: str, keys: OwnKeys, started_at: float) -> None:
        self._base_url = base_url
        self._host = host
        self._keys = keys
        self._started_at = started_at
        self._key = keys.current().public
        self._registration = self._register(revision=0)

    @property
    def registration(self) -> Registration:
        """The same object until the key is replaced."""
        key = self._keys.current().public
        if key.key_id != self._key.key_id:
            self._key = key
            # Registered agents have positive revisions. A new one makes caches render the record again.
            self._registration = self._register(revision=self._registration.revision - 1)
        return self._registration

    def _register(self, *, revision: int) -> Registration:
        changed_at = self._started_at if revision == 0 else max(self._started_at, self._keys.changed_at)
        record = _make_record(self._base_url, self._host, self._key, changed_at)
        content = f"{record.id} {record.version} {int(self._started_at)} {self._key.key_id}"
        return Registration(
            record=record,
            owner="admin",
            visibility="public",
            etag=hashlib.sha256(content.encode()).hexdigest()[:22],
            revision=revision,
            created_at=self._started_at,
            changed_at=changed_at,
            renewed_at=changed_at,
        )


def _a2a_bindings(endpoint: str) -> tuple[Binding, ...]:
    """One endpoint for the clients of two versions of A2A."""
    media_types = ("text/plain", "application/json")
    older = {"org.waypost.a2a": {"protocolVersion": "0.3"}}
    return (
        Binding(protocol="a2a+jsonrpc", endpoint=endpoint, media_types=media_types),
        Binding(protocol="a2a+jsonrpc", endpoint=endpoint, media_types=media_types, extra=older),
    )


def _make_record(base_url: str, host: str, key: PublicKey, changed_at: float) -> AgentRecord:
    return AgentRecord(
        id=f"agent:{host}",
        name="Waypost",
        description=_DESCRIPTION,
        bindings=(
            *_a2a_bindings(f"{base_url}/a2a"),
            Binding(
                protocol="https" if base_url.startswith("https:") else "http",
                endpoint=f"{base_url}/profile/v1/discover",
                media_types=("application/json",),
                interaction_model="request-response",
            ),
        ),
        tags=(CAPABILITY, "agent-discovery", "registry"),
        examples=(
            Example(id="discover-1", text="Find an agent that translates invoices.", tags=("discover",)),
            Example(id="discover-2", text="Which agent can check an employee onboarding workflow?", tags=("discover",)),
        ),
        status="active",
        version=__version__,
        updated_at=to_rfc3339(changed_at),
        extra={
            "org.waypost.adp": {
                "identity": {
                    "domain": host,
                    "publicKey": {
                        "algorithm": "ed25519",
                        "fingerprint": key.fingerprint(),
                        "full": key.pem(),
                    },
                },
                "endpoints": {
                    "wellKnown": f"{base_url}/.well-known/agent.json",
                    "discovery": f"{base_url}/",
                    "chat": f"ws{base_url.removeprefix('http')}/agent/chat",
                },
                "capabilities": [  # encoded as long as they agree with the tags and the description above
                    {
                        "id": CAPABILITY,
                        "name": CAPABILITY_NAME,
                        "description": _DESCRIPTION,
                        "input": ["application/json", "text"],
                        "output": ["application/json", "text"],
                        "interfaces": ["api", "chat"],
                    },
                    {"id": "agent-discovery", "name": "Agent discovery"},
                    {"id": "registry", "name": "Registry of agents"},
                ],
            }
        },
    )


def service_a2a_card(card: JsonObject) -> JsonObject:
    """The A2A card with one skill, whose id is the capability that a task names."""
    return card | {"skills": [card["skills"][0] | {"id": CAPABILITY, "name": CAPABILITY_NAME}]}


def service_ard_entry(entry: JsonObject, fingerprint: str | None) -> JsonObject:
    """The catalog entry with the fingerprint of the key, which ARD can only carry in its metadata."""
    metadata = entry.get("metadata", {}) | {"org.agentdiscovery.key": fingerprint}
    return entry | {"capabilities": [CAPABILITY], "metadata": metadata}
