"""Registration from a page: paste a document or enter an address, review what was recognised, then save exactly that."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, PreconditionFailed, WaypostError
from waypost.model.principal import VISIBILITIES
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest, ImportResult
from waypost.registry.publication import PublicationReceipt
from waypost.responses.agents import ExistingAgent
from waypost.server.auth.sessions import WebUser
from waypost.server.web.agent_cards import agent_path, level_badge, trust_checklist
from waypost.server.web.agent_page import copyable_code, format_document
from waypost.server.web.layout import csrf_field, error_note
from waypost.server.web.markup import EMPTY_HTML, Html, HtmlContent, el, escape_form_value, escape_multiline, join

_SIGN_IN_HINT = (
    "Registering needs a token with the scope ",
    "discover:write",
)
_MAX_MEMBERS = 40


class RegistrationForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form fields."""

    document: str = ""
    address: str = ""
    visibility: str = ""
    digest: str | None = None  # digest of the reviewed document, when saving
    save: bool = False


def parse_registration_form(form: dict[str, str]) -> RegistrationForm:
    entered = RegistrationForm(
        document=form.get("document", ""),
        address=form.get("address", "").strip(),
        visibility=form.get("visibility", ""),
        digest=form.get("digest") or None,
        save=form.get("do") == "save",
    )
    if entered.visibility not in ("", *VISIBILITIES):
        raise InvalidParameter("This is not a visibility.", path="visibility", hint=f"Use {', '.join(VISIBILITIES)}.")
    return entered


class RegisterPage:
    def __init__(self, importer: Importer) -> None:
        self._importer = importer

    async def look(self, entered: RegistrationForm, visitor: WebUser) -> ImportResult:
        """Recognise the input; with `save`, register it if it is still what was reviewed."""
        if bool(entered.document.strip()) == bool(entered.address):
            raise InvalidParameter("Enter a document or an address.", path="document", hint="Enter only one of them.")
        if entered.save and entered.digest is None:
            raise PreconditionFailed("Review it first, then save it.", path="digest", hint="Press Look.")
        wanted = ImportRequest(
            url=entered.address,
            save=entered.save,
            digest=entered.digest,
            visibility=entered.visibility or None,
        )
        if entered.address:
            return await self._importer.find(visitor.principal, wanted)
        return await self._importer.take(visitor.principal, wanted, entered.document.encode())

    # --- Rendering -------------------------------------------------------------------------------

    def form(
        self, entered: RegistrationForm, visitor: WebUser, *after: HtmlContent, error: WaypostError | None = None
    ) -> Html:
        choices = [
            el("option", text, value=value, selected=value == entered.visibility)
            for value, text in (
                ("", "as the document or the settings say"),
                ("public", "everybody"),
                ("internal", "everybody with a token"),
                ("private", "only me and invitees"),
            )
        ]
        fields = el(
            "form",
            csrf_field(visitor),
            el("label", "A document, in any dialect", for_="document"),
            el(
                "textarea",
                escape_form_value(entered.document),
                id="document",
                name="document",
                rows=12,
                spellcheck="false",
                autocomplete="off",
                placeholder='{"name": …}',
            ),
            el("p", "or", class_="or"),
            el("label", "An address: of a document, or of a host whose well-known documents are tried", for_="address"),
            el(
                "input",
                id="address",
                name="address",
                type="text",
                value=escape_form_value(entered.address),
                placeholder="https://agent.example.com/.well-known/agent-card.json",
                maxlength=limits.FETCH_URL_CHARS,
                spellcheck="false",
                autocomplete="off",
            ),
            el(
                "div",
                el("label", "Visible to ", el("select", choices, name="visibility")),
                el("button", "Look", name="do", value="look", class_="first"),
                class_="row",
            ),
            action="/register",
            method="post",
            class_="entry",
        )
        return el(
            "div",
            el("h1", "Register an agent"),
            el(
                "p",
                "A2A card, MCP server.json, ADP document, AI Catalog entry, RTFS card, OASF record, announcement or profile: "
                "the format is detected.",
                class_="lead",
            ),
            error_note(error) if error is not None else None,
            after,
            fields,
            class_="register",
        )

    def preview(self, found: ImportResult, entered: RegistrationForm, visitor: WebUser) -> Html:
        shown = [_agent(each) for each in found.agents]
        fits = any(each.error is None for each in found.agents)
        save = el(
            "form",
            csrf_field(visitor),
            el("input", type="hidden", name="document", value=escape_form_value(entered.document)),
            el("input", type="hidden", name="address", value=escape_form_value(entered.address)),
            el("input", type="hidden", name="visibility", value=entered.visibility),
            el("input", type="hidden", name="digest", value=found.digest),
            el(
                "button",
                "Save" if len(shown) == 1 else f"Save {len(shown)} agents",
                name="do",
                value="save",
                class_="first",
            ),
            action="/register",
            method="post",
        )
        where = el("p", "Found at ", el("code", found.url), class_="soft") if entered.address else None
        return el(
            "section",
            el("h2", "This is what was recognised", id="seen-title"),
            where,
            shown,
            save if fits else None,
            class_="preview",
            aria_labelledby="seen-title",
        )

    def sign_in_required(self) -> Html:
        return el(
            "div",
            el("h1", "Register an agent"),
            el("p", *_SIGN_IN_HINT[:1], el("code", _SIGN_IN_HINT[1]), "."),
            el("p", el("a", "Sign in", href="/sign-in?next=/register", class_="button")),
            el("p", "From a terminal: ", el("code", "waypost register FILE"), class_="soft"),
            class_="state",
        )


def saved_notice(receipt: PublicationReceipt) -> Html:
    """The result of saving a document."""
    held = receipt.outcome == "held"
    return el(
        "div",
        el("p", el("strong", OUTCOME_TEXTS.get(receipt.outcome, receipt.outcome))),
        el("p", el("a", receipt.id, href=agent_path(receipt.id))),
        [el("p", warning, class_="soft") for warning in receipt.warnings],
        class_=f"notice {'warn' if held else 'good'}",
        role="status",
    )


def saved_note(outcome: str) -> Html | None:
    """A short result above the agent's page."""
    text = OUTCOME_TEXTS.get(outcome)
    return None if text is None else el("p", text, class_="notice good", role="status")


OUTCOME_TEXTS = {
    "created": "Registered.",
    "updated": "Updated.",
    "refreshed": "Refreshed: the content is unchanged.",
    "unchanged": "No change: it was already registered.",
    "held": "Held: the change of a verified agent needs confirmation by its owner.",
}


def _agent(found: ImportedAgent) -> Html:
    if found.error is not None or found.decoded is None:
        return error_note(found.error) if found.error is not None else EMPTY_HTML
    record = found.agent() or {}
    decoded = found.decoded
    return el(
        "article",
        el(
            "div",
            el("h3", decoded.record.name or decoded.record.id),
            level_badge(found.trust.level),
            el("span", found.dialect, class_="protocol"),
            class_="head",
        ),
        el("p", el("code", decoded.record.id), class_="fine"),
        _existing(found.existing),
        [el("p", warning, class_="notice warn") for warning in decoded.warnings],
        el("h4", "The record it becomes"),
        _mapping(record),
        _losses(found),
        el("h4", "What was checked"),
        trust_checklist(found.trust),
        el("details", el("summary", "The document"), copyable_code(format_document(found.document), "document")),
        class_="recognised",
    )


def _existing(existing: ExistingAgent | None) -> HtmlContent:
    if existing is None:
        return el("p", "New: no agent is registered under this id.", class_="soft")
    if existing.yours:
        return el("p", "Saving updates ", el("a", existing.id, href=agent_path(existing.id)), ".")
    return el("p", "Another subject owns this id: saving will be refused.", class_="notice bad")


def _mapping(record: dict[str, Any]) -> Html:
    rows = [
        el("tr", el("th", el("code", name), scope="row"), el("td", _value(value)))
        for name, value in list(record.items())[:_MAX_MEMBERS]
    ]
    table = el("table", el("tbody", rows), class_="mapping")
    return el("div", table, class_="wide", tabindex="0", role="region", aria_label="The record it becomes")


def _value(value: Any) -> Html:
    if isinstance(value, str):
        return el("span", escape_multiline(value if len(value) <= 400 else value[:400] + "…"), class_="publisher-text")
    text = json.dumps(value, ensure_ascii=False)
    return el("code", text if len(text) <= 400 else text[:400] + "…")


def _losses(found: ImportedAgent) -> HtmlContent:
    losses = found.decoded.losses if found.decoded is not None else ()
    if not losses:
        return el("p", "Nothing is lost: the received bytes are stored as well.", class_="soft")
    lines = [el("li", el("code", loss.path), " ", loss.reason) for loss in losses]
    return join((el("h4", "Members that the record cannot hold"), el("ul", lines, class_="losses")))
