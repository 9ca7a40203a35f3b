"""What the service says when somebody talks to it: a text is a question for agents, and the answer is told in words.

It is an agent whose capability is `discover`. Whoever talks to it sees what everybody sees, or what its token lets it see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from waypost import limits
from waypost.errors import InvalidRequest, TooLarge, WaypostError
from waypost.messaging.connection import AgpConnection
from waypost.messaging.message_store import AgentMessage
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import ANONYMOUS, Principal
from waypost.model.query import DiscoverResult, MatchedAgent, Query
from waypost.model.registration import trust_of
from waypost.model.verdict import BADGES
from waypost.protocols.adp.agp.messages import JSON, MessageContent
from waypost.registry.registry import Registry

Discover = Callable[[JsonObject, Principal, str], Awaitable[bytes]]  # Discovery Request, who asks, id → the Response

_HELP = (
    "I am a registry of agents. Tell me in your own words what you need done, and I name agents that can do it: "
    "“translate an invoice to French”. `get ID` tells more of one, `echo TEXT` repeats a text."
)
_GREETINGS = frozenset(("", "help", "?", "hello", "hi", "hey"))
_MAX_CANDIDATES = 5
_DESCRIPTION_CHARS = 240


class ServiceReplies:
    def __init__(
        self, registry: Registry, discover: Discover, rights: Callable[[str], Principal] = lambda agent: ANONYMOUS
    ) -> None:
        """`rights`: what the peer of a conversation may see."""
        self._registry = registry
        self._discover = discover
        self._rights = rights

    async def answer(self, letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        text = letter.content.text.strip()
        word, _, rest = text.partition(" ")
        principal = self._rights(letter.peer)
        if text.lower().rstrip("!. ") in _GREETINGS:
            yield MessageContent(text=_HELP)
        elif word.lower() == "echo":
            yield MessageContent(text=rest)
        elif word.lower() == "get" and rest and " " not in rest.strip():
            yield MessageContent(text=await self._told(principal, rest.strip()))
        else:
            yield MessageContent(text=_results_text(text, await self._find(principal, text)))

    async def task(self, letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        """A task in a message: `{"task": "discover" | "echo", "input": …}`; the result is JSON, as that of a task by HTTP."""
        try:
            yield MessageContent(text=(await self._result(letter)).decode(), type=JSON)
        except WaypostError as error:
            told = {"code": error.code, "message": str(error)}
            yield MessageContent(text=dump_json({"error": told}).decode(), type=JSON)

    async def _result(self, letter: AgentMessage) -> bytes:
        asked = parse_object(letter.content.text.encode(), max_bytes=limits.DOCUMENT_BYTES)
        name, given = asked.get("task"), asked.get("input")
        if name == "echo":
            return dump_json({"task": "echo", "result": given})
        if name != "discover" or not isinstance(given, dict):
            raise InvalidRequest(
                "The tasks here are discover, with a Discovery Request, and echo.",
                path="$.task",
                hint='Send {"task": "discover", "input": {"query": "…"}}.',
            )
        found = await self._discover(given, self._rights(letter.peer), letter.id)
        if len(found) > limits.AGP_RESULT_BYTES:
            raise TooLarge("What was found is too much for a message.", path="$.input.limit", hint="Ask for fewer.")
        return b'{"task":"discover","result":' + found + b"}"

    async def _find(self, principal: Principal, text: str) -> DiscoverResult:
        query = Query(text=text[: limits.QUERY_CHARS], limit=_MAX_CANDIDATES, detail="summary", include_evidence=True)
        return await self._registry.find(query, principal)

    async def _told(self, principal: Principal, key: str) -> str:
        try:
            registration = await self._registry.get(principal, key)
        except WaypostError as error:
            return error.message
        record = registration.record
        lines = [f"{record.name} ({record.id})", _shorten(record.description)]
        lines += [f"speaks {binding.protocol} at {binding.endpoint}" for binding in record.bindings]
        if record.tags:
            lines.append("tags: " + ", ".join(record.tags[:12]))
        lines.append(f"trust: {BADGES[trust_of(registration).level]}")
        return "\n".join(lines)


def _results_text(text: str, findings: DiscoverResult) -> str:
    if not findings.candidates:
        return "I know no agent for that. Say it in other words, or register one that can do it."
    head = "This one can help:" if len(findings.candidates) == 1 else "These can help, the best first:"
    return "\n".join(
        [head, *(f"{place}. {_candidate_text(each)}" for place, each in enumerate(findings.candidates, 1))]
    )


def _candidate_text(candidate: MatchedAgent) -> str:
    record = candidate.record
    level = BADGES.get(candidate.trust.level, "claimed")
    return f"{record.name} — {_shorten(record.description)}\n   {record.id} · score {candidate.score:.2f} · {level}"


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _DESCRIPTION_CHARS else flat[: _DESCRIPTION_CHARS - 1].rstrip() + "…"


class OfflineReplies:
    """What is said in the name of a hosted agent that holds no line: that it is known here, and where it can be asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def answer(self, letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        agent = conversation.session.me.agent if conversation is not None else ""
        entry = self._registry.hosted(agent.removeprefix("agent:"))
        found = await self._registry.registrations((entry.id,)) if entry is not None else []
        if not found:
            yield MessageContent(text="This agent is not here any more.")
            return
        record = found[0].record
        lines = [f"{record.name} is hosted here and does not talk by itself now. {_shorten(record.description)}"]
        lines += [f"It can be asked by {each.protocol} at {each.endpoint}." for each in record.bindings]
        yield MessageContent(text="\n".join(lines))
