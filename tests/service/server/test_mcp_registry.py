"""The MCP registry API: lists, filters, pages and versions of public MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from jsonschema import Draft202012Validator

from support.records import CODECS
from support.service import NOW, Bench, profile, service
from waypost.model.times import to_rfc3339

OFFICIAL = "io.modelcontextprotocol.registry/official"


def server(name: str = "com.example/tool", version: str = "1.0.0", **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Counts words.",
        "version": version,
        "remotes": [{"type": "streamable-http", "url": "https://tool.example/mcp"}],
        **members,
    }


async def register(bench: Bench, document: dict[str, Any], **headers: str) -> None:
    answer = await bench.admin().post("/api/v1/agents", json=document, headers=headers)
    assert answer.status_code in (200, 201), answer.text


async def names(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/v0.1/servers{query}")
    assert answer.status_code == 200, answer.text
    return [entry["server"]["name"] for entry in answer.json()["servers"]]


def at(name: str, version: str = "latest") -> str:
    return f"/v0.1/servers/{quote(name, safe='')}/versions/{version}"


async def test_a_server_is_listed_as_the_official_registry_lists_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server(title="Word counter", _meta={"com.example/own": {"a": 1}}))
        anyone = bench.anonymous()
        [entry] = (await anyone.get("/v0.1/servers")).json()["servers"]
        assert entry["server"].items() >= server(title="Word counter", _meta={"com.example/own": {"a": 1}}).items()
        Draft202012Validator(CODECS["mcp"].schema()).validate(entry["server"])
        time = "2026-05-28T20:26:40.000Z"
        assert entry["_meta"] == {
            OFFICIAL: {
                "status": "active",
                "statusChangedAt": time,
                "publishedAt": time,
                "updatedAt": time,
                "isLatest": True,
            }
        }
        for path in (at("com.example/tool"), at("com.example/tool", "1.0.0")):
            assert (await anyone.get(path)).json() == entry
            assert (await anyone.get(path.replace("v0.1", "v0"))).json() == entry
        assert (await anyone.get("/v0/servers")).json() == (await anyone.get("/v0.1/servers")).json()


async def test_only_public_mcp_servers_are_listed(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server("com.example/seen"))
        await register(bench, server("com.example/hidden"), **{"Waypost-Visibility": "private"})
        await register(bench, server("com.example/inner"), **{"Waypost-Visibility": "internal"})
        await register(bench, profile("no-server", tags=["mcp"]))
        both = [
            {"protocol": "https", "endpoint": "https://x.example"},
            {"protocol": "mcp", "endpoint": "https://m.example"},
        ]
        await register(bench, profile("agent:both.example", bindings=both))
        await register(bench, {"name": "com.example/bare", "description": "Has no endpoint.", "version": "1.0.0"})
        listed = ["com.example/bare", "com.example/seen"]
        for client in (bench.anonymous(), bench.admin()):
            found = await names(client)
            assert [name for name in found if name.startswith("com.example/")] == listed
            assert len(found) == 3
            answers = [await client.get(at(name)) for name in ("com.example/hidden", "com.example/absent")]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert answers[0].json()["error"].replace("hidden", "absent") == answers[1].json()["error"]
        [minted] = set(found) - set(listed)
        entry = (await bench.anonymous().get(at(minted))).json()["server"]
        assert entry["remotes"] == [{"type": "streamable-http", "url": "https://m.example"}]


async def test_pages_follow_each_other_while_servers_come_and_go(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number in range(7):
            await register(bench, server(f"com.example/s{number}"))
        anyone, seen, cursor = bench.anonymous(), [], ""
        while True:
            page = (await anyone.get(f"/v0.1/servers?limit=3{cursor}")).json()
            seen += [entry["server"]["name"] for entry in page["servers"]]
            assert page["metadata"]["count"] == len(page["servers"])
            if "nextCursor" not in page["metadata"]:
                break
            if not cursor:
                await bench.admin().delete("/api/v1/agents/com.example%2Fs2")
                await register(bench, server("com.example/s3a"))
            cursor = f"&cursor={quote(page['metadata']['nextCursor'], safe='')}"
        assert seen == [f"com.example/{name}" for name in ("s0", "s1", "s2", "s3", "s3a", "s4", "s5", "s6")]


@pytest.mark.parametrize("path", ["/v0.1/servers", "/v0/servers"])
async def test_a_cursor_that_was_never_issued_is_refused(tmp_path: Path, path: str) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server("com.example/a"))
        await register(bench, server("com.example/b"))
        anyone = bench.anonymous()
        agents = (await bench.admin().get("/api/v1/agents?limit=1")).json()
        for cursor in ("bogus", "com.example/a", "x" * 5000, agents["next_cursor"]):
            answer = await anyone.get(path, params={"cursor": cursor})
            assert (answer.status_code, answer.json()["path"]) == (400, "cursor")
            assert answer.json()["error"]
        assert (await anyone.get(path, params={"cursor": ""})).status_code == 200


async def test_lists_are_searched_by_name_time_and_version(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server("com.example/weather", title="Forecast"))
        bench.clock.advance(3600)
        await register(bench, server("com.example/mail", "2.0.0"))
        anyone = bench.anonymous()
        assert await names(anyone, "?search=WEATH") == ["com.example/weather"]
        assert await names(anyone, "?search=forecast") == ["com.example/weather"]
        assert await names(anyone, "?search=nothing") == []
        assert await names(anyone, f"?updated_since={to_rfc3339(NOW + 60)}") == ["com.example/mail"]
        assert len(await names(anyone, f"?updated_since={to_rfc3339(NOW)}")) == 2
        assert len(await names(anyone, "?version=latest")) == 2
        assert await names(anyone, "?version=2.0.0") == ["com.example/mail"]
        assert await names(anyone, "?version=3.0.0&limit=1") == []


async def test_deleted_servers_are_shown_on_request_and_to_those_who_mirror(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        gone = {
            "server": server("com.example/gone"),
            "_meta": {OFFICIAL: {"status": "deleted", "publishedAt": "2026-01-02T03:04:05Z", "isLatest": True}},
        }
        await register(bench, gone)
        old = {"server": server("com.example/old"), "_meta": {OFFICIAL: {"status": "deprecated", "isLatest": True}}}
        await register(bench, old)
        anyone = bench.anonymous()
        assert await names(anyone) == ["com.example/old"]
        for query in ("?include_deleted=true", f"?updated_since={to_rfc3339(NOW)}"):
            answer = (await anyone.get(f"/v0.1/servers{query}")).json()["servers"]
            assert [each["_meta"][OFFICIAL]["status"] for each in answer] == ["deleted", "deprecated"]
        assert await names(anyone, f"?updated_since={to_rfc3339(NOW)}&include_deleted=false") == ["com.example/old"]
        entry = (await anyone.get(at("com.example/gone"))).json()
        assert (entry["_meta"][OFFICIAL]["status"], entry["_meta"][OFFICIAL]["publishedAt"]) == (
            "deleted",
            "2026-01-02T03:04:05.000Z",
        )
        assert OFFICIAL not in entry["server"].get("_meta", {})


async def test_a_withdrawn_server_is_shown_as_deleted(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for name in ("com.example/a", "com.example/b", "com.example/c"):
            await register(bench, server(name, "1.2.0"))
        await register(bench, server("com.example/secret"), **{"Waypost-Visibility": "private"})
        anyone = bench.anonymous()
        assert len(await names(anyone, f"?updated_since={to_rfc3339(NOW)}")) == 3
        bench.clock.advance(60)
        for name in ("com.example/b", "com.example/secret"):
            assert (await bench.admin().delete(f"/api/v1/agents/{quote(name, safe='')}")).status_code == 204
        await register(bench, server("com.example/c", "2.0.0-hidden"), **{"Waypost-Visibility": "private"})
        assert await names(anyone) == ["com.example/a"]
        changed = (await anyone.get(f"/v0.1/servers?updated_since={to_rfc3339(NOW + 60)}")).json()["servers"]
        told = [(each["server"]["name"], each["server"]["version"]) for each in changed]
        assert told == [("com.example/b", "1.2.0"), ("com.example/c", "1.2.0")]  # what was public of it
        for entry in changed:
            official = entry["_meta"][OFFICIAL]
            assert (official["status"], official["updatedAt"]) == ("deleted", f"{to_rfc3339(NOW + 60)[:-1]}.000Z")
            Draft202012Validator(CODECS["mcp"].schema()).validate(entry["server"])
        page = (await anyone.get("/v0.1/servers?include_deleted=true&limit=1")).json()
        cursor = page["metadata"]["nextCursor"]
        assert await names(anyone, f"?include_deleted=true&limit=1&cursor={cursor}") == ["com.example/b"]
        assert await names(anyone, "?include_deleted=true&search=/B") == ["com.example/b"]
        await register(bench, server("com.example/b", "1.3.0"))
        assert await names(anyone, f"?updated_since={to_rfc3339(NOW + 60)}") == ["com.example/b", "com.example/c"]
        again = (await anyone.get(at("com.example/b"))).json()
        assert (again["server"]["version"], again["_meta"][OFFICIAL]["status"]) == ("1.3.0", "active")


async def test_withdrawn_servers_are_known_after_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await register(bench, server("com.example/b", "1.2.0"))
        await bench.admin().delete("/api/v1/agents/com.example%2Fb")
    async with service(tmp_path, store="sqlite") as bench:
        [entry] = (await bench.anonymous().get("/v0/servers?include_deleted=true")).json()["servers"]
        assert (entry["server"]["version"], entry["_meta"][OFFICIAL]["status"]) == ("1.2.0", "deleted")


async def test_earlier_versions_are_those_of_the_history(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for version in ("1.0.0", "1.1.0", "2.0.0"):
            await register(bench, server(version=version))
            bench.clock.advance(60)
        await register(bench, server(version="2.0.0", title="Word counter"))
        anyone = bench.anonymous()
        answer = (await anyone.get("/v0.1/servers/com.example%2Ftool/versions")).json()
        shown = [(each["server"]["version"], each["_meta"][OFFICIAL]["isLatest"]) for each in answer["servers"]]
        assert shown == [("2.0.0", True), ("1.1.0", False), ("1.0.0", False)]
        assert answer["metadata"]["count"] == 3
        older = (await anyone.get(at("com.example/tool", "1.1.0"))).json()
        assert (older["server"]["version"], older["server"]["remotes"]) == ("1.1.0", server()["remotes"])
        assert (await anyone.get(at("com.example/tool"))).json()["server"]["title"] == "Word counter"
        missing = await anyone.get(at("com.example/tool", "9.0.0"))
        assert (missing.status_code, "9.0.0" in missing.json()["error"]) == (404, True)


async def test_a_version_that_was_hidden_stays_hidden(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server(version="1.0.0"), **{"Waypost-Visibility": "private"})
        await register(bench, server(version="2.0.0"), **{"Waypost-Visibility": "public"})
        answer = (await bench.anonymous().get("/v0.1/servers/com.example%2Ftool/versions")).json()
        assert [each["server"]["version"] for each in answer["servers"]] == ["2.0.0"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?updated_since=tomorrow", "updated_since"),
        ("?include_deleted=yes", "include_deleted"),
    ],
)
async def test_a_wrong_parameter_is_refused(tmp_path: Path, query: str, path: str) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.anonymous().get(f"/v0.1/servers{query}")
        assert (answer.status_code, answer.json()["path"]) == (400, path)
        assert answer.json()["error"] == answer.json()["message"]


async def test_the_api_is_read_only(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = await bench.admin().request(method, "/v0.1/servers")
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await bench.anonymous().get("/v0.1/publish")).status_code == 404


async def test_a_list_is_imported_by_another_registry(tmp_path: Path) -> None:
    async with service(tmp_path / "a") as first, service(tmp_path / "b") as second:
        await register(first, server(title="Word counter"))
        for entry in (await first.anonymous().get("/v0.1/servers")).json()["servers"]:
            await register(second, entry)
        copied = (await second.anonymous().get(at("com.example/tool"))).json()["server"]
        assert copied.items() >= server(title="Word counter").items()


async def test_one_version_honours_conditional_requests(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await register(bench, server("com.example/weather"))
        path = "/v0.1/servers/com.example%2Fweather/versions/latest"
        first = await bench.anonymous().get(path)
        for name, value in (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")):
            again = await bench.anonymous().get(path, headers={name: first.headers[value]})
            assert (again.status_code, again.content) == (304, b"")
