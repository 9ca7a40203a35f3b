"""MCP server.json: the current form in and out, older spellings and the registry envelope in."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec.structs import replace

from support.older_documents import MCP_2025_07, MCP_2025_08, MCP_LISTED
from support.records import DECODE, ENCODE, NOW
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import detect_dialect
from waypost.protocols.mcp.codec import CARRY, MCP, SCHEMA_URL, find_package, server_name, to_purl
from waypost.protocols.mcp.legacy import OFFICIAL

WEATHER, SMALLEST, LISTED = MCP.examples()


def decode(document: JsonObject, **context: Any) -> AgentRecord:
    return MCP.decode(document, DecodeContext(now=NOW, **context)).record


def server_with(**members: Any) -> JsonObject:
    return {**copy.deepcopy(SMALLEST), **members}


def package_with(**members: Any) -> JsonObject:
    package = {"registryType": "npm", "identifier": "x", "transport": {"type": "stdio"}}
    return {"packages": [package | members]}


def test_a_server_maps_as_the_table_says() -> None:
    record = decode(WEATHER)
    assert record.id == "com.example.weather/forecast"
    assert record.name == "Weather Forecast"
    assert record.tags == ("mcp", "forecast", "npm", "oci", "mcpb")
    assert [(b.protocol, b.endpoint) for b in record.bindings] == [
        ("mcp", "https://{region}.weather.example.com/mcp"),
        ("mcp", "https://weather.example.com/sse"),
        ("mcp-package", "pkg:npm/%40example/weather-mcp@2.1.0"),
        ("mcp-package", "pkg:oci/registry.example.com/weather/forecast@2.1.0"),
        ("mcp-package", "https://downloads.example.com/weather-2.1.0.mcpb"),
    ]
    assert record.bindings[0].interaction_model == "streaming"
    assert record.auth == {
        "schemes": [{"type": "apiKey", "in": "header", "name": "X-Weather-Key"}],
        "required": True,
    }
    assert record.constraints == {
        "runtimes": ["npx"],
        "variables": ["region"],
        "package_sha256": ["fe333e598595000ae021bd27117db32ec69af6987f507ba7a63c90638ff633ce"],
    }
    assert (record.version, record.status) == ("2.1.0", None)


def test_a_server_comes_back_as_it_was() -> None:
    for server in (WEATHER, SMALLEST, LISTED):
        assert MCP.encode(decode(server), ENCODE).document == server


def test_the_registry_envelope_carries_status_and_time() -> None:
    record = decode(LISTED)
    assert (record.name, record.status, record.updated_at) == ("Notes", "deprecated", "2026-02-11T08:00:00Z")


@pytest.mark.parametrize(
    ("told", "status"), [("active", "active"), ("deprecated", "deprecated"), ("deleted", "inactive")]
)
def test_a_status_of_the_registry_becomes_one_of_ours(told: str, status: str) -> None:
    meta = {"io.modelcontextprotocol.registry/official": {"status": told}}
    assert decode({"server": SMALLEST, "_meta": meta}).status == status


def test_an_envelope_is_opened_and_names_the_server_by_its_registry() -> None:
    meta = {
        "io.modelcontextprotocol.registry/official": {"status": "active", "updated_at": "2026-02-11T08:00:00Z"},
        "com.example/note": 1,
    }
    envelope = {"server": SMALLEST, "_meta": meta}
    assert MCP.recognises(envelope)
    url = "https://registry.example.com/v0.1/servers/io.github.example%2Fnotes/versions/latest"
    decoded = MCP.decode(envelope, DecodeContext(now=NOW, source_url=url))
    assert decoded.record.id == "https://registry.example.com/v0.1/servers/io.github.example%2Fnotes"
    assert decoded.aliases == ("io.github.example/notes",)
    assert decoded.record.updated_at == "2026-02-11T08:00:00Z"
    server = MCP.encode(decoded.record, ENCODE).document
    assert server["name"] == "io.github.example/notes"
    assert server["_meta"]["com.example/note"] == 1
    assert decode(server) == decoded.record


def test_members_of_the_server_are_refused_outside_server() -> None:
    assert decode(MCP_LISTED).updated_at == "2026-02-11T08:00:00Z"
    with pytest.raises(InvalidDocument) as caught:
        decode({**MCP_LISTED, "description": "Another one."})
    assert caught.value.path == "$.server"
    assert "'description'" in caught.value.message


def test_a_fault_inside_an_envelope_names_its_place_there() -> None:
    for server, path in (({}, "$.server.name"), ({**SMALLEST, "remotes": [5]}, "$.server.remotes[0]")):
        with pytest.raises(InvalidDocument) as caught:
            decode({"server": server})
        assert caught.value.path == path


def test_the_envelope_of_august_2025_is_read_and_written_in_the_present_form() -> None:
    decoded = MCP.decode(MCP_2025_08, DECODE)
    assert decoded.release is not None
    assert decoded.release.is_latest
    assert [(binding.protocol, binding.endpoint) for binding in decoded.record.bindings] == [
        ("mcp", "https://harbour.example.com/mcp"),
        ("mcp-package", "pkg:oci/example/harbour@3.1.0"),
        ("mcp-package", "https://example.com/releases/harbour.mcpb"),
        ("mcp-package", "pkg:nuget/Example.Harbour@3.1.0"),
    ]
    assert decoded.record.constraints == {"package_sha256": ["ab" * 32]}
    server = MCP.encode(decoded.record, ENCODE).document
    assert server["remotes"] == [{"type": "streamable-http", "url": "https://harbour.example.com/mcp"}]
    image, bundle, tool = server["packages"]
    assert [part["registryType"] for part in server["packages"]] == ["oci", "mcpb", "nuget"]
    assert image["runtimeArguments"][0]["variables"] == {"source_path": {"format": "filepath", "isRequired": True}}
    assert (bundle["fileSha256"], bundle["transport"]) == ("ab" * 32, {"type": "stdio"})
    assert not {"package_type", "file_hashes"} & (image.keys() | bundle.keys() | tool.keys())
    assert server["_meta"]["io.modelcontextprotocol.registry/publisher-provided"] == MCP_2025_08["x-publisher"]
    assert server["_meta"][OFFICIAL]["publishedAt"] == "2025-08-20T10:00:00Z"


def test_the_first_registry_says_of_a_server_which_version_is_the_latest() -> None:
    listed = {**MCP_2025_07, "version_detail": {"version": "0.9.1", "is_latest": True}}
    release = MCP.decode(listed, DECODE).release
    assert release is not None
    assert release.is_latest
    assert MCP.decode(MCP_2025_07, DECODE).release is None


def test_the_snake_case_of_2025_is_read_and_written_in_the_present_form() -> None:
    decoded = MCP.decode(MCP_2025_07, DECODE)
    record = decoded.record
    assert decoded.warnings
    assert (record.version, record.status) == ("0.9.1", "deprecated")
    assert [b.endpoint for b in record.bindings] == [
        "https://fs.example.com/sse",
        "pkg:npm/%40example/fs@0.9.1",
        "pkg:pypi/fs-mcp@0.9.1",
    ]
    assert record.auth["required"] is True
    server = MCP.encode(record, ENCODE).document
    assert server["packages"] == [
        {
            "registryType": "npm",
            "identifier": "@example/fs",
            "version": "0.9.1",
            "transport": {"type": "stdio"},
            "runtimeHint": "npx",
            "environmentVariables": [{"name": "ROOT", "isRequired": True, "isSecret": False}],
            "odd_member": 1,
        },
        {"registryType": "pypi", "identifier": "fs-mcp", "version": "0.9.1", "transport": {"type": "stdio"}},
    ]
    assert server["remotes"] == [
        {
            "type": "sse",
            "url": "https://fs.example.com/sse",
            "headers": [{"name": "X-Key", "isRequired": True, "isSecret": True}],
        }
    ]
    assert "version_detail" not in server
    assert server["_meta"][OFFICIAL]["publishedAt"] == "2025-07-01T00:00:00Z"
    assert "status" not in server


@pytest.mark.parametrize("place", ["packages", "remotes", "repository", "icons", "_meta"])
def test_unknown_members_live_on_inside_nested_objects(place: str) -> None:
    server = copy.deepcopy(WEATHER)
    holder = server[place]
    (holder[-1] if isinstance(holder, list) else holder)["x-unknown"] = {"deep": [1]}
    assert MCP.encode(decode(server), ENCODE).document == server


def test_a_package_that_changed_elsewhere_does_not_take_the_others_details_along() -> None:
    record = decode(WEATHER)
    fewer = replace(record, bindings=record.bindings[1:])
    server = MCP.encode(fewer, ENCODE).document
    assert server["packages"] == WEATHER["packages"]
    assert server["remotes"] == WEATHER["remotes"][1:]
    assert decode(server) == fewer


@pytest.mark.parametrize(
    "residue", [{"headers": [5]}, {"type": 5}, {"transport": {}}, {"identifier": ""}, {"title": 5}]
)
def test_a_residue_that_was_edited_by_hand_does_no_harm(residue: JsonObject) -> None:
    bindings = tuple(
        Binding(protocol=protocol, endpoint=endpoint, extra={"org.waypost.mcp": residue})
        for protocol, endpoint in (("mcp", "https://x.example/mcp"), ("mcp-package", "pkg:npm/x@1.0.0"))
    )
    record = AgentRecord(
        id="a.example/x",
        name="a.example/x",
        description="Does x.",
        bindings=bindings,
        extra={"org.waypost.mcp": residue},
    )
    assert decode(MCP.encode(record, ENCODE).document) == record


def test_a_long_description_is_cut_at_a_word_and_carried_whole() -> None:
    record = replace(decode(SMALLEST), description="Finds notes by meaning, not by words. " * 10)
    server = MCP.encode(record, ENCODE).document
    assert len(server["description"]) <= 100
    assert server["description"].endswith("…")
    assert server["_meta"][CARRY]["members"] == {"description": record.description}
    assert decode(server) == record


def test_a_record_that_is_no_server_gets_a_valid_name_and_keeps_its_id() -> None:
    record = AgentRecord(
        id="https://agents.example.net/id/hr",
        name="HR",
        description="Helps with people.",
        bindings=(Binding(protocol="https", endpoint="https://agents.example.net/hr"),),
        version="1.x",
    )
    server = MCP.encode(record, ENCODE).document
    assert server["name"].startswith("net.example.agents/id-hr-")
    assert server["version"] == "1.0.0"
    assert not {"packages", "remotes"} & set(server)
    assert decode(server) == record


@pytest.mark.parametrize(
    ("agent_id", "name"),
    [
        ("io.github.a/b", "io.github.a/b"),
        ("https://r.example/v0/servers/io.github.a%2Fb", "io.github.a/b"),
        ("https://h.example/weather", "example.h/weather"),
        ("plain", "org.example.registry/plain"),
    ],
)
def test_names_are_taken_from_the_id_where_they_can_be(agent_id: str, name: str) -> None:
    assert server_name(agent_id, "registry.example.org") == name


@pytest.mark.parametrize(
    "agent_id", ["x" * 1024, "agent:example.com", "a b/c", "https://é.example/", "urn:uuid:1-2", "/"]
)
def test_any_id_gives_a_name_that_the_registry_takes(agent_id: str) -> None:
    name = server_name(agent_id, "localhost")
    assert decode(server_with(name=name)).id == name
    assert len(name) <= 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[2001:db8::1]"])
def test_a_service_at_an_address_mints_names_of_localhost(host: str) -> None:
    assert server_name("weather", host) == "localhost/weather"


def test_two_ids_never_share_a_minted_name() -> None:
    ids = ["https://h.example/a/b", "https://h.example/a-b", "https://h.example/a_b", "agent:h.example", "h.example"]
    assert len({server_name(agent_id, "localhost") for agent_id in ids}) == len(ids)


@pytest.mark.parametrize(
    ("package", "purl"),
    [
        (("npm", "@scope/name", "1.0.2"), "pkg:npm/%40scope/name@1.0.2"),
        (("pypi", "weather-mcp", None), "pkg:pypi/weather-mcp"),
        (("cargo", "tool", "0.1.0+b"), "pkg:cargo/tool@0.1.0+b"),
        (("oci", "ghcr.io/org/image:1.0", None), "pkg:oci/ghcr.io/org/image@1.0"),
        (("mcpb", "https://x.example/a.mcpb", None), "https://x.example/a.mcpb"),
    ],
)
def test_a_package_has_a_package_url(package: tuple[str, str, str | None], purl: str) -> None:
    assert to_purl(*package) == purl


def test_a_package_url_is_taken_apart() -> None:
    assert find_package("pkg:npm/%40scope/name@1.0.2") == {
        "registryType": "npm",
        "identifier": "@scope/name",
        "version": "1.0.2",
    }
    assert find_package("https://x.example/a.mcpb") is None
    assert find_package("pkg:npm") is None


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"name": "weather"}, "$.name", "not a server name"),
        ({"name": "a/b\n"}, "$.name", "not a server name"),
        ({"name": "a/" + "b" * 199}, "$.name", "at most 200"),
        ({"description": ""}, "$.description", "empty"),
        ({"version": None}, "$.version", "missing"),
        ({"version": "^1.2.0"}, "$.version", "range"),
        ({"version": "1.x"}, "$.version", "range"),
        ({"version": "latest"}, "$.version", "range"),
        ({"remotes": [{"type": "carrier-pigeon", "url": "https://x"}]}, "$.remotes[0].type", "not a transport"),
        ({"remotes": [{"type": "sse"}]}, "$.remotes[0].url", "missing"),
        ({"packages": [{"identifier": "x", "transport": {"type": "stdio"}}]}, "$.packages[0].registryType", "missing"),
        ({"packages": [{"registryType": "npm", "identifier": "x"}]}, "$.packages[0].transport", "no transport"),
        ({"_meta": []}, "$._meta", "must be an object"),
        ({"icons": {"a": 1}}, "$.icons", "array"),
        ({"icons": [{"sizes": []}]}, "$.icons[0].src", "missing"),
        ({"repository": {"url": 5}}, "$.repository.url", "must be a string"),
        ({"remotes": [{"type": "sse", "url": "u", "headers": [5]}]}, "$.remotes[0].headers[0]", "object"),
        (
            {"remotes": [{"type": "sse", "url": "u", "headers": [{"value": "x"}]}]},
            "$.remotes[0].headers[0].name",
            "missing",
        ),
        (
            {"remotes": [{"type": "sse", "url": "u", "headers": [{"name": "x", "isSecret": "yes"}]}]},
            "$.remotes[0].headers[0].isSecret",
            "must be a boolean",
        ),
        ({"remotes": [{"type": "sse", "url": "u", "variables": {"a": 5}}]}, "$.remotes[0].variables.a", "object"),
        (package_with(packageArguments={}), "$.packages[0].packageArguments", "array"),
        (package_with(runtimeArguments=["-y"]), "$.packages[0].runtimeArguments[0]", "object"),
        (package_with(environmentVariables=[{}]), "$.packages[0].environmentVariables[0].name", "missing"),
        (package_with(runtimeHint=5), "$.packages[0].runtimeHint", "must be a string"),
        (package_with(transport={"type": "sse", "url": 5}), "$.packages[0].transport.url", "must be a string"),
        (package_with(registry_type="npm"), "$.packages[0].registry_type", "two names"),
    ],
)
def test_a_bad_server_is_refused_with_the_place_and_the_reason(change: JsonObject, path: str, says: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(server_with(**change))
    assert caught.value.path == path
    assert says in caught.value.message


def test_only_server_names_and_their_company_are_recognised() -> None:
    assert MCP.recognises(MCP_2025_07)
    assert not MCP.recognises({"name": "a/b", "bindings": [], "version": "1"})
    assert not MCP.recognises({"name": "plain", "version": "1"})
    assert not MCP.recognises({"name": 5, "packages": []})


@pytest.mark.parametrize("schema", [SCHEMA_URL, "https://modelcontextprotocol.io/schemas/draft/2025-07-09/server.json"])
def test_a_document_of_the_schema_is_recognised_whatever_its_name(schema: str) -> None:
    document = {"$schema": schema, "name": "bad name", "description": "Reads files.", "version": "1.0.0"}
    assert detect_dialect(document) == "mcp"
    with pytest.raises(InvalidDocument) as caught:
        decode(document)
    assert caught.value.path == "$.name"
    assert not MCP.recognises(document | {"bindings": []})
    assert not MCP.recognises(document | {"$schema": 5})
