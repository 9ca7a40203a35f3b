"""`agents:export` and lists of all statuses: every agent once, in order, whatever its status and the size of a page."""

from __future__ import annotations

import json
from pathlib import Path

from support.service import profile, service
from waypost.model.principal import Principal
from waypost.model.record import STATUSES
from waypost.registry.catalog.catalog import position_of

READER = Principal(subject="bob", scopes=frozenset(("discover:read",)))


async def test_pages_of_all_statuses_have_every_agent_once_and_in_order(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number in range(60):
            document = profile(f"urn:ex:{number}", name=f"Agent {number % 7}", status=STATUSES[number % len(STATUSES)])
            headers = {"Waypost-Visibility": ("public", "internal", "private")[number % 3]}
            response = await bench.as_("alice").post("/api/v1/agents", json=document, headers=headers)
            assert response.is_success, response.text
        seen, cursor = [], None
        while True:
            page = bench.registry.page(READER, limit=7, cursor=cursor, statuses=STATUSES)
            seen += page.entries
            assert page.total == 40
            cursor = page.next_cursor
            if cursor is None:
                break
        expected = sorted((each for each in bench.registry.entries if each.visibility != "private"), key=position_of)
        assert [each.id for each in seen] == [each.id for each in expected]


async def test_an_export_has_each_document_as_it_was_received(tmp_path: Path) -> None:
    """Over several pages, with documents of several dialects and line breaks in them."""
    async with service(tmp_path, store="sqlite") as bench:
        documents = {f"urn:ex:{number}": profile(f"urn:ex:{number}", x_number=number) for number in range(450)}
        for start in range(0, 450, 150):
            lines = "\n".join(json.dumps(each) for each in list(documents.values())[start : start + 150])
            headers = {"Content-Type": "application/x-ndjson"}
            assert (await bench.admin().post("/api/v1/agents:batch", content=lines, headers=headers)).is_success
        pretty = json.dumps(profile("urn:ex:pretty", name="Ä\u2028"), indent=2, ensure_ascii=False).encode()
        assert (await bench.admin().post("/api/v1/agents", content=pretty)).is_success
        body = (await bench.admin().get("/api/v1/agents:export")).content
        exported = [json.loads(line) for line in body.split(b"\n")[:-1]]
        assert len(exported) == 451
        assert {each["id"]: each for each in exported} == {**documents, "urn:ex:pretty": json.loads(pretty)}
