"""Where a record of a peer comes from, and the subjects that own such records."""

from __future__ import annotations

from pathlib import Path

import msgspec

_PEER_PREFIX = "urn:waypost:peer:"


def peer_subject(name: str) -> str:
    """The subject that owns the records of a peer. No credential can have it."""
    return _PEER_PREFIX + name


def peer_of(subject: str | None) -> str | None:
    """The peer whose records a subject owns; None for any other subject."""
    return subject.removeprefix(_PEER_PREFIX) if subject is not None and subject.startswith(_PEER_PREFIX) else None


class PeerSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A peer of the settings file."""

    url: str
    name: str | None = None
    kind: str | None = None
    pull: bool = True
    ask: bool = False
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()
    every_seconds: float | None = None
    max_records: int | None = None
    key: str | None = None  # the fingerprint that it must have
    token_file: str | None = None

    def resolve_paths(self, folder: Path) -> PeerSetting:
        """Return the peer with the file name of its token resolved against a folder."""
        if self.token_file is None:
            return self
        return msgspec.structs.replace(self, token_file=str(folder / self.token_file))


class Federation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a record that a peer sent (profile.md Table 9)."""

    peer: str
    origin_service: str  # base URL of the service where the agent was registered
    origin_id: str
    received_at: float
    origin_updated_at: str | None = None
    via: tuple[str, ...] = ()  # base URLs of the services between the origin and this one
    service_id: str = ""  # of the origin; `path` has those of `via`: addresses are not unique, ids are
    path: tuple[str, ...] = ()
    etag: str = ""  # of the record at the peer
    revision: int = 0  # grows with each change at the origin
    is_granted: bool = False  # the peer was granted a namespace that has the id

    @property
    def is_direct(self) -> bool:
        """Whether the origin itself is the peer."""
        return not self.path

    def is_older_than(self, other: Federation) -> bool:
        """Whether both are of one origin, and this is an earlier state of it. Arrival says nothing about age."""
        return self.service_id == other.service_id and self.revision < other.revision
