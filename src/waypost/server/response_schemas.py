"""JSON Schemas of the answers that are ours. Documents of a dialect have theirs in the dialect's codec."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.model.query import FACETS
from waypost.model.record import LISTED
from waypost.protocols.dialects import DIALECTS

_TEXT: dict[str, Any] = {"type": "string"}

_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}

_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}

DIALECT: dict[str, Any] = {"type": "string", "enum": list(DIALECTS)}

NDJSON: dict[str, Any] = {"type": "string", "description": "JSON lines"}

_MAYBE_OBJECT: dict[str, Any] = {"type": ["object", "null"]}

_WORDS: dict[str, Any] = {
    "type": ["array", "null"],
    "items": {"type": "string", "pattern": r"\S", "maxLength": 256},
    "maxItems": limits.FILTER_VALUES,
}


def document_schema(dialect: str | None = None) -> dict[str, Any]:
    """A document of one dialect, or of any."""
    if dialect is not None:
        return {"$ref": f"#/components/schemas/{dialect}"}
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in DIALECTS]}


_HEALTH_STATE: dict[str, Any] = {"enum": ["unknown", "healthy", "suspect", "unhealthy"]}

HEALTH: dict[str, Any] = {
    "type": "object",
    "description": "how its endpoint answers, where it is checked",
    "required": ["state"],
    "properties": {"state": _HEALTH_STATE, "since": _TIME},
}

AGENT_HEALTH: dict[str, Any] = {
    "type": "object",
    "required": ["id", "state", "status"],
    "properties": {
        "id": {"type": "string"},
        "state": _HEALTH_STATE,
        "status": {"type": "string", "description": "under which it is listed, or not"},
        "since": _TIME,
        "endpoint": {"type": "string", "description": "the one that is asked"},
        "reason": {"type": "string", "description": "why it fails, in a word; for its owner and admins"},
    },
}

TRUST: dict[str, Any] = {
    "type": "object",
    "required": ["level"],
    "properties": {
        "level": {"enum": ["verified", "self_asserted", "failed"]},
        "checks": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["check", "state"],
                "properties": {
                    "check": _TEXT,
                    "state": {"enum": ["passed", "failed", "unknown", "not_checked"]},
                    "reason": _TEXT,
                    "evidence": {"type": "object"},
                    "at": _TIME,
                },
            },
        },
    },
}

_SEVERITY: dict[str, Any] = {"enum": ["danger", "warning", "info", "ok"]}

DIAGNOSIS: dict[str, Any] = {
    "type": "object",
    "required": ["findings", "counts", "at"],
    "properties": {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["layer", "severity", "message"],
                "properties": {
                    "layer": _TEXT,
                    "severity": _SEVERITY,
                    "message": _TEXT,
                    "setting": {"type": "string", "description": "the one that adds or removes the layer"},
                    "hint": _TEXT,
                },
            },
        },
        "counts": {"type": "object", "propertyNames": _SEVERITY, "additionalProperties": {"type": "integer"}},
        "at": _TIME,
    },
}

VERIFICATION: dict[str, Any] = {
    "type": "object",
    "required": ["id", "trust", "documents", "checked_at"],
    "properties": {
        "id": _TEXT,
        "trust": {**TRUST, "description": "as it is judged now"},
        "shown": {"enum": ["verified", "self_asserted", "failed"], "description": "the level that answers show"},
        "documents": {
            "type": "array",
            "items": {
                **TRUST,
                "properties": {
                    **TRUST["properties"],
                    "dialect": DIALECT,
                    "received_at": _TIME,
                    "via": {"type": "string"},
                },
            },
        },
        "checked_at": _TIME,
    },
}

HELD: dict[str, Any] = {
    "type": "object",
    "required": ["etag", "base", "changes", "dialect", "subject", "at", "expires_at"],
    "properties": {
        "etag": {"type": "string", "description": "names the change when it is confirmed or rejected"},
        "base": {"type": "string", "description": "the version that it would replace"},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["part", "before", "after"],
                "properties": {"part": {"enum": ["endpoint", "key", "auth"]}, "before": {}, "after": {}},
            },
        },
        "dialect": DIALECT,
        "subject": _TEXT,
        "at": _TIME,
        "expires_at": _TIME,
    },
}

RECEIPT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "aliases", "dialect", "outcome", "etag", "losses", "warnings", "trust"],
    "properties": {
        "id": _TEXT,
        "aliases": _TEXTS,
        "dialect": DIALECT,
        "outcome": {"enum": ["created", "updated", "refreshed", "unchanged", "held", "rejected"]},
        "etag": _TEXT,
        "losses": {
            "type": "array",
            "items": {"type": "object", "required": ["path", "reason"], "properties": {"path": _TEXT, "reason": _TEXT}},
        },
        "warnings": _TEXTS,
        "trust": TRUST,
        "held": HELD,
        "expires_at": _TIME,
        "ttl_seconds": {"type": "integer"},
    },
}

FETCHED: dict[str, Any] = {
    "type": "object",
    "required": ["url", "digest", "agents"],
    "properties": {
        "url": {"type": "string", "description": "where the documents are, after redirects"},
        "digest": {"type": "string", "description": "SHA-256 of what was there"},
        "agents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["url", "outcome"],
                "properties": {
                    **RECEIPT["properties"],
                    "url": _TEXT,
                    "name": _TEXT,
                    "outcome": {"enum": ["found", "failed", *RECEIPT["properties"]["outcome"]["enum"]]},
                    "agent": {"type": "object", "description": "what it says, as a profile document"},
                    "document": {"description": "what it is, as JSON or as a text"},
                    "existing": {
                        "type": "object",
                        "required": ["id", "etag", "yours"],
                        "properties": {"id": _TEXT, "etag": _TEXT, "yours": {"type": "boolean"}},
                    },
                    "error": {"type": "object"},
                },
            },
        },
    },
}

CLAIM: dict[str, Any] = {
    "type": "object",
    "required": ["domain", "subject", "method", "state", "subdomains", "place", "line"],
    "properties": {
        "domain": _TEXT,
        "subject": _TEXT,
        "method": {"enum": ["dns", "http"]},
        "state": {"enum": ["pending", "proven", "lapsed"]},
        "subdomains": {"type": "boolean", "description": "whether the names below it are proven as well"},
        "place": {"type": "string", "description": "where the line belongs: a name for a TXT record, or a URL"},
        "line": {"type": "string", "description": "what to publish there"},
        "failures": {"type": "integer", "minimum": 0},
        "expires_at": _TIME,
        "proven_at": _TIME,
        "checked_at": _TIME,
        "next_check_at": _TIME,
    },
}

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}

_SUGGESTIONS: dict[str, Any] = {
    "type": "object",
    "properties": {"tags": {"type": "object", "additionalProperties": _TEXTS}},
}

_FACETS: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"enum": list(FACETS)},
    "additionalProperties": {
        "type": "array",
        "maxItems": limits.FACET_VALUES,
        "items": {
            "type": "object",
            "required": ["value", "count"],
            "properties": {"value": _TEXT, "count": {"type": "integer", "minimum": 1}},
        },
    },
}

AGENT_LIST: dict[str, Any] = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": {"type": "array", "items": {"type": "object"}},
        "next_cursor": _TEXT,
        "health": {
            "type": "object",
            "additionalProperties": _HEALTH_STATE,
            "description": "by id, how the endpoints of these agents answer, where they are checked",
        },
        "suggestions": _SUGGESTIONS,
        "warnings": _TEXTS,
    },
}

OVERVIEW: dict[str, Any] = {
    "type": "object",
    "required": ["total", "facets"],
    "properties": {"total": _COUNT, "facets": _FACETS, "suggestions": _SUGGESTIONS, "warnings": _TEXTS},
}

FIGURES: dict[str, Any] = {
    "type": "object",
    "required": ["agents", "by_status", "by_visibility"],
    "properties": {
        "agents": {"type": "integer"},
        "by_status": {"type": "object", "additionalProperties": {"type": "integer"}},
        "by_visibility": {"type": "object", "additionalProperties": {"type": "integer"}},
        "indexing_pending": {"type": "integer"},
        "revision": {"type": "integer"},
        "workers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pid": {"type": "integer"},
                    "role": {"enum": ["writer", "follower"]},
                    "ready": {"type": "boolean"},
                    "revision": {"type": "integer"},
                    "restarts": {"type": "integer"},
                },
            },
        },
    },
}

TOKEN: dict[str, Any] = {
    "type": "object",
    "required": ["token", "expires_at"],
    "properties": {"token": _TEXT, "expires_at": _TIME},
}

PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "message", "correlation_id"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "instance": _TEXT,
        "code": _TEXT,
        "message": _TEXT,
        "correlation_id": _TEXT,
        "retry_after": {"type": "integer"},
        "path": _TEXT,
        "hint": _TEXT,
    },
}

DISCOVERY_REQUEST: dict[str, Any] = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "maxLength": limits.QUERY_CHARS},
        "required_tags": _WORDS,
        "preferred_tags": _WORDS,
        "excluded_tags": _WORDS,
        "protocols": _WORDS,
        "statuses": {
            "type": ["array", "null"],
            "items": {"enum": list(LISTED)},
            "maxItems": limits.FILTER_VALUES,
            "description": "one of them; all when there is none",
        },
        "constraints": _MAYBE_OBJECT,
        "limit": {"type": ["integer", "null"], "minimum": 1},
        "include_evidence": {"type": ["boolean", "null"]},
        "detail": {"enum": ["minimal", "summary", "full", None]},
        "client_context": {
            "type": ["object", "null"],
            "description": "locale, language, domain and region are gentle preferences; other members are ignored",
        },
        "facets": {
            "type": ["array", "null"],
            "items": {"enum": list(FACETS)},
            "maxItems": limits.FILTER_VALUES,
            "description": "what to count over all agents that the hard filters admit",
        },
        "diversity": {
            "type": ["boolean", "null"],
            "description": "false: near duplicates are not held to two in each ten candidates",
        },
        "min_score": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "description": "candidates below it are left out",
        },
    },
}

_CANDIDATE: dict[str, Any] = {
    "type": "object",
    "required": ["id", "status", "bindings", "score"],
    "properties": {
        "id": _TEXT,
        "name": _TEXT,
        "description": _TEXT,
        "bindings": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["protocol", "endpoint"],
                "properties": {"protocol": _TEXT, "endpoint": _TEXT},
            },
        },
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "score_components": {"type": "object", "additionalProperties": {"type": "number"}},
        "matched_tags": _TEXTS,
        "expanded_tags": _TEXTS,
        "matched_examples": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["text", "score"],
                "properties": {"id": _TEXT, "text": _TEXT, "score": {"type": "number"}},
            },
        },
        "snippets": _TEXTS,
        "flags": _TEXTS,
        "credential_refs": _TEXTS,
        "untrusted": {"const": True, "description": "texts of the candidate are its publisher's words"},
        "self_asserted": {"type": "object", "description": "what the publisher said in our place"},
        "redacted": {"type": "boolean"},
        "status": _TEXT,
        "freshness": {
            "type": "object",
            "required": ["indexed_at"],
            "properties": {
                "metadata_updated_at": _TEXT,
                "indexed_at": _TIME,
                "expires_at": _TIME,
                "older_than_constraint": {"type": "boolean"},
            },
        },
        "trust": TRUST,
        "health": HEALTH,
    },
}

_EMPTY: dict[str, Any] = {
    "type": "object",
    "description": "why there is no candidate; counts are over what the caller may see",
    "required": ["reason", "visible"],
    "properties": {
        "reason": {"enum": ["nothing_registered", "filtered", "no_match", "below_min_score"]},
        "visible": _COUNT,
        "best_score": {"type": "number"},
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["filter", "value", "matching", "remaining"],
                "properties": {"filter": _TEXT, "value": {}, "matching": _COUNT, "remaining": _COUNT},
            },
        },
    },
}

DISCOVERY_RESPONSE: dict[str, Any] = {
    "type": "object",
    "required": ["candidates", "request_id", "generated_at", "applied_filters"],
    "properties": {
        "request_id": _TEXT,
        "generated_at": _TIME,
        "applied_filters": {"type": "object"},
        "unsupported_filters": _TEXTS,
        "warnings": _TEXTS,
        "facets": _FACETS,
        "suggestions": _SUGGESTIONS,
        "rejected_constraints": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1},
            "description": "agents that pass the other filters and that this constraint turned away",
        },
        "empty": _EMPTY,
        "candidates": {"type": "array", "items": _CANDIDATE},
    },
}

WATCH_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["type", "id", "at", "etag"],
    "properties": {
        "type": {"enum": ["registered", "updated", "renewed", "withdrawn", "expired"]},
        "id": _TEXT,
        "at": _TIME,
        "etag": _TEXT,
        "agent": {"type": "object"},
    },
}

# Served beside the dialects' own under /schemas/.
ANSWERS: dict[str, dict[str, Any]] = {
    "receipt": RECEIPT,
    "agent-list": AGENT_LIST,
    "facets": OVERVIEW,
    "problem": PROBLEM,
    "discovery-request": DISCOVERY_REQUEST,
    "discovery-response": DISCOVERY_RESPONSE,
    "watch-event": WATCH_EVENT,
    "stats": FIGURES,
}


# ---- The shapes of what tells of the past: the audit trail, its proofs, and the versions of an agent.

_HASH: dict[str, Any] = {"type": "string", "contentEncoding": "base64"}

_NATURAL: dict[str, Any] = {"type": "integer", "minimum": 0}

AUDIT_PAGE: dict[str, Any] = {
    "type": "object",
    "required": ["entries", "size", "oldest"],
    "properties": {
        "entries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["number", "at", "action", "subject"],
                "properties": {
                    "number": {"type": "integer", "minimum": 1},
                    "at": _TIME,
                    **dict.fromkeys(("action", "subject", "object", "outcome", "via"), _TEXT),
                    **dict.fromkeys(("credential", "address", "etag", "detail"), _TEXT),
                },
            },
        },
        "size": _NATURAL,
        "oldest": {"type": "integer", "minimum": 1, "description": "the first entry whose content is kept"},
        "next_after": _NATURAL,
    },
}

AUDIT_CHECKPOINT: dict[str, Any] = {
    "type": "object",
    "required": ["origin", "size", "root", "key", "note"],
    "properties": {
        "origin": _TEXT,
        "size": _NATURAL,
        "root": _HASH,
        "key": {"type": "string", "description": "verifier key of the note"},
        "note": {"type": "string", "description": "the signed checkpoint"},
    },
}

AUDIT_PROOF: dict[str, Any] = {
    "type": "object",
    "required": ["hashes"],
    "properties": {
        "hashes": {"type": "array", "items": _HASH},
        **dict.fromkeys(("entry", "size", "from", "to"), _NATURAL),
        **dict.fromkeys(("leaf", "root", "from_root", "to_root"), _HASH),
    },
}

HISTORY: dict[str, Any] = {
    "type": "object",
    "required": ["id", "versions"],
    "properties": {
        "id": _TEXT,
        "versions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["etag", "at", "current"],
                "properties": {
                    "etag": _TEXT,
                    "at": _TIME,
                    "current": {"type": "boolean"},
                    "changed": {
                        "type": "array",
                        "items": _TEXT,
                        "description": "paths, against the next older version",
                    },
                    "subject": {"type": "string", "description": "who wrote it; told to the owner and to admins"},
                    "digests": {"type": "object", "description": "SHA-256 of the document of each dialect; likewise"},
                },
            },
        },
    },
}

DIFF: dict[str, Any] = {
    "type": "object",
    "required": ["id", "from", "to", "differences", "complete"],
    "properties": {
        "id": _TEXT,
        "from": _TEXT,
        "to": _TEXT,
        "differences": {
            "type": "array",
            "items": {"type": "object", "required": ["path"], "properties": {"path": _TEXT, "before": {}, "after": {}}},
        },
        "complete": {"type": "boolean", "description": "false when there are more places than are named"},
    },
}
