"""The A2A card over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from support.older_documents import A2A_0_3
from support.records import CODECS
from support.service import NOW, profile, service
from waypost.model.times import to_rfc3339


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


_SAYS_WHEN = {"a2a": None, "oasf": "created_at", "ard": "updatedAt", "announce": None, "rtfs": None}


@pytest.mark.req("MAP-1", "MAP-4")
@pytest.mark.parametrize("dialect", sorted(_SAYS_WHEN))
async def test_a_profile_made_of_a_format_without_status_is_active_and_as_new_as_its_registration(
    tmp_path: Path, dialect: str
) -> None:
    document = _undated(dialect)
    async with service(tmp_path) as bench:
        receipt = (await bench.admin().post("/api/v1/agents", json=document)).json()
        assert receipt["dialect"] == dialect
        made = (await bench.admin().get("/profile/v1/agents/" + quote(receipt["id"], safe=""))).json()
    assert made["status"] == "active"
    assert made["updated_at"] == document.get(_SAYS_WHEN[dialect] or "", to_rfc3339(NOW))
    assert "status" in made["org.waypost.derived"]


def _undated(dialect: str) -> dict[str, Any]:
    document = CODECS[dialect].examples()[0]
    metadata = {name: value for name, value in document.get("metadata", {}).items() if "stamp" not in name}
    return {**document, **({"metadata": metadata} if "metadata" in document else {})}


@pytest.mark.req("A2A-1")
async def test_a_card_of_an_older_version_is_served_as_received_and_in_the_current_form(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        receipt = (await bench.admin().post("/api/v1/agents", json=A2A_0_3)).json()
        path = "/api/v1/agents/" + quote(receipt["id"], safe="")
        received = await bench.admin().get(path, params={"as": "a2a"})
        current = await bench.admin().get(path, params={"as": "a2a", "form": "current"})
        refused = await bench.admin().get(path, params={"as": "ard", "form": "current"})
    assert received.json() == A2A_0_3
    assert current.json()["supportedInterfaces"][0]["url"] == "https://recipes.example.com/rpc"
    assert "protocolVersion" not in current.json()
    assert current.headers["etag"] != received.headers["etag"]
    assert (refused.status_code, refused.json()["path"]) == (400, "form")
