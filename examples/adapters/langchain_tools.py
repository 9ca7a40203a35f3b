"""LangChain: agents of the registry as tools for a model, and as documents of a retriever.

Start: scripts/serve, then python examples/adapters/langchain_tools.py          (needs: pip install 'waypost[langchain]')

No language model is needed: the program invokes the tools as a model would. With one: `model.bind_tools(agent_tools(client))`.
"""

import asyncio

from waypost import Client, SyncClient
from waypost.adapters.langchain import AgentRetriever, agent_tools


async def main() -> None:
    async with Client() as client:
        find, call = agent_tools(client, limit=3)
        print(find.name, "takes", ", ".join(find.args), "and", call.name, "takes", ", ".join(call.args))
        print(await find.ainvoke({"task": "translate an invoice"}))
    with SyncClient() as client:
        for document in AgentRetriever(client=client, limit=3).invoke("translate an invoice"):
            print(document.metadata["match"], document.metadata["name"], "at", document.metadata["endpoint"])


if __name__ == "__main__":
    asyncio.run(main())
