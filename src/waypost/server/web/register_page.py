"""Registration from a page: paste or drop a document, or enter an address; review what was recognised; save exactly that."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, PreconditionFailed, WaypostError
from waypost.model.principal import VISIBILITIES
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest, ImportResult
from waypost.registry.publication import PublicationReceipt
from waypost.responses.agents import ExistingAgent
from waypost.server.auth.sessions import WebUser
from waypost.server.web.agent_cards import hue_of, initial_of, shown_protocols
from waypost.server.web.agent_page import format_document
from waypost.server.web.layout import WebPage
from waypost.server.web.publishers import find_publisher_of
from waypost.server.web.trust_ladder import TrustLadder, make_trust_ladder

_MAX_MEMBERS: Final = 40
_VALUE_CHARS: Final = 400
_VISIBILITY_TEXTS: Final = (
    ("", "as the document says, else the default"),
    ("public", "everybody"),
    ("internal", "everybody with a token"),
    ("private", "only me and invitees"),
)
_EXAMPLES: Final = {
    "A2A card": "a2a-card.json",
    "MCP server.json": "mcp-server.json",
    "ADP document": "adp-document.json",
    "Profile": "profile.json",
}
_FOLDER: Final = Path(__file__).with_name("examples")


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
            is_both = bool(entered.address)
            message = (
                "Enter either a document or an address, not both." if is_both else "Enter a document or an address."
            )
            hint = "Empty one of the two fields." if is_both else "The examples below show what a document looks like."
            raise InvalidParameter(message, path="document", hint=hint)
        if entered.save and entered.digest is None:
            raise PreconditionFailed("What is saved must be previewed first.", path="digest", hint="Press Preview.")
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

    def page(
        self,
        visitor: WebUser,
        entered: RegistrationForm | None = None,
        *,
        found: ImportResult | None = None,
        receipts: list[PublicationReceipt] | None = None,
        error: WaypostError | None = None,
    ) -> WebPage:
        """The form; with what was recognised in it, what was saved, or what was wrong."""
        values = {
            "entered": entered or RegistrationForm(),
            "visibilities": _VISIBILITY_TEXTS,
            "examples": example_documents(),
            "url_chars": limits.FETCH_URL_CHARS,
            "document_bytes": limits.DOCUMENT_BYTES,
            "preview_of": _preview(found) if found is not None else None,
            "receipts": [_receipt_view(receipt) for receipt in receipts or ()],
            "error": error,
        }
        return WebPage(template="register.html", title="Register", values=values, visitor=visitor, section="/register")


class ExampleDocument(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str


@cache
def example_documents() -> list[ExampleDocument]:
    """A document of each format that people bring most, to start from."""
    return [
        ExampleDocument(title=title, text=(_FOLDER / name).read_text(encoding="utf-8"))
        for title, name in _EXAMPLES.items()
    ]


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    text: str
    is_held: bool
    warnings: tuple[str, ...]


def _receipt_view(receipt: PublicationReceipt) -> ReceiptView:
    text = OUTCOME_TEXTS.get(receipt.outcome, receipt.outcome)
    return ReceiptView(id=receipt.id, text=text, is_held=receipt.outcome == "held", warnings=tuple(receipt.warnings))


OUTCOME_TEXTS: Final = {
    "created": "Registered.",
    "updated": "Updated.",
    "refreshed": "Refreshed: the content is unchanged.",
    "unchanged": "No change: it was already registered.",
    "held": "Held: the change of a verified agent needs confirmation by its owner.",
}


class RecognisedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent of the document, before it is saved."""

    error: WaypostError | None = None
    id: str = ""
    name: str = ""
    dialect: str = ""
    trust: TrustLadder | None = None
    existing: ExistingAgent | None = None
    warnings: tuple[str, ...] = ()
    description: str = ""
    initial: str = ""
    hue: int = 0
    publisher: str | None = None
    protocols: list[str] = []
    tags: tuple[str, ...] = ()
    endpoints: list[tuple[str, str]] = []  # protocol and address
    examples: list[str] = []
    members: list[tuple[str, str, bool]] = []  # name, value, and whether it is plain text
    losses: list[tuple[str, str]] = []
    document: str = ""


class RegistrationPreview(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[RecognisedAgent]
    digest: str
    url: str

    @property
    def can_be_saved(self) -> bool:
        return any(agent.error is None for agent in self.agents)


def _preview(found: ImportResult) -> RegistrationPreview:
    agents = [_recognise(each) for each in found.agents]
    return RegistrationPreview(agents=agents, digest=found.digest, url=found.url)


def _recognise(found: ImportedAgent) -> RecognisedAgent:
    if found.error is not None or found.decoded is None:
        return RecognisedAgent(error=found.error)
    decoded, record = found.decoded, found.agent() or {}
    publisher = find_publisher_of(decoded.record)
    return RecognisedAgent(
        id=decoded.record.id,
        name=decoded.record.name or decoded.record.id,
        dialect=found.dialect,
        trust=make_trust_ladder(found.trust),
        existing=found.existing,
        warnings=tuple(decoded.warnings),
        description=decoded.record.description,
        initial=initial_of(decoded.record.name or decoded.record.id),
        hue=hue_of(publisher or decoded.record.id),
        publisher=publisher,
        protocols=shown_protocols(decoded.record),
        tags=decoded.record.tags,
        endpoints=[(each.protocol, each.endpoint) for each in decoded.record.bindings],
        examples=[each.text for each in decoded.record.examples][: limits.PAGE_EXAMPLES],
        members=[_member(name, value) for name, value in list(record.items())[:_MAX_MEMBERS]],
        losses=[(loss.path, loss.reason) for loss in decoded.losses],
        document=format_document(found.document),
    )


def _member(name: str, value: Any) -> tuple[str, str, bool]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return name, text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…", isinstance(value, str)
