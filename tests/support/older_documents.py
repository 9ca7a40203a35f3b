"""Documents in forms that are read but never written: older versions, envelopes, alternative member names.

Each is returned unchanged in its own dialect, so the dialect's schema must accept it.
"""

from __future__ import annotations

from typing import Final

from waypost.model.json import JsonObject

A2A_0_3: Final[JsonObject] = {
    "protocolVersion": "0.3.0",
    "name": "Recipe Agent",
    "description": "Finds recipes.",
    "url": "https://recipes.example.com/rpc",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": "https://recipes.example.com/rpc", "transport": "JSONRPC"},
        {"url": "https://recipes.example.com/grpc", "transport": "GRPC", "note": "slow"},
    ],
    "version": "1.0.0",
    "capabilities": {"streaming": True, "stateTransitionHistory": False},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "find",
            "name": "Find",
            "description": "Finds a recipe.",
            "tags": ["food"],
            "security": [{"key": []}],
        }
    ],
    "supportsAuthenticatedExtendedCard": True,
    "securitySchemes": {
        "google": {"type": "openIdConnect", "openIdConnectUrl": "https://accounts.example.com/oidc"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "cert": {"type": "mutualTLS"},
        "o": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://id.example.com/t", "scopes": {}}}},
    },
    "security": [{"google": ["openid"]}, {"key": []}],
    "houseStyle": {"colour": "green"},
}
A2A_0_2: Final[JsonObject] = {
    "name": "Old",
    "description": "An early agent.",
    "url": "http://old.example:9999/",
    "version": "1.0.0",
    "default_input_modes": ["text"],
    "default_output_modes": ["text"],
    "capabilities": {"push_notifications": True},
    "authentication": {"schemes": ["Bearer"]},
    "skills": [{"id": "s", "name": "S", "description": "", "tags": [], "input_modes": ["text"]}],
}
A2A_0_1: Final[JsonObject] = {
    "name": "Exchange",
    "description": None,
    "url": "http://exchange.example:10000/",
    "provider": None,
    "version": "1.0.0",
    "documentationUrl": None,
    "capabilities": {"streaming": True, "pushNotifications": None, "stateTransitionHistory": False},
    "authentication": {"schemes": ["apiKey", "OAuth2", "Basic"], "credentials": None},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [
        {
            "id": "convert",
            "name": "Convert currencies",
            "description": None,
            "tags": None,
            "examples": None,
            "inputModes": None,
            "outputModes": None,
        }
    ],
}
A2A_SNAKE: Final[JsonObject] = {
    "name": "Snake",
    "description": "A card of 1.0 as protobuf prints it with its own names.",
    "version": "1.0.0",
    "supported_interfaces": [
        {"url": "https://snake.example/a2a", "protocol_binding": "GRPC", "protocol_version": "1.0"}
    ],
    "capabilities": {"extended_agent_card": True},
    "default_input_modes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "Slides.", "output_modes": ["text/plain"]}],
    "security_schemes": {
        "key": {"api_key_security_scheme": {"location": "header", "name": "X-Key"}},
        "login": {
            "oauth2_security_scheme": {
                "flows": {
                    "client_credentials": {"token_url": "https://id.example/token", "scopes": {"token_url": "Tokens."}}
                },
                "oauth2_metadata_url": "https://id.example/metadata",
            }
        },
    },
    "security_requirements": [{"schemes": {"key": ["read"]}}],
}

MCP_2025_07: Final[JsonObject] = {
    "name": "io.github.example/filesystem",
    "description": "Reads and writes files.",
    "status": "deprecated",
    "version_detail": {"version": "0.9.1", "release_date": "2025-07-01T00:00:00Z"},
    "repository": {"url": "https://github.com/example/fs", "source": "github", "id": "x"},
    "packages": [
        {
            "registry_name": "npm",
            "name": "@example/fs",
            "version": "0.9.1",
            "runtime_hint": "npx",
            "environment_variables": [{"name": "ROOT", "is_required": True, "is_secret": False}],
            "odd_member": 1,
        },
        {"registry_type": "pypi", "identifier": "fs-mcp", "version": "0.9.1", "transport": {"type": "stdio"}},
    ],
    "remotes": [
        {
            "transport_type": "sse",
            "url": "https://fs.example.com/sse",
            "headers": [{"name": "X-Key", "is_required": True, "is_secret": True}],
        }
    ],
}
MCP_2025_08: Final[JsonObject] = {
    "server": {
        "name": "com.example/harbour",
        "description": "Looks up berths.",
        "version_detail": {"version": "3.1.0"},
        "packages": [
            {
                "package_type": "docker",
                "registry_name": "docker-hub",
                "identifier": "example/harbour",
                "version": "3.1.0",
                "runtime_arguments": [
                    {
                        "type": "named",
                        "name": "--mount",
                        "value": "type=bind,src={source_path},dst=/data",
                        "is_repeated": True,
                        "variables": {"source_path": {"format": "filepath", "is_required": True}},
                    }
                ],
            },
            {
                "package_type": "mcpb",
                "registry_name": "github-releases",
                "identifier": "https://example.com/releases/harbour.mcpb",
                "version": "3.1.0",
                "file_hashes": {"sha-256": "ab" * 32},
            },
            {"package_type": "dotnet", "registry": "nuget", "identifier": "Example.Harbour", "version": "3.1.0"},
        ],
        "remotes": [{"transport_type": "streamable", "url": "https://harbour.example.com/mcp"}],
    },
    "x-publisher": {"tool": "ci", "build": {"number": 7}},
    "x-io.modelcontextprotocol.registry": {
        "id": "0",
        "published_at": "2025-08-20T10:00:00Z",
        "updated_at": "2025-08-21T10:00:00Z",
        "is_latest": True,
        "release_date": "2025-08-20T10:00:00Z",
    },
}
MCP_LISTED: Final[JsonObject] = {
    "server": {
        "name": "io.github.example/listed",
        "description": "A server as the registry lists it, with a description that is longer than it takes today. " * 2,
        "version": "1.0.0",
        "repository": {"url": "", "source": ""},
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://{tenant}.example.com/mcp",
                "variables": {"tenant": {"description": "Yours.", "is_required": True}},
            }
        ],
        "_meta": {"com.example/note": 1},
    },
    "_meta": {
        "io.modelcontextprotocol.registry/official": {"status": "active", "updated_at": "2026-02-11T08:00:00Z"},
    },
}

ARD_AIC: Final[JsonObject] = {
    "identifier": "urn:ai:Example.com:agent:reader",
    "displayName": "Reader",
    "mediaType": "application/a2a-agent-card+json",
    "url": "https://example.com/agents/reader.json",
    "representativeQueries": ["read this"],
    "metadata": {"nested": {"a": [1]}, "plain": 1},
    "trustManifest": {
        "identity": "spiffe://example.com/reader",
        "attestations": [{"type": "SOC2-Type2", "uri": "https://trust.example.com/soc2.pdf"}],
        "trustSchema": {"identifier": "urn:example:trust", "version": "1.0", "verificationMethods": ["did"]},
        "privacyPolicyUrl": "https://example.com/privacy",
    },
}

OASF_0_3: Final[JsonObject] = {
    "name": "org.example/completer",
    "version": "v0.1.0",
    "schema_version": "0.3.1",
    "description": "Completes texts.",
    "authors": ["Example"],
    "created_at": "2025-05-01T00:00:00Z",
    "skills": [{"category_name": "Natural Language Processing", "class_name": "Text Completion", "class_uid": 10201}],
    "locators": [{"type": "source_code", "url": "https://git.example.com/x", "digest": "sha256:0"}],
    "extensions": [{"name": "schema.oasf.agntcy.org/features", "version": "v0.3.1", "data": {}}],
}

OASF_0_7: Final[JsonObject] = {
    "name": "org.example/pilot",
    "version": "v0.7.0",
    "schema_version": "0.7.0",
    "description": "Guides ships into the harbour.",
    "authors": ["Example"],
    "created_at": "2025-08-01T00:00:00Z",
    "skills": [{"name": "natural_language_processing/text_completion", "id": 10201}],
    "locators": [{"type": "docker_image", "url": "https://registry.example.com/pilot"}],
    "modules": [
        {
            "name": "runtime/mcp",
            "data": {
                "servers": [
                    {"name": "charts", "type": "http", "url": "https://charts.example.com/mcp"},
                    {"name": "local", "type": "local", "command": "charts"},
                ]
            },
        }
    ],
}
OASF_0_3_A2A: Final[JsonObject] = {
    **{name: value for name, value in OASF_0_7.items() if name != "modules"},
    "schema_version": "v0.3.1",
    "locators": [{"type": "docker-image", "url": "https://registry.example.com/pilot"}],
    "extensions": [
        {
            "name": "oasf.agntcy.org/features/runtime/a2a",
            "version": "v0.0.0",
            "data": {**A2A_0_2, "url": "https://pilot.example.com/a2a"},
        }
    ],
}

RTFS_E: Final[JsonObject] = {
    "agent_id": "a",
    "name": "A",
    "description": "Does a.",
    "capabilities_summary": ["build", {"capability_id": "stream", "description": "Streams."}],
    "communication_summary": [{"protocol": "http", "uri": "https://a.example"}],
    "provider_id": "acme",
    "last_updated": "2025-06-07T08:09:10Z",
}
RTFS_ENVELOPE: Final[JsonObject] = {
    "agent_card": {
        "agent_id": "b",
        "capabilities": [{"capability_id": "build", "input_schema_ref": {"type": "object"}}],
    },
    "endpoint_url": "https://b.example/rtfs",
    "ttl_seconds": 600,
}

ANNOUNCE_1_1: Final[JsonObject] = {
    "protocol_version": "v1.1",
    "timestamp": 1.5,
    "message_type": "announce",
    "agent": {
        "agent_id": "0F7AC0A0-26B4-5D0E-8D3F-7C1E5C8E9B10",
        "agent_name": None,
        "capabilities": {"metrics": {"version": "2.0", "unit": "s"}, "text": {"sum": "1.0", "deep": {"er": "2"}}},
        "public_key": None,
        "transport": {"type": "http", "endpoint": "https://agents.example.org/x", "keepalive": 5},
        "metadata": {"__version": "2", "__seq": 7},
        "state": "ready",
    },
    "signature": None,
    "ttl": 120,
}

ADP_01: Final[JsonObject] = {
    "$schema": "https://adp.example/schema.json",
    "protocol": "ADP/1.0",
    "identity": {
        "id": "Agent:Bob.example.com",
        "domain": "Bob.example.com",
        "name": "Bob",
        "publicKey": {
            "algorithm": "Ed25519",
            "fingerprint": "ed25519:dGhpcyBpcyBhIHRlc3QgcHVibGljIGtleQ",
            "full": None,
        },
        "owner": "Bob",
    },
    "endpoints": {"wellKnown": "https://bob.example.com/.well-known/agent.json", "chat": None},
    "capabilities": [{"id": "chat", "languages": None}],
    "interfaces": {"html": True},
    "security": {"authMethods": ["pubkey"]},
    "dns": {"svcbRecord": True, "tlsaRecord": False, "dnssec": True},
    "meta": {"updated": "2026-01-01", "version": None},
}

PROFILE_NULLS: Final[JsonObject] = {
    "id": "https://example.net/agents/nulls",
    "name": "Nulls",
    "description": "Says what it does not say.",
    "tags": None,
    "examples": [{"text": "Say nothing.", "id": None, "input_schema": None, "language": ""}],
    "bindings": [{"protocol": "https", "endpoint": "https://example.net/nulls", "media_types": None, "priority": None}],
    "auth": None,
    "status": None,
    "version": "",
    "visibility": "public",
}

AF_BARE: Final[JsonObject] = {
    "id": "bare",
    "name": None,
    "summary": "A long summary. " * 60,
    "tags": None,
    "owner": {"name": "Team", "email": None},
    "endpoints": [
        {"method": "post", "path": "/v1/message:send", "transport": None},
        {"transport": {"type": "mqtt"}, "topic": "agents/bare", "method": 5},
    ],
    "created_at": "2025-06-12T10:15:00.5+02:00",
    "metadata": {"visibility": "public", "note": 1},
}

OLDER: Final[dict[str, tuple[JsonObject, ...]]] = {
    "profile": (PROFILE_NULLS,),
    "af": (AF_BARE,),
    "rtfs": (RTFS_E, RTFS_ENVELOPE),
    "announce": (ANNOUNCE_1_1,),
    "adp": (ADP_01,),
    "a2a": (A2A_0_3, A2A_0_2, A2A_0_1, A2A_SNAKE),
    "ard": (ARD_AIC,),
    "mcp": (MCP_2025_07, MCP_2025_08, MCP_LISTED),
    "oasf": (OASF_0_3, OASF_0_3_A2A, OASF_0_7),
}
