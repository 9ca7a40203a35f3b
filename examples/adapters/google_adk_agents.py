"""Google ADK: agents of the registry as remote sub-agents, and the registry itself as an agent that is asked by A2A.

Start: scripts/serve, then python examples/adapters/google_adk_agents.py          (needs: pip install 'waypost[google-adk]')

No language model is needed: the runner sends the message to the service, which answers with the agents that fit.
"""

import asyncio

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from waypost import Client
from waypost.adapters.google_adk import agent_tools, remote_agents


async def ask(agent: RemoteA2aAgent, text: str) -> str:
    runner = InMemoryRunner(agent, app_name="example")
    session = await runner.session_service.create_session(app_name="example", user_id="me")
    message = types.Content(role="user", parts=[types.Part(text=text)])
    events = runner.run_async(user_id="me", session_id=session.id, new_message=message)
    parts = [part.text async for event in events if event.content for part in event.content.parts or () if part.text]
    await runner.close()
    return parts[0]


async def main() -> None:
    async with Client() as client:
        print("tools:", ", ".join(tool.name for tool in agent_tools(client)))
        print("sub-agents:", ", ".join(agent.name for agent in await remote_agents(client, "review code", limit=2)))
        registry = RemoteA2aAgent(name="registry", agent_card=f"{client.base_url}/.well-known/agent-card.json")
        print(await ask(registry, "translate an invoice"))


if __name__ == "__main__":
    asyncio.run(main())
