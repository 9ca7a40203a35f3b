"""One service on a real socket and a manual clock, called through every API: HTTP, both clients, the command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import uvicorn

from support.rtfs import Rpc
from support.server import clean_environment
from support.service import Bench, service
from support.shell import Ran, Shell
from waypost.client.aio.client import Client
from waypost.client.http import Retry
from waypost.client.sync.client import SyncClient
from waypost.model.names import slug

AF_AGENTS = "/.well-known/agentframework/v1/agents"
ONCE = Retry(attempts=1)


class _Quiet(uvicorn.Server):
    """Leaves signal handlers to the test run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServedApis:
    """A running service, its address and a shell whose commands talk to it."""

    def __init__(self, bench: Bench, url: str, folder: Path) -> None:
        self.bench = bench
        self.url = url
        self.nothing = folder / "nothing"  # a data folder without a token
        self.shell = Shell(folder, clean_environment({"WAYPOST_SERVER": url, "WAYPOST_DATA": str(self.nothing)}))
        self.admin = self.caller(bench.admin_token)

    def caller(self, token: str | None) -> Caller:
        return Caller(self, token)

    def subject(self, name: str, *scopes: str) -> Caller:
        return Caller(self, self.bench.token(name, *scopes))


class Caller:
    """One caller, through every API."""

    def __init__(self, apis: ServedApis, token: str | None) -> None:
        self.apis = apis
        self.token = token
        self.http = apis.bench.client(token)
        self.rpc = Rpc(self.http)

    def client(self) -> Client:
        return Client(self.apis.url, self.token, data=self.apis.nothing, retry=ONCE)

    def sync_client(self) -> SyncClient:
        return SyncClient(self.apis.url, self.token, data=self.apis.nothing, retry=ONCE)

    async def run(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run `waypost …` as this caller, in a thread beside the event loop."""
        token = () if self.token is None else ("--token", self.token)
        return await asyncio.to_thread(self.apis.shell, *arguments, *token, stdin=stdin)

    # --- The same request through every API -------------------------------------------------------

    async def listed(self, command: bool = True) -> dict[str, list[str]]:
        """The ids of each list, in order."""
        async with self.client() as client:
            lists = {
                "/api/v1/agents": await self._pages("/api/v1/agents", 50),
                "/api/v1/agents by two": await self._pages("/api/v1/agents", 2),
                "/profile/v1/agents": await self._pages("/profile/v1/agents", 3),
                "AF": await self._af({}),
                "AF by two": await self._af_pages(2),
                "export": [agent["id"] for agent in await self._export()],
                "Client.list": [agent.id async for agent in client.list()],
                "Client.export": [agent["id"] async for agent in client.export()],
            }
        lists["SyncClient.list"] = await asyncio.to_thread(self._sync_list)
        if command:
            lists["waypost list"] = [agent["id"] for agent in (await self.run("list", "-o", "json")).json]
            lists["waypost export"] = [agent["id"] for agent in (await self.run("export")).lines]
        return lists

    async def found(self, word: str, *, command: bool = True) -> dict[str, set[str]]:
        """The ids that each search returns for a word."""
        return {api: set(ids) for api, ids in (await self.ranked(word, command=command)).items()}

    async def ranked(self, word: str, *tags: str, command: bool = True) -> dict[str, list[str]]:
        """The ids that each search returns for a word among the agents with all tags, in order."""
        asked = {"query": word, "required_tags": list(tags), "limit": 100}
        answer = await self.http.post("/profile/v1/discover", json=asked)
        text = {"discovery_query": {"text_search": word}, "discovery_tags": list(tags), "limit": 100}
        async with self.client() as client:
            found = {
                "discover": [hit["id"] for hit in answer.json()["candidates"]],
                "rtfs": await self.rpc.found(**text),
                "AF q": await self._af({"q": word, "tag": list(tags)}),
                "Client.find": [hit.id for hit in (await client.find(word, tags=tags, limit=100)).candidates],
            }
        if command:
            flags = [part for tag in tags for part in ("--tag", tag)]
            ran = await self.run("find", word, "-o", "json", "-n", "100", *flags)
            found["waypost find"] = [hit["id"] for hit in ran.json["candidates"]]
        return found

    async def tagged(self, tag: str, command: bool = True) -> dict[str, set[str]]:
        """The ids that each API returns for a tag alone."""
        own = await self.http.get("/api/v1/agents", params={"tag": tag})
        asked = {"query": "", "required_tags": [tag], "limit": 100}
        answer = await self.http.post("/profile/v1/discover", json=asked)
        async with self.client() as client:
            found = {
                "/api/v1/agents": {agent["id"] for agent in own.json()["agents"]},
                "discover": {hit["id"] for hit in answer.json()["candidates"]},
                "rtfs": set(await self.rpc.found(discovery_tags=[tag], limit=100)),
                "AF tag": set(await self._af({"tag": tag})),
                "Client.list": {agent.id async for agent in client.list(tags=[tag])},
            }
        if command:
            listed = (await self.run("list", "-o", "json", "--tag", tag)).json
            found["waypost list"] = {agent["id"] for agent in listed}
        return found

    async def reads(self, agent_id: str) -> dict[str, int]:
        """The status code of each URL of one agent."""
        escaped = quote(agent_id, safe="")
        paths = [f"/api/v1/agents/{escaped}", f"/api/v1/agents/{slug(agent_id)}", f"/profile/v1/agents/{escaped}"]
        paths += [f"/api/v1/agents/{escaped}?as=a2a", f"{AF_AGENTS}/{escaped}", f"{AF_AGENTS}/{slug(agent_id)}"]
        return {path: (await self.http.get(path)).status_code for path in paths}

    async def _pages(self, path: str, limit: int) -> list[str]:
        ids: list[str] = []
        params = {"limit": str(limit)}
        while True:
            page = (await self.http.get(path, params=params)).json()
            ids += [agent["id"] for agent in page["agents"]]
            if "next_cursor" not in page:
                return ids
            params["cursor"] = page["next_cursor"]

    async def _af(self, params: dict[str, Any]) -> list[str]:
        answer = await self.http.get(AF_AGENTS, params=params)
        assert answer.status_code == 200, answer.text
        return [self._canonical(agent["id"]) for agent in answer.json()["agents"]]

    async def _af_pages(self, per_page: int) -> list[str]:
        ids: list[str] = []
        page = 1
        while True:
            answer = (await self.http.get(AF_AGENTS, params={"page": page, "per_page": per_page})).json()
            ids += [self._canonical(agent["id"]) for agent in answer["agents"]]
            if page * per_page >= answer["total"]:
                return ids
            page += 1

    def _canonical(self, published: str) -> str:
        entry = self.apis.bench.registry.entries.find_named(published)
        return published if entry is None else entry.id

    async def _export(self) -> list[dict[str, Any]]:
        answer = await self.http.get("/api/v1/agents:export", params={"as": "profile"})
        return [json.loads(line) for line in answer.text.splitlines()]

    def _sync_list(self) -> list[str]:
        with self.sync_client() as client:
            return [agent.id for agent in client.list()]


@contextlib.asynccontextmanager
async def serve_apis(folder: Path, **settings: Any) -> AsyncIterator[ServedApis]:
    """`async with serve_apis(tmp_path) as apis:`"""
    async with service(folder / "data", **settings) as bench:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            config = uvicorn.Config(bench.application.http_app, lifespan="off", log_config=None, ws="none")
            server = _Quiet(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                async with asyncio.timeout(60):
                    while not server.started:
                        await asyncio.sleep(0.001)
                yield ServedApis(bench, f"http://127.0.0.1:{listening.getsockname()[1]}", folder)
            finally:
                server.should_exit = True
                await serving


def problem_of(response: httpx2.Response) -> dict[str, Any]:
    """The problem document of a response, checked for consistency."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    return problem
