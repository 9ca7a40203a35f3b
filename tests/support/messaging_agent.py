"""An agent in a separate process: it stays connected to its registry, chats, does tasks and follows its swarm.

    python -m support.messaging_agent AGENT KEY-FILE REGISTRY

Names of other agents are resolved with the settings (WAYPOST_RESOLVER, …). Swarm messages are printed as lines on stdout.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from waypost import Client, LiveAgent
from waypost.client.chat import ChatMessage
from waypost.client.tasks import serve_tasks
from waypost.net.outbound import OutboundOptions
from waypost.responses.messaging import LeasedTask
from waypost.settings import load_settings
from waypost.trust.keys.private_key import PrivateKey


def named_agent(agent: str, key: PrivateKey | Path, registry: str, token: str | None, environment: Any) -> LiveAgent:
    """An agent that finds others only by the configured DNS."""
    settings = load_settings({}, environ=environment)
    options = OutboundOptions(
        allow_cidrs=settings.allow_cidrs,
        resolver=settings.resolver,
        ca_file=settings.fetch_ca,
        trust_anchors=settings.trust_anchors,
    )
    return LiveAgent(agent, key, registry=registry, token=token, resolver=options, ca=settings.fetch_ca)


async def summarise(work: LeasedTask) -> Any:
    return {"from": work.from_, "text": work.input["text"][:5]}


async def live(name: str, key: Path, registry: str) -> None:
    environment = dict(os.environ)
    agent = named_agent(name, key, registry, environment["TOKEN"], environment)

    @agent.on_chat
    async def answer(message: ChatMessage) -> str:
        return f"{message.sender} {'verified' if message.verified else 'unknown'}: {message.text}"

    @agent.on_task
    async def told(message: ChatMessage) -> None:
        print("told", message.sender, message.text, flush=True)

    async with agent, Client(registry, environment["TOKEN"], ca=Path(environment["WAYPOST_FETCH_CA"])) as client:
        await agent.attach()
        print("ready", flush=True)
        await serve_tasks(client, name, {"summarise": summarise})


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
