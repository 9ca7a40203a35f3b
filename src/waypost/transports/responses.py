"""Responses to a query: how they are collected, and how long they may be cached (announce.md §7). Pure.

A message whose signature is not valid for its own key is rejected. Whether that key may be trusted is up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.directory import agent_id_of, sequence_of
from waypost.trust.announce.signed_announcement import parse_signed_announcement
from waypost.trust.announce.trust_store import AgentPin


def matches_query(query: AgentQuery, message: JsonObject) -> bool:
    """Whether an Announce or Response matches the query."""
    try:
        return query.matches(agent_id_of(message), read_capabilities(message["agent"], "$.agent"))
    except WaypostError:
        return False


def is_signed(message: JsonObject) -> bool:
    """Whether the message has a signature, which must be valid for the key in the message."""
    announcement = parse_signed_announcement(message)
    if announcement.signature is None:
        return False
    if announcement.key is None or announcement.find_canonical_form(announcement.key, announcement.signature) is None:
        raise InvalidDocument("The signature is not valid.", path="$.signature", hint="Ignore this response.")
    return True


class QueryResponses:
    """The responses to one query: for each agent the newest one that is signed with the key that came first."""

    def __init__(self, query: AgentQuery) -> None:
        self.query = query
        self._responses: dict[str, tuple[JsonObject, str | None]] = {}  # with the key id; None if unsigned

    def __len__(self) -> int:
        return len(self._responses)

    def add(self, message: JsonObject, pin: AgentPin | None = None) -> bool:
        """Returns whether the message is a response to the query. The key in `pin` takes precedence over any other."""
        if message.get("matched") is False or not matches_query(self.query, message):  # P-6
            return False
        agent_id = agent_id_of(message)
        if agent_id not in self._responses and len(self._responses) >= limits.ANSWERS_PER_QUERY:
            return False
        with suppress(WaypostError):
            self._put(agent_id, message, _key_id(message), pin)
            return True
        return False

    def messages(self) -> list[JsonObject]:
        return [message for message, _ in self._responses.values()]

    def _put(self, agent_id: str, message: JsonObject, key_id: str | None, pin: AgentPin | None) -> None:
        current = self._responses.get(agent_id)
        if current is not None:
            current_message, current_key = current
            pinned_key = pin.active.key_id if pin is not None and pin.active is not None else current_key
            is_same_key = key_id == current_key
            if not is_same_key and key_id != pinned_key and not (current_key is None and key_id is not None):
                return
            if is_same_key and sequence_of(message) <= sequence_of(current_message):
                return
        self._responses[agent_id] = (message, key_id)


def _key_id(message: JsonObject) -> str | None:
    key = parse_signed_announcement(message).key
    return key.key_id if is_signed(message) and key is not None else None


class CachedResponse(msgspec.Struct, frozen=True):
    message: JsonObject
    expires_at: float


class ResponseCache:
    """Responses by query (P-31): for five minutes or their ttl; an empty result for five seconds."""

    def __init__(self, capacity: int = limits.QUERY_CACHE) -> None:
        self._capacity = capacity
        self._entries: dict[AgentQuery, tuple[float, tuple[CachedResponse, ...]]] = {}  # expiry and responses

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, query: AgentQuery, responses: Iterable[tuple[JsonObject, float]], now: float) -> None:
        """`responses`: messages with their remaining ttl in seconds."""
        key = _key(query)
        cached = tuple(
            CachedResponse(message, now + min(limits.POSITIVE_CACHE_SECONDS, ttl)) for message, ttl in responses
        )
        expires_at = min((each.expires_at for each in cached), default=now + limits.NEGATIVE_CACHE_SECONDS)
        self._entries.pop(key, None)
        self._entries[key] = (expires_at, cached)
        if len(self._entries) > self._capacity:
            del self._entries[next(iter(self._entries))]

    def find(self, query: AgentQuery, now: float) -> list[JsonObject] | None:
        """The responses while all of them are valid; None if the query must be sent again."""
        entry = self._entries.get(_key(query))
        if entry is None or now >= entry[0]:
            return None
        return [each.message for each in entry[1]]

    def find_stale(self, query: AgentQuery) -> list[JsonObject]:
        """Expired responses, for a caller that prefers them to an error. It must mark them as stale."""
        entry = self._entries.get(_key(query))
        return [] if entry is None else [each.message for each in entry[1]]

    def remove_agent(self, agent_id: str) -> None:
        """Drop the responses of an agent that was removed or revoked."""
        for key, (expires_at, cached) in tuple(self._entries.items()):
            remaining = tuple(each for each in cached if agent_id_of(each.message) != agent_id.lower())
            if len(remaining) != len(cached):
                self._entries[key] = (expires_at, remaining)


def _key(query: AgentQuery) -> AgentQuery:
    """The query without its id and version."""
    return msgspec.structs.replace(query, query_id=None, minor=0)
