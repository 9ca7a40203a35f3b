"""The change feed for peers, and what operators see of peers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from waypost import limits
from waypost.model.federation import Federation
from waypost.model.times import to_rfc3339
from waypost.responses.base import Answer, Count, Part, Timestamp, described, one_of

FEED_CHANGES = ("registered", "updated", "renewed", "withdrawn", "expired")
PEER_KINDS = ("waypost", "mcp", "ard", "catalog", "a2a", "domain")
ASKED_KINDS = ("waypost", "ard")  # they answer searches
BREAKER_STATES = ("closed", "open", "half_open")
PEER_STATES = ("new", "syncing", "current", "failing", "paused")


class FederationView(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The origin of an agent that a peer sent (PRO-44, PRO-45). All members are there: no way is not an unknown one."""

    origin_service: str
    origin_id: str
    origin_updated_at: str | None = None
    received_at: Timestamp
    via: tuple[str, ...] = ()
    peer: str


def federation_view(federation: Federation) -> FederationView:
    return FederationView(
        origin_service=federation.origin_service,
        origin_id=federation.origin_id,
        origin_updated_at=federation.origin_updated_at,
        received_at=to_rfc3339(federation.received_at),
        via=federation.via,
        peer=federation.peer,
    )


# --- The feed -------------------------------------------------------------------------------------
#
# Peers send it, too, so everything that is kept of it has a bound.

_Id = Annotated[str, msgspec.Meta(max_length=limits.ID_CHARS)]
_Url = Annotated[str, msgspec.Meta(max_length=limits.FETCH_URL_CHARS)]
_Time = Annotated[str, msgspec.Meta(max_length=limits.FEED_TIME_CHARS)]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class FeedOrigin(Part, frozen=True, kw_only=True):
    """Where and when an agent was registered. `path` has the ids of the services in `via`."""

    service: _Url
    service_id: _Id
    id: _Id
    revision: _Whole
    updated_at: _Time | None = None
    via: Annotated[tuple[_Url, ...], msgspec.Meta(max_length=limits.FEED_VIA)] = ()
    path: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=limits.FEED_VIA)] = ()


class FeedDocument(Part, frozen=True, kw_only=True):
    """A document exactly as its publisher sent it."""

    dialect: str
    document: str
    digest: Annotated[str, described("SHA-256 of the document, in hex")]
    url: _Url | None = None


class FeedEntry(Part, frozen=True, kw_only=True):
    """One change. The last two types have no documents: the agent is gone."""

    type: Annotated[str, one_of(*FEED_CHANGES)]
    id: _Id
    at: Timestamp
    etag: Annotated[str, msgspec.Meta(max_length=limits.FEED_ETAG_CHARS)]
    origin: FeedOrigin | None = None
    status: str | None = None
    expires_at: Timestamp | None = None
    aliases: tuple[str, ...] = ()
    documents: Annotated[tuple[FeedDocument, ...], described("the newest first")] = ()


class KeyChange(Part, frozen=True, kw_only=True):
    """A key that the service had before, and its signature for the present one."""

    key: Annotated[str, described("the replaced public key, DER in base64")]
    signature: Annotated[
        str,
        described(
            'Ed25519, of {"key": the present key, "service_id", "type": "key-change"} as canonical JSON (RFC 8785)'
        ),
    ]


class FeedBookmark(Part, frozen=True, kw_only=True):
    """The last line of a page: where to go on. With a `digest` it states which agents a reader of all lines has."""

    type: Annotated[str, one_of("bookmark")]
    cursor: Annotated[str, msgspec.Meta(max_length=limits.FEED_CURSOR_CHARS)]
    at: Timestamp
    service: _Url
    service_id: _Id
    snapshot: Annotated[bool, described("more pages of all agents follow")] = False
    count: Annotated[_Whole, described("public agents of the service")]
    digest: Annotated[str, described("of the ids and entity tags of all of them")] | None = None
    key: Annotated[str, described("the public key of the service, DER in base64")] = ""
    replaced: Annotated[tuple[KeyChange, ...], described("keys that were replaced recently")] = ()
    signature: Annotated[str, described("Ed25519, of this object without `signature` as canonical JSON (RFC 8785)")] = (
        ""
    )


# --- Peers ----------------------------------------------------------------------------------------


class PeerView(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A peer as operators see it. All members are there: what is off is told, too."""

    name: str
    url: str
    kind: Annotated[str, one_of(*PEER_KINDS)]
    state: Annotated[str, one_of(*PEER_STATES)]
    last_contact: Timestamp | None
    lag_seconds: Annotated[float, described("since the last time when everything of the peer was known here")] | None
    records: Count
    error: str | None
    pull: bool = True
    ask: Annotated[bool, described("searches may be passed on to it")] = False
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()
    every_seconds: float | None = None
    key: Annotated[str, described("fingerprint of the pinned key")] = ""
    parked: Annotated[Count, described("records that were not taken")]
    parked_reasons: dict[str, int] = msgspec.field(default_factory=dict)
    complete: Annotated[bool, described("the last signed digest of the peer was matched")]
    breaker: Annotated[str, one_of(*BREAKER_STATES), described("open: it failed, and is not asked for a while")] = (
        "closed"
    )
    ask_error: str | None = None
    sample: Annotated[tuple[str, ...], described("ids that would be taken; of a dry run")] = ()
    added_at: Timestamp | None = None


class PeerList(Answer, frozen=True, kw_only=True):
    peers: tuple[PeerView, ...]
