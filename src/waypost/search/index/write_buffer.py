"""The write buffer: changes that are not in a segment yet, and the scan of them for one query.

A bulk load may leave tens of thousands of changes here, so each is one byte string, a quarter of the size of its objects.
Analysing an agent takes a hundred times as long as looking for a word in its bytes, so a query analyses only those that contain
its words; the others wait for the compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from waypost.model.names import fold_tag
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.search.text.analyzer import query_terms
from waypost.search.text.sanitize import sanitize_text

_SAMPLE: Final = 400  # changes by which the rarest terms are chosen
_SCANNED_TERMS: Final = 4  # the rarest ones: a common word distinguishes nothing

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Registration)


class BufferedChange(msgspec.Struct, frozen=True, gc=False):
    """A registration without its documents, in msgpack: its texts are in there as UTF-8."""

    id: str
    data: bytes
    scopes: tuple[str, ...]

    @classmethod
    def of(cls, registration: Registration) -> BufferedChange:
        return cls(registration.id, _encode(msgspec.structs.replace(registration, sources=())), registration.scopes)

    @property
    def registration(self) -> Registration:
        return _decoder.decode(self.data)


class WriteBuffer:
    """The newest change of each agent, in order, indexed by visibility scope."""

    def __init__(self) -> None:
        self._changes: dict[str, BufferedChange] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # by scope, then id: order of arrival
        self._count = 0

    def __len__(self) -> int:
        return len(self._changes)

    def __getitem__(self, agent_id: str) -> BufferedChange:
        return self._changes[agent_id]

    def get(self, agent_id: str) -> BufferedChange | None:
        return self._changes.get(agent_id)

    def ids(self) -> KeysView[str]:
        return self._changes.keys()

    def all(self) -> list[BufferedChange]:
        return list(self._changes.values())

    def put(self, change: BufferedChange) -> None:
        self.drop(change.id)
        self._changes[change.id] = change
        self._count += 1
        for scope in change.scopes:
            self._numbers.setdefault(scope, {})[change.id] = self._count

    def drop(self, agent_id: str) -> None:
        dropped = self._changes.pop(agent_id, None)
        for scope in dropped.scopes if dropped is not None else ():
            numbers = self._numbers[scope]
            del numbers[agent_id]
            if not numbers:
                del self._numbers[scope]

    def clear(self) -> None:
        self._changes, self._numbers = {}, {}

    def count_visible(self, audience: frozenset[str] | None) -> int:
        """An upper bound: an agent counts once per matching scope."""
        if audience is None:
            return len(self._changes)
        return sum(len(self._numbers.get(scope, ())) for scope in audience)  # other threads may change it meanwhile

    def visible(self, audience: frozenset[str] | None) -> list[BufferedChange]:
        """The changes that an audience may see, newest first. Hidden ones take no time."""
        if audience is None:
            return list(reversed(self._changes.values()))
        found: dict[str, int] = {}
        for scope in self._scopes_of(audience):
            found.update(self._numbers[scope])
        return [self._changes[agent_id] for agent_id in sorted(found, key=found.__getitem__, reverse=True)]

    def _scopes_of(self, audience: frozenset[str]) -> Iterable[str]:
        return (scope for scope in audience if scope in self._numbers)


# --- The scan for one query ---


class _BindingFilter(msgspec.Struct, gc=False):
    protocol: str


class _RecordFilter(msgspec.Struct, gc=False):
    tags: tuple[str, ...] = ()
    bindings: tuple[_BindingFilter, ...] = ()


class _ChangeFilter(msgspec.Struct, gc=False):
    """The part of a registration that filters read; the decoder skips the rest."""

    record: _RecordFilter


_filter_decoder = msgspec.msgpack.Decoder(_ChangeFilter)


def scan(changes: Sequence[BufferedChange], query: Query, limit: int) -> list[Registration]:
    """The changes that pass the filters of a query and have its words: those with the rarest words first."""
    if query.required_tags or query.protocols:
        changes = [each for each in changes if _passes(each, query)]
    terms = query_terms(sanitize_text(query.text))
    if not terms or len(changes) <= limit:
        return [each.registration for each in changes[:limit]]
    texts = [each.data for each in changes]
    has = _find(_rarest(terms, texts), texts)
    frequencies = has.sum(axis=0)
    scores = has @ np.log(1 + len(texts) / np.maximum(frequencies, 1))
    best = np.argsort(-scores, kind="stable")[:limit]
    return [changes[at].registration for at in best.tolist() if scores[at] > 0]


def _passes(change: BufferedChange, query: Query) -> bool:
    record = _filter_decoder.decode(change.data).record
    if query.required_tags and not {*map(fold_tag, query.required_tags)} <= {*map(fold_tag, record.tags)}:
        return False
    return not query.protocols or not {each.protocol for each in record.bindings}.isdisjoint(query.protocols)


def _rarest(terms: Sequence[str], texts: Sequence[bytes]) -> list[bytes]:
    """The beginnings of words to look for. A stem is one, except that y became i."""
    starts = [term[:-1] if len(term) > 3 and term.endswith("i") else term for term in terms]
    # `bytes.lower` leaves the capital letters of other scripts.
    spelled = [each for start in starts for each in ((start,) if start.isascii() else (start, start.capitalize()))]
    found = [each.encode() for each in dict.fromkeys(spelled)]
    frequencies = _find(found, texts[:: max(1, len(texts) // _SAMPLE)]).sum(axis=0)
    return [found[at] for at in np.argsort(frequencies, kind="stable")[:_SCANNED_TERMS].tolist()]


def _find(parts: Sequence[bytes], texts: Sequence[bytes]) -> npt.NDArray[np.bool_]:
    """[texts, parts]: whether a text contains a part, in any case."""
    return np.array([[part in text for part in parts] for text in map(bytes.lower, texts)], dtype=np.bool_)
