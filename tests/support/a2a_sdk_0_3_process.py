"""Runs with a2a-sdk 0.3: resolves the card of every agent by its base URL, and sends the service a message. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import quote

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart

STATUSES = ("active", "inactive", "suspended", "deprecated", "testing")
LISTED = "/api/v1/agents?limit=200&" + "&".join(f"status={status}" for status in STATUSES)
OLDER_PATH = "/.well-known/agent-card.json?v=0.3"


async def main(base_url: str) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        listed = (await http.get(f"{base_url}{LISTED}")).json()["agents"]
        cards = {}
        for agent in listed:
            resolver = A2ACardResolver(http, f"{base_url}/a2a/{quote(agent['id'], safe='')}")
            read = [await resolver.get_agent_card(), await resolver.get_agent_card(OLDER_PATH)]
            cards[agent["id"]] = [card.model_dump(exclude_none=True, exclude={"signatures"}) for card in read]
        card = await A2ACardResolver(http, base_url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        message = Message(message_id="m", role=Role.user, parts=[Part(root=TextPart(text="translate an invoice"))])
        answers = [event async for event in client.send_message(message)]
    return {"cards": cards, "answer": [part.model_dump() for part in answers[0].parts]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
