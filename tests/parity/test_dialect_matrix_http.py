"""The dialect matrix over HTTP: written in eight dialects, read in nine, for every sample agent and specification example.

Results are valid by the served schema, unchanged in their own dialect, and report exactly the losses of the codec. Unknown
members survive a round trip through a second registry in any other dialect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from jsonschema import Draft202012Validator

from support.records import CODECS, NOW
from support.service import Bench, profile, service
from waypost import limits, samples
from waypost.model.json import JsonObject, dump_json, parse_json
from waypost.model.record import STATUSES
from waypost.model.times import to_rfc3339
from waypost.net.clock import ManualClock
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.server.auth.authenticator import ADMIN

WRITTEN_IN = ("profile", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")
READ_IN = tuple(CODECS)
WHOLE = ("profile", "adp", "a2a", "mcp", "oasf", "ard")  # these come back byte for byte
INNER = {"rtfs": "agent_card", "announce": "agent"}  # a document inside an envelope is returned as equal JSON
UNKNOWN: JsonObject = {"com.example.unknown": {"deep": [1, {"er": "é"}], "flag": False}}


def documents_of(dialect: str) -> list[tuple[str, bytes]]:
    """Every document of a dialect that we have, indented instead of compact."""
    examples = [
        (f"example {number}", json.dumps(example, indent=3, ensure_ascii=False).encode())
        for number, example in enumerate(CODECS[dialect].examples())
    ]
    return [*examples, *((sample.name, sample.data) for sample in samples.load() if sample.dialect == dialect)]


EVERY = [
    pytest.param(dialect, document, id=f"{dialect}: {name}")
    for dialect in WRITTEN_IN
    for name, document in documents_of(dialect)
]


@asynccontextmanager
async def matrix(folder: Path) -> AsyncIterator[tuple[Bench, httpx2.AsyncClient]]:
    async with service(folder, clock=ManualClock(NOW)) as bench:
        yield bench, bench.admin()


async def registered(client: httpx2.AsyncClient, document: bytes, dialect: str) -> dict[str, Any]:
    answer = await client.post("/api/v1/agents", content=document)
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    assert receipt["dialect"] == dialect
    return receipt


async def read(client: httpx2.AsyncClient, agent_id: str, dialect: str) -> httpx2.Response:
    answer = await client.get(f"/api/v1/agents/{quote(agent_id, safe='')}", params={"as": dialect})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == CODECS[dialect].media_type
    assert answer.headers["etag"].startswith('"')
    return answer


async def validators(client: httpx2.AsyncClient) -> dict[str, Draft202012Validator]:
    """The schemas as the service serves them."""
    made = {}
    for dialect in READ_IN:
        schema = (await client.get(f"/schemas/{dialect}.json")).json()
        Draft202012Validator.check_schema(schema)
        made[dialect] = Draft202012Validator(schema)
    return made


def assert_valid(validator: Draft202012Validator, document: Any) -> None:
    errors = sorted(validator.iter_errors(document), key=str)
    assert not errors, f"{errors[0].json_path}: {errors[0].message}"


def assert_own(sent: bytes, answer: httpx2.Response, dialect: str) -> None:
    """The received document, byte for byte or member for member."""
    if dialect in WHOLE:
        assert answer.content == sent
        return
    if sent.lstrip().startswith((b"(", b";")):
        return  # a text is served as the card that it says
    document = parse_json(sent)
    assert answer.json() == document.get(INNER[dialect], document)


async def told_losses(bench: Bench, agent_id: str, dialect: str) -> list[dict[str, str]]:
    """The losses that the codec reports for this agent; none for a document in its own dialect."""
    registration = await bench.registry.get(ADMIN, agent_id)
    if registration.source(dialect) is not None:
        return []
    record = registration.record
    if record.expires_at is None and registration.lease_expires_at is not None:
        record = msgspec.structs.replace(record, expires_at=to_rfc3339(registration.lease_expires_at))
    encoded = CODECS[dialect].encode(record, bench.application.renderer.context(registration, NOW))
    return [{"path": loss.path, "reason": loss.reason} for loss in encoded.losses]


@pytest.mark.req("MAP-5", "MAP-6", "MAP-9")
@pytest.mark.parametrize(("source", "document"), EVERY)
async def test_a_document_is_read_in_nine_dialects(source: str, document: bytes, tmp_path: Path) -> None:
    async with matrix(tmp_path) as (bench, client):
        receipt = await registered(client, document, source)
        _, _, decoded = decode_document(document, source, DecodeContext(now=NOW))
        assert receipt["losses"] == [{"path": loss.path, "reason": loss.reason} for loss in decoded.losses]
        served = await validators(client)
        for target in READ_IN:
            answer = await read(client, receipt["id"], target)
            assert_valid(served[target], answer.json())
            losses = json.loads(answer.headers["waypost-losses"])
            assert losses == await told_losses(bench, receipt["id"], target)
            if target == source:
                assert_own(document, answer, source)


def with_unknown(dialect: str, document: bytes) -> bytes:
    """The document with a member that no dialect knows, where a publisher would put it."""
    value = parse_json(document)
    inside = INNER.get(dialect, "server" if dialect == "mcp" else "")
    if isinstance(value.get(inside), dict):
        value[inside] |= UNKNOWN
    else:
        value |= UNKNOWN
    return dump_json(value)


@pytest.mark.parametrize("source", WRITTEN_IN)
async def test_unknown_members_survive_a_round_trip_through_another_registry(source: str, tmp_path: Path) -> None:
    """Read here in each dialect, registered there in that dialect, read there in the first one."""
    document = with_unknown(source, documents_of(source)[0][1])
    async with matrix(tmp_path / "here") as (_, here):
        agent_id = (await registered(here, document, source))["id"]
        for target in READ_IN:
            carried = (await read(here, agent_id, target)).content
            async with matrix(tmp_path / target) as (_, there):
                receipt = await registered(there, carried, target)
                home = (await read(there, receipt["id"], source)).json()
                assert UNKNOWN.items() <= home.items(), target


@pytest.mark.parametrize("source", WRITTEN_IN)
async def test_every_document_of_a_dialect_lives_beside_the_others(source: str, tmp_path: Path) -> None:
    """All together: lists in every dialect contain all of them, valid, and the export returns the sent documents."""
    documents = dict(documents_of(source))
    async with matrix(tmp_path) as (_, client):
        ids = {(await client.post("/api/v1/agents", content=document)).json()["id"] for document in documents.values()}
        served = await validators(client)
        for target in READ_IN:
            params = {"as": target, "limit": 200, "status": STATUSES}
            listed = (await client.get("/api/v1/agents", params=params)).json()["agents"]
            assert len(listed) == len(ids)
            for document in listed:
                assert_valid(served[target], document)
            exported = (await client.get("/api/v1/agents:export", params={"as": target})).text.splitlines()
            assert [json.loads(line) for line in exported] == listed


async def test_losses_are_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Announcements carry little beside their own members: a large record loses there what other dialects carry."""
    large = profile("large", **{f"com.example.note{number}": "n" * 900 for number in range(12)}, tags=["large"])
    async with matrix(tmp_path) as (bench, client):
        receipt = await registered(client, dump_json(large), "profile")
        served = await validators(client)
        for target in READ_IN:
            answer = await read(client, receipt["id"], target)
            assert_valid(served[target], answer.json())
            losses = json.loads(answer.headers["waypost-losses"])
            assert losses == await told_losses(bench, "large", target)
            assert bool(losses) == (target == "announce"), target
            for loss in losses:
                assert loss["path"].startswith("$")
                assert loss["reason"]


async def test_losses_are_reported_in_a_header_of_bounded_length(tmp_path: Path) -> None:
    members = {f"com.example.{number}.{'m' * 60}": "n" * 100 for number in range(200)}
    async with matrix(tmp_path) as (bench, client):
        receipt = await registered(client, dump_json(profile("many", **members)), "profile")
        header = (await read(client, receipt["id"], "announce")).headers["waypost-losses"]
        shown, told = json.loads(header), await told_losses(bench, "many", "announce")
        assert len(header) <= 4 * limits.KIB
        assert shown == told[: len(shown)]


@pytest.mark.req("ANN-34", "RTFS-10")
async def test_a_record_at_its_limits_is_valid_in_every_dialect_and_breaks_no_list(tmp_path: Path) -> None:
    tags = [f"tag-{number}" for number in range(limits.TAGS)]
    largest = profile(
        "largest",
        name="n" * limits.NAME_CHARS,
        description="d" * limits.DESCRIPTION_CHARS,
        tags=tags,
        examples=[{"text": f"Example {number}.", "tags": tags[:8]} for number in range(limits.EXAMPLES)],
        bindings=[
            {"protocol": "https", "endpoint": f"https://a{number}.example/".ljust(limits.ENDPOINT_CHARS, "x")}
            for number in range(limits.BINDINGS)
        ],
    )
    many_tags = profile("many-tags", tags=tags)
    async with matrix(tmp_path) as (_, client):
        schemas = await validators(client)
        for document in (largest, many_tags):
            await registered(client, dump_json(document), "profile")
            for dialect in READ_IN:
                assert_valid(schemas[dialect], (await read(client, document["id"], dialect)).json())
        # Nothing is lost that fits: the tags beyond the members of a dialect are carried beside them.
        for dialect in ("rtfs", "announce"):
            answer = await read(client, "many-tags", dialect)
            assert json.loads(answer.headers["waypost-losses"]) == []
            _, _, decoded = decode_document(answer.content, dialect, DecodeContext(now=NOW))
            assert list(decoded.record.tags) == tags
        af_list = "/.well-known/agentframework/v1/agents?view=full"
        for path in ("/agents", "/profile/v1/agents", "/ard/agents", af_list, "/.well-known/ai-catalog.json"):
            listed = await client.get(path)
            assert listed.status_code == 200, listed.text
            assert "tag-63" in listed.text
