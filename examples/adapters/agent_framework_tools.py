"""Microsoft Agent Framework: tools that find and call agents of the registry.

Start: scripts/serve, then python examples/adapters/agent_framework_tools.py     (needs: pip install 'waypost[agent-framework]')

No language model is needed: the program invokes a tool as a model would. With one: `ChatAgent(…, tools=agent_tools(client))`.
"""

import asyncio

from waypost import Client
from waypost.adapters.agent_framework import agent_tools


async def main() -> None:
    async with Client() as client:
        find, call = agent_tools(client, limit=3)
        print("tools:", find.name, call.name)
        for content in await find.invoke(arguments={"task": "translate an invoice"}):
            print(content.text)


if __name__ == "__main__":
    asyncio.run(main())
