"""The data sheet of one agent: what it does, how to call it, how far it is proven, how it came to be, in every dialect."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import msgspec

from waypost import limits
from waypost.dialects import CODECS
from waypost.errors import NotFound, WaypostError
from waypost.model.json import parse_json
from waypost.model.names import fold_tag
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.registry.engine import Registry
from waypost.registry.entries import expiry_of
from waypost.registry.history import Comparison, VersionLine, compare_versions, history_of
from waypost.server.page.badges import badge, ladder
from waypost.server.page.cards import agent_path, liveness
from waypost.server.page.layout import facts, section
from waypost.server.page.markup import Content, Html, el, join, outside_link, shown_lines
from waypost.server.page.sessions import Visitor
from waypost.server.page.snippets import Snippet, snippets_of
from waypost.server.page.times import moment
from waypost.server.rendering import Renderer
from waypost.trust.policy import may_change

_ABSENT = "—"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What of the sheet is asked for: a dialect, two versions."""

    dialect: str
    before: str | None = None
    after: str | None = None


class SheetPage:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer

    async def main(self, registration: Registration, visitor: Visitor, wanted: Wanted) -> Html:
        record = registration.record
        trust = self._registry.trust_of(registration)
        return el(
            "article",
            _head(registration, trust["level"]),
            el(
                "div",
                el("div", self._left(registration, trust), class_="main"),
                el("aside", _facts(registration, visitor), _bindings(record), class_="beside", aria_label="Facts"),
                class_="columns",
            ),
            await self._history(registration, visitor, wanted) if visitor.reads else None,
            self._dialects(registration, wanted.dialect),
            class_="sheet",
        )

    def _left(self, registration: Registration, trust: dict[str, Any]) -> Content:
        record = registration.record
        return (
            section(
                "What it does", el("p", shown_lines(record.description), class_="lead says"), _tags(record), name="does"
            ),
            _examples(record),
            _calling(snippets_of(record, self._renderer.base_url)),
            section("How far it can be trusted", ladder(trust), name="trust"),
        )

    # --- History ---------------------------------------------------------------------------------

    async def _history(self, registration: Registration, visitor: Visitor, wanted: Wanted) -> Html:
        found = await history_of(self._registry, visitor.reader, registration.id, limits.HISTORY_VERSIONS)
        path = agent_path(registration.id)
        rows = [
            _version_row(line, path, older.version.etag if older else None)
            for line, older in zip(found.lines, [*found.lines[1:], None], strict=True)
        ]
        heads = el(
            "tr",
            [
                el("th", name, scope="col")
                for name in ("When", "Version", "What changed", el("span", "Compare", class_="ear"))
            ],
        )
        table = el("table", el("thead", heads), el("tbody", rows))
        return section(
            "History",
            el("div", table, class_="wide", tabindex="0", role="region", aria_label="Versions"),
            await self._difference(registration, visitor, wanted),
            name="history",
        )

    async def _difference(self, registration: Registration, visitor: Visitor, wanted: Wanted) -> Content:
        if wanted.before is None:
            return None
        try:
            found = await compare_versions(self._registry, visitor.reader, registration.id, wanted.before, wanted.after)
        except NotFound as error:
            return el("p", error.message, class_="notice bad")
        return _diff(found)

    # --- Every dialect ---------------------------------------------------------------------------

    def _dialects(self, registration: Registration, chosen: str) -> Html:
        path = agent_path(registration.id)
        tabs = [
            el(
                "li",
                el(
                    "a",
                    name,
                    href=f"{path}?as={name}#record",
                    aria_current="true" if name == chosen else None,
                    class_="own" if registration.source(name) is not None else None,
                ),
            )
            for name in CODECS
        ]
        return section(
            "The record in every dialect",
            el("ul", tabs, class_="tablist"),
            self._document(registration, chosen),
            name="record",
        )

    def _document(self, registration: Registration, dialect: str) -> Content:
        try:
            rendering = self._renderer.render(registration, dialect, self._registry.clock.now())
        except WaypostError as error:
            return el("p", error.message, " ", error.hint, class_="soft")
        losses = [el("li", el("code", loss.path), " ", loss.reason) for loss in rendering.losses]
        received = registration.source(dialect) is not None
        told = (
            "As it was received; spaces were added here for reading."
            if received
            else "Made from the record. Nothing is lost in this dialect."
            if not losses
            else "Made from the record. This dialect has no place for:"
        )
        return (
            el("p", told, class_="soft"),
            el("ul", losses, class_="losses") if losses else None,
            copyable(readable(rendering.body), f"document as {dialect}"),
        )


def readable(body: bytes) -> str:
    """A document with its lines broken; a text as a text."""
    try:
        text = json.dumps(parse_json(body), indent=2, ensure_ascii=False)
    except (WaypostError, ValueError):
        text = body.decode("utf-8", "replace")
    if len(text) <= limits.PAGE_DOCUMENT_CHARS:
        return text
    return f"{text[: limits.PAGE_DOCUMENT_CHARS]}\n… {len(text) - limits.PAGE_DOCUMENT_CHARS:,} more characters"


def copyable(code: str, what: str) -> Html:
    """Code with a button that copies it, which a script shows."""
    return el(
        "div",
        el("button", "Copy", type="button", class_="copy", hidden=True, aria_label=f"Copy the {what}"),
        el("pre", el("code", shown_lines(code)), tabindex="0", role="region", aria_label=what),
        class_="code-block",
    )


# --- Parts ----------------------------------------------------------------------------------------


def _head(registration: Registration, level: str) -> Html:
    record = registration.record
    return el(
        "header",
        el("p", el("a", "Catalogue", href="/"), class_="crumbs"),
        el("div", el("h1", record.name or record.id), badge(level), liveness(registration), class_="head"),
        el("p", el("code", record.id), class_="fine"),
        class_="agent-head",
    )


def _facts(registration: Registration, visitor: Visitor) -> Html:
    record = registration.record
    may = may_change(visitor.reader, registration.owner)
    rows: list[tuple[str, Content]] = [
        ("Version", record.version),
        ("Says it changed", moment(record.updated_at) if record.updated_at else None),
        ("Registered", moment(registration.created_at)),
        ("Last change", moment(registration.changed_at)),
        ("Lease", _lease(registration)),
        ("Its endpoint", _health(registration, told=may)),
        ("Renewed", moment(registration.renewed_at) if registration.lease_expires_at is not None else None),
        ("Served at", el("code", registration.hosted) if registration.hosted else None),
        ("Owner", registration.owner if may else None),
        ("Seen by", registration.visibility if visitor.is_signed_in else None),
        ("Also known as", [el("code", alias) for alias in registration.aliases]),
        ("Sources", [_source_line(source) for source in registration.sources]),
    ]
    return section("Facts", facts(rows), name="facts")


def _health(registration: Registration, *, told: bool) -> Content:
    """Why it does not answer is for its owner: anybody else could map a network by it."""
    health = registration.health
    if health is None:
        return None
    why = f" ({health.reason})" if told and health.reason else None
    return (f"{health.state} since ", moment(health.since), why)


def _lease(registration: Registration) -> Content:
    ends = expiry_of(registration)
    if ends is None:
        return "none: it stays until it is withdrawn"
    granted = f" ({registration.ttl_seconds} s)" if registration.ttl_seconds else None
    return (moment(ends), granted)


def _source_line(source: Any) -> Html:
    where = (" from ", outside_link(source.url)) if source.url else None
    return el("p", el("b", source.dialect), f" by {source.via}, ", moment(source.received_at), where)


def _bindings(record: AgentRecord) -> Content:
    if not record.bindings:
        return section(
            "Endpoints", el("p", "It names no place where it can be called.", class_="soft"), name="endpoints"
        )
    return section(
        "Endpoints", el("ul", [_binding(each) for each in record.bindings], class_="plain"), name="endpoints"
    )


def _binding(binding: Binding) -> Html:
    more = ", ".join(part for part in (binding.interaction_model, *binding.media_types) if part)
    return el(
        "li",
        el("span", binding.protocol, class_="protocol"),
        " ",
        outside_link(binding.endpoint, el("code", binding.endpoint)),
        el("span", f" {more}", class_="soft") if more else None,
    )


def _tags(record: AgentRecord) -> Content:
    links = [el("a", tag, href=f"/?{urlencode({'tag': fold_tag(tag)})}", class_="tag") for tag in record.tags]
    return el("p", join([join((link, " ")) for link in links]), class_="labels") if links else None


def _examples(record: AgentRecord) -> Content:
    """PRO-38: what its publisher marked as private is quoted nowhere."""
    shown = [each for each in record.examples if not each.extra.get("private")][: limits.PAGE_EXAMPLES]
    if not shown:
        return None
    return section("Examples", el("ul", [_example(each) for each in shown], class_="examples"), name="examples")


def _example(example: Example) -> Html:
    schemas = [
        el("details", el("summary", name), copyable(json.dumps(schema, indent=2, ensure_ascii=False), name))
        for name, schema in (("input", example.input_schema), ("output", example.output_schema))
        if schema is not None
    ]
    return el("li", el("p", shown_lines(example.text), class_="says"), schemas)


def _calling(snippets: list[Snippet]) -> Html:
    """Tabs of radio buttons: they work without a script, and by the arrow keys."""
    parts = []
    for number, snippet in enumerate(snippets):
        name = f"call-{number}"
        parts += [
            el("input", type="radio", name="call", id=name, checked=number == 0),
            el("label", snippet.title, for_=name),
            el(
                "div",
                copyable(snippet.code, f"{snippet.title} snippet"),
                el("p", snippet.note, class_="soft") if snippet.note else None,
                class_="pane",
            ),
        ]
    legend = el("legend", "For", class_="ear")
    return section("How to call it", el("fieldset", legend, parts, class_="tabs"), name="call")


def _version_row(line: VersionLine, path: str, older: str | None) -> Html:
    etag = line.version.etag
    changed = el("code", ", ".join(line.changed[:6]) or "nothing") if line.changed is not None else "first version kept"
    compare = (
        el(
            "a",
            "Compare",
            href=f"{path}?from={older}&to={etag}#diff",
            aria_label=f"Compare {etag[:8]} with the one before",
        )
        if older
        else None
    )
    cells = (moment(line.version.at), (el("code", etag[:8]), " current" if line.current else None), changed, compare)
    return el("tr", [el("td", cell) for cell in cells])


def _diff(found: Comparison) -> Html:
    rows = [
        el(
            "tr",
            el("th", el("code", each.path), scope="row"),
            el("td", _side("del", each.before)),
            el("td", _side("ins", each.after)),
        )
        for each in found.differences
    ]
    heads = el(
        "tr",
        [
            el("th", name, scope="col")
            for name in ("Where", f"Before, {found.before.etag[:8]}", f"After, {found.after.etag[:8]}")
        ],
    )
    table = el("table", el("thead", heads), el("tbody", rows), class_="diff")
    return el(
        "div",
        el("h3", "What changed", id="diff"),
        el("div", table, class_="wide", tabindex="0", role="region", aria_label="Differences"),
    )


def _side(tag: str, value: Any) -> Html:
    if value is msgspec.UNSET:
        return el("span", _ABSENT, class_="soft")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return el(tag, shown_lines(text if len(text) <= 600 else text[:600] + "…"), class_="says")
