"""What every adapter offers a model: two functions, with the names and descriptions that the model reads.

`find_agents` searches the registry, `call_agent` calls one of the agents that were found. The answers are short texts: a model
pays for every word.
"""

from __future__ import annotations

from typing import Final

from waypost.client.aio.client import Client
from waypost.errors import WaypostError
from waypost.responses.search import Candidate

FIND_AGENTS: Final = "find_agents"
FIND_DESCRIPTION: Final = (
    "Find agents and tools that can do a task. Give the task in plain words. Returns the best ones with their id, what they do "
    "and how well they fit."
)
CALL_AGENT: Final = "call_agent"
CALL_DESCRIPTION: Final = (
    "Send a text to one of the agents that find_agents returned, by its id, and return its answer."
)
_NOTHING: Final = "No agent fits this task."


class AgentTools:
    """The two functions, bound to a client and to the bounds of a search."""

    def __init__(self, client: Client, *, limit: int = 5, protocols: tuple[str, ...] = ()) -> None:
        self._client = client
        self._limit = limit
        self._protocols = protocols

    async def find(self, task: str) -> list[Candidate]:
        """The agents that fit well enough to be shown."""
        found = await self._client.find(task, limit=self._limit, protocols=self._protocols, min_match="possible")
        return list(found.candidates)

    async def find_agents(self, task: str) -> str:
        """The agents that fit, as text for a model."""
        candidates = await self.find(task)
        return "\n".join(map(describe, candidates)) or _NOTHING

    async def call_agent(self, id: str, text: str) -> str:  # noqa: A002
        """The answer of an agent. An error is an answer too: the model may try another agent."""
        try:
            return (await self._client.call(id, text)).text
        except WaypostError as error:
            return f"The call failed: {error.message}"


def describe(candidate: Candidate) -> str:
    """One line for a model."""
    protocols = ", ".join(candidate.protocols)
    return f"- {candidate.id}: {candidate.name}. {candidate.description} ({candidate.match} match; {protocols})"
