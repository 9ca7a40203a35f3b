"""Google ADK: tools for an agent, and agents of the registry as sub-agents (`pip install 'waypost[google-adk]'`)."""

from __future__ import annotations

import re

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.tools import FunctionTool

from waypost.adapters.toolbox import CALL_DESCRIPTION, FIND_DESCRIPTION, AgentTools
from waypost.client.aio.client import Client
from waypost.model.names import slug


def agent_tools(client: Client, *, limit: int = 5, protocols: tuple[str, ...] = ()) -> list[FunctionTool]:
    """Tools for `Agent(tools=…)`: find agents, and call one. ADK reads names and descriptions of functions."""
    tools = AgentTools(client, limit=limit, protocols=protocols)

    async def find_agents(task: str) -> str:
        return await tools.find_agents(task)

    async def call_agent(id: str, text: str) -> str:  # noqa: A002
        return await tools.call_agent(id, text)

    find_agents.__doc__, call_agent.__doc__ = FIND_DESCRIPTION, CALL_DESCRIPTION
    return [FunctionTool(find_agents), FunctionTool(call_agent)]


async def remote_agents(client: Client, task: str, *, limit: int = 5) -> list[RemoteA2aAgent]:
    """The A2A agents that fit a task, for `sub_agents=…`. ADK resolves the card of each at `/a2a/{id}` when it is called."""
    protocols = ("a2a+jsonrpc", "a2a+http-json", "a2a+grpc")
    found = await AgentTools(client, limit=limit, protocols=protocols).find(task)
    return [
        RemoteA2aAgent(
            name=re.sub(r"\W+", "_", each.name).strip("_") or "agent",
            description=each.description,
            agent_card=f"{client.base_url}/a2a/{slug(each.id)}/.well-known/agent-card.json",
        )
        for each in found
    ]
