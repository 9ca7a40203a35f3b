"""Examples of request bodies for the API description, by method and path.

Documents of agents are the examples of their dialects. A test checks that every operation with a body has an example, and that
each is valid against its schema.
"""

from __future__ import annotations

from typing import Any, Final

_AGENT: Final = "agent:alice.example.com"
_MINUTE: Final = 60

REQUEST_EXAMPLES: Final[dict[str, Any]] = {
    "POST /profile/v1/discover": {
        "query": "translate an invoice",
        "preferred_tags": ["finance"],
        "limit": 5,
        "min_match": "possible",
    },
    "POST /agent/tasks": {"task": "discover", "input": {"query": "translate an invoice"}},
    "POST /agent/tasks:take": {"agent": _AGENT, "limit": 1, "wait_seconds": 10},
    "POST /agent/tasks/{id}:report": {"lease": "l-7f3a", "status": "succeeded", "result": {"pages": 3}},
    "POST /agent/webhook": {"taskId": "t-1", "status": "succeeded", "result": {"pages": 3}},
    "POST /agent/swarm/join": {"agent": _AGENT, "task": "proofread", "role": "reader"},
    "POST /agent/swarm/{id}:leave": {"agent": _AGENT},
    "POST /agent/swarm/{id}:broadcast": {"agent": _AGENT, "content": "Chapter 2 is done.", "contentType": "text/plain"},
    "POST /api/v1/invitations": {"agent": _AGENT, "uses": 3, "ttl_seconds": 60 * _MINUTE},
    "POST /api/v1/invitations:redeem": {"code": "wp-4F7K-Q2M9"},
    "POST /api/v1/agents:batch": (
        '{"id":"a-1","name":"A","description":"Adds.","bindings":[{"protocol":"https","endpoint":"https://a.example"}]}\n'
        '{"name":"com.example/files","description":"Finds files.","version":"1.0.0"}\n'
    ),
    "POST /api/v1/agents/{id}:renew": {"ttl_seconds": 10 * _MINUTE},
    "POST /api/v1/agents/{id}:host": {"domain": "alice.example.com"},
    "POST /api/v1/agents/{id}:share": {"add": ["bob"], "remove": ["carol"]},
    "POST /api/v1/tokens": {"sub": "alice", "scopes": ["discover:read", "discover:write"], "ttl_seconds": 60 * _MINUTE},
    "POST /api/v1/agents/{id}:confirm": {"etag": '"q6GqdtIiCdXH1GaStlCu-2"'},
    "POST /api/v1/agents/{id}:reject": {"etag": '"q6GqdtIiCdXH1GaStlCu-2"'},
    "POST /api/v1/agents:fetch": {"url": "https://alice.example.com", "save": True},
    "POST /api/v1/domains": {"domain": "alice.example.com", "method": "dns"},
    "POST /api/v1/allow": {"rule": "550e8400-e29b-41d4-a716-446655440000"},
    "POST /api/v1/keys": {
        "agent_id": "alice.example.com",
        "public_key": "-----BEGIN PUBLIC KEY-----\n…\n-----END PUBLIC KEY-----\n",
    },
    "POST /api/v1/keys:revoke": {"agent_id": "alice.example.com", "reason": "the laptop was stolen"},
    "POST /api/v1/apikeys": {"sub": "ci", "scopes": ["discover:write"], "note": "registers agents after a release"},
    "POST /api/v1/peers": {"url": "https://registry.example.org", "name": "partner"},
    "POST /a2a": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {
            "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "translate an invoice"}]},
        },
    },
    "POST /agents": {"protocol_version": "v1.0", "query": {"capabilities": ["translate"]}, "query_id": "q-1"},
    "POST /ard/search": {
        "query": {"text": "weather forecast", "filter": {"type": ["application/mcp-server-card+json"]}},
        "pageSize": 5,
    },
    "POST /ard/explore": {"query": {"text": "weather"}, "resultType": {"facets": [{"field": "tags", "limit": 10}]}},
    "POST /mcp": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "find_agents", "arguments": {"query": "translate an invoice", "limit": 3}},
    },
    "POST /rtfs": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "rtfs.registry.discover",
        "params": {"discovery_query": {"text": "translate an invoice"}, "limit": 3},
    },
}
