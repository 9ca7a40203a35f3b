"""The service as an agent: its own record, which is rendered in every dialect like any other."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost import __version__
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.model.times import to_rfc3339
from waypost.protocols.adp.codec import key_fingerprint

CAPABILITY, CAPABILITY_NAME = "discover", "Discover agents"
_DESCRIPTION = (
    "Agent discovery service. Give it a task in words; it answers with the agents that fit, "
    "the evidence for why they match and how far they can be trusted."
)


def service_record(base_url: str, host: str, key: Ed25519PublicKey, started_at: float) -> AgentRecord:
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return AgentRecord(
        id=f"agent:{host}",
        name="Waypost",
        description=_DESCRIPTION,
        bindings=(
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
        updated_at=to_rfc3339(started_at),
        extra={
            "org.waypost.adp": {
                "identity": {
                    "domain": host,
                    "publicKey": {
                        "algorithm": "ed25519",
                        "fingerprint": key_fingerprint(key.public_bytes_raw()),
                        "full": pem,
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


def service_registration(record: AgentRecord, started_at: float) -> Registration:
    """A registration to render. It is not in the registry and cannot be changed through it."""
    return Registration(
        record=record,
        owner="admin",
        visibility="public",
        etag=hashlib.sha256(f"{record.id} {record.version} {int(started_at)}".encode()).hexdigest()[:22],
        revision=0,
        created_at=started_at,
        changed_at=started_at,
        renewed_at=started_at,
    )
