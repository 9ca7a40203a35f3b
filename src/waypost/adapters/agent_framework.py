"""Microsoft Agent Framework: tools for an agent (`pip install 'waypost[agent-framework]'`)."""

from __future__ import annotations

from agent_framework import FunctionTool

from waypost.adapters.toolbox import CALL_AGENT, CALL_DESCRIPTION, FIND_AGENTS, FIND_DESCRIPTION, AgentTools
from waypost.client.aio.client import Client


def agent_tools(client: Client, *, limit: int = 5, protocols: tuple[str, ...] = ()) -> list[FunctionTool]:
    """Tools for `ChatAgent(tools=…)`: find agents, and call one."""
    tools = AgentTools(client, limit=limit, protocols=protocols)
    return [
        FunctionTool(name=FIND_AGENTS, description=FIND_DESCRIPTION, func=tools.find_agents),
        FunctionTool(name=CALL_AGENT, description=CALL_DESCRIPTION, func=tools.call_agent),
    ]
