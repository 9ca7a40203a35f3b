"""Another Waypost registry: its change feed, signed, with long polls; and its search."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.federation.kinds.ard import ask_registry
from waypost.federation.kinds.documents import split_json
from waypost.federation.kinds.port import UNREADABLE, PeerPage, PeerProblem, Question
from waypost.federation.kinds.requests import BAD_REQUEST, GONE, PeerRequests
from waypost.federation.peers import Peer
from waypost.model.times import find_instant, to_rfc3339_millis
from waypost.registry.ports import Clock, OutboundSender
from waypost.responses.federation import FeedBookmark, FeedDocument, FeedEntry, FeedOrigin
from waypost.time_slice import TimeSlice

_DISCOVER_PATH: Final = "/profile/v1/discover"
_ARD_PATH: Final = "/ard"
# Members of an answered candidate that are the peer's, not the agent's: they are judged here again.
_FINDINGS: Final = frozenset(
    (
        "score", "match", "reason", "provisional", "redacted", "freshness", "trust", "health", "federation",
        "score_components", "matched_tags", "expanded_tags", "matched_examples", "snippets", "flags",
        "credential_refs", "untrusted", "self_asserted",
    )
)  # fmt: skip

_entry_decoder = msgspec.json.Decoder(FeedEntry)
_bookmark_decoder = msgspec.json.Decoder(FeedBookmark)


class WaypostRegistry:
    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._requests = PeerRequests(sender)
        self._clock = clock

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        query = f"wait={wait_seconds:g}&limit={limit}" + (f"&from={quote(cursor)}" if cursor else "")
        refused = () if cursor is None else (BAD_REQUEST,)  # another registry is there now, or its keys were lost
        response = await self._requests.get(peer, f"{peer.url}/api/v1/feed?{query}", expected=refused)
        if response.status in (GONE, *refused):
            return None
        return await parse_feed(response.body, is_first=cursor is None)

    async def ask(self, peer: Peer, question: Question) -> Sequence[FeedEntry]:
        if question.filter is not None:
            return await ask_registry(self._requests, peer, peer.url + _ARD_PATH, question, self._clock.now())
        body = {
            "query": question.text,
            "required_tags": question.required_tags,
            "preferred_tags": question.preferred_tags,
            "excluded_tags": question.excluded_tags,
            "protocols": question.protocols,
            "statuses": question.statuses,
            "limit": question.limit,
            "detail": "full",
        }
        sent = msgspec.json.encode({name: value for name, value in body.items() if value})
        response = await self._requests.ask(peer, peer.url + _DISCOVER_PATH, sent, question.path)
        now = self._clock.now()
        return await split_json(lambda body: parse_candidates(peer, body, question.limit, now), response.body)


async def parse_feed(body: bytes, *, is_first: bool) -> PeerPage:
    if body.count(b"\n") > limits.PEER_PAGE_MAX + 1:
        raise PeerProblem(f"It sends more than {limits.PEER_PAGE_MAX} lines at a time.")
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise PeerProblem("It answered without a bookmark.")
    try:
        bookmark = _bookmark_decoder.decode(lines[-1])
    except UNREADABLE:
        raise PeerProblem("The last line of its answer is not a bookmark.") from None
    if bookmark.type != "bookmark" or not bookmark.cursor:
        raise PeerProblem("The last line of its answer is not a bookmark.")
    entries, bad, time_slice = [], 0, TimeSlice(limits.PEER_SLICE_SECONDS)
    for line in lines[:-1]:
        await time_slice.step()
        try:
            entries.append(_entry_decoder.decode(line))
        except UNREADABLE:
            bad += 1  # the digest will not match, and says so
    return PeerPage(
        entries=entries,
        cursor=bookmark.cursor,
        service_id=bookmark.service_id,
        is_last=bookmark.digest is not None,
        starts_over=is_first,
        ends_snapshot=not bookmark.snapshot,
        count=bookmark.count,
        bad=bad,
        bookmark=bookmark,
    )


def parse_candidates(peer: Peer, body: bytes, limit: int, now: float) -> list[FeedEntry]:
    """The candidates of a Discovery Response as documents, best first. One that cannot be read is left out."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
        candidates = answer["candidates"]
    except (KeyError, *UNREADABLE):
        raise PeerProblem("Its answer to a question is not a Discovery Response.") from None
    if not isinstance(candidates, list):
        raise PeerProblem("Its answer to a question is not a Discovery Response.")
    return [_candidate_entry(peer, each, now) for each in candidates[:limit] if _is_candidate(each)]


def _is_candidate(candidate: object) -> bool:
    return isinstance(candidate, dict) and isinstance(candidate.get("id"), str)


def _candidate_entry(peer: Peer, candidate: Mapping[str, Any], now: float) -> FeedEntry:
    members = {name: value for name, value in candidate.items() if name not in _FINDINGS}
    document = msgspec.json.encode(members)
    digest = hashlib.sha256(document).hexdigest()
    return FeedEntry(
        type="updated",
        id=candidate["id"],
        at=to_rfc3339_millis(now),
        etag=digest[:22],
        origin=_candidate_origin(peer, candidate, now),
        documents=(FeedDocument(dialect="profile", document=document.decode(), digest=digest),),
    )


def _candidate_origin(peer: Peer, candidate: Mapping[str, Any], now: float) -> FeedOrigin:
    """An agent that the peer has from another registry keeps that origin."""
    freshness = _object(candidate, "freshness")
    stated = freshness.get("metadata_updated_at")
    origin = _object(candidate, "federation")
    updated_at = origin.get("origin_updated_at", stated)
    updated_at = updated_at if isinstance(updated_at, str) else None
    instant = find_instant(updated_at)
    service, via = origin.get("origin_service"), origin.get("via")
    via = [each for each in via if isinstance(each, str)] if isinstance(via, list) else []
    is_direct = not isinstance(service, str)
    return FeedOrigin(
        service=peer.url if is_direct else str(service),
        service_id=peer.url if is_direct else str(service),
        id=candidate["id"],
        revision=int((now if instant is None else instant) * 1000),
        updated_at=updated_at,
        via=() if is_direct else (*via, peer.url),
        path=() if is_direct else (*via, peer.url),
    )


def _object(members: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}
