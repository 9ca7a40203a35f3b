"""What an MCP host does with Waypost: connect to /mcp, list the tools, and let the model find agents with one of them.

Start: scripts/serve, then python examples/mcp_host.py          (needs: pip install mcp)
"""

import asyncio
import os

from mcp.client import Client

SERVICE = os.environ.get("WAYPOST_SERVER", "http://127.0.0.1:8440")


async def main() -> None:
    async with Client(f"{SERVICE}/mcp") as host:
        tools = (await host.list_tools()).tools
        print("tools:", ", ".join(tool.name for tool in tools))
        # The model would choose the tool and write the arguments.
        found = await host.call_tool("find_agents", {"query": "translate an invoice", "limit": 3})
        for agent in (found.structured_content or {})["candidates"]:
            print(f"{agent['match']:8}  {agent['name']}: {agent['reason']}")
        best = (found.structured_content or {})["candidates"][0]
        card = await host.call_tool("get_agent", {"id": best["id"], "as": "a2a"})
        print("its A2A card:", card.content[0].text[:60], "…")


if __name__ == "__main__":
    asyncio.run(main())
