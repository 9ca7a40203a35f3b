"""Documents at the limits of depth and size: every list that contains one is still served, in every dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.records import CODECS
from support.service import profile, service
from waypost import limits

_LISTS = (
    "/.well-known/ai-catalog.json",
    "/agents",
    "/agents/full",
    "/ard/agents",
    "/profile/v1/agents",
    "/.well-known/agentframework/v1/agents?view=full",
    "/.well-known/agent-card?agent=full",
    "/.well-known/agent-card.json?agent=full",
)


def _deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def _large() -> str:
    without = len(json.dumps(profile("full", extension="")))
    return "x" * (limits.DOCUMENT_BYTES - without)


@pytest.mark.parametrize("extension", [_deep(limits.JSON_DEPTH - 1), _large()], ids=["deep", "large"])
async def test_one_document_at_a_bound_breaks_no_list(tmp_path: Path, extension: Any) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("alice")
        body = json.dumps(profile("full", extension=extension)).encode()
        response = await client.put("/profile/v1/agents/full", content=body)
        assert response.status_code == 201, response.text
        for path in (*_LISTS, *(f"/api/v1/agents/full?as={dialect}" for dialect in CODECS)):
            response = await client.get(path)
            assert response.status_code == 200, (path, response.text[:200])


async def test_a_profile_text_has_the_depth_limit_of_its_card(tmp_path: Path) -> None:
    endpoint = ':communication-endpoints [{:protocol :http :uri "https://a.example/"}]'
    async with service(tmp_path) as bench:
        client = bench.as_("alice")
        for levels, status in ((limits.JSON_DEPTH - 2, 201), (limits.JSON_DEPTH - 1, 400)):
            text = f'(agent-profile :id "t{levels}" {endpoint} :metadata {{:v {"[" * levels}{"]" * levels}}})'
            response = await client.post("/api/v1/agents", content=text.encode())
            assert response.status_code == status, response.text
        for path in ("/.well-known/ai-catalog.json", "/agents"):
            assert (await client.get(path)).status_code == 200
