"""OpenAI Agents SDK: tools for an `Agent` (`pip install 'waypost[openai-agents]'`)."""

from __future__ import annotations

from agents import Tool, function_tool

from waypost.adapters.toolbox import CALL_AGENT, CALL_DESCRIPTION, FIND_AGENTS, FIND_DESCRIPTION, AgentTools
from waypost.client.aio.client import Client


def agent_tools(client: Client, *, limit: int = 5, protocols: tuple[str, ...] = ()) -> list[Tool]:
    """Tools for `Agent(tools=…)`: find agents, and call one."""
    tools = AgentTools(client, limit=limit, protocols=protocols)
    return [
        function_tool(tools.find_agents, name_override=FIND_AGENTS, description_override=FIND_DESCRIPTION),
        function_tool(tools.call_agent, name_override=CALL_AGENT, description_override=CALL_DESCRIPTION),
    ]
