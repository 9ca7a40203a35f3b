"""The search index: immutable segments, a write buffer for recent changes, and deleted rows (log-structured, like Lucene).

A write is only buffered. The first query after it (or the maintenance thread) builds a small in-memory segment, so that queries
read segments only. Small segments are merged as they come; `maintain` writes them to files and compacts, so that sizes grow
geometrically and a query reads few segments.

A segment contains records of one visibility tier: a caller never opens segments of tiers that it cannot see, so that hidden
records take none of its time. Segments of a tier are ordered by age, and only neighbours merge. Document counts are kept by tier,
and a deleted row is subtracted at once, so that nothing depends on pending records of other tiers or on when they are compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from waypost.errors import StoreUnavailable
from waypost.model.principal import PRIVATE, VISIBILITIES
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.search.index import document, segment
from waypost.search.index.document import IndexDocument, embedded_texts, prepare_documents
from waypost.search.index.packed_vectors import digest_texts, pack_vectors, unpack_vectors
from waypost.search.index.segment import (
    AUDIENCE_CACHE,
    DROPPED_ROW,
    Mask,
    Rows,
    Segment,
    SegmentReader,
    build_segment,
    merge_readers,
    with_deletes,
)
from waypost.search.index.storage import DamagedFile, Manifest, SavedSegment, SegmentDirectory, SegmentFile
from waypost.search.index.write_buffer import BufferedChange, WriteBuffer, scan
from waypost.search.text import analyzer
from waypost.search.vectors import Vectors, VectorSpace, vector_block
from waypost.search.vectors.vector_block import CODED, CodedVectors, VectorBlock, code_vectors


class AudienceVersions:
    """A version per audience, which changes only with records that it may see: otherwise cache timing would reveal hidden
    changes."""

    def __init__(self) -> None:
        self._all = 0
        self._scopes: dict[str, int] = {}

    def of(self, audience: frozenset[str] | None) -> tuple[int, ...]:
        if audience is None:
            return (self._all, sum(self._scopes.values()))
        shared = audience.intersection(VISIBILITIES)
        scopes = [*sorted(audience), PRIVATE] if len(shared) < len(audience) else sorted(audience)
        return (self._all, *(self._scopes.get(scope, 0) for scope in scopes))

    def bump_all(self) -> None:
        self._all += 1

    def bump(self, scopes: Iterable[str]) -> None:
        for scope in scopes:
            self._scopes[scope] = self._scopes.get(scope, 0) + 1

    def bump_tiers(self, tiers: npt.NDArray[Any]) -> None:
        """Rows of these tiers changed. The owners of private rows are unknown here, so all of them get a new version."""
        if len(tiers):
            self.bump(VISIBILITIES[number] for number in set(tiers.tolist()))


def encode_agents(space: VectorSpace, texts: Sequence[tuple[str, ...]]) -> list[Vectors]:
    """The vectors of each agent: the centre (or the description) first, then each example. Agent by agent: batching
    changes the last digits of a float, which would reveal what else was in the batch, and when it was made."""
    return [_encode_agent(space, each) for each in texts]


def _encode_agent(space: VectorSpace, texts: tuple[str, ...]) -> Vectors:
    keeps_examples = space.has_vectors_of(len(texts) - 1)
    if not space.is_centred:
        return space.embedder.encode(texts if keeps_examples else texts[:1])
    return _with_centre(space.embedder.encode(texts), keeps_examples=keeps_examples)


def _with_centre(own: Vectors, *, keeps_examples: bool) -> Vectors:
    centre = own.sum(axis=0) + own[0]  # the description counts twice
    length = float(np.linalg.norm(centre))
    if length:
        centre /= length
    return np.vstack((centre, own[1:])) if keeps_examples else centre[None]


def build_block(space: VectorSpace, vectors: Sequence[Vectors], rows: Rows, count: int) -> VectorBlock:
    """A block of the vectors of these rows, in a segment of `count` rows."""
    coded = code_vectors(np.concatenate(vectors), space.quantizer)
    return VectorBlock.build(coded, [len(each) for each in vectors], rows, count, space.quantizer)


_MAX_PREPARED: Final = 64  # buffered changes that a query indexes itself; of more, those that have its words
_MAX_FILTERED: Final = 500  # the same for a query with conditions that only the catalog knows


_SEGMENT_BATCH: Final = 1024  # agents of one segment that the maintenance thread builds
_STEP: Final = 32  # agents prepared before other threads may run: about 10 ms
# A compaction includes every older segment that is at most this many times larger than all newer ones: moving a row takes about
# 20 µs, and each segment costs every query as much as scanning ten thousand rows. Under load only segments of similar size merge.
_GROWTH: Final = 20
_GROWTH_UNDER_LOAD: Final = 1
_SEGMENTS_UNDER_LOAD: Final = 16
_GROWTH_AT_REST: Final = 200  # for an index that is written in about a second
_SMALL: Final = 100_000  # rows
_FORMAT: Final = f"segments {segment.VERSION}.{document.VERSION}.{analyzer.VERSION}.{vector_block.VERSION}"

YieldControl = Callable[[], bool]


def never_yield() -> bool:
    """The default of `give_way`: no other work to wait for."""
    return False


class SegmentBuilder(Protocol):
    """Builds segments of many agents without vectors, outside of this interpreter."""

    def build(self, changes: Sequence[BufferedChange]) -> list[Segment] | None:
        """One segment for each visibility tier. None: the caller has to build them."""
        ...

    def close(self) -> None: ...


class SearchIndex:
    """One thread queries and changes it; another may compact and embed."""

    def __init__(
        self, folder: Path | None = None, spaces: Sequence[VectorSpace] = (), builder: SegmentBuilder | None = None
    ) -> None:
        """`builder` builds the segments of a bulk load elsewhere."""
        self._builder = builder
        self._directory = SegmentDirectory(folder)
        self.spaces = {space.name: space for space in spaces}
        self._lock = Lock()  # never held during a merge or a large write
        self._maintaining = Lock()
        self._readers: list[SegmentReader] = []  # replaced, never changed
        self._visible: dict[frozenset[str] | None, list[SegmentReader]] = {}  # by audience
        self._visible_of = self._readers  # the readers that `_visible` was computed from
        self._buffer = WriteBuffer()
        self._replaced: dict[str, None] = {}  # ids whose older rows are not deleted yet
        self._embedding: set[str] = set()  # ids whose vectors are being made, and that did not change since
        self._since: dict[str, tuple[int, BufferedChange | None]] | None = (
            None  # a follower's changes that the leader has not saved yet
        )
        self._manifest: Manifest | None = None
        self._versions = AudienceVersions()

    # --- Files -----------------------------------------------------------------------------------

    @property
    def is_persistent(self) -> bool:
        return self._directory.is_persistent

    def open(self) -> int:
        """Open the saved index; return its revision. If it is missing, damaged or of another version, start empty at 0."""
        manifest = self._directory.manifest()
        if manifest is not None and manifest.format == _FORMAT:
            try:
                self._load(manifest)
            except DamagedFile:
                self.clear()
                return 0
            return manifest.revision
        self.clear()
        return 0

    def follow(self) -> int:
        """For a follower: open the files that the leader has saved since; return its revision (0: none yet). The caller then
        replays the later changes. Files that cannot be read are retried next time: the leader may be writing them."""
        if self._since is None:
            self._since = {}
        manifest = self._directory.manifest()
        if manifest is not None and manifest.format == _FORMAT and manifest != self._manifest:
            with suppress(DamagedFile):
                self._load(manifest)
        if len(self._buffer) < _SEGMENT_BATCH:  # in a bulk load, queries scan the buffer until the leader saves it
            self._prepare_all()
        return self._manifest.revision if self._manifest else 0

    def _load(self, manifest: Manifest) -> None:
        known: dict[SegmentFile | None, Segment] = {reader.rows_file: reader.segment for reader in self._readers}
        blocks = {file: block for reader in self._readers for some in reader.blocks.values() for block, file in some}
        readers = [self._open_segment(saved, known, blocks) for saved in manifest.segments]
        with self._lock:  # with the later changes in the same swap: no query may miss them
            self._versions.bump_all()
            later = {key: each for key, each in (self._since or {}).items() if each[0] > manifest.revision}
            self._since = None if self._since is None else later
            self._readers, self._manifest, self._replaced = readers, manifest, {}
            self._buffer.clear()
            for agent_id, (_, change) in later.items():
                self._add(agent_id, change)

    def _open_segment(
        self,
        saved: SavedSegment,
        known: Mapping[SegmentFile | None, Segment],
        blocks: Mapping[SegmentFile | None, VectorBlock],
    ) -> SegmentReader:
        """Reuse open segments: files never change, and opening one reads every byte for its checksum."""
        segment = known.get(saved.rows)
        reader = SegmentReader(Segment(self._directory.read(saved.rows)) if segment is None else segment, saved.rows)
        for space, files in saved.blocks.items():
            if space in self.spaces:
                for file in files:
                    block = blocks.get(file) or VectorBlock(self._directory.read(file), self.spaces[space].quantizer)
                    reader.add_block(space, block, file)
        return with_deletes(reader, saved, self._directory.read(saved.dead)["dead"] if saved.dead else None)

    def clear(self) -> None:
        """Remove everything, including files."""
        with self._maintaining, self._lock:
            self._versions.bump_all()
            self._readers, self._replaced, self._manifest = [], {}, None
            self._buffer.clear()
            if self._since is None:
                self._directory.clear()

    def close(self) -> None:
        if self._builder is not None:
            self._builder.close()
        with self._maintaining, self._lock:
            self._readers = []
            self._buffer.clear()

    # --- Changes ---------------------------------------------------------------------------------

    def put(self, registration: Registration) -> None:
        self._note(registration.id, registration, registration.revision)

    def remove(self, agent_id: str, revision: int = 0) -> None:
        self._note(agent_id, None, revision)

    def _note(self, agent_id: str, registration: Registration | None, revision: int) -> None:
        change = None if registration is None else BufferedChange.of(registration)
        with self._lock:
            self._versions.bump(() if change is None else change.scopes)
            self._add(agent_id, change)
            if self._since is not None:
                self._since[agent_id] = (revision, change)

    def _add(self, agent_id: str, change: BufferedChange | None) -> None:
        self._replaced[agent_id] = None
        self._embedding.discard(agent_id)
        if change is None:
            self._buffer.drop(agent_id)
        else:
            self._buffer.put(change)

    @property
    def pending(self) -> int:
        """Changes and agents that are not saved, or without vectors."""
        return self._unsaved_changes + sum(map(self._count_pending, self._readers))

    def _count_pending(self, reader: SegmentReader) -> int:
        if not reader.is_saved:
            return reader.count
        return self._count_missing(reader) or min(1, reader.unsaved)  # vectors that are in memory are saved soon

    @property
    def unsaved(self) -> int:
        """Unsaved changes, including vectors."""
        return self._unsaved_changes + sum(reader.unsaved for reader in self._readers)

    @property
    def _unsaved_changes(self) -> int:
        has_deletes = any(not reader.is_dead_saved for reader in self._readers)
        return len(self._replaced.keys() | self._buffer.ids()) + has_deletes

    def is_fragmented(self, *, at_rest: bool = False) -> bool:
        """Whether `maintain` without load would merge saved data: segments of a bulk load, or vectors that were made after their
        rows. Each costs every query some calls."""
        with self._lock:
            tiers = [self._of(tier) for tier in range(len(VISIBILITIES))]
            segments = any(
                len(_segments_to_compact(readers, _growth_factor(readers, at_rest))) > 1 for readers in tiers
            )
            saved = [reader for reader in self._readers if reader.is_saved]
            return segments or any(
                len(reader.blocks_to_merge(space, _GROWTH)) > 1 for reader in saved for space in reader.blocks
            )

    def generation(self, audience: frozenset[str] | None) -> tuple[int, ...]:
        """Changes whenever results for this audience may have changed."""
        if self._replaced:
            with self._lock:
                self._delete_replaced()
        return self._versions.of(audience)

    def look(self, audience: frozenset[str] | None) -> tuple[list[SegmentReader], int]:
        """The segments in which the audience may see anything, and how many of its changes are too recent to be among them.
        Hidden changes stay in the buffer, so that a flood of them delays no one else."""
        with self._lock:  # always, so that timing does not reveal hidden changes
            count = self._buffer.count_visible(audience)
            if 0 < count <= _MAX_PREPARED:
                self._index_now(self._buffer.visible(audience))
                count = 0
            else:
                self._delete_replaced()
            return self._visible_readers(audience), count

    def _visible_readers(self, audience: frozenset[str] | None) -> list[SegmentReader]:
        """Cached: counting the other segments for each query would reveal their number by timing."""
        if self._visible_of is not self._readers:
            self._visible_of, self._visible = self._readers, {}
        known = self._visible.get(audience)
        if known is None:
            if len(self._visible) >= AUDIENCE_CACHE:
                self._visible.clear()
            known = self._visible[audience] = [reader for reader in self._readers if reader.visible(audience)[1]]
        return known

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        """Whether more changes are pending for this audience than one query indexes."""
        return self._buffer.count_visible(audience) > _MAX_PREPARED

    def prepare_for(self, audience: frozenset[str] | None, query: Query) -> None:
        """Index the pending changes that have the words of a query. Called in a thread during a bulk load: it holds the lock
        only briefly, so that writes go on."""
        with self._lock:
            pending = self._buffer.visible(audience)
        limit = _MAX_FILTERED if query.constraints or query.statuses else _MAX_PREPARED
        by_id = {change.id: change for change in pending}
        chosen = scan(pending, query, max(limit, 2 * query.limit))
        for first in range(0, len(chosen), _STEP):
            part = chosen[first : first + _STEP]
            self._add_readers([by_id[each.id] for each in part], self._build_readers(self._prepare(part)))

    def _index_now(self, changes: Sequence[BufferedChange]) -> None:
        """Build segments of these, the newest first. Rows that any change replaces are deleted at once."""
        self._delete_replaced()
        prepared = self._prepare([change.registration for change in reversed(changes)])
        for built in self._build_readers(prepared):
            self._readers = [*self._readers, built]
            self._merge_in_memory(built.segment.common_tier)
        for change in changes:  # only now: a concurrent reader must find them pending, and wait for the lock
            self._buffer.drop(change.id)

    def _prepare(self, registrations: Sequence[Registration]) -> list[IndexDocument]:
        return prepare_documents(registrations, with_texts=any(space.is_quick for space in self.spaces.values()))

    def _build_readers(self, prepared: Sequence[IndexDocument]) -> list[SegmentReader]:
        """One segment per tier, with the vectors that are made quickly."""
        return self._build_tiers(prepared, [name for name in self._ready if self.spaces[name].is_quick])

    def build_detached(self, registrations: Sequence[Registration]) -> list[SegmentReader]:
        """Segments of agents that are not in this index, with the vectors of every space that is ready."""
        return self._build_tiers(prepare_documents(registrations, with_texts=True), self._ready)

    def _build_tiers(self, prepared: Sequence[IndexDocument], spaces: Sequence[str]) -> list[SegmentReader]:
        readers = []
        for tier in range(len(VISIBILITIES)):
            if chosen := [each for each in prepared if each.tier == tier]:
                reader, rows = SegmentReader(build_segment(chosen)), np.arange(len(chosen), dtype=np.uint32)
                for name in spaces:
                    vectors = encode_agents(self.spaces[name], [each.texts for each in chosen])
                    reader.add_block(name, build_block(self.spaces[name], vectors, rows, len(rows)))
                readers.append(reader)
        return readers

    def _delete_replaced(self) -> None:
        ids = list(self._replaced)
        self._replaced = {}
        for reader in self._readers if ids else ():
            found = reader.segment.rows_by_id(ids)
            rows = found[found >= 0]
            self._versions.bump_tiers(reader.segment.tier[rows[~reader.dead[rows]]])
            reader.delete(rows)
            self._visible = {}

    def _merge_in_memory(self, tier: int) -> None:
        """Merge the newest in-memory segments of a tier while they have similar sizes."""
        while len(readers := self._of(tier)) > 1:
            older, newer = readers[-2:]
            if older.is_saved or older.is_compacting or newer.is_compacting or older.count > 2 * newer.count:
                break
            merged, _ = merge_readers([older, newer], [older.dead, newer.dead])
            self._replace([older, newer], merged)

    def _of(self, tier: int) -> list[SegmentReader]:
        return [reader for reader in self._readers if reader.segment.common_tier == tier]

    def _replace(self, old: Sequence[SegmentReader], new: SegmentReader | None) -> None:
        """Replace these by one reader, or none."""
        first = self._readers.index(old[0])
        kept = [reader for reader in self._readers if reader not in old]
        self._readers = [*kept[:first], *([new] if new else []), *kept[first:]]

    # --- Compaction ------------------------------------------------------------------------------

    def maintain(self, revision: int, give_way: YieldControl = never_yield, *, at_rest: bool = False) -> None:
        """Save every change made before this call, with the revision. `give_way` is called between small steps: it may wait
        for other work, and returns whether there is more. Revision 0 is a step of a rebuild, after which the next follows:
        then only segments of similar size are merged. `at_rest`: nothing changed for a while, so that a small index may
        become one segment."""
        with self._maintaining:
            try:
                self._prepare_all(give_way)
                self._compact(is_under_load=give_way() or not revision, at_rest=at_rest)
                self._save(revision)
            except OSError as error:
                raise StoreUnavailable(
                    f"The search index could not be saved: {error}",
                    hint="Free space on the disk of the data folder. Searches continue; saving is retried soon.",
                ) from error

    def _prepare_all(self, give_way: YieldControl = never_yield) -> None:
        """Build segments of all pending changes, without holding the lock: queries and writes run in between."""
        with self._lock:
            self._delete_replaced()
            pending = self._buffer.all()
        builder = self._builder if len(pending) >= _SEGMENT_BATCH else None
        for start in range(0, len(pending), _SEGMENT_BATCH):
            part = pending[start : start + _SEGMENT_BATCH]
            # Built elsewhere, segments have no vectors yet: `embed` makes them later.
            built = [SegmentReader(each) for each in builder.build(part) or ()] if builder is not None else []
            self._add_readers(part, built or self._build_in_steps(part, give_way))

    def _build_in_steps(self, changes: Sequence[BufferedChange], give_way: YieldControl) -> list[SegmentReader]:
        prepared: list[IndexDocument] = []
        for first in range(0, len(changes), _STEP):
            give_way()
            prepared += self._prepare([each.registration for each in changes[first : first + _STEP]])
        return self._build_readers(prepared)

    def _add_readers(self, prepared: Sequence[BufferedChange], built: Sequence[SegmentReader]) -> None:
        """Add segments of pending agents. Rows that changed meanwhile, or that a query indexed, are deleted."""
        with self._lock:
            self._delete_replaced()
            known = [each for each in prepared if self._buffer.get(each.id) is each]
            ids = sorted({each.id for each in prepared}.difference(each.id for each in known))
            for reader in built if ids else ():
                rows = reader.segment.rows_by_id(ids)
                reader.delete(rows[rows >= 0])
            self._readers = [*self._readers, *(reader for reader in built if reader.count)]
            for each in known:
                self._buffer.drop(each.id)
            for reader in built:
                self._merge_in_memory(reader.segment.common_tier)

    def _compact(self, *, is_under_load: bool, at_rest: bool) -> None:
        for tier in range(len(VISIBILITIES)):
            readers = self._of(tier)
            growth = _growth_under_load(readers) if is_under_load else _growth_factor(readers, at_rest)
            self._compact_tier(tier, growth)
        if not is_under_load:
            for reader in [reader for reader in self._readers if reader.is_saved]:
                for space in reader.blocks:
                    self._merge_blocks(reader, space, _GROWTH)

    def _merge_blocks(self, reader: SegmentReader, space: str, growth: int) -> None:
        """Merge vectors that were made after their rows. `embed` waits for `maintain`, so none are added meanwhile."""
        with self._lock:
            parts = reader.blocks_to_merge(space, growth)
        if len(parts) < 2:
            return
        same = np.arange(reader.segment.count, dtype=np.uint32)
        merged, file = VectorBlock.merge(parts, [same] * len(parts), reader.segment.count), None
        if self._directory.is_persistent:
            file = self._directory.write("vectors", merged.arrays)
            merged = VectorBlock(self._directory.read(file), self.spaces[space].quantizer)
        with self._lock:
            reader.replace_blocks(space, parts, merged, file)

    def _compact_tier(self, tier: int, growth: int) -> None:
        inputs, before = self._choose_inputs(tier, growth)
        if not inputs:
            return
        try:
            merged, renumbered = merge_readers(inputs, before)
            if merged is not None:
                merged = self._write_segment(merged)
        except OSError:
            for reader in inputs:
                reader.is_compacting = False
            raise
        with self._lock:
            for reader, dead, numbers in zip(inputs, before, renumbered, strict=True):
                deleted = numbers[reader.dead & ~dead]
                if merged is not None:
                    merged.delete(deleted[deleted != DROPPED_ROW])
            self._replace(inputs, merged)

    def _choose_inputs(self, tier: int, growth: int) -> tuple[Sequence[SegmentReader], list[Mask]]:
        """The newest segments of a tier: those in memory, every older one that is not much larger than all newer ones, and
        those that are mostly deleted. So the first compaction after a bulk load merges its segments."""
        with self._lock:
            chosen = _segments_to_compact(self._of(tier), growth)
            for reader in chosen:
                reader.is_compacting = True
            return chosen, [reader.dead.copy() for reader in chosen]

    def _write_segment(self, reader: SegmentReader) -> SegmentReader:
        """Write the segment to a file, and map it from there."""
        if not self._directory.is_persistent:
            reader.rows_file = self._directory.write("rows", {})
            return reader
        file = self._directory.write("rows", reader.segment.arrays)
        mapped = SegmentReader(Segment(self._directory.read(file)), file)
        for space, blocks in reader.blocks.items():
            for block, _ in blocks:
                written = self._directory.write("vectors", block.arrays)
                mapped.add_block(
                    space, VectorBlock(self._directory.read(written), self.spaces[space].quantizer), written
                )
        return mapped

    def _save(self, revision: int) -> None:
        with self._lock:
            readers = [reader for reader in self._readers if reader.is_saved]
        for reader in readers:
            self._save_dead(reader)
        for reader in readers:
            for space, blocks in reader.blocks.items():
                for at, (block, file) in enumerate(blocks):
                    if file is None:
                        reader.replace_file(space, at, self._directory.write("vectors", block.arrays))
        segments = tuple(saved for reader in readers if (saved := reader.saved) is not None)
        manifest = Manifest(format=_FORMAT, revision=revision, segments=segments)
        if manifest != self._manifest:
            self._directory.commit(manifest)
            self._manifest = manifest

    def _save_dead(self, reader: SegmentReader) -> None:
        with self._lock:
            if reader.is_dead_saved:
                return
            mask, reader.is_dead_saved = reader.dead.copy(), True
        try:
            reader.dead_file = self._directory.write("dead", {"dead": np.packbits(mask)})
        except OSError:
            reader.is_dead_saved = False
            raise

    # --- Background embedding --------------------------------------------------------------------

    @property
    def _ready(self) -> list[str]:
        return [name for name, space in self.spaces.items() if space.embedder.is_ready]

    def _count_missing(self, reader: SegmentReader) -> int:
        """Rows without vectors of some space."""
        if all(map(reader.is_covered, self.spaces)):
            return 0
        covered = np.logical_and.reduce([reader.covered(space) for space in self.spaces])
        return int((~covered & ~reader.dead).sum())

    def lacks_vectors(self, ids: Sequence[str]) -> bool:
        """Whether the vectors of some of these agents are not made yet."""
        with self._lock:
            if any(agent_id in self._buffer.ids() for agent_id in ids):
                return bool(self._ready)
            for reader in self._readers:
                rows = reader.segment.rows_by_id(ids)
                rows = rows[rows >= 0]
                rows = rows[~reader.dead[rows]]
                if any(not reader.covered(space)[rows].all() for space in self._ready):
                    return True
        return False

    def lacking(self, limit: int, start: int = 0) -> list[str]:
        """Ids of saved agents without vectors, newest segments first. Of a segment with more of them than the limit those from
        `start` on, modulo their number."""
        found: dict[str, None] = {}
        with self._lock:
            for reader in reversed(self._readers):
                for space in self._ready if reader.is_saved else ():
                    rows = np.flatnonzero(~reader.covered(space) & ~reader.dead)
                    if len(rows) > limit:
                        rows = rows[start % len(rows) :]
                    found.update((reader.segment.id_of(int(row)), None) for row in rows[: limit - len(found)])
                    if len(found) == limit:
                        break
            self._embedding.update(found)
        return [*found]

    def embed(self, registrations: Sequence[Registration]) -> dict[str, bytes]:
        """Make the missing vectors of agents that `lacking` returned. Called in a thread; an agent that changed meanwhile is left
        for the next time, because its texts may be old. Returns the vectors of each agent for `take_vectors` of another node."""
        texts = [embedded_texts(registration.record) for registration in registrations]
        made: list[dict[str, CodedVectors]] = [{} for _ in registrations]
        for name in self._ready:
            space = self.spaces[name]
            for coded, vectors in zip(made, encode_agents(space, texts), strict=True):
                coded[name] = code_vectors(vectors, space.quantizer)
        ids = [registration.id for registration in registrations]
        self._attach_all(dict(zip(ids, made, strict=True)))
        return {
            agent_id: pack_vectors(digest_texts(_FORMAT, each), coded)
            for agent_id, each, coded in zip(ids, texts, made, strict=True)
        }

    def take_vectors(self, registrations: Sequence[Registration], packed: Mapping[str, bytes]) -> set[str]:
        """Use the vectors that `embed` of another node made of these agents. Called in a thread. Returns the ids of those that
        fit: of the same texts and format, in each space that is ready."""
        quantizers = {name: self.spaces[name].quantizer for name in self._ready}
        taken = {}
        for registration in registrations:
            digest = digest_texts(_FORMAT, embedded_texts(registration.record))
            coded = unpack_vectors(packed[registration.id], digest, quantizers)
            if coded is not None:
                taken[registration.id] = coded
        self._attach_all(taken)
        return set(taken)

    def _attach_all(self, made: Mapping[str, Mapping[str, CodedVectors]]) -> None:
        ids = [*made]
        with self._maintaining:  # a compaction merges the blocks that it has seen
            for name in self.spaces:
                having = [agent_id for agent_id in ids if name in made[agent_id]]
                for reader in self._readers if having else ():
                    self._attach(reader, name, having, [made[agent_id][name] for agent_id in having])
        self._embedding.difference_update(ids)

    def _attach(self, reader: SegmentReader, name: str, ids: list[str], vectors: list[CodedVectors]) -> None:
        """Queries wait for the lock, so it is not held while blocks are built and merged."""
        with self._lock:
            rows = reader.segment.rows_by_id(ids)
            wanted = [
                at
                for at, row in enumerate(rows)
                if row >= 0 and ids[at] in self._embedding and not reader.dead[row] and not reader.covered(name)[row]
            ]
        if not wanted or not reader.is_saved:
            return
        coded = {part: np.concatenate([vectors[at][part] for at in wanted]) for part in CODED}
        sizes = [len(vectors[at]["scales"]) for at in wanted]
        block = VectorBlock.build(
            coded, sizes, rows[wanted].astype(np.uint32), reader.segment.count, self.spaces[name].quantizer
        )
        blocks = reader.join_block(name, block)
        with self._lock:
            reader.set_blocks(name, blocks)
            self._versions.bump_tiers(reader.segment.tier[rows[wanted]])


def _growth_factor(readers: Sequence[SegmentReader], at_rest: bool) -> int:
    """How many times larger than all newer segments a segment may be to be merged with them."""
    return _GROWTH_AT_REST if at_rest and sum(reader.count for reader in readers) <= _SMALL else _GROWTH


def _growth_under_load(readers: Sequence[SegmentReader]) -> int:
    """Saved segments are not merged until there are many: each of them costs a query a little, and a merge costs the load."""
    return _GROWTH_UNDER_LOAD if len(readers) > _SEGMENTS_UNDER_LOAD else 0


def _segments_to_compact(readers: Sequence[SegmentReader], growth: int) -> Sequence[SegmentReader]:
    """All segments from the oldest one worth compacting."""
    first, gathered = len(readers), 0
    for at in reversed(range(len(readers))):
        if _is_worth_compacting(readers[at], growth * gathered):
            first = at
        gathered += readers[at].count
    return readers[first:]


def _is_worth_compacting(reader: SegmentReader, most: int) -> bool:
    return not reader.is_saved or 0 < reader.count <= most or 2 * reader.count < reader.segment.count
