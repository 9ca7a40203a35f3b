"""The catalog page: search box, filters with counts, results with reasons, and suggestions if nothing was found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import InvalidParameter
from waypost.model.names import fold_tag
from waypost.model.principal import audience
from waypost.model.query import DiscoverResult, EmptyResult, FacetCount, FacetSummary, Query
from waypost.model.record import LISTED
from waypost.model.registration import Registration
from waypost.registry.find.empty_results import spelling_warnings
from waypost.registry.registry import Registry
from waypost.server.auth.sessions import WebUser
from waypost.server.http.asgi import Request
from waypost.server.http.request_params import read_filters
from waypost.server.web.agent_cards import AgentCards
from waypost.server.web.markup import Html, HtmlContent, el, join
from waypost.server.web.recent_changes import RecentChanges, change_line

FILTER_NAMES = ("tag", "protocol", "status")


class SearchForm(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()  # empty: the statuses that lists show
    cursor: str | None = None

    def values(self, name: str) -> tuple[str, ...]:
        return {"tag": self.tags, "protocol": self.protocols, "status": self.statuses}[name]

    @property
    def is_filtered(self) -> bool:
        return bool(self.tags or self.protocols or self.statuses)

    @property
    def is_plain(self) -> bool:
        return not (self.text or self.is_filtered or self.cursor)

    def address(self, **changes: object) -> str:
        """The address of this query with some changes, at its first page."""
        form = msgspec.structs.replace(self, **{"cursor": None, **changes}) if changes else self
        pairs = [("q", form.text)] if form.text else []
        pairs += [(name, value) for name in FILTER_NAMES for value in form.values(name)]
        if form.cursor is not None:
            pairs.append(("cursor", form.cursor))
        return f"/?{urlencode(pairs)}" if pairs else "/"

    def toggled(self, name: str, value: str) -> str:
        """Toggle a filter."""
        held = self.values(name)
        kept = tuple(each for each in held if each != value) if value in held else (*held, value)
        return self.address(**{_FIELDS[name]: kept})

    def hidden_fields(self) -> list[Html]:
        """Hidden fields that keep the filters when the text changes."""
        return [
            el("input", type="hidden", name=name, value=value) for name in FILTER_NAMES for value in self.values(name)
        ]


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
        cursor=request.param("cursor"),
    )


_FILTER_TITLES = {"tag": "Tags", "protocol": "Protocols", "status": "Status"}

_WORD = re.compile(r"[\w-]{3,40}")

_WORDS = 8


class CatalogResults(msgspec.Struct, frozen=True, kw_only=True):
    """One page of results with its filters and messages."""

    lines: Sequence[Html]
    status: str  # the number of results, as text
    weak: Sequence[Html] = ()  # further results, folded away
    facets: dict[str, tuple[FacetCount, ...]]
    more: str | None = None  # the next page
    empty: Html | None = None
    remarks: tuple[HtmlContent, ...] = ()


class CatalogPage:
    def __init__(self, registry: Registry, cards: AgentCards, changes: RecentChanges) -> None:
        self._registry = registry
        self._cards = cards
        self._changes = changes
        self._kept: LruCache[tuple[object, ...], tuple[int, FacetSummary]] = LruCache(limits.PAGE_COUNT_CACHE)

    async def found(self, form: SearchForm, visitor: WebUser) -> Html:
        """The part that changes while typing: filters and results."""
        found = await (self._search if form.text else self._list)(form, visitor)
        results = el(
            "div",
            el("p", found.status, class_="result-count"),
            [el("p", remark, class_="remark") for remark in found.remarks],
            found.empty if found.empty is not None else el("ol", found.lines, class_="agents"),
            _weak_matches(found.weak) if found.weak else None,
            el("p", el("a", "Next page", href=found.more, rel="next", class_="button")) if found.more else None,
            class_="results",
        )
        return el("div", _filters(form, found.facets), results, id="found", data_status=found.status)

    async def _list(self, form: SearchForm, visitor: WebUser) -> CatalogResults:
        registry, statuses = self._registry, form.statuses or LISTED
        page = registry.page(
            visitor.reader,
            limit=limits.PAGE_AGENTS,
            cursor=form.cursor,
            tags=form.tags,
            protocols=form.protocols,
            statuses=statuses,
        )
        overview = self._counts(form, visitor)
        agents = await registry.registrations([entry.id for entry in page.entries], sources=False)
        return CatalogResults(
            lines=[self._cards.card(agent) for agent in agents],
            status=_count(page.total),
            facets=overview.facets,
            more=form.address(cursor=page.next_cursor) if page.next_cursor is not None else None,
            empty=None if agents else self._empty_list(form, visitor, overview.suggestions),
        )

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
        lines: dict[bool, list[Html]] = {True: [], False: []}  # weak matches, and others
        for each in findings.candidates:
            if each.record.id in held:
                lines[each.match == "weak"].append(self._cards.hit(each, held[each.record.id]))
        fitting, weak = lines[False], lines[True]
        has_lines = bool(fitting or weak)
        status = f"{_count(len(fitting))} found" if fitting else "Nothing fits well" if weak else "Nothing found"
        return CatalogResults(
            lines=fitting or weak,
            weak=weak if fitting else (),
            status=status,
            facets=self._counts(form, visitor).facets,
            empty=None if has_lines else self._empty_search(form, visitor, findings),
            remarks=self._remarks(form, findings) if has_lines else (),
        )

    def _remarks(self, form: SearchForm, findings: DiscoverResult) -> tuple[HtmlContent, ...]:
        """The warnings; misspelled words with links to the corrected search."""
        spelled = set(spelling_warnings(findings.spelling))
        plain = tuple(warning for warning in findings.warnings if warning not in spelled)
        return (*(_suggest_words(form, word, near) for word, near in findings.spelling.items()), *plain)

    def _counts(self, form: SearchForm, visitor: WebUser) -> FacetSummary:
        """Facet counts do not depend on the text, so they are cached until a visible agent changes."""
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

    async def _held(self, findings: DiscoverResult) -> dict[str, Registration]:
        ids = [candidate.record.id for candidate in findings.candidates]
        return {found.id: found for found in await self._registry.registrations(ids, sources=False)}

    # --- No results ------------------------------------------------------------------------------

    def _empty_list(self, form: SearchForm, visitor: WebUser, meant: dict[str, Any]) -> Html:
        if not form.is_filtered:
            return _nothing_registered(visitor)
        offers = [_suggest_tags(form, tag, near) for tag, near in meant.items()]
        return _empty_state(
            "No agent matches these filters",
            offers,
            el("p", el("a", "Show all agents", href=form.address(tags=(), protocols=(), statuses=()))),
        )

    def _empty_search(self, form: SearchForm, visitor: WebUser, findings: DiscoverResult) -> Html:
        empty = findings.empty or EmptyResult(reason="no_match", visible=0)
        if empty.reason == "nothing_registered":
            return _nothing_registered(visitor)
        offers = [_suggest_tags(form, tag, near) for tag, near in findings.suggestions.items()]
        offers += [el("p", _suggest_words(form, word, near)) for word, near in findings.spelling.items()]
        if empty.reason == "filtered":
            return _empty_state(
                "No agent matches these filters",
                [
                    el("p", *_filter_hint(each.filter, each.value, each.matching, empty.visible))
                    for each in empty.filters
                ],
                offers,
                el("p", el("a", "Search without filters", href=form.address(tags=(), protocols=(), statuses=()))),
            )
        return _empty_state(
            "Nothing found",
            el("p", f"None of {_count(empty.visible)} matches “{form.text}”."),
            offers or [self._did_you_mean(form, visitor)],
            el("p", "Describe the task in a few words, or choose a tag on the left.", class_="soft"),
        )

    def _did_you_mean(self, form: SearchForm, visitor: WebUser) -> HtmlContent:
        """Tags with nearly the spelling of a word in the query."""
        words = list(dict.fromkeys(map(fold_tag, _WORD.findall(form.text))))[:_WORDS]
        near = self._registry.suggest(visitor.reader, words)
        offered = dict.fromkeys(tag for tags in near.values() for tag in tags)
        if not offered:
            return None
        links = [el("a", tag, href=form.address(text=tag), class_="tag") for tag in offered]
        return el("p", "Did you mean ", links, "?")

    # --- Around the results ----------------------------------------------------------------------

    def search_box(self, form: SearchForm) -> Html:
        return el(
            "form",
            el("label", "Find an agent for a task", for_="q"),
            el(
                "div",
                el(
                    "input",
                    id="q",
                    name="q",
                    type="search",
                    value=form.text,
                    maxlength=limits.QUERY_CHARS,
                    placeholder="translate an invoice",
                    autocomplete="off",
                    spellcheck="false",
                    autocapitalize="off",
                    enterkeyhint="search",
                    aria_controls="found",
                ),
                el("button", "Search"),
                class_="ask",
            ),
            form.hidden_fields(),
            el("p", "", id="search-status", role="status", class_="visually-hidden"),
            action="/",
            method="get",
            role="search",
            class_="search",
        )

    def figures(self, visitor: WebUser) -> Html:
        stats = self._registry.stats(visitor.reader)
        facets = self._counts(SearchForm(), visitor).facets
        rows: list[tuple[str, int]] = [("in all", stats.agents)]
        rows += list(stats.by_status.items())
        rows.append(("protocols", len([each for each in facets["protocol"] if "+" not in each.value])))
        rows += [("waiting for the index", count)] if (count := stats.indexing_pending) else []
        lines = [el("li", el("b", f"{count:,}"), " ", name) for name, count in rows]
        if stats.revision is not None:
            lines.append(el("li", "revision ", el("b", f"{stats.revision:,}")))
        return el("ul", lines, class_="figures")

    def feed(self, visitor: WebUser, most: int = limits.PAGE_CHANGES) -> Html:
        if not visitor.reads:
            return el("p", el("a", "Sign in", href="/sign-in"), " to see changes.", class_="soft")
        shown = self._changes.latest(audience(visitor.reader), most)
        lines = [change_line(change) for change in shown]
        return el(
            "ol",
            lines or el("li", "Nothing has changed yet.", class_="soft none"),
            class_="feed",
            data_stream="/changes/stream",
            data_most=most,
        )


def _count(number: int) -> str:
    return "1 agent" if number == 1 else f"{number:,} agents"


def _empty_state(title: str, *content: HtmlContent) -> Html:
    return el("div", el("h2", title), content, class_="state")


def _nothing_registered(visitor: WebUser) -> Html:
    how = (
        el("p", el("a", "Register the first one", href="/register", class_="button"))
        if visitor.writes
        else el(
            "p",
            "Register one with ",
            el("code", "waypost register FILE"),
            ", or ",
            el("a", "sign in", href="/sign-in"),
            ".",
        )
    )
    return _empty_state(
        "No agent is registered yet", el("p", "Agents appear here as soon as they register, in any dialect."), how
    )


def _weak_matches(lines: Sequence[Html]) -> Html:
    """Agents that probably do not fit, which a visitor can unfold."""
    label = "1 weak match" if len(lines) == 1 else f"{len(lines)} weak matches"
    return el("details", el("summary", label), el("ol", lines, class_="agents"), class_="weak-matches")


def _suggest_words(form: SearchForm, word: str, near: Sequence[str]) -> Html:
    corrected = [(each, re.sub(re.escape(word), each, form.text, flags=re.IGNORECASE)) for each in near]
    links = [el("a", each, href=form.address(text=text), class_="tag") for each, text in corrected]
    return join(("No agent has the word ", el("code", word), ". Did you mean ", *links, "?"))


def _suggest_tags(form: SearchForm, tag: str, near: Sequence[str]) -> Html:
    others = tuple(each for each in form.tags if each != tag)
    links = [el("a", each, href=form.address(tags=(*others, each)), class_="tag") for each in near]
    return el("p", "No agent carries the tag ", el("code", tag), ". Did you mean ", links, "?")


def _filter_hint(name: str, value: Any, matching: int, visible: int) -> tuple[HtmlContent, ...]:
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    label = {"required_tags": "tag", "protocols": "protocol", "statuses": "status"}.get(name, name)
    return (f"{label} ", el("code", shown), f": {matching:,} of {_count(visible)}")


# --- Filters --------------------------------------------------------------------------------------


def _filters(form: SearchForm, facets: dict[str, tuple[FacetCount, ...]]) -> Html:
    groups = [_filter_group(form, name, facets.get(name, ())) for name in FILTER_NAMES]
    clear = el("p", el("a", "Clear filters", href=form.address(tags=(), protocols=(), statuses=())))
    return el("div", groups, clear if form.is_filtered else None, class_="filters", role="group", aria_label="Filters")


def _filter_group(form: SearchForm, name: str, values: Sequence[FacetCount]) -> HtmlContent:
    held = form.values(name)
    # A protocol is found by its family; its variants would fill the list.
    shown = [each for each in values if name != "protocol" or "+" not in each.value][: limits.PAGE_FACETS]
    shown += [FacetCount(value, 0) for value in held if value not in {each.value for each in shown}]
    if not shown:
        return None
    lines = [el("li", _filter_option(form, name, each, is_on=each.value in held)) for each in shown]
    title = f"filter-{name}"
    return el("div", el("h2", _FILTER_TITLES[name], id=title), el("ul", lines, aria_labelledby=title), class_="group")


def _filter_option(form: SearchForm, name: str, value: FacetCount, *, is_on: bool) -> Html:
    return el(
        "a",
        el("span", value.value, class_="value"),
        el("span", "on", class_="visually-hidden") if is_on else None,
        el("span", f"{value.count:,}", class_="count") if value.count else None,
        href=form.toggled(name, value.value),
        class_="on" if is_on else None,
        rel="nofollow",
    )
