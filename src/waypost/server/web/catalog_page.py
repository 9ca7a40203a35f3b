"""The catalog page: search box, filters with counts, results with reasons, and suggestions if nothing was found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import InvalidParameter
from waypost.model.names import fold_tag
from waypost.model.principal import audience
from waypost.model.query import DiscoverResult, EmptyResult, FacetCount, Facets, FacetSummary, MatchedAgent, Query
from waypost.model.record import LISTED, AgentRecord
from waypost.model.registration import Registration
from waypost.registry.find.empty_results import spelling_warnings
from waypost.registry.registry import Registry
from waypost.search.spelling import Spelling
from waypost.server.auth.sessions import WebUser
from waypost.server.http.asgi import Request
from waypost.server.http.request_params import read_filters
from waypost.server.web.agent_cards import AgentCards, MatchView, shown_protocols
from waypost.server.web.recent_changes import RecentChanges, VisibleChange
from waypost.server.web.templating import count_of

FILTER_NAMES: Final = ("tag", "protocol", "status")
SORTS: Final = {"best": "Best", "name": "Name", "new": "New", "verified": "Verified first"}
_FILTER_TITLES: Final = {"tag": "Tags", "protocol": "Protocols", "status": "Status"}
_WORD: Final = re.compile(r"[\w-]{3,40}")
_WORDS: Final = 8
_EXAMPLE_CHARS: Final = 48
_EXAMPLES: Final = 3  # one line of the page
_PAGE_LANGUAGE: Final = "en"
_TRUST_ORDER: Final = ("verified", "self_asserted", "failed")

Link = tuple[str, str]  # text and address


class SearchForm(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()  # empty: the statuses that lists show
    sort: str = ""  # one of SORTS; empty: best for a search, name for a list
    cursor: str | None = None
    is_rest: bool = False  # of a list with verified agents first: those that are not verified

    def values(self, name: str) -> tuple[str, ...]:
        return {"tag": self.tags, "protocol": self.protocols, "status": self.statuses}[name]

    @property
    def is_filtered(self) -> bool:
        return bool(self.tags or self.protocols or self.statuses)

    @property
    def is_plain(self) -> bool:
        return not (self.text or self.is_filtered or self.cursor or self.sort)

    def address(self, **changes: object) -> str:
        """The address of this query with some changes, at its first page."""
        form = msgspec.structs.replace(self, **{"cursor": None, "is_rest": False, **changes}) if changes else self
        pairs = [("q", form.text)] if form.text else []
        pairs += [(name, value) for name in FILTER_NAMES for value in form.values(name)]
        if form.sort:
            pairs.append(("sort", form.sort))
        if form.is_rest:
            pairs.append(("rest", "1"))
        if form.cursor is not None:
            pairs.append(("cursor", form.cursor))
        return f"/?{urlencode(pairs)}" if pairs else "/"

    def toggled(self, name: str, value: str) -> str:
        """Toggle a filter."""
        held = self.values(name)
        kept = tuple(each for each in held if each != value) if value in held else (*held, value)
        return self.address(**{_FIELDS[name]: kept})

    def hidden_fields(self) -> list[tuple[str, str]]:
        """Hidden fields that keep filters and order when the text changes."""
        kept = [(name, value) for name in FILTER_NAMES for value in self.values(name)]
        return [*kept, *([("sort", self.sort)] if self.sort else [])]


_FIELDS = {"tag": "tags", "protocol": "protocols", "status": "statuses"}


def parse_search_form(request: Request) -> SearchForm:
    text = (request.param("q") or "").strip()
    if len(text) > limits.QUERY_CHARS:
        raise InvalidParameter(
            f"The query has {len(text)} characters; the limit is {limits.QUERY_CHARS}.",
            path="q",
            hint="Shorten it.",
        )
    filters = read_filters(request)
    for name, values in (("tag", filters.tags), ("protocol", filters.protocols)):
        if len(values) > limits.FILTER_VALUES:
            raise InvalidParameter(
                f"At most {limits.FILTER_VALUES} values are allowed.", path=name, hint="Use fewer values."
            )
    return SearchForm(
        text=text,
        tags=tuple(dict.fromkeys(filters.tags)),
        protocols=tuple(dict.fromkeys(filters.protocols)),
        statuses=tuple(dict.fromkeys(value for name, value in request.query if name == "status")),
        sort=_parse_sort(request.param("sort") or "", has_text=bool(text)),
        cursor=request.param("cursor"),
        is_rest=request.param("rest") == "1",
    )


def _parse_sort(sort: str, *, has_text: bool) -> str:
    if sort and sort not in SORTS:
        raise InvalidParameter("This is not an order.", path="sort", hint=f"Use one of {', '.join(SORTS)}.")
    default = "best" if has_text else "name"
    return "" if sort in (default, "best") else sort


# --- What the template shows ----------------------------------------------------------------------


class FilterOption(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    count: int
    href: str
    is_on: bool


class FilterGroup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    options: list[FilterOption]


class SortOption(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    href: str
    is_on: bool


class WordOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Similar words or tags for one that no agent has."""

    word: str
    links: list[Link]
    lacks: str = "has the word"
    instead: str | None = None  # the word that was searched for


class FilterCount(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    value: str
    counts: str


class NoResults(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is nothing, and what to do."""

    title: str
    text: str = ""
    effects: Sequence[FilterCount] = ()
    offers: Sequence[WordOffer] = ()
    near: Sequence[Link] = ()
    hint: str = ""
    register: bool = False
    clear: str | None = None
    clear_text: str = ""


class CatalogResults(msgspec.Struct, frozen=True, kw_only=True):
    """One page of results with its filters and messages."""

    status: str  # the number of results, as text
    filters: list[FilterGroup]
    clear: str | None
    sorts: list[SortOption]
    cards: Sequence[Markup] = ()  # of a list
    hits: Sequence[MatchView] = ()  # of a search
    weak: Sequence[MatchView] = ()  # further results, folded away
    more: str | None = None  # the next page
    empty: NoResults | None = None
    spellings: Sequence[WordOffer] = ()
    remarks: Sequence[str] = ()
    examples: Sequence[Link] = ()  # searches to try


class HomeFigures(msgspec.Struct, frozen=True, kw_only=True):
    agents: int
    protocols: int
    has_more_protocols: bool  # than a facet counts
    verified: int
    pending: int


class CatalogPage:
    def __init__(self, registry: Registry, cards: AgentCards, changes: RecentChanges) -> None:
        self._registry = registry
        self._cards = cards
        self._changes = changes
        self._kept: LruCache[tuple[object, ...], tuple[int, FacetSummary]] = LruCache(limits.PAGE_COUNT_CACHE)

    async def find(self, form: SearchForm, visitor: WebUser) -> CatalogResults:
        """The part that changes while typing: filters and results."""
        return await (self._search if form.text else self._list)(form, visitor)

    # --- Lists -----------------------------------------------------------------------------------

    async def _list(self, form: SearchForm, visitor: WebUser) -> CatalogResults:
        ids, total, more = self._select(form, visitor)
        overview = self._counts(form, visitor)
        agents = await self._registry.registrations(ids, sources=False)
        return CatalogResults(
            cards=[self._cards.card(agent) for agent in agents],
            status=count_of(total, "agent"),
            filters=_filters(form, overview.facets),
            clear=_clear(form),
            sorts=_sorts(form, ("name", "new", "verified")) if agents else [],
            more=more,
            empty=None if agents else self._empty_list(form, visitor, overview.suggestions),
            examples=_example_searches(agents),
        )

    def _select(self, form: SearchForm, visitor: WebUser) -> tuple[list[str], int, str | None]:
        """The ids of one page, the total, and the address of the next page."""
        if form.sort == "new":
            return self._newest(form, visitor)
        if form.sort == "verified":
            return self._verified_first(form, visitor)
        ids, total, cursor = self._page(form, visitor, limits.PAGE_AGENTS, form.cursor)
        return ids, total, form.address(cursor=cursor) if cursor is not None else None

    def _page(
        self, form: SearchForm, visitor: WebUser, limit: int, cursor: str | None, *, verified: bool | None = None
    ) -> tuple[list[str], int, str | None]:
        page = self._registry.page(
            visitor.reader,
            limit=limit,
            cursor=cursor,
            tags=form.tags,
            protocols=form.protocols,
            statuses=form.statuses or LISTED,
            verified=verified,
        )
        return [entry.id for entry in page.entries], page.total, page.next_cursor

    def _verified_first(self, form: SearchForm, visitor: WebUser) -> tuple[list[str], int, str | None]:
        """Two lists, one after the other; a page may have the end of the first and the beginning of the second."""
        total = self._counts(form, visitor).total
        ids: list[str] = []
        cursor = form.cursor
        if not form.is_rest:
            ids, _, cursor = self._page(form, visitor, limits.PAGE_AGENTS, cursor, verified=True)
            if cursor is not None:
                return ids, total, form.address(cursor=cursor)
        if len(ids) == limits.PAGE_AGENTS:
            return ids, total, form.address(is_rest=True)
        rest, _, cursor = self._page(form, visitor, limits.PAGE_AGENTS - len(ids), cursor, verified=False)
        return [*ids, *rest], total, form.address(cursor=cursor, is_rest=True) if cursor is not None else None

    def _newest(self, form: SearchForm, visitor: WebUser) -> tuple[list[str], int, str | None]:
        """Those that changed last, as many as are remembered: further back, the date says little."""
        changes = self._changes.latest(audience(visitor.reader), limits.PAGE_CHANGE_CACHE)
        entries = [
            entry
            for change in changes
            if not change.is_removal and (entry := self._registry.entries.find_named(change.id)) is not None
        ]
        fitting = [
            entry.id
            for entry in entries
            if entry.status in (form.statuses or LISTED)
            and set(form.tags) <= set(entry.tags)
            and (not form.protocols or set(form.protocols) & set(entry.protocols))
        ]
        return fitting, self._counts(form, visitor).total, None

    # --- Searches --------------------------------------------------------------------------------

    async def _search(self, form: SearchForm, visitor: WebUser) -> CatalogResults:
        query = Query(
            text=form.text,
            required_tags=form.tags,
            protocols=form.protocols,
            statuses=form.statuses,
            limit=limits.PAGE_AGENTS,
            include_evidence=True,
        )
        findings = await self._registry.find(query, visitor.reader)
        held = await self._held(findings)
        candidates = [each for each in findings.candidates if each.record.id in held]
        fitting = _sorted([each for each in candidates if each.match != "weak"], form.sort)
        weak = [each for each in candidates if each.match == "weak"]
        status = _search_status(len(fitting), bool(weak))
        return CatalogResults(
            hits=[self._cards.hit(each, held[each.record.id]) for each in fitting or weak],
            weak=[self._cards.hit(each, held[each.record.id]) for each in weak] if fitting else (),
            status=status,
            filters=_filters(form, _count_facets(held[each.record.id] for each in fitting or weak)),
            clear=_clear(form),
            sorts=_sorts(form, tuple(SORTS)) if fitting else [],
            empty=None if candidates else self._empty_search(form, visitor, findings),
            spellings=_spellings(form, findings) if candidates else (),
            remarks=_remarks(findings) if candidates else (),
        )

    async def _held(self, findings: DiscoverResult) -> dict[str, Registration]:
        ids = [candidate.record.id for candidate in findings.candidates]
        return {found.id: found for found in await self._registry.registrations(ids, sources=False)}

    def _counts(self, form: SearchForm, visitor: WebUser) -> FacetSummary:
        """Facet counts of a list, cached until a visible agent changes."""
        seen = audience(visitor.reader)
        name = (seen, visitor.reader.is_admin, form.tags, form.protocols, form.statuses)
        generation = self._registry.entries.generation(seen)
        kept = self._kept.get(name)
        if kept is None or kept[0] != generation:
            counted = self._registry.facets(
                visitor.reader,
                FILTER_NAMES,
                tags=form.tags,
                protocols=form.protocols,
                statuses=form.statuses or LISTED,
            )
            kept = (generation, counted)
            self._kept.put(name, kept)
        return kept[1]

    # --- No results ------------------------------------------------------------------------------

    def _empty_list(self, form: SearchForm, visitor: WebUser, meant: dict[str, Any]) -> NoResults:
        if not form.is_filtered:
            return _NOTHING_REGISTERED
        return NoResults(
            title="No agent matches these filters",
            offers=[_offer_tags(form, tag, near) for tag, near in meant.items()],
            clear=form.address(tags=(), protocols=(), statuses=()),
            clear_text="Show all agents",
        )

    def _empty_search(self, form: SearchForm, visitor: WebUser, findings: DiscoverResult) -> NoResults:
        empty = findings.empty or EmptyResult(reason="no_match", visible=0)
        if empty.reason == "nothing_registered":
            return _NOTHING_REGISTERED
        offers = [_offer_tags(form, tag, near) for tag, near in findings.suggestions.items()]
        offers += _spellings(form, findings)
        if empty.reason == "filtered":
            return NoResults(
                title="No agent matches these filters",
                effects=[
                    _filter_count(each.filter, each.value, each.matching, empty.visible) for each in empty.filters
                ],
                offers=offers,
                clear=form.address(tags=(), protocols=(), statuses=()),
                clear_text="Search without filters",
            )
        return NoResults(
            title="Nothing found",
            text=f"None of {count_of(empty.visible, 'agent')} matches “{form.text}”.",
            offers=offers,
            near=() if offers else self._near_tags(form, visitor),
            hint="Describe the task in a few words, or choose a tag from the list of all agents.",
            clear="/",
            clear_text="Show all agents",
        )

    def _near_tags(self, form: SearchForm, visitor: WebUser) -> list[Link]:
        """Tags with nearly the spelling of a word in the query."""
        words = list(dict.fromkeys(map(fold_tag, _WORD.findall(form.text))))[:_WORDS]
        near = self._registry.suggest(visitor.reader, words)
        offered = dict.fromkeys(tag for tags in near.values() for tag in tags)
        return [(tag, form.address(text=tag)) for tag in offered]

    # --- Around the results ----------------------------------------------------------------------

    def figures(self, visitor: WebUser) -> HomeFigures:
        overview = self._counts(SearchForm(), visitor)
        protocols = [each for each in overview.facets["protocol"] if "+" not in each.value]
        return HomeFigures(
            agents=overview.total,
            protocols=len(protocols),
            has_more_protocols=len(overview.facets["protocol"]) == limits.FACET_VALUES,
            verified=self._page(SearchForm(), visitor, 1, None, verified=True)[1],
            pending=self._registry.stats(visitor.reader).indexing_pending or 0,
        )

    def latest_changes(self, visitor: WebUser, most: int = limits.PAGE_CHANGES) -> list[VisibleChange]:
        return self._changes.latest(audience(visitor.reader), most) if visitor.reads else []


_NOTHING_REGISTERED: Final = NoResults(
    title="No agent is registered yet",
    text="Agents appear here as soon as they register, in any format.",
    register=True,
)


def _search_status(fitting: int, has_weak: bool) -> str:
    if fitting:
        return f"{count_of(fitting, 'agent')} found"
    return "Nothing fits well. The nearest agents:" if has_weak else "Nothing found"


def _sorted(candidates: list[MatchedAgent], sort: str) -> list[MatchedAgent]:
    if sort == "name":
        return sorted(candidates, key=lambda each: each.record.name.casefold())
    if sort == "new":
        return sorted(candidates, key=lambda each: -each.changed_at)
    if sort == "verified":
        return sorted(
            candidates, key=lambda each: _TRUST_ORDER.index(each.trust.level) if each.trust.level in _TRUST_ORDER else 9
        )
    return candidates


def _remarks(findings: DiscoverResult) -> list[str]:
    """The warnings, without those about words that are shown with links to the corrected search."""
    spelled = set(spelling_warnings(findings.spelling, findings.corrections))
    offered = {word: meant for word, meant in findings.corrections.items() if len(findings.spelling.get(word, ())) > 1}
    corrected = set(Spelling(corrections=offered).warnings)
    return [warning for warning in findings.warnings if warning not in spelled | corrected]


def _spellings(form: SearchForm, findings: DiscoverResult) -> list[WordOffer]:
    """Words that no agent has: what was searched for instead, and other similar words."""
    offers = []
    for word, near in findings.spelling.items():
        instead = findings.corrections.get(word)
        others = [each for each in near if each != instead]
        if instead is None or others:
            offers.append(WordOffer(word=word, links=_corrected(form, word, others), instead=instead))
    return offers


def _corrected(form: SearchForm, word: str, near: Sequence[str]) -> list[Link]:
    return [(each, form.address(text=re.sub(re.escape(word), each, form.text, flags=re.IGNORECASE))) for each in near]


def _offer_tags(form: SearchForm, tag: str, near: Sequence[str]) -> WordOffer:
    others = tuple(each for each in form.tags if each != tag)
    links = [(each, form.address(tags=(*others, each))) for each in near]
    return WordOffer(word=tag, links=links, lacks="carries the tag")


def _filter_count(name: str, value: Any, matching: int, visible: int) -> FilterCount:
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    label = {"required_tags": "tag", "protocols": "protocol", "statuses": "status"}.get(name, name)
    return FilterCount(label=label, value=shown, counts=f"{matching:,} of {count_of(visible, 'agent')}")


def _example_searches(agents: Iterable[Registration]) -> list[Link]:
    """Short examples of agents on the page: searches that find something here. Requests come before questions."""
    texts = dict.fromkeys(text for agent in agents if (text := _short_example(agent.record)))
    chosen = sorted(texts, key=lambda text: (text.endswith("?"), len(text)))[:_EXAMPLES]
    return [(text, f"/?{urlencode({'q': text})}") for text in chosen]


def _short_example(record: AgentRecord) -> str | None:
    """PRO-38: content that the publisher marked as private is not quoted."""
    for example in record.examples:
        text = example.text.strip().rstrip(".!")
        is_readable = text.isprintable() and (example.language or _PAGE_LANGUAGE).startswith(_PAGE_LANGUAGE)
        if 8 <= len(text) <= _EXAMPLE_CHARS and is_readable and not example.extra.get("private"):
            return text[0].upper() + text[1:]
    return None


# --- Filters and order ----------------------------------------------------------------------------


def _count_facets(agents: Iterable[Registration]) -> Facets:
    """Counts over the results of a search: the filters follow the query."""
    counters: dict[str, Counter[str]] = {name: Counter() for name in FILTER_NAMES}
    for agent in agents:
        counters["tag"].update(dict.fromkeys(map(fold_tag, agent.record.tags), 1))
        counters["protocol"].update(shown_protocols(agent.record))
        counters["status"][agent.status] += 1
    return {
        name: tuple(
            FacetCount(value, count) for value, count in sorted(counter.items(), key=lambda each: (-each[1], each[0]))
        )
        for name, counter in counters.items()
    }


def _clear(form: SearchForm) -> str | None:
    return form.address(tags=(), protocols=(), statuses=()) if form.is_filtered else None


def _sorts(form: SearchForm, names: Sequence[str]) -> list[SortOption]:
    chosen = form.sort or names[0]
    return [
        SortOption(title=SORTS[name], href=form.address(sort="" if name == names[0] else name), is_on=name == chosen)
        for name in names
    ]


def _filters(form: SearchForm, facets: Facets) -> list[FilterGroup]:
    groups = (_filter_group(form, name, facets.get(name, ())) for name in FILTER_NAMES)
    return [group for group in groups if group is not None]


def _filter_group(form: SearchForm, name: str, values: Sequence[FacetCount]) -> FilterGroup | None:
    held = form.values(name)
    # A protocol is found by its family; its variants would fill the list.
    shown = [each for each in values if name != "protocol" or "+" not in each.value][: limits.PAGE_FACETS]
    shown += [FacetCount(value, 0) for value in held if value not in {each.value for each in shown}]
    if not shown:
        return None
    options = [
        FilterOption(value=each.value, count=each.count, href=form.toggled(name, each.value), is_on=each.value in held)
        for each in shown
    ]
    return FilterGroup(name=name, title=_FILTER_TITLES[name], options=options)
