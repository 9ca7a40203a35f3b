"""Media types, codings and the schema (agentframework.md §6)."""

from __future__ import annotations

import httpx2
import jsonschema
import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, BASE, BASE_URL, FAQ, Opener, links_of, numbered

JSON = "application/json"
CUSTOM = "application/agent-metadata+json;version=1"


@pytest.mark.req("AF-29", "AF-30")
@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("APPLICATION/JSON", JSON),
        ("application/json; charset=utf-8", JSON),
        ("application/agent-metadata+json", CUSTOM),
        ("application/agent-metadata+json;version=1", CUSTOM),
        ('application/agent-metadata+json; version="1"', CUSTOM),
        ("application/agent-metadata+json;version=2", None),
        ("application/agent-metadata+json;version=2, application/json;q=0.1", JSON),
        ("application/agent-metadata+json, application/json", JSON),
        ("application/json;q=0.5, application/agent-metadata+json;q=0.9", CUSTOM),
        ("application/agent-metadata+json;q=0.5, application/json;q=0.9", JSON),
        ("application/agent-metadata+json, */*;q=0.5", CUSTOM),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("text/html", None),
        ("application/problem+json", None),
        ("application/json;q=0", None),
        ("application/json;q=0, */*", CUSTOM),
        ("*/*;q=0", None),
        ("", JSON),
        ("rubbish", JSON),
        ("application/json;q=high", JSON),
        ("text/html;;q=", JSON),
        ("*/json", JSON),
        (" , ,text/html", None),
    ],
)
async def test_the_accept_header_selects_the_media_type(opened: Opener, accept: str, chosen: str | None) -> None:
    async with opened([ANNOTATOR]) as served:
        for path in (AGENTS, f"{AGENTS}/image-annotator"):
            answer = await served.client.get(path, headers={"Accept": accept, **ALICE})
            if chosen is None:
                assert answer.status_code == 406
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["available"] == [JSON, CUSTOM]
            else:
                assert (answer.status_code, answer.headers["content-type"]) == (200, chosen)


@pytest.mark.req("AF-30")
async def test_without_an_accept_header_it_is_json(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        del served.client.headers["accept"]
        assert (await served.client.get(AGENTS)).headers["content-type"] == JSON


@pytest.mark.req("AF-30", "AF-34")
async def test_both_types_carry_the_same_bytes_under_different_tags(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        plain = await served.client.get(AGENTS, headers={"Accept": JSON})
        custom = await served.client.get(AGENTS, headers={"Accept": CUSTOM})
    assert plain.content == custom.content
    assert plain.headers["etag"] != custom.headers["etag"]


@pytest.mark.req("AF-31")
async def test_vary_is_always_there_and_the_text_is_plain_utf8(opened: Opener) -> None:
    async with opened([{**FAQ, "name": "Suche für Fragen"}]) as served:
        answers = [
            await served.client.get(AGENTS),
            await served.client.get(f"{AGENTS}/faq-search", headers=ALICE),
            await served.client.get(f"{AGENTS}/nobody"),
            await served.client.get(AGENTS, headers={"Accept": "text/html"}),
        ]
    for answer in answers:
        assert {"Accept", "Authorization"} <= set(answer.headers["vary"].split(", "))
        assert "charset" not in answer.headers["content-type"]
    assert "für".encode() in answers[0].content
    assert not answers[0].content.startswith(b"\xef\xbb\xbf")


@pytest.mark.req("AF-31")
async def test_long_answers_are_compressed_under_their_own_tag(opened: Opener) -> None:
    async with opened(numbered(500)) as served:
        plain = await served.client.get(AGENTS)
        packed = await served.client.get(AGENTS, headers={"Accept-Encoding": "gzip, br;q=0.5"})
        refused = await served.client.get(AGENTS, headers={"Accept-Encoding": "gzip;q=0, identity"})
        again = await served.client.get(
            AGENTS, headers={"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]}
        )
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert packed.content == plain.content == refused.content  # the client unpacks
    assert packed.headers["etag"] == plain.headers["etag"][:-1] + '-gzip"'
    assert "Accept-Encoding" in plain.headers["vary"]
    assert "content-encoding" not in refused.headers
    assert again.status_code == 304


def checked(answer: httpx2.Response, validator: jsonschema.Draft202012Validator, name: str) -> None:
    validator.evolve(schema={"$ref": f"{validator.schema['$id']}#/$defs/{name}"}).validate(answer.json())
    validator.validate(answer.json())


@pytest.mark.req("AF-32")
async def test_the_schema_validates_every_answer_and_every_answer_points_to_it(opened: Opener) -> None:
    agents = [ANNOTATOR, FAQ, *numbered(3)]
    async with opened(agents) as served:
        schema = await served.client.get(f"{BASE}/schema.json")
        document = schema.json()
        jsonschema.Draft202012Validator.check_schema(document)
        validator = jsonschema.Draft202012Validator(document)
        for query in ("", "?view=full", "?include=owner,endpoints", "?page=1&per_page=2", "?tag=none"):
            for headers in (ALICE, {}):
                answer = await served.client.get(AGENTS + query, headers=headers)
                checked(answer, validator, "AgentList")
                assert links_of(answer)["describedby"] == f"{BASE}/schema.json"
        for agent in agents:
            item = await served.client.get(f"{AGENTS}/{agent['id']}", headers=ALICE)
            checked(item, validator, "AgentMetadata")
            assert links_of(item)["describedby"] == f"{BASE}/schema.json"
            checked(await served.client.get(f"{AGENTS}/{agent['id']}?view=summary"), validator, "AgentSummary")
        for path in (f"{AGENTS}/nobody", f"{AGENTS}?page=0", f"{BASE[:-1]}9", f"{AGENTS}/%ff"):
            checked(await served.client.get(path), validator, "Problem")
        checked(await served.client.post(AGENTS), validator, "Problem")
        checked(await served.client.get(AGENTS, headers={"Accept": "text/html"}), validator, "Problem")
    assert schema.headers["content-type"] == "application/schema+json"
    assert document["$id"] == f"{BASE_URL}{BASE}/schema.json"
    assert set(document["$defs"]) == {"AgentSummary", "AgentMetadata", "Endpoint", "Owner", "AgentList", "Problem"}
    assert schema.headers["etag"]
