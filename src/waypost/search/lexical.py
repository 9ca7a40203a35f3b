"""The lexical signal: fielded BM25 and tags, over what is committed and what is not yet, as one answer.

Each visibility has its own index, so that nobody's scores are moved by records they may not see. Public and internal
records are weighed by the statistics of their own tier. Private ones are weighed by the statistics of the larger of these
two that the caller sees: another owner's private records bear on nothing, not even on a sum.

A change counts from the next question on. It stays in a delta until `maintain` has committed it; views and delta are
swapped together, so that a question sees each change exactly once and never waits for a commit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from waypost.errors import StoreUnavailable
from waypost.model.principal import INTERNAL, PRIVATE, PUBLIC, VISIBILITIES
from waypost.model.registration import Registration
from waypost.search import text, tier
from waypost.search.bm25 import Statistics
from waypost.search.delta import Blend, Change, Generation, Share
from waypost.search.integrity import is_sound
from waypost.search.question import Found, Question
from waypost.search.tier import Tier, View
from waypost.search.weighing import NOTHING, Weighing

_ERRORS: Final = (ValueError, OSError, RuntimeError)  # tantivy's, for a damaged folder, a full disk, a lost writer
_STATE: Final = "state.json"


class _Format(msgspec.Struct, frozen=True):
    """What a saved index was made with. Any difference: it is built anew."""

    schema: int = tier.VERSION
    analysis: int = text.VERSION
    engine: str = tier.ENGINE


class _Saved(msgspec.Struct, frozen=True):
    format: _Format
    revision: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a question looks at. Replaced as a whole; only `fresh` grows, under the lock."""

    views: dict[str, View]
    folding: Generation  # being committed
    fresh: Generation  # since then

    def __contains__(self, agent_id: object) -> bool:
        """True when the delta knows better than the views."""
        return agent_id in self.fresh.changes or agent_id in self.folding.changes

    def waiting(self, tier: str) -> int:
        return self.fresh.waiting(tier) + self.folding.waiting(tier)


class LexicalIndex:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()  # never held over a commit
        self._maintaining = Lock()
        self._revision = 0
        self._tiers: dict[str, Tier] = {}
        self._moment = _Moment({}, Generation(), Generation())

    # --- Life ------------------------------------------------------------------------------------

    def open(self) -> int:
        """Open what was saved. Missing, damaged or made by another version: start empty, at revision 0."""
        saved = self._read_saved()
        if saved is not None:
            try:
                self._open_tiers()
            except _ERRORS:
                saved = None
        if saved is None:
            self.clear()
            return 0
        self._revision = saved.revision
        return saved.revision

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._maintaining:
            self.close()
            if self._folder is not None:
                _wipe(self._folder)
            self._revision = 0
            self._open_tiers()

    def close(self) -> None:
        for each in self._tiers.values():
            each.close()
        self._tiers = {}

    def _open_tiers(self) -> None:
        self._tiers = {name: Tier(name, self._folder / name if self._folder else None) for name in VISIBILITIES}
        self._moment = _Moment({name: each.view() for name, each in self._tiers.items()}, Generation(), Generation())

    def _read_saved(self) -> _Saved | None:
        if self._folder is None or not all(is_sound(self._folder / name) for name in VISIBILITIES):
            return None
        try:
            saved = msgspec.json.decode((self._folder / _STATE).read_bytes(), type=_Saved)
        except (OSError, msgspec.MsgspecError):
            return None
        return saved if saved.format == _Format() else None

    def _save(self, revision: int) -> None:
        """After the commits: an older revision beside newer indices only means that some changes are told twice."""
        if self._folder is not None and revision != self._revision:
            beside = self._folder / f"{_STATE}.new"
            beside.write_bytes(msgspec.json.encode(_Saved(_Format(), revision)))
            beside.replace(self._folder / _STATE)
        self._revision = revision

    # --- Changes ---------------------------------------------------------------------------------

    def put(self, registration: Registration) -> None:
        change = Change(registration.record.id, registration)
        with self._lock:
            self._moment.fresh.put(change)

    def remove(self, agent_id: str) -> None:
        change = Change(agent_id, None)
        with self._lock:
            self._moment.fresh.put(change)

    @property
    def pending(self) -> int:
        return len(self._moment.fresh.changes) + len(self._moment.folding.changes)

    def maintain(self, revision: int) -> None:
        """Commit every change made before this call, then note the revision."""
        with self._maintaining:
            folding = self._take_fresh()
            try:
                changed = self._commit(folding.changes.values()) if folding.changes else set()
                views = {
                    name: each.view() if name in changed else self._moment.views[name]
                    for name, each in self._tiers.items()
                }
                self._swap(views)
                self._save(revision)
            except _ERRORS as error:
                self._give_back()
                raise StoreUnavailable(
                    f"The search index could not be saved: {error}",
                    path=str(self._folder) if self._folder else None,
                    hint="Answers stay complete meanwhile. Look at the space and the rights of the data folder.",
                ) from error

    def _take_fresh(self) -> Generation:
        with self._lock:
            moment = self._moment
            self._moment = _Moment(moment.views, moment.fresh, Generation())
            return moment.fresh

    def _swap(self, views: dict[str, View]) -> None:
        with self._lock:
            self._moment = _Moment(views, Generation(), self._moment.fresh)

    def _give_back(self) -> None:
        """A commit failed: its changes wait in the delta again, and writers start anew."""
        for each in self._tiers.values():
            each.close()
        with self._lock:
            moment = self._moment
            waiting = {**moment.folding.changes, **moment.fresh.changes}
            self._moment = _Moment(moment.views, Generation(), Generation(waiting.values()))

    def _commit(self, changes: Iterable[Change]) -> set[str]:
        """Delete, then add: telling a change twice does no harm. Returns the tiers that changed."""
        filled = [each for each in self._tiers.values() if each.is_filled]
        for change in changes:
            for each in filled:
                each.delete(change.id)
            if change.record is not None:
                self._tiers[change.tier].add(change)
        return {name for name, each in self._tiers.items() if each.commit()}

    # --- Questions -------------------------------------------------------------------------------

    def search(self, question: Question, limit: int) -> Found:
        """At least the best `limit` that the audience sees, where there are as many."""
        visible = _visible_tiers(question)
        moment, shares = self._look(question, visible)
        statistics = {name: _blend(moment.views[name], shares.get(name)) for name in visible if name != PRIVATE}
        reference: Statistics = max(statistics.values(), key=lambda each: each.docs, default=NOTHING)
        found = []
        for name in visible:
            view, share = moment.views[name], shares.get(name)
            if not view.docs and share is None:
                continue
            weighing = Weighing(question, statistics.get(name, reference))
            if share is not None:
                found.append(weighing.changes(share))
            if name == PRIVATE:
                found.append(weighing.committed_private(view, _private_scopes(question), moment, limit))
            else:
                found.append(weighing.committed(view, moment, limit))
        return _joined(found, sum(map(moment.waiting, statistics)) if shares else 0)

    def _look(self, question: Question, visible: list[str]) -> tuple[_Moment, dict[str, Share]]:
        """What there is now, and the delta's share of it."""
        with self._lock:
            moment = self._moment
            if not moment.fresh.lots and not moment.folding.lots:
                return moment, {}
            moment.folding.absorb(visible, moment.fresh.absorb(visible))
            shares = {name: Share(name, question, moment.fresh, moment.folding) for name in visible}
        return moment, {name: share for name, share in shares.items() if share.docs}


def _wipe(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _joined(found: list[Found], skipped: int) -> Found:
    return Found(
        scored=[scored for each in found for scored in each.scored],
        ceiling=max((each.ceiling for each in found), default=0.0),
        is_complete=all(each.is_complete for each in found),
        skipped=skipped,
    )


def _blend(view: View, share: Share | None) -> Statistics:
    return view if share is None else Blend(view, share)


def _visible_tiers(question: Question) -> list[str]:
    if question.audience is None:
        return [*VISIBILITIES]
    whole = [name for name in (PUBLIC, INTERNAL) if name in question.audience]
    return [*whole, PRIVATE] if _private_scopes(question) else whole


def _private_scopes(question: Question) -> frozenset[str] | None:
    """The private scopes of the caller; None: all."""
    if question.audience is None:
        return None
    return question.audience - {PUBLIC, INTERNAL}
