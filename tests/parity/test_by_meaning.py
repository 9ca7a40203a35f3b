"""An agent with one matching example is found by meaning, and every API names that example."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bench.sets import DATA, public_set, registration

from support.apis import serve_apis
from support.sentence_model_service import WITH_MODEL, fill, settled, share_models
from support.service import profile
from support.shared import require_shared

ROW = json.loads((DATA / "checks.json").read_text(encoding="utf-8"))["eight_skills"]
MANY_SIDED = registration("checks", {**ROW, "examples": [example for example, _ in ROW["skills"]]})


async def test_an_agent_with_eight_skills_is_first_for_each_and_every_api_names_the_example(
    tmp_path: Path, models: Path
) -> None:
    require_shared("data/retrieval/metatool")
    share_models(tmp_path / "data", models)
    async with serve_apis(tmp_path, **WITH_MODEL) as apis:
        await fill(apis.subject("alice").http, [*public_set("metatool").agents, MANY_SIDED])
        counts = await settled(apis.bench)
        assert counts[0] >= 200
        bob = apis.subject("bob")
        assert len(ROW["skills"]) == 8
        for example, asked in ROW["skills"]:
            request = {"query": asked, "limit": 5, "include_evidence": True}
            by_http = (await bob.http.post("/profile/v1/discover", json=request)).json()["candidates"][0]
            async with bob.client() as client:
                by_client = (await client.find(asked, limit=5, explain=True)).candidates[0]
            assert (by_http["id"], by_http["matched_examples"][0]["text"]) == (MANY_SIDED.id, example)
            assert (by_client.id, by_client.matched_examples[0].text) == (MANY_SIDED.id, example)
            assert by_client.score_components == by_http["score_components"]
        example, asked = ROW["skills"][0]
        with bob.sync_client() as sync:
            by_sync = (await asyncio.to_thread(sync.find, asked, explain=True)).candidates[0]
        assert (by_sync.id, by_sync.matched_examples[0].text) == (MANY_SIDED.id, example)
        shown = (await bob.run("find", asked, "--explain", "-n", "1")).out
        assert MANY_SIDED.id in shown
        assert f"similar example: “{example}”" in shown


async def test_a_new_agent_is_found_by_the_next_question_and_its_vectors_are_counted_until_they_are_there(
    tmp_path: Path, models: Path
) -> None:
    share_models(tmp_path / "data", models)
    async with serve_apis(tmp_path, **WITH_MODEL) as apis:
        alice = apis.subject("alice")
        asked = {"query": "feed the okapis of a zoo"}
        await settled(apis.bench)
        document = profile("okapi", name="Okapi keeper", description="Feeds the okapis of a zoo.")
        assert (await alice.http.post("/api/v1/agents", json=document)).status_code == 201
        found = (await alice.http.post("/profile/v1/discover", json=asked)).json()
        assert [hit["id"] for hit in found["candidates"]] == ["okapi"]
        assert "warnings" not in found
        counts = await settled(apis.bench)
        assert max(counts) >= 1
        foreign = {"query": "Tiere im Zoo füttern"}
        found = (await alice.http.post("/profile/v1/discover", json=foreign)).json()
        assert [hit["id"] for hit in found["candidates"]] == ["okapi"]
