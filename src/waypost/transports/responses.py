"""Answers to queries: how those to one question are put together, and how long they may be used again (announce.md §7).

Pure. A message whose signature does not hold by the key that it brings along is none; whose key that is, the caller judges.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.directory import agent_id_of, sequence_of
from waypost.trust.announce.key_pins import AgentPin
from waypost.trust.announce.signed_announcement import parse_signed_announcement


def matches_query(query: AgentQuery, message: JsonObject) -> bool:
    """Whether an Announce or Response is what was asked for."""
    try:
        return query.matches(agent_id_of(message), read_capabilities(message["agent"], "$.agent"))
    except WaypostError:
        return False


def is_signed(message: JsonObject) -> bool:
    """Whether the signature holds by the key in the message. Raises for a signature that is there and does not."""
    said = parse_signed_announcement(message)
    if said.signature is None:
        return False
    if said.key is None or said.find_canonical_form(said.key, said.signature) is None:
        raise InvalidDocument("The signature does not hold.", path="$.signature", hint="Ignore this answer.")
    return True


class QueryResponses:
    """What came back to one question: for each agent the newest that is signed by the key that was seen first."""

    def __init__(self, query: AgentQuery) -> None:
        self.query = query
        self._found: dict[str, tuple[JsonObject, str | None]] = {}  # with the key id; None: unsigned

    def __len__(self) -> int:
        return len(self._found)

    def take(self, message: JsonObject, pin: AgentPin | None = None) -> bool:
        """Whether it is an answer. A key that `pin` names wins over any other."""
        if message.get("matched") is False or not matches_query(self.query, message):  # P-6
            return False
        agent_id = agent_id_of(message)
        if agent_id not in self._found and len(self._found) >= limits.ANSWERS_PER_QUERY:
            return False
        with suppress(WaypostError):
            self._keep(agent_id, message, _key_id(message), pin)
            return True
        return False

    def found(self) -> list[JsonObject]:
        return [message for message, _ in self._found.values()]

    def _keep(self, agent_id: str, message: JsonObject, key_id: str | None, pin: AgentPin | None) -> None:
        held = self._found.get(agent_id)
        if held is not None:
            bound = pin.active.key_id if pin is not None and pin.active is not None else held[1]
            same = key_id == held[1]
            if not same and key_id != bound and not (held[1] is None and key_id is not None):
                return
            if same and sequence_of(message) <= sequence_of(held[0]):
                return
        self._found[agent_id] = (message, key_id)


def _key_id(message: JsonObject) -> str | None:
    said = parse_signed_announcement(message)
    return said.key.key_id if is_signed(message) and said.key is not None else None


# --- Memory (P-31) --------------------------------------------------------------------------------


class CachedResponse(msgspec.Struct, frozen=True):
    """One answer and until when it is good."""

    message: JsonObject
    expires_at: float


class ResponseCache:
    """Answers that may be given again: found ones for five minutes or their ttl, nothing-found for five seconds."""

    def __init__(self, most: int = limits.QUERY_CACHE) -> None:
        self._most = most
        self._kept: OrderedDict[AgentQuery, tuple[float, tuple[CachedResponse, ...]]] = OrderedDict()  # until when

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, query: AgentQuery, found: Iterable[tuple[JsonObject, float]], now: float) -> None:
        """`found`: messages, each with the seconds that it is still good for."""
        key = _key(query)
        answers = tuple(
            CachedResponse(message, now + min(limits.POSITIVE_CACHE_SECONDS, ttl)) for message, ttl in found
        )
        until = min((each.expires_at for each in answers), default=now + limits.NEGATIVE_CACHE_SECONDS)
        self._kept[key] = (until, answers)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, query: AgentQuery, now: float) -> list[JsonObject] | None:
        """The answers while all of them are good; None: ask again."""
        kept = self._kept.get(_key(query))
        if kept is None or now >= kept[0]:
            return None
        return [each.message for each in kept[1]]

    def find_stale(self, query: AgentQuery) -> list[JsonObject]:
        """What was known once, for a caller that would rather have that than an error; it must be marked as stale."""
        kept = self._kept.get(_key(query))
        return [] if kept is None else [each.message for each in kept[1]]

    def purge(self, agent_id: str) -> None:
        """The agent was removed or revoked: no answer names it any more."""
        for key, (until, answers) in tuple(self._kept.items()):
            left = tuple(each for each in answers if agent_id_of(each.message) != agent_id.lower())
            if len(left) != len(answers):
                self._kept[key] = (until, left)

    def forget(self) -> None:
        """Somebody new is there: nothing-found may be wrong now."""
        for key in [key for key, (_, answers) in self._kept.items() if not answers]:
            del self._kept[key]


def _key(query: AgentQuery) -> AgentQuery:
    """The question without who asked."""
    return msgspec.structs.replace(query, query_id=None, minor=0)
