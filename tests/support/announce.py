"""Announcements for tests: deterministic keys, messages signed at the time of the test's clock."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx2

from waypost.model.times import to_rfc3339
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import PrivateKey, new_private_key

AGENT_ID = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"


def key(name: str) -> PrivateKey:
    """A deterministic key for each name."""
    return new_private_key("ed25519", hashlib.sha256(name.encode()).digest())


def agent(agent_id: str = AGENT_ID, **members: Any) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "agent_name": "data-processor",
        "capabilities": {"metrics": "2.0"},
        "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"},
        **members,
    }


def stamped(seq: int | None, at: float | None, **metadata: Any) -> dict[str, Any]:
    """`metadata` with sequence number and signing time."""
    told = dict(metadata)
    if seq is not None:
        told["__seq"] = seq
    if at is not None:
        told["__iat"] = to_rfc3339(at)
    return told


def announcement(
    signer: PrivateKey,
    *,
    seq: int | None = None,
    at: float | None = None,
    previous: PrivateKey | None = None,
    agent_id: str = AGENT_ID,
    **members: Any,
) -> dict[str, Any]:
    """A signed message. Older publishers send it without `seq` and `at`."""
    metadata = stamped(seq, at, **members.pop("metadata", {}))
    said = agent(agent_id, **members)
    if metadata:
        said["metadata"] = metadata
    return sign_announcement(said, signer, previous)


def body(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


async def announce(client: httpx2.AsyncClient, message: dict[str, Any], **more: Any) -> httpx2.Response:
    return await client.post("/agents", json=message, **more)


def error_of(response: httpx2.Response) -> tuple[int, str, str | None]:
    """Status, name and reason of a refusal."""
    told = response.json()["error"]
    return response.status_code, told["code"], told.get("reason")
