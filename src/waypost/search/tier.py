"""One tantivy index: the records of one visibility. It knows fields, terms and filters; no delta, no fusion, no revision.

Queries are built from objects, never parsed: nothing in a text is syntax. Text fields hold terms that `text` has analysed,
joined by spaces. A private tier also stores them, because its hits are weighed again with statistics the caller may know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tantivy import Document as Row
from tantivy import Index, Occur, Order, Query, SchemaBuilder
from tantivy.tantivy import __version__ as engine_version

from waypost.model.principal import PRIVATE
from waypost.search.bm25 import FIELDS, WEIGHTS, Document
from waypost.search.delta import Change
from waypost.search.question import Question

VERSION: Final = 1  # raise it when the schema changes: saved indices are then built anew
ENGINE: Final = engine_version  # names the format of its files too

_WRITER_HEAP_BYTES: Final = (
    32 * 1024 * 1024
)  # a segment is written out when it is full; tantivy asks for 15 MB at least
_TERM_CACHE: Final = 65_536
_LABEL_CACHE: Final = 16_384  # ids that popular answers name again and again
_NOWHERE: Final = (0,) * len(FIELDS)
_LENGTHS: Final = tuple(f"{field}_length" for field in FIELDS)


def _schema(*, keeps_text: bool) -> Any:
    builder = SchemaBuilder()
    builder.add_text_field("id", fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("label", stored=True, indexed=False)  # status mark and id: one read per hit
    for field in FIELDS:
        builder.add_text_field(field, stored=keeps_text, tokenizer_name="whitespace", index_option="freq")
    for length in _LENGTHS:
        builder.add_integer_field(length, fast=True)
    for key in ("tag", "protocol", "scope", "status"):
        builder.add_text_field(key, stored=keeps_text and key == "tag", tokenizer_name="raw", index_option="basic")
    return builder.build()


Filters = list[tuple[Any, Any]]  # clauses: (occurrence, query)


class _Term(NamedTuple):
    containing: tuple[int, ...]  # for each of FIELDS
    queries: list[tuple[int, Any]]  # (field, query) where it is not zero


class View:
    """What is committed, at one moment: a searcher, and the statistics that it scores with."""

    def __init__(self, schema: Any, searcher: Any) -> None:
        self._schema = schema
        self._searcher = searcher
        self._terms: dict[str, _Term] = {}
        self._labels: dict[tuple[int, int], tuple[str, bool]] = {}
        self.docs: int = searcher.num_docs
        self.average_lengths = self._average_lengths()

    def _average_lengths(self) -> tuple[float, ...]:
        if not self.docs:
            return (0.0,) * len(FIELDS)
        sums = self._searcher.aggregate(Query.all_query(), {name: {"sum": {"field": name}} for name in _LENGTHS})
        return tuple(sums[name]["value"] / self.docs for name in _LENGTHS)

    def containing(self, term: str) -> tuple[int, ...]:
        return self._term(term).containing

    def term_queries(self, term: str) -> list[tuple[int, Any]]:
        """A query for each field that contains the term, weighed by its field."""
        return self._term(term).queries

    def _term(self, term: str) -> _Term:
        known = self._terms.get(term)
        if known is None:
            if len(self._terms) >= _TERM_CACHE:
                self._terms.clear()
            known = self._terms[term] = self._look_up(term)
        return known

    def _look_up(self, term: str) -> _Term:
        if not self.docs:
            return _Term(_NOWHERE, [])
        containing = tuple(self._searcher.doc_freq(field, term) for field in FIELDS)
        return _Term(
            containing, [(field, self._weighted(field, term)) for field, count in enumerate(containing) if count]
        )

    def _weighted(self, field: int, term: str) -> Any:
        query = Query.term_query(self._schema, FIELDS[field], term, "freq")
        return query if WEIGHTS[field] == 1.0 else boosted(query, WEIGHTS[field])

    def tag_query(self, tag: str, score: float) -> Any:
        return Query.const_score_query(self._key("tag", tag), score)

    def _key(self, key: str, value: str) -> Any:
        return Query.term_query(self._schema, key, value, "basic")

    def filters(self, question: Question, scopes: frozenset[str] | None = None) -> Filters:
        """The hard filters as clauses that add nothing to a score."""
        clauses = [(Occur.Must, _weightless(self._key("tag", tag))) for tag in question.required]
        clauses += [(Occur.MustNot, self._key("tag", tag)) for tag in question.excluded]
        for key, values in (("protocol", question.protocols), ("scope", scopes)):
            if values:
                options = [(Occur.Should, self._key(key, value)) for value in values]
                clauses.append((Occur.Must, _weightless(Query.boolean_query(options))))
        return clauses

    def best(self, options: Sequence[Any], filters: Filters, limit: int) -> list[tuple[float, Any]]:
        """The best matches of any option, as (score, address)."""
        if not options or not self.docs:
            return []
        query = Query.boolean_query([(Occur.Should, option) for option in options])
        if filters:
            query = Query.boolean_query([(Occur.Must, query), *filters])
        hits: list[tuple[float, Any]] = self._searcher.search(query, limit, count=False).hits
        return hits

    def first(self, filters: Filters, limit: int, *, is_deprecated: bool) -> list[str]:
        """Ids of what passes the filters, in order."""
        if not self.docs:
            return []
        status = (Occur.Must if is_deprecated else Occur.MustNot, self._key("status", "deprecated"))
        query = Query.boolean_query([(Occur.Must, Query.all_query()), status, *filters])
        hits = self._searcher.search(query, limit, count=False, order_by_field="id", order=Order.Asc).hits
        return [agent_id for agent_id, _ in hits]

    def label(self, address: Any) -> tuple[str, bool]:
        """The id at an address, and whether it is deprecated."""
        place = (address.segment_ord, address.doc)
        known = self._labels.get(place)
        if known is None:
            if len(self._labels) >= _LABEL_CACHE:
                self._labels.clear()
            label: bytes = self._searcher.doc(address).get_first("label")
            known = self._labels[place] = (label[1:].decode(), label[0] == 0x64)
        return known

    def document(self, address: Any) -> tuple[Document, frozenset[str]]:
        """The stored terms and tags of a record in a private tier."""
        row = self._searcher.doc(address)
        return Document([row.get_first(field) or "" for field in FIELDS]), frozenset(row.get_all("tag"))


def boosted(query: Any, factor: float) -> Any:
    return Query.boost_query(query, factor)


def _weightless(query: Any) -> Any:
    return Query.const_score_query(query, 0.0)


class Tier:
    """The index of one visibility, on disk or (without a folder) in memory."""

    def __init__(self, name: str, folder: Path | None) -> None:
        self._schema = _schema(keeps_text=name == PRIVATE)
        if folder is None:
            self._index = Index(self._schema)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._index = Index(self._schema, path=str(folder))
        self._index.config_reader("manual")
        self._writer: Any = None
        self._is_dirty = False
        self.is_filled: bool = self._index.searcher().num_docs > 0  # or may be, after a commit that failed

    def view(self) -> View:
        self._index.reload()
        return View(self._schema, self._index.searcher())

    @property
    def writer(self) -> Any:
        if self._writer is None:
            self._writer = self._index.writer(heap_size=_WRITER_HEAP_BYTES, num_threads=1)
        return self._writer

    def delete(self, agent_id: str) -> None:
        self._is_dirty = True
        self.writer.delete_documents_by_term("id", agent_id)

    def add(self, change: Change) -> None:
        row = Row()
        row.add_text("id", change.id)
        row.add_bytes("label", (b"d" if change.is_deprecated else b"a") + change.id.encode())
        for field, text in enumerate(change.texts):
            if text:
                row.add_text(FIELDS[field], text)
            row.add_integer(_LENGTHS[field], text.count(" ") + 1 if text else 0)
        _add_keys(row.add_text, change)
        self._is_dirty = self.is_filled = True
        self.writer.add_document(row)

    def commit(self) -> bool:
        """Make what was added and deleted durable; False when there was nothing."""
        if not self._is_dirty:
            return False
        self.writer.commit()
        self._is_dirty = False
        return True

    def close(self) -> None:
        """Let go of the writer, and of what it did not commit."""
        self._writer = None
        self._is_dirty = False


def _add_keys(add_text: Callable[[str, str], None], change: Change) -> None:
    for tag in change.tags:
        add_text("tag", tag)
    for protocol in change.protocols:
        add_text("protocol", protocol)
    for scope in change.scopes:
        add_text("scope", scope)
    if change.is_deprecated:
        add_text("status", "deprecated")
