"""The A2A card as it is served."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from support.service import profile, service
from waypost.dialects import CODECS


@pytest.mark.req("A2A-1")
async def test_the_card_is_at_its_well_known_path_for_the_service_and_for_each_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a", name="Other"))
        for params, name in (({}, "Waypost"), ({"agent": "a"}, "Other")):
            card = (await bench.anonymous().get("/.well-known/agent-card.json", params=params)).json()
            jsonschema.validate(card, CODECS["a2a"].schema())
            assert card["name"] == name


@pytest.mark.req("A2A-9")
async def test_the_card_is_cacheable(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        first = await bench.anonymous().get("/.well-known/agent-card.json")
        assert "max-age" in first.headers["cache-control"]
        for headers in (
            {"If-None-Match": first.headers["etag"]},
            {"If-Modified-Since": first.headers["last-modified"]},
        ):
            again = await bench.anonymous().get("/.well-known/agent-card.json", headers=headers)
            assert (again.status_code, again.content) == (304, b"")
