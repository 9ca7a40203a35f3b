"""The page of one agent: description, how to call it, trust, history, and the record in every dialect.

Endpoints are written by the publisher, so snippets quote them for the language they appear in.
"""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

import msgspec

from waypost import limits
from waypost.errors import NotFound, WaypostError
from waypost.model.health import HEALTH_WORDS, UNKNOWN
from waypost.model.json import parse_json
from waypost.model.names import fold_tag, slug
from waypost.model.principal import may_change
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration, trust_of
from waypost.model.verdict import TrustSummary
from waypost.protocols.dialects import DIALECTS
from waypost.registry.reader import VersionComparison, VersionEntry
from waypost.registry.registry import Registry
from waypost.server.auth.sessions import WebUser
from waypost.server.renderer import Renderer
from waypost.server.web.agent_cards import agent_path, level_badge, liveness, trust_checklist
from waypost.server.web.layout import definition_list, section
from waypost.server.web.markup import Html, HtmlContent, el, escape_multiline, external_link, join, time_element


class Snippet(msgspec.Struct, frozen=True):
    title: str
    code: str
    note: str = ""


def snippets_of(record: AgentRecord, base_url: str) -> list[Snippet]:
    """Snippets for the agent's own protocols, then for reading it from this registry."""
    own = list({made.title: made for binding in record.bindings if (made := _protocol_snippet(binding))}.values())
    return [*own, _curl(record, base_url), _python(record, base_url), _command(record, base_url)]


def _protocol_snippet(binding: Binding) -> Snippet | None:
    family = binding.protocol.lower().split("+", 1)[0]
    make = _PROTOCOLS.get(family)
    if make is not None:
        return make(binding)
    if binding.endpoint.lower().startswith(("http://", "https://")):
        return _http(binding)
    return None


def _a2a(binding: Binding) -> Snippet:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {"message": {"role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "Hello"}]}},
    }
    return Snippet("A2A", _post(binding.endpoint, message), "Sends one message over JSON-RPC.")


def _mcp(binding: Binding) -> Snippet:
    if not binding.endpoint.lower().startswith(("http://", "https://")):
        package = json.dumps({"package": binding.endpoint}, indent=2, ensure_ascii=True)
        return Snippet("MCP", package, "A package that an MCP host runs on its own machine. Review it first.")
    config = {"mcpServers": {"agent": {"type": "streamable-http", "url": binding.endpoint}}}
    return Snippet("MCP", json.dumps(config, indent=2, ensure_ascii=True), "Configuration for an MCP host.")


def _adp(binding: Binding) -> Snippet:
    code = f"waypost chat {shlex.quote(binding.endpoint)}"
    return Snippet("AGP", code, "A signed conversation; both sides authenticate.")


def _http(binding: Binding) -> Snippet:
    return Snippet(
        binding.protocol.upper(), _post(binding.endpoint, {"input": "Hello"}), "The agent defines what it accepts."
    )


_PROTOCOLS = {"a2a": _a2a, "mcp": _mcp, "adp": _adp, "agp": _adp}


def _post(url: str, body: object) -> str:
    return (
        f"curl -s {shlex.quote(url)} \\\n"
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=True))}"
    )


def _curl(record: AgentRecord, base_url: str) -> Snippet:
    url = f"{base_url}/api/v1/agents/{slug(record.id)}?as=a2a"
    code = f'curl -s -H "Authorization: Bearer $WAYPOST_TOKEN" \\\n  {shlex.quote(url)}'
    return Snippet("curl", code, "The record from this registry, as an A2A card.")


def _python(record: AgentRecord, base_url: str) -> Snippet:
    code = (
        "from waypost import Client\n\n"
        f"async with Client({json.dumps(base_url)}) as waypost:\n"
        f"    agent = await waypost.get({json.dumps(record.id, ensure_ascii=True)})\n"
        "    print(agent.name, agent.bindings)"
    )
    return Snippet("Python", code, "SyncClient has the same methods without await.")


def _command(record: AgentRecord, base_url: str) -> Snippet:
    code = f"waypost get {shlex.quote(record.id)} --server {shlex.quote(base_url)}"
    return Snippet("Command", code)


_ABSENT = "—"


class AgentPageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of the page: a dialect, two versions."""

    dialect: str
    before: str | None = None
    after: str | None = None


class AgentPage:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer

    async def main(self, registration: Registration, visitor: WebUser, options: AgentPageOptions) -> Html:
        record = registration.record
        trust = trust_of(registration)
        return el(
            "article",
            _head(registration, trust.level),
            el(
                "div",
                el("div", self._left(registration, trust), class_="main"),
                el("aside", _facts(registration, visitor), _bindings(record), class_="beside", aria_label="Facts"),
                class_="columns",
            ),
            await self._history(registration, visitor, options) if visitor.reads else None,
            self._dialects(registration, options.dialect),
            class_="sheet",
        )

    def _left(self, registration: Registration, trust: TrustSummary) -> HtmlContent:
        record = registration.record
        return (
            section(
                "What it does",
                el("p", escape_multiline(record.description), class_="lead publisher-text"),
                _tags(record),
                name="does",
            ),
            _examples(record),
            _snippet_tabs(snippets_of(record, self._renderer.base_url)),
            section("How far it can be trusted", trust_checklist(trust), name="trust"),
        )

    # --- History ---------------------------------------------------------------------------------

    async def _history(self, registration: Registration, visitor: WebUser, options: AgentPageOptions) -> Html:
        found = await self._registry.history(visitor.reader, registration.id, limits.HISTORY_VERSIONS)
        path = agent_path(registration.id)
        rows = [
            _version_row(line, path, older.version.etag if older else None)
            for line, older in zip(found.lines, [*found.lines[1:], None], strict=True)
        ]
        heads = el(
            "tr",
            [
                el("th", name, scope="col")
                for name in ("When", "Version", "What changed", el("span", "Compare", class_="visually-hidden"))
            ],
        )
        table = el("table", el("thead", heads), el("tbody", rows))
        return section(
            "History",
            el("div", table, class_="wide", tabindex="0", role="region", aria_label="Versions"),
            await self._difference(registration, visitor, options),
            name="history",
        )

    async def _difference(self, registration: Registration, visitor: WebUser, options: AgentPageOptions) -> HtmlContent:
        if options.before is None:
            return None
        try:
            found = await self._registry.compare(visitor.reader, registration.id, options.before, options.after)
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
            for name in DIALECTS
        ]
        return section(
            "The record in every dialect",
            el("ul", tabs, class_="tablist"),
            self._document(registration, chosen),
            name="record",
        )

    def _document(self, registration: Registration, dialect: str) -> HtmlContent:
        try:
            rendering = self._renderer.render(registration, dialect, self._registry.clock.now())
        except WaypostError as error:
            return el("p", error.message, " ", error.hint, class_="soft")
        losses = [el("li", el("code", loss.path), " ", loss.reason) for loss in rendering.losses]
        received = registration.source(dialect) is not None
        remark = (
            "As received; whitespace added for reading."
            if received
            else "Converted from the record without losses."
            if not losses
            else "Converted from the record. This dialect cannot carry:"
        )
        return (
            el("p", remark, class_="soft"),
            el("ul", losses, class_="losses") if losses else None,
            copyable_code(format_document(rendering.body), f"document as {dialect}"),
        )


def format_document(body: bytes) -> str:
    """A JSON document, pretty-printed; other text unchanged."""
    try:
        text = json.dumps(parse_json(body), indent=2, ensure_ascii=False)
    except (WaypostError, ValueError):
        text = body.decode("utf-8", "replace")
    if len(text) <= limits.PAGE_DOCUMENT_CHARS:
        return text
    return f"{text[: limits.PAGE_DOCUMENT_CHARS]}\n… {len(text) - limits.PAGE_DOCUMENT_CHARS:,} more characters"


def copyable_code(code: str, what: str) -> Html:
    """Code with a copy button, which the script shows."""
    return el(
        "div",
        el("button", "Copy", type="button", class_="copy", hidden=True, aria_label=f"Copy the {what}"),
        el("pre", el("code", escape_multiline(code)), tabindex="0", role="region", aria_label=what),
        class_="code-block",
    )


# --- Sections -------------------------------------------------------------------------------------


def _head(registration: Registration, level: str) -> Html:
    record = registration.record
    return el(
        "header",
        el("p", el("a", "Agents", href="/"), class_="crumbs"),
        el("div", el("h1", record.name or record.id), level_badge(level), liveness(registration), class_="head"),
        el("p", el("code", record.id), class_="fine"),
        class_="agent-head",
    )


def _facts(registration: Registration, visitor: WebUser) -> Html:
    record = registration.record
    may = may_change(visitor.reader, registration.owner)
    rows: list[tuple[str, HtmlContent]] = [
        ("Version", record.version),
        ("Updated", time_element(record.updated_at) if record.updated_at else None),
        ("Registered", time_element(registration.created_at)),
        ("Last change", time_element(registration.changed_at)),
        ("Expires", _lease(registration)),
        ("Endpoint", _health(registration, with_reason=may)),
        ("Renewed", time_element(registration.renewed_at) if registration.lease_expires_at is not None else None),
        ("Served at", el("code", registration.hosted) if registration.hosted else None),
        ("Owner", registration.owner if may else None),
        ("Visible to", registration.visibility if visitor.is_signed_in else None),
        ("Also known as", [el("code", alias) for alias in registration.aliases]),
        ("Sources", [_source_line(source) for source in registration.sources]),
    ]
    return section("Facts", definition_list(rows), name="facts")


def _health(registration: Registration, *, with_reason: bool) -> HtmlContent:
    """The reason of a failed health check is shown to the owner only: others could use it to map a network."""
    health = registration.health
    if health is None:
        return HEALTH_WORDS[UNKNOWN]
    why = f" ({health.reason})" if with_reason and health.reason else None
    return (f"{HEALTH_WORDS.get(health.state, health.state)} since ", time_element(health.since), why)


def _lease(registration: Registration) -> HtmlContent:
    ends = registration.expires_at
    if ends is None:
        return "never: registered until withdrawn"
    granted = f" ({registration.ttl_seconds} s)" if registration.ttl_seconds else None
    return (time_element(ends), granted)


def _source_line(source: Any) -> Html:
    where = (" from ", external_link(source.url)) if source.url else None
    return el("p", el("b", source.dialect), f" by {source.via}, ", time_element(source.received_at), where)


def _bindings(record: AgentRecord) -> HtmlContent:
    if not record.bindings:
        return section("Endpoints", el("p", "It has no endpoint.", class_="soft"), name="endpoints")
    return section(
        "Endpoints", el("ul", [_binding(each) for each in record.bindings], class_="plain"), name="endpoints"
    )


def _binding(binding: Binding) -> Html:
    more = ", ".join(part for part in (binding.interaction_model, *binding.media_types) if part)
    return el(
        "li",
        el("span", binding.protocol, class_="protocol"),
        " ",
        external_link(binding.endpoint, el("code", binding.endpoint)),
        el("span", f" {more}", class_="soft") if more else None,
    )


def _tags(record: AgentRecord) -> HtmlContent:
    links = [el("a", tag, href=f"/?{urlencode({'tag': fold_tag(tag)})}", class_="tag") for tag in record.tags]
    return el("p", join([join((link, " ")) for link in links]), class_="labels") if links else None


def _examples(record: AgentRecord) -> HtmlContent:
    """PRO-38: content that the publisher marked as private is not quoted."""
    shown = [each for each in record.examples if not each.extra.get("private")][: limits.PAGE_EXAMPLES]
    if not shown:
        return None
    return section("Examples", el("ul", [_example(each) for each in shown], class_="examples"), name="examples")


def _example(example: Example) -> Html:
    schemas = [
        el("details", el("summary", name), copyable_code(json.dumps(schema, indent=2, ensure_ascii=False), name))
        for name, schema in (("input", example.input_schema), ("output", example.output_schema))
        if schema is not None
    ]
    return el("li", el("p", escape_multiline(example.text), class_="publisher-text"), schemas)


def _snippet_tabs(snippets: list[Snippet]) -> Html:
    """Tabs built from radio buttons: they work without script and with the arrow keys."""
    parts = []
    for number, snippet in enumerate(snippets):
        name = f"call-{number}"
        parts += [
            el("input", type="radio", name="call", id=name, checked=number == 0),
            el("label", snippet.title, for_=name),
            el(
                "div",
                copyable_code(snippet.code, f"{snippet.title} snippet"),
                el("p", snippet.note, class_="soft") if snippet.note else None,
                class_="pane",
            ),
        ]
    legend = el("legend", "For", class_="visually-hidden")
    return section("How to call it", el("fieldset", legend, parts, class_="tabs"), name="call")


def _version_row(line: VersionEntry, path: str, older: str | None) -> Html:
    etag = line.version.etag
    changed = (
        el("code", ", ".join(line.changed[:6]) or "nothing") if line.changed is not None else "oldest stored version"
    )
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
    cells = (
        time_element(line.version.at),
        (el("code", etag[:8]), " current" if line.current else None),
        changed,
        compare,
    )
    return el("tr", [el("td", cell) for cell in cells])


def _diff(found: VersionComparison) -> Html:
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
    return el(tag, escape_multiline(text if len(text) <= 600 else text[:600] + "…"), class_="publisher-text")
