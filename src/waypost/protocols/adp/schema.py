"""JSON Schema and examples of the ADP metadata document (adp.md §4).

`identity.publicKey` is not required here: a document that is written for an agent without a key has none to show.
"""

from __future__ import annotations

from typing import Final

from waypost.model.json import JsonObject
from waypost.protocols.json_schema import build_schema, relax_definitions

_TEXT: Final[JsonObject] = {"type": "string"}
_TEXTS: Final[JsonObject] = {"type": "array", "items": _TEXT}
_OBJECT: Final[JsonObject] = {"type": "object"}

_DEFINITIONS: Final[dict[str, JsonObject]] = {
    "Document": {
        "type": "object",
        "required": ["protocol", "identity", "endpoints", "capabilities"],
        "properties": {
            "protocol": {"type": "string", "pattern": "^ADP/1\\.[0-9]+$"},
            "identity": {"$ref": "#/$defs/Identity"},
            "endpoints": {"$ref": "#/$defs/Endpoints"},
            "capabilities": {"type": "array", "items": {"$ref": "#/$defs/Capability"}},
            "security": {"$ref": "#/$defs/Security"},
            "policies": _OBJECT,
            "availability": {"type": "object", "properties": {"status": _TEXT}},
            "meta": {"type": "object", "properties": {"version": _TEXT, "updated": _TEXT}},
            "dns": {"description": "Claims of the publisher, in either spelling; never evidence."},
            "relationships": {"description": "Of an earlier draft; kept as it is."},
        },
    },
    "Identity": {
        "type": "object",
        "required": ["id", "domain", "name"],
        "properties": {
            "id": {"type": "string", "pattern": "^agent:."},
            "domain": {"type": "string", "minLength": 1},
            "name": {"type": "string", "minLength": 1},
            "publicKey": {"$ref": "#/$defs/PublicKey"},
        },
    },
    "PublicKey": {
        "type": "object",
        "required": ["algorithm", "fingerprint"],
        "properties": {
            "algorithm": {"const": "ed25519"},
            "fingerprint": {"type": "string", "minLength": 1},
            "full": _TEXT,
            "proof": {},
        },
    },
    "Endpoints": {
        "type": "object",
        "required": ["wellKnown"],
        "properties": {
            "wellKnown": {"type": "string", "minLength": 1},
            **dict.fromkeys(("discovery", "chat", "tasks", "swarm", "webhook"), _TEXT),
        },
    },
    "Capability": {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "minLength": 1},
            "name": _TEXT,
            "description": _TEXT,
            "input": _TEXTS,
            "output": _TEXTS,
            "interfaces": _TEXTS,
            "languages": _TEXTS,
            "pricing": _OBJECT,
        },
    },
    "Security": {
        "type": "object",
        "required": ["tlsRequired"],
        "properties": {
            "tlsRequired": {"const": True},
            "minProtocolVersion": _TEXT,
            "authMethods": _TEXTS,
            "rateLimit": _OBJECT,
        },
    },
}
# Capitals in the id and in the algorithm's name are read past; ADP-29 is not worth losing a document over.
_ACCEPTED: Final = relax_definitions(
    _DEFINITIONS,
    {
        "Identity": {"properties": {"id": {"type": "string", "pattern": "^[aA][gG][eE][nN][tT]:."}}},
        "PublicKey": {"properties": {"algorithm": {"type": "string", "pattern": "^[eE][dD]25519$"}}},
        "Security": {"required": []},
    },
)

SCHEMA: Final[JsonObject] = build_schema("ADP metadata", ["AcceptedDocument"], _DEFINITIONS | _ACCEPTED)
WRITTEN_SCHEMA: Final[JsonObject] = build_schema("ADP metadata", ["Document"], _DEFINITIONS)

_PEM: Final = (
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
    "-----END PUBLIC KEY-----\n"
)
_FINGERPRINT: Final = "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"


def _identity(fingerprint: str, full: str) -> JsonObject:
    return {
        "id": "agent:alice.example.com",
        "domain": "alice.example.com",
        "name": "Alice's Agent",
        "publicKey": {"algorithm": "ed25519", "fingerprint": fingerprint, "full": full},
    }


EXAMPLES: Final[tuple[JsonObject, ...]] = (
    {
        "protocol": "ADP/1.1",
        "identity": _identity(_FINGERPRINT, _PEM),
        "endpoints": {"wellKnown": "https://alice.example.com/.well-known/agent.json"},
        "capabilities": [{"id": "chat", "name": "Conversational Chat"}],
    },
    {
        "protocol": "ADP/1.1",
        "identity": {
            # The draft's own sample: its fingerprint is a text, not a digest (C-4).
            **_identity("ed25519:dGhpcyBpcyBhIHRlc3QgcHVibGljIGtleQ", "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"),
            "owner": "Alice",
            "created": "2026-01-01",
        },
        "endpoints": {
            "wellKnown": "https://alice.example.com/.well-known/agent.json",
            "discovery": "https://alice.example.com/",
            "chat": "wss://alice.example.com/agent/chat",
            "tasks": "https://alice.example.com/agent/tasks",
            "swarm": "https://alice.example.com/agent/swarm/join",
            "webhook": "https://alice.example.com/agent/webhook",
        },
        "capabilities": [
            {
                "id": "chat",
                "name": "Conversational Chat",
                "description": "Talks about the owner's calendar.",
                "input": ["text"],
                "output": ["text", "html"],
                "interfaces": ["chat"],
                "languages": ["en", "zh-CN"],
                "pricing": {"model": "free"},
            },
            {
                "id": "code-review",
                "name": "Code Review",
                "description": "Reviews patches.",
                "input": ["text", "file"],
                "output": ["text"],
                "interfaces": ["api"],
                "pricing": {"model": "per_use", "details": "0.10 USD"},
            },
        ],
        "security": {
            "tlsRequired": True,
            "minProtocolVersion": "1.3",
            "authMethods": ["pubkey", "bearer_token"],
            "rateLimit": {"requestsPerMinute": 60, "burstSize": 10},
        },
        "dns": {
            "svcbVerified": True,
            "dnssecSigned": True,
            "dane": {"supported": True, "usage": "DANE-EE", "selector": "SPKI", "matchingType": "SHA-256"},
        },
        "policies": {"privacy": "https://alice.example.com/privacy", "dataRetention": "30d"},
        "availability": {"status": "online", "uptime": "99.9%"},
        "relationships": [{"type": "peer", "id": "agent:bob.example.com"}],
        "meta": {"version": "1.1.0", "updated": "2026-06-18T10:00:00Z", "generator": "adp-kit"},
    },
)
