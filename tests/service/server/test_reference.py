"""Constant documents are dated by the start of the service, and sent once. Client generators can use the description."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator

from support.service import NOW, service
from waypost.server.http.conditional_requests import format_http_date
from waypost.server.http.openapi_examples import REQUEST_EXAMPLES


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with service(tmp_path) as bench:
        yield bench.admin()


async def test_schemas_the_description_and_its_page_are_dated_and_sent_once(client: httpx2.AsyncClient) -> None:
    for path in ("/schemas/profile.json", "/openapi.json", "/docs"):
        first = await client.get(path)
        assert first.headers["last-modified"] == format_http_date(NOW).decode()
        assert first.headers["etag"].startswith('"')
        for known in (
            {"If-None-Match": first.headers["etag"]},
            {"If-Modified-Since": first.headers["last-modified"]},
        ):
            again = await client.get(path, headers=known)
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]


async def test_operation_ids_are_names_and_unique_and_tags_are_described(client: httpx2.AsyncClient) -> None:
    description = (await client.get("/openapi.json")).json()
    operations = [operation for methods in description["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert [name for name in ids if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)] == []
    assert len({name.lower() for name in ids}) == len(ids)
    tags = [tag["name"] for tag in description["tags"]]
    assert all(tag["description"] for tag in description["tags"])
    assert len(set(tags)) == len(tags)
    assert {tag for operation in operations for tag in operation["tags"]} == set(tags)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", tag) for tag in tags)


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("/", "pages"),
        ("/.well-known/agent-card", "agent_framework"),
        ("/.well-known/agent-card.json", "a2a"),
        ("/.well-known/agent.json", "adp"),
        ("/a2a/{id}/.well-known/agent-card.json", "a2a"),
        ("/agent/tasks", "adp"),
        ("/agents/{id}", "announce"),
        ("/api/v1/agents/{id}:renew", "registry"),
        ("/style.css", "pages"),
        ("/v0.1/servers", "mcp_registry"),
    ],
)
async def test_the_tag_of_an_operation_is_its_api(client: httpx2.AsyncClient, path: str, tag: str) -> None:
    methods = (await client.get("/openapi.json")).json()["paths"][path]
    assert {name for operation in methods.values() for name in operation["tags"]} == {tag}


async def test_every_body_has_an_example_that_its_schema_takes(client: httpx2.AsyncClient) -> None:
    description = (await client.get("/openapi.json")).json()
    bodies = {
        f"{method.upper()} {path}": next(iter(operation["requestBody"]["content"].values()))
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert {"POST /api/v1/agents", "POST /api/v1/agents:batch", "POST /rtfs"} <= bodies.keys()
    assert set(bodies) >= set(REQUEST_EXAMPLES)
    for name, body in bodies.items():
        examples = [body["example"]] if "example" in body else [each["value"] for each in body["examples"].values()]
        schema = {**body["schema"], "components": description["components"]}
        for example in examples:
            assert not list(Draft202012Validator(schema).iter_errors(example)), name


async def test_generators_find_what_they_need_in_every_schema(client: httpx2.AsyncClient) -> None:
    def walk(part: Any) -> Iterator[dict[str, Any]]:
        if isinstance(part, dict):
            yield part
        for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from walk(item)

    for schema in walk((await client.get("/openapi.json")).json()):
        kinds = schema.get("type")
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            assert "items" in schema
        if isinstance(schema.get("enum"), list) and "default" in schema:
            assert schema["default"] in schema["enum"]
