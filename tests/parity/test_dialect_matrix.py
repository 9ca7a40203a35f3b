"""A document of one dialect in every other: valid, complete except for reported losses, and unchanged in its own."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from support.older_documents import OLDER
from support.records import BASE, CODECS, DECODE, ENCODE, NOW
from support.service import service
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.record import AgentRecord, record_to_json
from waypost.net.clock import ManualClock
from waypost.protocols.dialects import decode_document

WRITTEN_IN = ("profile", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")
UNKNOWN = {"com.example.unknown": {"deep": [1, {"er": "é"}]}}
SOURCES = [
    pytest.param(name, {**example, **UNKNOWN}, id=f"{name}-{index}")
    for name in WRITTEN_IN
    for index, example in enumerate(CODECS[name].examples())
    if "agent" not in example and "server" not in example  # an envelope's own members are not the agent's
]
OLDER_FORMS = [
    pytest.param(name, document, id=f"{name}-{number}")
    for name, documents in OLDER.items()
    for number, document in enumerate(documents)
]
READ_IN = list(CODECS)
WHOLE = ("profile", "adp", "a2a", "mcp", "oasf", "ard")


def record_of(dialect: str, document: JsonObject) -> AgentRecord:
    name, _, decoded = decode_document(dump_json(document), None, DECODE)
    assert name == dialect
    return decoded.record


def assert_valid(dialect: str, document: JsonObject) -> None:
    errors = sorted(Draft202012Validator(CODECS[dialect].schema()).iter_errors(document), key=str)
    assert not errors, f"{dialect} {errors[0].json_path}: {errors[0].message}"


@pytest.mark.req("MAP-5", "MAP-9", "PRO-47")
@pytest.mark.parametrize("target", READ_IN)
@pytest.mark.parametrize(("source", "document"), SOURCES)
def test_a_document_of_any_dialect_is_read_in_every_other(source: str, document: JsonObject, target: str) -> None:
    record = record_of(source, document)
    encoded = CODECS[target].encode(record, ENCODE)
    written = parse_object(dump_json(encoded.document))
    assert_valid(target, written)
    back = CODECS[target].decode(written, DECODE).record
    assert encoded.losses == ()
    assert record_to_json(back) == record_to_json(record)


@pytest.mark.parametrize(("source", "document"), SOURCES)
def test_unknown_members_are_alive_after_a_walk_through_every_dialect(source: str, document: JsonObject) -> None:
    record = record_of(source, document)
    for target in READ_IN:
        written = CODECS[target].encode(record, ENCODE).document
        record = CODECS[target].decode(parse_object(dump_json(written)), DECODE).record
    home = CODECS[source].encode(record, ENCODE).document
    assert UNKNOWN.items() <= home.items()


@pytest.mark.parametrize(("source", "document"), SOURCES)
def test_a_document_comes_home_with_its_own_members(source: str, document: JsonObject) -> None:
    home = CODECS[source].encode(record_of(source, document), ENCODE).document
    changed = {name for name, value in document.items() if home.get(name) != value}
    assert changed == set()


@pytest.mark.req("MAP-6")
@pytest.mark.parametrize(("source", "document"), OLDER_FORMS)
async def test_over_http_an_older_form_comes_back_as_it_was_sent_and_every_answer_is_valid(
    source: str, document: JsonObject, tmp_path: Path
) -> None:
    async with service(tmp_path, clock=ManualClock(NOW)) as bench:
        client = bench.admin()
        receipt = await client.post("/api/v1/agents", json=document, params={"base": BASE})
        assert receipt.status_code == 201, receipt.text
        assert receipt.json()["dialect"] == source
        path = f"/api/v1/agents/{quote(receipt.json()['id'], safe='')}"
        for target in READ_IN:
            answer = await client.get(path, params={"as": target})
            assert answer.status_code == 200, answer.text
            served = (await client.get(f"/schemas/{target}.json")).json()
            Draft202012Validator(served).validate(answer.json())
        own = await client.get(path, params={"as": source})
    assert own.json() == document.get("agent", document.get("agent_card", document))


@pytest.mark.req("MAP-6")
@pytest.mark.parametrize(("source", "document"), SOURCES)
async def test_over_http_every_dialect_is_written_and_its_own_returns_the_sent_bytes(
    source: str, document: JsonObject, tmp_path: Path
) -> None:
    sent = json.dumps(document, indent=1, ensure_ascii=False).encode()
    async with service(tmp_path, clock=ManualClock(NOW)) as bench:
        client = bench.admin()
        receipt = await client.post("/api/v1/agents", content=sent)
        assert receipt.status_code == 201, receipt.text
        assert receipt.json()["dialect"] == source
        path = f"/api/v1/agents/{quote(receipt.json()['id'], safe='')}"
        for target in READ_IN:
            answer = await client.get(path, params={"as": target})
            assert answer.status_code == 200, answer.text
            assert_valid(target, answer.json())
            assert json.loads(answer.headers.get("Waypost-Losses", "[]")) == []
        own = await client.get(path, params={"as": source})
    assert own.json() == document
    assert own.content == sent or source not in WHOLE
