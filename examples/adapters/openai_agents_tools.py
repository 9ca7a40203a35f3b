"""OpenAI Agents SDK: an agent that finds and calls agents of the registry.

Start: scripts/serve, then python examples/adapters/openai_agents_tools.py          (needs: pip install 'waypost[openai-agents]')

No language model is needed: the program invokes a tool as a model would. With one: `await Runner.run(agent, "…")`.
"""

import asyncio
import json

from agents import Agent
from agents.tool_context import ToolContext

from waypost import Client
from waypost.adapters.openai_agents import agent_tools


async def main() -> None:
    async with Client() as client:
        agent = Agent(name="Dispatcher", instructions="Find the best agent and ask it.", tools=agent_tools(client))
        print(agent.name, "has", ", ".join(tool.name for tool in agent.tools))
        find = agent.tools[0]
        arguments = json.dumps({"task": "translate an invoice"})
        call = ToolContext(context=None, tool_name=find.name, tool_call_id="call-1", tool_arguments=arguments)
        print(await find.on_invoke_tool(call, arguments))


if __name__ == "__main__":
    asyncio.run(main())
