"""Describe a task, take the best agent that fits, and call it by A2A. The agent runs in this program, with the A2A SDK.

Start: scripts/serve, then python examples/find_and_call.py          (needs: pip install "a2a-sdk[http-server]" uvicorn)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

from waypost import SyncClient


class Packer(AgentExecutor):
    """The agent: it answers every message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = f"For {context.get_user_input()!r}: boots, water, a rain jacket and a map."
        await event_queue.enqueue_event(new_text_message(text, context_id=context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """There is nothing to cancel."""


@contextmanager
def serving(port: int, card: AgentCard) -> Iterator[None]:
    handler = DefaultRequestHandler(agent_executor=Packer(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/"))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.05)
    yield
    server.should_exit = True
    thread.join()


def main(port: int = 9701) -> None:
    card = AgentCard(
        name="Trail Packer",
        description="Says what to pack for a day hike.",
        version="1.0.0",
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        skills=[AgentSkill(id="pack", name="Pack", description="What to pack for a hike.", tags=["hiking"])],
    )
    with serving(port, card), SyncClient() as waypost:
        receipt = waypost.register(MessageToDict(card))
        best = waypost.find("what do I pack for a hike in the rain?", min_match="possible").candidates[0]
        print(f"{best.match}: {best.name} at {best.endpoint}")
        print(best.reason)
        print(waypost.call(best.id, "a hike in the rain"))
        waypost.withdraw(receipt.id)


if __name__ == "__main__":
    main()
