"""neighbours.md §2 and the MCP column of §5: what a server.json alone shows."""

from __future__ import annotations

import copy

import pytest
from jsonschema import Draft202012Validator

from support.records import DECODE, ENCODE
from support.schemas import written_schema
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord
from waypost.protocols.mcp.codec import MCP
from waypost.protocols.profile.codec import PROFILE

WEATHER, SMALLEST, LISTED = MCP.examples()


def read(server: JsonObject) -> AgentRecord:
    return MCP.decode(server, DECODE).record


def write(record: AgentRecord) -> JsonObject:
    return MCP.encode(record, ENCODE).document


@pytest.mark.req("MCP-1")
@pytest.mark.parametrize("name", ["name", "description", "version"])
def test_a_server_without_a_required_member_is_refused(name: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read({key: value for key, value in SMALLEST.items() if key != name})
    assert caught.value.path == f"$.{name}"


@pytest.mark.req("MCP-1")
def test_a_description_too_long_for_other_registries_is_read_with_a_warning() -> None:
    assert MCP.decode({**SMALLEST, "description": "x" * 100}, DECODE).warnings == ()
    decoded = MCP.decode({**SMALLEST, "description": "x" * 101}, DECODE)
    assert (len(decoded.record.description), len(decoded.warnings), "100" in decoded.warnings[0]) == (101, 1, True)


@pytest.mark.req("MCP-1")
@pytest.mark.parametrize("document", PROFILE.examples())
def test_every_server_we_write_has_a_valid_name_a_short_description_and_one_version(document: JsonObject) -> None:
    server = write(PROFILE.decode(document, DECODE).record)
    Draft202012Validator(written_schema(MCP)).validate(server)
    assert 1 <= len(server["description"]) <= 100


@pytest.mark.req("MCP-2")
def test_remotes_keep_type_url_headers_and_variables() -> None:
    record = read(WEATHER)
    assert [binding.endpoint for binding in record.bindings if binding.protocol == "mcp"] == [
        remote["url"] for remote in WEATHER["remotes"]
    ]
    assert write(record)["remotes"] == WEATHER["remotes"]
    bad = {**SMALLEST, "remotes": [{"type": "stdio", "url": "https://x.example"}]}
    with pytest.raises(InvalidDocument):
        read(bad)


@pytest.mark.req("MCP-3")
@pytest.mark.parametrize("name", ["registryType", "identifier", "transport"])
def test_a_package_is_complete(name: str) -> None:
    server = copy.deepcopy(WEATHER)
    del server["packages"][0][name]
    with pytest.raises(InvalidDocument) as caught:
        read(server)
    assert caught.value.path == f"$.packages[0].{name}"
    assert write(read(WEATHER))["packages"] == WEATHER["packages"]


@pytest.mark.req("MCP-4")
def test_a_file_in_snake_case_is_read() -> None:
    older = {
        "name": "io.github.example/notes",
        "description": "Keeps short notes.",
        "status": "active",
        "version_detail": {"version": "0.2.0"},
        "packages": [{"registry_type": "pypi", "identifier": "notes", "version": "0.2.0", "transport_type": "stdio"}],
    }
    assert MCP.recognises(older)
    record = read(older)
    assert (record.version, record.status) == ("0.2.0", "active")
    assert record.bindings[0].endpoint == "pkg:pypi/notes@0.2.0"
    assert write(record)["packages"] == [
        {"registryType": "pypi", "identifier": "notes", "version": "0.2.0", "transport": {"type": "stdio"}}
    ]


@pytest.mark.req("MCP-5")
@pytest.mark.parametrize(
    ("told", "status"), [("active", "active"), ("deprecated", "deprecated"), ("deleted", "inactive")]
)
def test_an_envelope_carries_the_official_status(told: str, status: str) -> None:
    official = {"status": told, "updatedAt": "2026-02-11T08:00:00Z"}
    envelope = {"server": SMALLEST, "_meta": {"io.modelcontextprotocol.registry/official": official}}
    assert MCP.recognises(envelope)
    record = read(envelope)
    assert (record.status, record.updated_at) == (status, "2026-02-11T08:00:00Z")


@pytest.mark.req("MAP-2", "PRO-47")
def test_a_server_maps_into_the_profile() -> None:
    document = PROFILE.encode(read(WEATHER), ENCODE).document
    Draft202012Validator(PROFILE.schema()).validate(document)
    assert (document["id"], document["name"]) == (WEATHER["name"], WEATHER["title"])
    assert document["tags"] == ["mcp", "forecast", "npm", "oci", "mcpb"]
    assert {binding["protocol"] for binding in document["bindings"]} == {"mcp", "mcp-package"}
    assert document["auth"]["schemes"] == [{"type": "apiKey", "in": "header", "name": "X-Weather-Key"}]
    assert document["constraints"]["runtimes"] == ["npx"]
    assert read(SMALLEST).name == SMALLEST["name"]


@pytest.mark.req("MAP-8")
def test_a_server_without_a_binding_is_read_with_a_warning() -> None:
    bare = {name: value for name, value in SMALLEST.items() if name != "remotes"}
    decoded = MCP.decode(bare, DECODE)
    assert (decoded.record.bindings, "without an endpoint" in decoded.warnings[0]) == ((), True)
    assert write(decoded.record).items() >= bare.items()
    packaged = {name: value for name, value in WEATHER.items() if name != "remotes"}
    assert {binding.protocol for binding in read(packaged).bindings} == {"mcp-package"}
