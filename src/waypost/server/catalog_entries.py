"""Catalog entries of registrations, and what of each is kept at hand for filters, facets and order.

The facts are of the fields that people ask for. Whoever asks for another path has the entries themselves looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

import msgspec

from waypost.model.json import JsonObject
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.protocols.ard.catalog import catalog_entry
from waypost.protocols.ard.codec import encode_without_residue, find_urn
from waypost.registry.registry import Registry
from waypost.server.registration_table import RegistrationTable
from waypost.server.renderer import Renderer, add_trust_metadata

INDEXED_MEMBERS: Final = frozenset(
    ("identifier", "displayName", "type", "publisher", "tags", "capabilities", "version", "updatedAt")
)
_REGISTRIES: Final = ("application/ai-registry+json", "application/ai-registry")


class ArdFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    identifier: str
    display_name: str
    type: str
    publisher: str
    tags: tuple[str, ...]
    capabilities: tuple[str, ...]
    version: str
    updated: str  # as the entry says it
    updated_at: float
    created_at: float  # when it was first registered here: entries have no such time of their own
    description: str = ""

    @property
    def is_registry(self) -> bool:
        """Registries are places to ask, not agents to find (§10)."""
        return self.type.partition(";")[0].strip().lower() in _REGISTRIES

    def as_entry(self) -> Mapping[str, Any]:
        """The part of the entry that is at hand, for a filter."""
        return {
            "identifier": self.identifier,
            "displayName": self.display_name,
            "type": self.type,
            "publisher": self.publisher,
            "tags": self.tags,
            "capabilities": self.capabilities,
            **({"version": self.version} if self.version else {}),
            **({"updatedAt": self.updated} if self.updated else {}),
        }


class ArdEntryWriter:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self.source = f"{renderer.base_url}/ard"

    def entry(self, registration: Registration) -> JsonObject:
        """As its publisher sent it or as it is mapped, with what was verified of it."""
        entry = self._renderer.document(registration, "ard", self._registry.clock.now())
        add_trust_metadata(entry, registration, scalar=True)
        return entry

    def listed(self, registration: Registration) -> JsonObject:
        """In the form that ARD's own schema takes."""
        return catalog_entry(self.entry(registration))

    def facts(self, registration: Registration) -> ArdFacts:
        if registration.source("ard") is None:
            context = self._renderer.context(registration, self._registry.clock.now())
            written = encode_without_residue(registration.record, context)
            if written is not None:
                return extract_facts(written, registration)
        return extract_facts(self.listed(registration), registration)


def with_publisher(entry: JsonObject) -> JsonObject:
    """The entry as filters see it: its publisher is read off its name (ARD-22), whatever it says itself."""
    return {**entry, "publisher": _publisher_of(entry["identifier"])}


def _publisher_of(identifier: str) -> str:
    urn = find_urn(identifier)
    return urn.publisher if urn is not None else ""


def extract_facts(entry: JsonObject, registration: Registration, *, whole: bool = False) -> ArdFacts:
    updated = _text(entry, "updatedAt")
    return ArdFacts(
        identifier=entry["identifier"],
        display_name=entry["displayName"],
        type=intern(entry["type"]),
        publisher=intern(_publisher_of(entry["identifier"])),
        tags=tuple(map(intern, _texts(entry, "tags"))),
        capabilities=tuple(map(intern, _texts(entry, "capabilities"))),
        version=_text(entry, "version"),
        updated=updated,
        updated_at=find_instant(updated) or registration.changed_at,
        created_at=registration.created_at,
        description=_text(entry, "description") if whole else "",
    )


def _text(entry: JsonObject, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _texts(entry: JsonObject, name: str) -> list[str]:
    value = entry.get(name)
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


class ArdEntryTable(RegistrationTable):
    """The facts of every registration, by id."""

    def __init__(self, registry: Registry, writer: ArdEntryWriter) -> None:
        super().__init__(registry)
        self._writer = writer
        self.facts: dict[str, ArdFacts] = {}

    def _put(self, registration: Registration) -> None:
        self.facts[registration.id] = self._writer.facts(registration)

    def _drop(self, agent_id: str) -> None:
        self.facts.pop(agent_id, None)
