"""Replies of the service as an agent with the capability `discover`: a text is a search query, and the answer is a text.

A peer sees public agents, and those that its token allows.
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

Discover = Callable[[JsonObject, Principal, str], Awaitable[bytes]]  # Discovery Request, caller and id to the Response

_HELP = (
    "I am a registry of agents. Tell me in your own words what you need, and I name agents that can do it: "
    "“translate an invoice to French”. `get ID` describes an agent, `echo TEXT` repeats a text."
)
_GREETINGS = frozenset(("", "help", "?", "hello", "hi", "hey"))
_MAX_CANDIDATES = 5
_DESCRIPTION_CHARS = 240


class ServiceReplies:
    def __init__(
        self, registry: Registry, discover: Discover, rights: Callable[[str], Principal] = lambda agent: ANONYMOUS
    ) -> None:
        """`rights`: the principal of a peer."""
        self._registry = registry
        self._discover = discover
        self._rights = rights

    async def answer(self, message: AgentMessage, connection: AgpConnection | None) -> AsyncIterator[MessageContent]:
        text = message.content.text.strip()
        word, _, rest = text.partition(" ")
        principal = self._rights(message.peer)
        if text.lower().rstrip("!. ") in _GREETINGS:
            yield MessageContent(text=_HELP)
        elif word.lower() == "echo":
            yield MessageContent(text=rest)
        elif word.lower() == "get" and rest and " " not in rest.strip():
            yield MessageContent(text=await self._describe(principal, rest.strip()))
        else:
            yield MessageContent(text=_results_text(text, await self._find(principal, text)))

    async def task(self, message: AgentMessage, connection: AgpConnection | None) -> AsyncIterator[MessageContent]:
        """A task in a message: `{"task": "discover" | "echo", "input": …}`. The result is JSON, as over HTTP."""
        try:
            yield MessageContent(text=(await self._result(message)).decode(), type=JSON)
        except WaypostError as error:
            problem = {"code": error.code, "message": str(error)}
            yield MessageContent(text=dump_json({"error": problem}).decode(), type=JSON)

    async def _result(self, message: AgentMessage) -> bytes:
        document = parse_object(message.content.text.encode(), max_bytes=limits.DOCUMENT_BYTES)
        name, task_input = document.get("task"), document.get("input")
        if name == "echo":
            return dump_json({"task": "echo", "result": task_input})
        if name != "discover" or not isinstance(task_input, dict):
            raise InvalidRequest(
                "The supported tasks are discover, with a Discovery Request, and echo.",
                path="$.task",
                hint='Send {"task": "discover", "input": {"query": "…"}}.',
            )
        response = await self._discover(task_input, self._rights(message.peer), message.id)
        if len(response) > limits.AGP_RESULT_BYTES:
            raise TooLarge("The result is too large for a message.", path="$.input.limit", hint="Lower the limit.")
        return b'{"task":"discover","result":' + response + b"}"

    async def _find(self, principal: Principal, text: str) -> DiscoverResult:
        query = Query(text=text[: limits.QUERY_CHARS], limit=_MAX_CANDIDATES, detail="summary", include_evidence=True)
        return await self._registry.find(query, principal)

    async def _describe(self, principal: Principal, key: str) -> str:
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
        return "I know no agent for that. Try other words, or register one."
    fitting = [each for each in findings.candidates if each.match != "weak"]
    candidates = fitting or findings.candidates
    if not fitting:
        head = "Nothing fits well. The nearest:"
    else:
        head = "This agent can help:" if len(fitting) == 1 else "These agents can help, the best first:"
    return "\n".join([head, *(f"{place}. {_candidate_text(each)}" for place, each in enumerate(candidates, 1))])


def _candidate_text(candidate: MatchedAgent) -> str:
    record = candidate.record
    level = BADGES.get(candidate.trust.level, BADGES["self_asserted"])
    about = f"{record.name} — {_shorten(record.description)}"
    return f"{about}\n   {record.id} · {candidate.match} match · {level}\n   {candidate.reason}"


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _DESCRIPTION_CHARS else flat[: _DESCRIPTION_CHARS - 1].rstrip() + "…"


class OfflineReplies:
    """Replies for a hosted agent that is not connected: where it can be reached."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def answer(self, message: AgentMessage, connection: AgpConnection | None) -> AsyncIterator[MessageContent]:
        agent = connection.session.me.agent if connection is not None else ""
        entry = self._registry.hosted(agent.removeprefix("agent:"))
        found = await self._registry.registrations((entry.id,)) if entry is not None else []
        if not found:
            yield MessageContent(text="This agent is no longer here.")
            return
        record = found[0].record
        lines = [f"{record.name} is hosted here, but not connected. {_shorten(record.description)}"]
        lines += [f"It can be reached by {each.protocol} at {each.endpoint}." for each in record.bindings]
        yield MessageContent(text="\n".join(lines))
