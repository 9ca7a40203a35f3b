"""`Discovery` inside common frameworks, mounted and as middleware, and under a real server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from litestar import Litestar, asgi, get
from litestar.middleware import DefineMiddleware
from litestar.testing import AsyncTestClient
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, UnauthenticatedUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from support.agent_framework import AGENTS, ANNOTATOR, FAQ, client_of, numbered
from waypost import Discovery

URI = {**numbered(1)[0], "id": "https://h.example/a"}
HELD = [ANNOTATOR, FAQ, URI]
ENCODED = f"{AGENTS}/https%3A%2F%2Fh.example%2Fa"


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the application's own")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


class Bearer(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> Any:
        name = conn.headers.get("authorization", "").removeprefix("Bearer ")
        return (
            (AuthCredentials(["authenticated"]), SimpleUser(name))
            if name
            else (AuthCredentials(), UnauthenticatedUser())
        )


def starlette_mount() -> Any:
    return Starlette(routes=[Route("/own", own), Mount("/", Discovery(agents=HELD))])


def starlette_middleware() -> Any:
    return Starlette(routes=[Route("/own", own)], middleware=[Middleware(Discovery, agents=HELD)])


def fastapi_mount() -> Any:
    app = FastAPI()
    app.add_api_route("/own", lambda: "the application's own")
    app.mount("/", Discovery(agents=HELD))
    return app


def fastapi_middleware() -> Any:
    app = FastAPI()
    app.add_middleware(Discovery, agents=HELD)
    app.add_api_route("/own", lambda: "the application's own")
    return app


def litestar_middleware() -> Any:
    @get("/own")
    async def handler() -> str:
        return "the application's own"

    return Litestar([handler], middleware=[DefineMiddleware(Discovery, agents=HELD)])


def litestar_around() -> Any:
    """As the outermost layer: every path, also those that the application has no route for, comes through."""

    @get("/own")
    async def handler() -> str:
        return "the application's own"

    return Discovery(Litestar([handler]), agents=HELD)


APPLICATIONS = {
    make.__name__: make
    for make in (starlette_mount, starlette_middleware, fastapi_mount, fastapi_middleware, litestar_around)
}


@pytest.mark.req("AF-74", "AF-71")
@pytest.mark.parametrize("make", APPLICATIONS.values(), ids=APPLICATIONS.keys())
async def test_it_serves_its_paths_beside_the_routes_of_the_application(make: Any) -> None:
    async with client_of(make()) as client:  # no lifespan event is ever sent
        listed = await client.get(AGENTS)
        item = await client.get(f"{AGENTS}/image-annotator")
        encoded = await client.get(ENCODED)
        mine = await client.get("/own")
        nothing = await client.get("/nothing")
    assert [agent["name"] for agent in listed.json()["agents"]] == ["Agent 0000", "FAQ Search", "Image Annotator"]
    assert item.json()["endpoints"] == ANNOTATOR["endpoints"]
    assert encoded.json()["metadata"]["canonical_id"] == "https://h.example/a"
    assert "the application's own" in mine.text
    assert nothing.status_code == 404


@pytest.mark.req("AF-74", "AF-72")
@pytest.mark.parametrize("make", [Starlette, FastAPI], ids=["starlette", "fastapi"])
async def test_under_a_sub_mount_it_serves_and_links_below_it(make: Any) -> None:
    app = make()
    app.router.routes.append(Mount("/sub", Discovery(agents=HELD)))
    async with client_of(app) as client:
        paged = await client.get(f"/sub{AGENTS}?per_page=1")
        encoded = await client.get(f"/sub{ENCODED}")
        slashed = await client.get(f"/sub{AGENTS}/")
    assert f"</sub{AGENTS}?page=2&per_page=1>" in paged.headers["link"]
    assert encoded.headers["content-location"].startswith(f"/sub{AGENTS}/u-")
    assert slashed.headers["location"] == f"/sub{AGENTS}"


@pytest.mark.req("AF-74", "AF-72")
async def test_it_is_mounted_in_litestar() -> None:
    mounted = asgi("/disco", is_mount=True, copy_scope=True)(Discovery(agents=HELD))

    async with AsyncTestClient(Litestar([mounted])) as client:
        listed = await client.get(f"/disco{AGENTS}")
        slug = listed.json()["agents"][0]["id"]
        item = await client.get(f"/disco{AGENTS}/{slug}")
        encoded = await client.get(f"/disco{ENCODED}")
    assert len(listed.json()["agents"]) == 3
    assert item.json()["metadata"]["canonical_id"] == "https://h.example/a"
    assert encoded.json() == item.json()


@pytest.mark.req("AF-74", "AF-71")
async def test_litestar_runs_it_as_middleware_of_its_own_routes() -> None:
    async with AsyncTestClient(litestar_middleware()) as client:
        assert (await client.get("/own")).text == "the application's own"


@pytest.mark.req("AF-73", "AF-50")
async def test_starlette_authentication_decides_the_visible_members() -> None:
    middleware = [Middleware(AuthenticationMiddleware, backend=Bearer()), Middleware(Discovery, agents=HELD)]
    async with client_of(Starlette(middleware=middleware)) as client:
        known = await client.get(f"{AGENTS}/image-annotator", headers={"Authorization": "Bearer alice"})
        unknown = await client.get(f"{AGENTS}/image-annotator")
    assert known.json()["owner"] == ANNOTATOR["owner"]
    assert known.headers["cache-control"] == "private, no-cache"
    assert unknown.json()["metadata"] == {"redacted": True}


@pytest.mark.req("AF-71")
def test_websockets_and_lifespan_of_the_application_go_on_as_before() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        events.append("started")
        yield
        events.append("stopped")

    app = Starlette(routes=[WebSocketRoute("/ws", echo)], lifespan=lifespan)
    app.add_middleware(Discovery, agents=HELD)
    with TestClient(app) as client, client.websocket_connect("/ws") as websocket:
        websocket.send_text("hello")
        assert websocket.receive_text() == "hello"
    assert events == ["started", "stopped"]


@asynccontextmanager
async def under_uvicorn(app: Any, **settings: Any) -> AsyncIterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", **settings))
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with asyncio.timeout(60):
                while not server.started:
                    await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@pytest.mark.req("AF-74", "AF-72", "AF-14", "AF-36")
@pytest.mark.parametrize("lifespan", ["on", "off"])
async def test_under_a_real_server_encoded_ids_and_conditional_requests_work(lifespan: str) -> None:
    app = FastAPI()

    @app.get("/v1/agents")
    def users_own_agents() -> JSONResponse:
        return JSONResponse(["mine"])

    app.add_middleware(Discovery, agents=HELD, options={"legacy": True})
    async with under_uvicorn(app, lifespan=lifespan) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        listed = await client.get(AGENTS)
        fresh = await client.get(AGENTS, headers={"If-None-Match": listed.headers["etag"]})
        encoded = await client.get(ENCODED)
        head = await client.head(f"{AGENTS}/image-annotator")
        legacy = await client.get("/v1/agents/image-annotator")
        mine = await client.get("/v1/agents")
    assert listed.status_code == 200
    assert fresh.status_code == 304
    assert encoded.json()["metadata"]["canonical_id"] == "https://h.example/a"
    assert (head.status_code, head.content) == (200, b"")
    assert legacy.headers["location"] == f"{AGENTS}/image-annotator"
    assert mine.json() == ["mine"]
