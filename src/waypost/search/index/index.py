"""Which audiences may get another answer than a moment ago. A change counts only for those who may see what changed, so that
nobody can tell by the clock that something hidden came or went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.errors import StoreUnavailable
from waypost.model.principal import PRIVATE, VISIBILITIES
from waypost.model.registration import Registration
from waypost.search.index import document, segment
from waypost.search.index.document import IndexDocument, embedded_texts, prepare_documents
from waypost.search.index.segment import DROPPED_ROW, Rows, Segment, build_segment
from waypost.search.index.segment_reader import AUDIENCE_CACHE, Mask, SegmentReader, merge_readers, with_deletes
from waypost.search.index.storage import DamagedFile, Manifest, SavedSegment, SegmentDirectory, SegmentFile
from waypost.search.text import analyzer
from waypost.search.vectors import vector_block
from waypost.search.vectors.embedding import Vectors, VectorSpace
from waypost.search.vectors.vector_block import VectorBlock


class AudienceVersions:
    def __init__(self) -> None:
        self._all = 0
        self._scopes: dict[str, int] = {}

    def of(self, audience: frozenset[str] | None) -> tuple[int, ...]:
        if audience is None:
            return (self._all, sum(self._scopes.values()))
        shared = audience.intersection(VISIBILITIES)
        scopes = [*sorted(audience), PRIVATE] if len(shared) < len(audience) else sorted(audience)
        return (self._all, *(self._scopes.get(scope, 0) for scope in scopes))

    def everything(self) -> None:
        self._all += 1

    def seen_by(self, scopes: Iterable[str]) -> None:
        for scope in scopes:
            self._scopes[scope] = self._scopes.get(scope, 0) + 1

    def of_tiers(self, tiers: npt.NDArray[Any]) -> None:
        """Rows of these tiers changed. Of private ones it is not known here whose they are: all owners are told."""
        if len(tiers):
            self.seen_by(VISIBILITIES[number] for number in set(tiers.tolist()))


# ---- Changes that no segment holds yet, by who may see them: a question looks at its own and at nobody else's.


class WriteBuffer:
    """The newest change of each agent, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[str, Registration] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # by scope, then id: when it came
        self._count = 0

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, agent_id: str) -> Registration:
        return self._held[agent_id]

    def get(self, agent_id: str) -> Registration | None:
        return self._held.get(agent_id)

    def ids(self) -> KeysView[str]:
        return self._held.keys()

    def all(self) -> list[Registration]:
        return list(self._held.values())

    def put(self, registration: Registration) -> None:
        self.drop(registration.id)
        self._held[registration.id] = registration
        self._count += 1
        for scope in registration.scopes:
            self._numbers.setdefault(scope, {})[registration.id] = self._count

    def drop(self, agent_id: str) -> None:
        held = self._held.pop(agent_id, None)
        for scope in held.scopes if held is not None else ():
            numbers = self._numbers[scope]
            del numbers[agent_id]
            if not numbers:
                del self._numbers[scope]

    def clear(self) -> None:
        self._held, self._numbers = {}, {}

    def count_seen_by(self, audience: frozenset[str] | None) -> int:
        """How many these are at most: one that several of its scopes lead to counts for each."""
        if audience is None:
            return len(self._held)
        return sum(len(self._numbers.get(scope, ())) for scope in audience)  # others may change it meanwhile

    def seen_by(self, audience: frozenset[str] | None) -> list[str]:
        """Ids of what an audience may see, the newest first. What it may not see takes none of its time."""
        if audience is None:
            return list(reversed(self._held))
        found: dict[str, int] = {}
        for scope in self._scopes_of(audience):
            found.update(self._numbers[scope])
        return sorted(found, key=found.__getitem__, reverse=True)

    def _scopes_of(self, audience: frozenset[str]) -> Iterable[str]:
        return (scope for scope in audience if scope in self._numbers)


# ---- The vectors of agents as they are made and kept: from texts to a block. Nothing that one agent gets depends on another.


def encode_agents(space: VectorSpace, texts: Sequence[tuple[str, ...]]) -> list[Vectors]:
    """The vectors of each agent: the agent as a whole first (what it is and all it shows, in one), then each example. Agent by
    agent: the last digits of a product depend on all that is in it, and nobody's vectors may tell who came with it."""
    return [_with_centre(space.embedder.encode(parts), keeps_examples=space.has_examples) for parts in texts]


def _with_centre(own: Vectors, *, keeps_examples: bool) -> Vectors:
    centre = own.sum(axis=0) + own[0]  # what it says of itself counts twice
    length = float(np.linalg.norm(centre))
    if length:
        centre /= length
    return np.vstack((centre, own[1:])) if keeps_examples else centre[None]


def build_block(space: VectorSpace, made: Sequence[Vectors], rows: Rows, count: int) -> VectorBlock:
    """A block of these vectors for these rows of a segment that has `count`."""
    sizes = [len(each) for each in made]
    places = np.concatenate([np.arange(size, dtype=np.uint16) for size in sizes])
    return VectorBlock.build(np.concatenate(made), np.repeat(rows, sizes), places, count, space.landmarks)


# ---- The living index: segments, the changes since, and which rows are still true.
#
# A change costs next to nothing when it is made. The first question after it (or the thread that folds) prepares it and makes
# a small segment in memory, so that there is one way to search: segments. Small ones are merged as they come; `maintain`
# writes them to the shelf, and merges with what is there so that sizes grow geometrically and few segments are ever asked.
#
# A segment holds records of one tier: whoever sees nothing of a tier never opens its segments, so that what is hidden takes none
# of anybody's time, however much there is of it. Of each tier segments stand in the order in which their rows came, and only
# neighbours merge. Nothing here depends on how many records of another tier wait or when they were folded: counts are kept by
# tier, and a row that died is discounted at once.

_PREPARE_AT_ONCE: Final = 300  # by a question in the middle of a bulk load: it waits no longer than that takes

_MADE_AT_ONCE: Final = 1024  # by the thread that folds: one segment of so many

_STEP: Final = 32  # agents that are prepared before others come in: some 10 ms
# A fold takes along every older segment that is not this many times larger than all it has: a row moves by some 20 µs, and
# each segment costs every question as much as looking through ten thousand rows. While others work, only what is of like
# size is merged.
_GROWTH: Final = 20

_GROWTH_AT_WORK: Final = 1

_GROWTH_AT_REST: Final = 200  # of an index that is written in about a second

_SMALL: Final = 100_000  # rows

_FORMAT: Final = f"segments {segment.VERSION}.{document.VERSION}.{analyzer.VERSION}.{vector_block.VERSION}"

YieldControl = Callable[[], bool]


def never_yield() -> bool:
    """Whom a fold gives way to when nobody else works."""
    return False


class SearchIndex:
    """One thread asks and changes it; another may fold and embed."""

    def __init__(self, folder: Path | None = None, spaces: Sequence[VectorSpace] = ()) -> None:
        self._shelf = SegmentDirectory(folder)
        self.spaces = {space.name: space for space in spaces}
        self._lock = Lock()  # never held over a merge or a write of more than a few changes
        self._maintaining = Lock()
        self._lives: list[SegmentReader] = []  # never changed, always replaced
        self._open: dict[frozenset[str] | None, list[SegmentReader]] = {}  # by audience
        self._opened_of = self._lives  # of which these are
        self._waiting = WriteBuffer()
        self._replaced: dict[str, None] = {}  # ids whose older rows are not dead yet
        self._embedding: set[str] = set()  # ids whose vectors were asked for, and that have not changed since
        self._since: dict[str, tuple[int, Registration | None]] | None = (
            None  # a reader's changes that nobody saved yet
        )
        self._kept: Manifest | None = None
        self._generations = AudienceVersions()

    # --- Life ------------------------------------------------------------------------------------

    def open(self) -> int:
        """Open what was saved. Missing, damaged or made by another version: start empty, at revision 0."""
        manifest = self._shelf.manifest()
        if manifest is not None and manifest.format == _FORMAT:
            try:
                self._take(manifest)
            except DamagedFile:
                self.clear()
                return 0
            return manifest.revision
        self.clear()
        return 0

    def follow(self) -> int:
        """For a reader: open what another process has saved since, and tell it the changes after that. Returns the revision
        that is open (0: nothing yet). What cannot be read is left for the next time: its writer is at work."""
        if self._since is None:
            self._since = {}
        manifest = self._shelf.manifest()
        if manifest is not None and manifest.format == _FORMAT and manifest != self._kept:
            with suppress(DamagedFile):
                self._take(manifest)
        self._prepare_all()
        return self._kept.revision if self._kept else 0

    def _take(self, manifest: Manifest) -> None:
        known: dict[SegmentFile | None, Segment] = {live.rows_file: live.segment for live in self._lives}
        blocks = {file: block for live in self._lives for some in live.blocks.values() for block, file in some}
        lives = [self._opened(saved, known, blocks) for saved in manifest.segments]
        with self._lock:  # what came after is in force with the same swap: a question must not miss it for a moment
            self._generations.everything()
            later = {key: each for key, each in (self._since or {}).items() if each[0] > manifest.revision}
            self._since = None if self._since is None else later
            self._lives, self._kept, self._replaced = lives, manifest, {}
            self._waiting.clear()
            for agent_id, (_, registration) in later.items():
                self._wait(agent_id, registration)

    def _opened(
        self,
        saved: SavedSegment,
        known: Mapping[SegmentFile | None, Segment],
        blocks: Mapping[SegmentFile | None, VectorBlock],
    ) -> SegmentReader:
        """What is open already stays so: files are never written anew, and to read one is to check every byte of it."""
        segment = known.get(saved.rows)
        live = SegmentReader(Segment(self._shelf.read(saved.rows)) if segment is None else segment, saved.rows)
        for space, files in saved.blocks.items():
            if space in self.spaces:
                for file in files:
                    block = blocks.get(file) or VectorBlock(self._shelf.read(file), self.spaces[space].landmarks)
                    live.add_block(space, block, file)
        return with_deletes(live, saved, self._shelf.read(saved.dead)["dead"] if saved.dead else None)

    def clear(self) -> None:
        """Forget everything, on the shelf too."""
        with self._maintaining, self._lock:
            self._generations.everything()
            self._lives, self._replaced, self._kept = [], {}, None
            self._waiting.clear()
            if self._since is None:
                self._shelf.clear()

    def close(self) -> None:
        with self._maintaining, self._lock:
            self._lives = []
            self._waiting.clear()

    # --- Changes ---------------------------------------------------------------------------------

    def put(self, registration: Registration) -> None:
        self._note(registration.id, registration, registration.revision)

    def remove(self, agent_id: str, revision: int = 0) -> None:
        self._note(agent_id, None, revision)

    def _note(self, agent_id: str, registration: Registration | None, revision: int) -> None:
        with self._lock:
            self._generations.seen_by(registration.scopes if registration is not None else ())
            self._wait(agent_id, registration)
            if self._since is not None:
                self._since[agent_id] = (revision, registration)

    def _wait(self, agent_id: str, registration: Registration | None) -> None:
        self._replaced[agent_id] = None
        self._embedding.discard(agent_id)
        self._waiting.drop(agent_id)
        if registration is not None:
            self._waiting.put(registration)

    @property
    def pending(self) -> int:
        """Changes that are not on the shelf, and agents whose vectors are still to be made."""
        return self.unsaved + sum(self._lacking(live, name) for live in self._lives for name in self.spaces)

    @property
    def unsaved(self) -> int:
        """Changes that are not on the shelf, vectors included."""
        died = any(not live.is_dead_saved for live in self._lives)
        return len(self._replaced.keys() | self._waiting.ids()) + died + sum(live.unsaved for live in self._lives)

    def is_apart(self, *, at_rest: bool = False) -> bool:
        """Whether `maintain` would join what is saved already, where nobody is at work: what a bulk load left in several
        segments, or vectors that were made after their rows. Each costs every question its calls again."""
        with self._lock:
            circles = [self._of(circle) for circle in range(len(VISIBILITIES))]
            segments = any(len(_segments_to_compact(lives, _growth_factor(lives, at_rest))) > 1 for lives in circles)
            saved = [live for live in self._lives if live.is_saved]
            return segments or any(len(live.apart(space, _GROWTH)) > 1 for live in saved for space in live.blocks)

    def generation(self, audience: frozenset[str] | None) -> tuple[int, ...]:
        """Another one whenever an answer to this audience may have changed."""
        if self._replaced:
            with self._lock:
                self._bury()
        return self._generations.of(audience)

    def look(self, audience: frozenset[str] | None) -> tuple[list[SegmentReader], int]:
        """What a question asks: every segment in which the audience sees anything, and how many changes that it may see are too
        fresh to be among them. What it may not see is left waiting: a flood of hidden changes delays nobody."""
        with self._lock:  # also where nothing waits: whether something waits for others is not to be told by the time
            fresh = self._waiting.seen_by(audience)
            if fresh:
                self._index_now(fresh[:_PREPARE_AT_ONCE])
            else:
                self._bury()
            return self._open_to(audience), max(0, len(fresh) - _PREPARE_AT_ONCE)

    def _open_to(self, audience: frozenset[str] | None) -> list[SegmentReader]:
        """The others are not even counted: their number would tell by the time that they are there."""
        if self._opened_of is not self._lives:
            self._opened_of, self._open = self._lives, {}
        known = self._open.get(audience)
        if known is None:
            if len(self._open) >= AUDIENCE_CACHE:
                self._open.clear()
            known = self._open[audience] = [live for live in self._lives if live.visible(audience)[1]]
        return known

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        """Whether more waits for this audience than a question prepares by itself."""
        return self._waiting.count_seen_by(audience) > _PREPARE_AT_ONCE

    def prepare_for(self, audience: frozenset[str] | None) -> None:
        """Prepare what waits for an audience until a question does the rest. Called in a thread, by a question after a bulk
        load: in small steps, so that changes come in between, and no more of them than wait now."""
        for _ in range(self._waiting.count_seen_by(audience) // _STEP + 1):
            with self._lock:
                fresh = self._waiting.seen_by(audience)
                if len(fresh) <= _PREPARE_AT_ONCE:
                    return
                self._index_now(fresh[-_STEP:])

    def _index_now(self, ids: Sequence[str]) -> None:
        """Prepare these. What any change replaces is dead at once, prepared or not."""
        self._bury()
        prepared = self._prepared([self._waiting[agent_id] for agent_id in reversed(ids)])
        for made in self._made(prepared):
            self._lives = [*self._lives, made]
            self._settle(made.segment.circle)
        for agent_id in ids:  # only now: whoever looks while others prepare must find it waiting, and wait for the lock
            self._waiting.drop(agent_id)

    def _prepared(self, registrations: Sequence[Registration]) -> list[IndexDocument]:
        return prepare_documents(registrations, with_texts=any(space.is_quick for space in self.spaces.values()))

    def _made(self, prepared: Sequence[IndexDocument]) -> list[SegmentReader]:
        """A segment for each tier that is among them."""
        circles = ([each for each in prepared if each.tier == tier] for tier in range(len(VISIBILITIES)))
        return [self._made_of_one(circle) for circle in circles if circle]

    def _made_of_one(self, prepared: Sequence[IndexDocument]) -> SegmentReader:
        live, rows = SegmentReader(build_segment(prepared)), np.arange(len(prepared), dtype=np.uint32)
        for name, space in self.spaces.items():
            if space.is_quick and space.embedder.is_ready:
                made = encode_agents(space, [each.texts for each in prepared])
                live.add_block(name, build_block(space, made, rows, len(rows)))
        return live

    def _bury(self) -> None:
        wanted = list(self._replaced)
        self._replaced = {}
        for live in self._lives if wanted else ():
            found = live.segment.rows_by_id(wanted)
            rows = found[found >= 0]
            self._generations.of_tiers(live.segment.tier[rows[~live.dead[rows]]])
            live.kill(rows)
            self._open = {}

    def _settle(self, circle: int) -> None:
        """Merge the newest of a tier in memory while they are of like size."""
        while len(lives := self._of(circle)) > 1:
            older, newer = lives[-2:]
            if older.is_saved or older.is_compacting or newer.is_compacting or older.count > 2 * newer.count:
                break
            joined, _ = merge_readers([older, newer], [older.dead, newer.dead])
            self._replace([older, newer], joined)

    def _of(self, circle: int) -> list[SegmentReader]:
        return [live for live in self._lives if live.segment.circle == circle]

    def _replace(self, old: Sequence[SegmentReader], new: SegmentReader | None) -> None:
        """One in place of these, or none."""
        first = self._lives.index(old[0])
        kept = [live for live in self._lives if live not in old]
        self._lives = [*kept[:first], *([new] if new else []), *kept[first:]]

    # --- Folding ---------------------------------------------------------------------------------

    def maintain(self, revision: int, give_way: YieldControl = never_yield, *, at_rest: bool = False) -> None:
        """Save every change made before this call, then note the revision. `give_way` is called between small steps: it may
        wait until others have done their work, and says whether they are still at it. Revision 0 is a step of a rebuild: the
        next one follows, so that only what is of like size is merged, else every row would move some twenty times. `at_rest`:
        nothing has changed for a while, so that a small index may become one."""
        with self._maintaining:
            try:
                self._prepare_all(give_way)
                self._fold(is_at_work=give_way() or not revision, at_rest=at_rest)
                self._save(revision)
            except OSError as error:
                raise StoreUnavailable(
                    f"The search index could not be saved: {error}",
                    hint="Free space on the disk of the data folder. Searches go on; the index is saved again soon.",
                ) from error

    def _prepare_all(self, give_way: YieldControl = never_yield) -> None:
        """Make segments of all that waits now. No lock is held meanwhile: whoever asks or changes comes in between."""
        with self._lock:
            self._bury()
            waiting = self._waiting.all()
        for start in range(0, len(waiting), _MADE_AT_ONCE):
            part = waiting[start : start + _MADE_AT_ONCE]
            prepared: list[IndexDocument] = []
            for first in range(0, len(part), _STEP):
                give_way()
                prepared += self._prepared(part[first : first + _STEP])
            self._take_over(part, self._made(prepared))

    def _take_over(self, prepared: Sequence[Registration], made: Sequence[SegmentReader]) -> None:
        """Segments of agents that were waiting. What changed in the meantime, or was taken by a question, is dead in them."""
        with self._lock:
            self._bury()
            known = [each for each in prepared if self._waiting.get(each.id) is each]
            ids = sorted({each.id for each in prepared}.difference(each.id for each in known))
            for live in made if ids else ():
                rows = live.segment.rows_by_id(ids)
                live.kill(rows[rows >= 0])
            self._lives = [*self._lives, *(live for live in made if live.count)]
            for each in known:
                self._waiting.drop(each.id)

    def _fold(self, *, is_at_work: bool, at_rest: bool) -> None:
        for circle in range(len(VISIBILITIES)):
            growth = _GROWTH_AT_WORK if is_at_work else _growth_factor(self._of(circle), at_rest)
            self._compact_tier(circle, growth)
        if not is_at_work:
            for live in [live for live in self._lives if live.is_saved]:
                for space in live.blocks:
                    self._merge_blocks(live, space, _GROWTH)

    def _merge_blocks(self, live: SegmentReader, space: str, growth: int) -> None:
        """Vectors that were made after their rows. Nobody adds any meanwhile: whoever does waits for `maintain`."""
        with self._lock:
            parts = live.apart(space, growth)
        if len(parts) < 2:
            return
        same = np.arange(live.segment.count, dtype=np.uint32)
        joined, file = VectorBlock.merge(parts, [same] * len(parts), live.segment.count), None
        if self._shelf.is_kept:
            file = self._shelf.write("vectors", joined.arrays)
            joined = VectorBlock(self._shelf.read(file), self.spaces[space].landmarks)
        with self._lock:
            live.join(space, parts, joined, file)

    def _compact_tier(self, circle: int, growth: int) -> None:
        inputs, before = self._chosen(circle, growth)
        if not inputs:
            return
        try:
            folded, renumbered = merge_readers(inputs, before)
            if folded is not None:
                folded = self._write_segment(folded)
        except OSError:
            for live in inputs:
                live.is_compacting = False
            raise
        with self._lock:
            for live, dead, numbers in zip(inputs, before, renumbered, strict=True):
                died = numbers[live.dead & ~dead]
                if folded is not None:
                    folded.kill(died[died != DROPPED_ROW])
            self._replace(inputs, folded)

    def _chosen(self, circle: int, growth: int) -> tuple[Sequence[SegmentReader], list[Mask]]:
        """The newest segments of a tier: all in memory, every older one that is not much larger than all that is newer, and
        whatever is mostly dead. What a bulk load left apart is so joined by the first fold after it, though little is new."""
        with self._lock:
            chosen = _segments_to_compact(self._of(circle), growth)
            for live in chosen:
                live.is_compacting = True
            return chosen, [live.dead.copy() for live in chosen]

    def _write_segment(self, live: SegmentReader) -> SegmentReader:
        """The same, on the shelf and mapped from there."""
        if not self._shelf.is_kept:
            live.rows_file = self._shelf.write("rows", {})
            return live
        file = self._shelf.write("rows", live.segment.arrays)
        kept = SegmentReader(Segment(self._shelf.read(file)), file)
        for space, blocks in live.blocks.items():
            for block, _ in blocks:
                written = self._shelf.write("vectors", block.arrays)
                kept.add_block(space, VectorBlock(self._shelf.read(written), self.spaces[space].landmarks), written)
        return kept

    def _save(self, revision: int) -> None:
        with self._lock:
            lives = [live for live in self._lives if live.is_saved]
        for live in lives:
            self._save_dead(live)
        for live in lives:
            for space, blocks in live.blocks.items():
                for at, (block, file) in enumerate(blocks):
                    if file is None:
                        live.replace_file(space, at, self._shelf.write("vectors", block.arrays))
        segments = tuple(saved for live in lives if (saved := live.saved) is not None)
        manifest = Manifest(format=_FORMAT, revision=revision, segments=segments)
        if manifest != self._kept:
            self._shelf.keep(manifest)
            self._kept = manifest

    def _save_dead(self, live: SegmentReader) -> None:
        with self._lock:
            if live.is_dead_saved:
                return
            mask, live.is_dead_saved = live.dead.copy(), True
        try:
            live.dead_file = self._shelf.write("dead", {"dead": np.packbits(mask)})
        except OSError:
            live.is_dead_saved = False
            raise

    # --- Vectors that come later -----------------------------------------------------------------

    @property
    def _ready(self) -> list[str]:
        return [name for name, space in self.spaces.items() if space.embedder.is_ready]

    def _lacking(self, live: SegmentReader, space: str) -> int:
        return int((~live.covered(space) & ~live.dead).sum())

    def lacking(self, limit: int) -> list[str]:
        """Ids of saved agents whose vectors are still to be made, newest segments first."""
        with self._lock:
            for live in reversed(self._lives):
                for space in self._ready:
                    rows = np.flatnonzero(~live.covered(space) & ~live.dead)[:limit] if live.is_saved else ()
                    if len(rows):
                        ids = [live.segment.id_of(int(row)) for row in rows]
                        self._embedding.update(ids)
                        return ids
        return []

    def embed(self, registrations: Sequence[Registration]) -> None:
        """Make what vectors these agents lack, as `lacking` named them. Called in a thread; one that changed since it was
        named is left for the next time: its texts may be of before."""
        ids = [registration.id for registration in registrations]
        texts = [embedded_texts(registration.record) for registration in registrations]
        with self._maintaining:
            for name in self._ready:
                made = encode_agents(self.spaces[name], texts)
                with self._lock:
                    self._attach(name, ids, made)
        self._embedding.difference_update(ids)

    def _attach(self, name: str, ids: list[str], made: list[Vectors]) -> None:
        for live in self._lives:
            rows = live.segment.rows_by_id(ids)
            wanted = [
                at
                for at, row in enumerate(rows)
                if row >= 0 and ids[at] in self._embedding and not live.dead[row] and not live.covered(name)[row]
            ]
            if wanted and live.is_saved:
                self._generations.of_tiers(live.segment.tier[rows[wanted]])
                chosen = [made[at] for at in wanted]
                live.add_block(
                    name, build_block(self.spaces[name], chosen, rows[wanted].astype(np.uint32), live.segment.count)
                )


def _growth_factor(lives: Sequence[SegmentReader], at_rest: bool) -> int:
    """How many times larger than all that is newer a segment may be to be written anew with it."""
    return _GROWTH_AT_REST if at_rest and sum(live.count for live in lives) <= _SMALL else _GROWTH


def _segments_to_compact(lives: Sequence[SegmentReader], growth: int) -> Sequence[SegmentReader]:
    """From the oldest on that is worth it."""
    first, gathered = len(lives), 0
    for at in reversed(range(len(lives))):
        if _is_worth_compacting(lives[at], growth * gathered):
            first = at
        gathered += lives[at].count
    return lives[first:]


def _is_worth_compacting(live: SegmentReader, most: int) -> bool:
    return not live.is_saved or 0 < live.count <= most or 2 * live.count < live.segment.count
