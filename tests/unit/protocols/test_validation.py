"""Validation of documents: the nearest dialect, and every problem with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

import waypost
from support.records import CODECS
from waypost.errors import UnknownDialect
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import DIALECTS, detect_dialect
from waypost.protocols.validation import validate_document

CONTEXT = DecodeContext(now=1_800_000_000.0)


def problems(document: Any, dialect: str | None = None) -> tuple[str | None, dict[str, str]]:
    report = validate_document(json.dumps(document).encode(), dialect, CONTEXT)
    assert report.valid is not bool(report.problems)
    return report.dialect, {problem.path: problem.message for problem in report.problems}


@pytest.mark.parametrize("name", DIALECTS)
def test_the_examples_of_every_dialect_are_valid(name: str) -> None:
    for document in CODECS[name].examples():
        report = validate_document(json.dumps(document).encode(), None, CONTEXT)
        assert (report.valid, report.dialect, report.problems) == (True, name, ())
        assert report.id
        assert report.name


@pytest.mark.parametrize("name", DIALECTS)
def test_a_missing_member_is_reported_for_the_right_dialect(name: str) -> None:
    example = CODECS[name].examples()[0]
    for member in example:
        document = {other: value for other, value in example.items() if other != member}
        dialect, found = problems(document)
        if found:
            assert dialect == name, member
            assert found.keys() == {f"$.{member}"}


def test_every_problem_is_reported_with_its_path() -> None:
    document = {
        "id": "x",
        "name": "",
        "description": 4,
        "tags": ["a", 3],
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.net/"}, {"protocol": "https"}],
        "status": "bogus",
        "updated_at": "yesterday",
    }
    dialect, found = problems(document)
    assert dialect == "profile"
    assert found.keys() == {
        "$.name",
        "$.description",
        "$.tags[1]",
        "$.bindings[1].endpoint",
        "$.status",
        "$.updated_at",
    }


CARD = {"name": "X", "description": "d", "version": "1", "url": "https://agents.example.net/", "skills": [{"id": "a"}]}


def test_a_card_without_capabilities_is_a_card() -> None:
    assert problems(CARD) == (
        "a2a",
        {
            "$.capabilities": "The member 'capabilities' is missing.",
            "$.skills[0].name": "The member 'name' is missing.",
        },
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (CARD, "looks like an A2A card: add `capabilities`."),
        ({"id": "x", "name": "n"}, "looks like a profile document: add `bindings`, `description`."),
        ({"name": "n", "description": "d"}, "looks like a profile document: add `id`, `bindings`."),
        ({"weather": "fine"}, "no dialect knows its members"),
        ({}, "no dialect knows its members"),
    ],
)
def test_an_unknown_document_is_answered_with_the_nearest_dialect(document: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownDialect) as caught:
        detect_dialect(document)
    assert message in caught.value.message
    assert not {"oasf", "rtfs", "ard"} & set(str(caught.value).replace(":", " ").split())


@pytest.mark.parametrize("content", [b"", b"{", b"hello", b"[1]", b'{"a":1,"a":2}', b"\xff"])
def test_what_is_no_json_object_has_one_problem(content: bytes) -> None:
    report = validate_document(content, None, CONTEXT)
    assert not report.valid
    assert len(report.problems) == 1


def test_a_catalog_is_not_one_agent() -> None:
    assert problems({"entries": []})[1].keys() == {"$.entries"}


def test_the_public_function_reads_what_register_takes(tmp_path: Any) -> None:
    card = CODECS["a2a"].examples()[0]
    (tmp_path / "card.json").write_text(json.dumps(card))
    for document in (card, json.dumps(card), json.dumps(card).encode(), tmp_path / "card.json"):
        assert waypost.validate(document).dialect == "a2a"
    assert waypost.validate({"id": "x" * 300_000}).problems[0].path == "$"
    assert waypost.validate(card, dialect="mcp").problems


FOREIGN = [
    ("ACP", "an A2A card", {"name": "echo", "input_content_types": ["*/*"], "output_content_types": ["*/*"]}),
    (
        "AGNTCY's ACP",
        "an OASF record",
        {"metadata": {"ref": {"name": "org.example/mail", "version": "1"}, "description": "x"}, "specs": {"input": {}}},
    ),
    ("an MCP host", "an MCP server.json", {"mcpServers": {"weather": {"command": "npx", "args": ["weather"]}}}),
    ("an MCP host", "an MCP server.json", {"servers": {"weather": {"type": "http", "url": "https://w.example/mcp"}}}),
    (
        "MCP server card",
        "an MCP server.json",
        {
            "$schema": "https://static.modelcontextprotocol.io/schemas/mcp-server-card/v1.json",
            "version": "1.0",
            "serverInfo": {"name": "weather", "version": "1.0.0"},
            "transport": {"type": "streamable-http", "endpoint": "/mcp"},
        },
    ),
    (
        "MCP bundle",
        "an MCP server.json",
        {"manifest_version": "0.3", "name": "w", "version": "1.0.0", "description": "d", "server": {"type": "node"}},
    ),
    ("OpenAPI", "a profile document", {"openapi": "3.1.0", "info": {"title": "X", "version": "1"}, "paths": {}}),
    ("ChatGPT", "a profile document", {"schema_version": "v1", "name_for_model": "todo", "api": {"type": "openapi"}}),
    ("LangGraph", "an A2A card", {"assistant_id": "a", "graph_id": "agent", "name": "Untitled", "metadata": {}}),
    ("ANP", "an A2A card", {"@type": "ad:AgentDescription", "name": "x", "description": "d", "interfaces": []}),
    (
        "OASF after 1.0",
        "an OASF record",
        {"type": "core/record", "data": {"schema_version": "1.0.0", "name": "x"}, "modules": []},
    ),
]


@pytest.mark.parametrize(("title", "closest", "document"), FOREIGN, ids=[row[0] for row in FOREIGN])
def test_a_format_that_is_not_read_is_named_with_the_closest_one(
    title: str, closest: str, document: dict[str, Any]
) -> None:
    report = validate_document(json.dumps(document).encode(), None, CONTEXT)
    (problem,) = report.problems
    assert (problem.path, report.title) == ("$", closest)
    assert title in problem.message
    assert closest in problem.message
    assert problem.hint
