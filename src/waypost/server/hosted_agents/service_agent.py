"""The service as an agent: its own record, from which every dialect is written like any other's."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost import __version__
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.model.times import to_rfc3339


def key_fingerprint(key: Ed25519PublicKey) -> str:
    """`ed25519:` and the base64url SHA-256 of the raw key (adp.md §0)."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return "ed25519:" + base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


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
                    "publicKey": {"algorithm": "ed25519", "fingerprint": key_fingerprint(key), "full": pem},
                },
                "endpoints": {
                    "wellKnown": f"{base_url}/.well-known/agent.json",
                    "discovery": f"{base_url}/",
                    "chat": f"ws{base_url.removeprefix('http')}/agent/chat",
                },
                "capabilities": [  # the tags and the description above in ADP's words: they are told while both agree
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
    """A2A's word for a capability is a skill: the service's has the name by which a task asks for it."""
    return card | {"skills": [card["skills"][0] | {"id": CAPABILITY, "name": CAPABILITY_NAME}]}


def service_ard_entry(entry: JsonObject, record: AgentRecord) -> JsonObject:
    """A catalogue entry has room for no key but among its metadata."""
    key = record.extra["org.waypost.adp"]["identity"]["publicKey"]["fingerprint"]
    metadata = entry.get("metadata", {}) | {"org.agentdiscovery.key": key}
    return entry | {"capabilities": [CAPABILITY], "metadata": metadata}


def service_registration(record: AgentRecord, started_at: float) -> Registration:
    """Enough of an envelope for a rendering; it is not in the registry and cannot be changed through it."""
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
