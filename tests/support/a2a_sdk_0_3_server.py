"""Runs with a2a-sdk 0.3: an agent that answers `echo: TEXT`, as a server of its own.

JSON-RPC is at /{any name}/rpc and REST at /{any name}/rest. `slow …` is answered with a task that is finished later, `fail …`
with a failed task. Prints {"url": …} once it listens.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Part, TextPart
from a2a.utils import new_agent_text_message, new_task
from starlette.applications import Starlette
from starlette.routing import Mount


class EchoExecutor(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        if not text.startswith(("slow", "fail")):
            await event_queue.enqueue_event(new_agent_text_message(f"echo: {text}", context.context_id))
            return
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await asyncio.sleep(0)
        if text.startswith("fail"):
            await updater.failed(new_agent_text_message("no such invoice"))
            return
        await updater.add_artifact([Part(root=TextPart(text=f"echo: {text}"))])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def make_app() -> Any:
    card = AgentCard(
        name="Echo",
        description="Echo.",
        version="1.0",
        url="http://127.0.0.1/",
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[],
    )
    handler = DefaultRequestHandler(agent_executor=EchoExecutor(), task_store=InMemoryTaskStore())
    rpc = A2AStarletteApplication(agent_card=card, http_handler=handler).build(rpc_url="/rpc")
    rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()
    rpc.routes.append(Mount("/rest", app=rest))
    return Starlette(routes=[Mount("/{name}", app=rpc)])


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)


if __name__ == "__main__":
    Server(uvicorn.Config(make_app(), host="127.0.0.1", port=0, log_level="error", ws="none")).run()
