"""Agents that can be called, from the SDKs of their protocols: A2A (a2a-sdk), MCP (mcp), and plain HTTP; each is a server."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Part
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from support.json_lines_process import reading
from support.judges import A2A_SDK_0_3, python_packages

START_SECONDS = 120.0
OLDER_SERVER = Path(__file__).parent / "a2a_sdk_0_3_server.py"


class EchoExecutor(AgentExecutor):
    """Answers `echo: TEXT` with a message; `slow …` with a task that is finished later; `fail …` with a failed task."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        if not text.startswith(("slow", "fail")):
            await event_queue.enqueue_event(new_text_message(f"echo: {text}", context_id=context.context_id))
            return
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await asyncio.sleep(0)
        if text.startswith("fail"):
            await updater.failed(new_text_message("no such invoice"))
            return
        await updater.add_artifact([Part(text=f"echo: {text}")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def a2a_app(*, older: bool = False) -> Starlette:
    """JSON-RPC at /rpc and REST at /rest; with `older`, also in the forms of 0.3."""
    version = "0.3" if older else "1.0"
    card = AgentCard(
        name="Echo",
        description="Echo.",
        version="1.0",
        capabilities=AgentCapabilities(),
        supported_interfaces=[AgentInterface(url="http://x/", protocol_binding="JSONRPC", protocol_version=version)],
    )
    handler = DefaultRequestHandler(agent_executor=EchoExecutor(), task_store=InMemoryTaskStore(), agent_card=card)
    routes: list[Any] = create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=older)
    routes += create_rest_routes(handler, enable_v0_3_compat=older, path_prefix="/rest")
    return Starlette(routes=routes)


def mcp_app(*, tools: int = 1, json_response: bool = False) -> Any:
    server = MCPServer("echo", log_level="ERROR")

    @server.tool()
    def echo(text: str) -> str:
        return f"echo: {text}"

    if tools > 1:

        @server.tool()
        def add(a: int, b: int) -> int:
            return a + b

    if tools > 2:

        @server.tool()
        def shout(text: str) -> str:
            raise ValueError(f"too loud: {text}")

    return server.streamable_http_app(json_response=json_response)


async def _plain(request: Request) -> Response:
    body = (await request.body()).decode()
    if "authorization" in request.headers:
        return PlainTextResponse(f"{request.headers['authorization']}: {body}")
    return PlainTextResponse(f"echo: {body}")


async def _json(request: Request) -> Response:
    return JSONResponse({"output": f"echo: {(await request.json())['input']}", "host": request.headers["host"]})


async def _locked(request: Request) -> Response:
    return Response(status_code=401)


async def _redirect(request: Request) -> Response:
    return RedirectResponse("http://169.254.169.254/")


async def _broken(request: Request) -> Response:
    return PlainTextResponse("<html>", status_code=500)


def http_app() -> Starlette:
    paths = {"plain": _plain, "json": _json, "locked": _locked, "redirect": _redirect, "broken": _broken}
    return Starlette(routes=[Route(f"/{name}", handler, methods=["POST"]) for name, handler in paths.items()])


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The URL of an application that is served during the block."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined,method-assign]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(2000):
        if server.started:
            break
        thread.join(0.01)
    assert server.started
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serving_a2a_0_3(folder: Path) -> Iterator[str]:
    """The URL of an agent of a2a-sdk 0.3 in a process of its own: JSON-RPC at /{any name}/rpc, REST at /{any name}/rest."""
    environment = {**os.environ, "PYTHONPATH": str(python_packages(A2A_SDK_0_3))}
    with reading([sys.executable, str(OLDER_SERVER)], folder, environment) as lines:
        started = lines.next(START_SECONDS)
        assert started is not None, (folder / "stderr.log").read_text()
        yield started["url"]
