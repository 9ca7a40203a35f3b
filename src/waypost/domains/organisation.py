"""The agents of an organisation: its index at `_index._agents` or `_catalog._agents`, its list of aliases at `_agents`, or the
TXT list (AID-2…6, AID-11, AID-25, AID-26; ADP-8).

Several aliases at one name are no list to RFC 9460, which picks one of them; here the records are read as they are (C-5, D12).
An index of another organisation is followed only where the pointer to it is signed and that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.dialects.packing import unpack
from waypost.domains.dane import Dane
from waypost.domains.journal import Journal, Refusal, code_of, is_denied, refuse_failure, weakest
from waypost.domains.naming import find_path, is_same_organisation, origin, parse_name
from waypost.domains.ports import Dns, DomainFetcher, Lookup
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, InvalidParameter, RateLimited
from waypost.model.json import JsonObject
from waypost.model.resolution import IndexEntry, OrganisationIndex, Outcome
from waypost.registry.fetching import Fetched
from waypost.registry.ports import Clock
from waypost.wire.dns_data import is_host, read_text
from waypost.wire.svcb import CAP, WELL_KNOWN, ServiceBinding, parse_svcb

INDEX, CATALOG, LIST = "_index._agents.", "_catalog._agents.", "_agents."
_DEFAULT_PATHS: Final = {INDEX: "/.well-known/agents-index.json", CATALOG: "/.well-known/ai-catalog.json"}
_AGENTS = re.compile(r"\s*agents\s*=", re.IGNORECASE)
_NAMED = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of it, and the documents that it holds itself, as they are."""

    told: OrganisationIndex
    documents: tuple[bytes, ...] = ()
    url: str = ""


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    lookup: Lookup


class OrganisationReader:
    """`follow_signed` lets a signed pointer lead to another organisation (AID-25)."""

    def __init__(self, dns: Dns, fetcher: DomainFetcher, clock: Clock, *, follow_signed: bool = False) -> None:
        self._dns = dns
        self._fetcher = fetcher
        self._clock = clock
        self._follow_signed = follow_signed

    async def read(self, domain: str) -> Index:
        """What an organisation lists. A failure is told in the answer."""
        return await _Reading(parse_name(domain), self._dns, self._fetcher, self._clock, self._follow_signed).read()


class _Reading:
    def __init__(self, domain: str, dns: Dns, fetcher: DomainFetcher, clock: Clock, follow_signed: bool) -> None:
        self._domain = domain
        self._fetcher = fetcher
        self._journal = Journal(dns, clock)
        self._follow_signed = follow_signed

    async def read(self) -> Index:
        try:
            return await self._read()
        except Refusal as refusal:
            return self._told("failed", code=refusal.code, reason=refusal.reason)

    async def _read(self) -> Index:
        d = self._domain
        catalog, index, aliases, listed = await self._journal.ask(
            (CATALOG + d, "SVCB"), (INDEX + d, "SVCB"), (LIST + d, "SVCB"), (INDEX + d, "TXT")
        )
        for found in (catalog, index, aliases, listed):
            self._journal.tell_lookup(found)
            refuse_failure(found)
        pointers = [*self._pointers(catalog, CATALOG), *self._pointers(index, INDEX)][: limits.SVCB_TARGETS]
        for pointer in pointers:
            fetched = await self._fetch(pointer)
            if fetched is not None:
                return self._of_document(fetched, pointer, aliases)
        entries = [*self._aliases(aliases), *self._listed(listed)]
        if not entries:
            return self._told("not_found", code="no_index", reason="the organisation lists no agents in the DNS")
        return self._told("resolved", entries, security=(aliases, listed))

    # --- Pointers --------------------------------------------------------------------------------

    def _pointers(self, found: Lookup, prefix: str) -> list[Pointer]:
        pointers = []
        for record in self._records(found):
            if record.is_alias or record.unknown_mandatory:
                continue
            host = record.host(found.owner or found.name)
            if not is_host(host):
                self._journal.warn(f"{host} cannot serve an index: no certificate can be for it (AID-4).")
            elif not is_same_organisation(host, self._domain) and not self._may_leave(found):
                self._journal.warn(
                    f"The index points at {host}, of another organisation; it was not followed (AID-25)."
                )
            elif (url := self._url(record, host, prefix)) is not None:
                pointers.append(Pointer(url=url, lookup=found))
        return pointers

    def _may_leave(self, found: Lookup) -> bool:
        return self._follow_signed and found.security == "secure"

    def _url(self, record: ServiceBinding, host: str, prefix: str) -> str | None:
        cap = record.text(CAP)
        if cap is not None and cap.startswith("https://"):
            return cap
        stated = record.text(WELL_KNOWN) if WELL_KNOWN in record.params else None
        path = _DEFAULT_PATHS[prefix] if WELL_KNOWN not in record.params else find_path(stated or "")
        if path is None:
            self._journal.warn("The path in `well-known` of the index is none that is followed.")
            return None
        return origin(host, record.port or 443) + path

    def _records(self, found: Lookup) -> list[ServiceBinding]:
        if is_denied(found):
            return []
        try:
            records = [parse_svcb(data) for data in found.records[: limits.SVCB_RECORDS]]
        except InvalidDocument as error:
            raise Refusal("malformed", error.message) from None
        return sorted(records, key=lambda one: (one.priority, one.target))

    # --- Documents -------------------------------------------------------------------------------

    async def _fetch(self, pointer: Pointer) -> Fetched | None:
        parts = urlsplit(pointer.url)
        host = parts.hostname or ""
        hosted = host != self._domain
        dane = Dane(self._journal, host, parts.port or 443, leading=pointer.lookup.security, hosted=hosted)
        self._journal.fetches += 1
        try:
            dane.begin()
            fetched = await self._fetcher.fetch(pointer.url, "index", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else code_of(error, "bad_address")
            self._journal.tell(
                "index", "failed" if code == "dane" else "unknown", error.message, code=code, url=pointer.url
            )
            if code == "dane":
                raise Refusal("dane_mismatch", error.message) from None
            return None
        finally:
            await dane.close()
        if not fetched.is_success:
            self._journal.tell("index", "unknown", f"status {fetched.status}", code="status", url=pointer.url)
            return None
        return fetched

    def _of_document(self, fetched: Fetched, pointer: Pointer, aliases: Lookup) -> Index:
        """AID-5: the format is open. A catalogue holds documents; the map of names leads to domains."""
        try:
            packed = unpack(fetched.body)
            parsed = None if packed is not None else msgspec.json.decode(fetched.body)
        except (msgspec.DecodeError, RecursionError):
            raise Refusal("malformed", "the index is not JSON") from None
        if packed is not None:
            documents = tuple(packed[: limits.INDEX_AGENTS])
            entries = [_entry_of(each, fetched.url) for each in documents]
        elif isinstance(parsed, dict):
            documents, entries = (), _entries_of_map(parsed)
        else:
            raise Refusal("malformed", "the index is neither a catalogue nor a map of agents")
        self._journal.tell("index", "passed", url=fetched.url, agents=len(entries))
        told = self._told("resolved", [*entries, *self._aliases(aliases)], security=(pointer.lookup,))
        return msgspec.structs.replace(told, documents=documents, url=fetched.url)

    # --- Lists in the DNS ------------------------------------------------------------------------

    def _aliases(self, found: Lookup) -> list[IndexEntry]:
        records = [record for record in self._records(found) if record.is_alias and is_host(record.target)]
        return [
            IndexEntry(name=record.target.split(".")[0], domain=record.target, via="aliases")
            for record in records[: limits.SVCB_RECORDS]
        ]

    def _listed(self, found: Lookup) -> list[IndexEntry]:
        """`agents=name:proto,…`: names right below the organisation."""
        entries = []
        for data in found.records[: limits.AGENT_TXT_RECORDS]:
            try:
                text = read_text(data)
            except InvalidDocument as error:
                self._journal.warn(error.message)
                continue
            if _AGENTS.match(text):
                for part in text.partition("=")[2].split(","):
                    name, _, protocol = part.strip().lower().partition(":")
                    if _NAMED.match(name):
                        domain = f"{name}.{self._domain}"
                        entries.append(IndexEntry(name=name, domain=domain, protocol=protocol[:32], via="txt"))
        return entries[: limits.INDEX_AGENTS]

    def _told(
        self,
        outcome: Outcome,
        entries: list[IndexEntry] | None = None,
        *,
        code: str = "",
        reason: str = "",
        security: tuple[Lookup, ...] = (),
    ) -> Index:
        told = OrganisationIndex(
            domain=self._domain,
            outcome=outcome,
            entries=tuple({(each.domain or each.name, each.url): each for each in entries or ()}.values()),
            reason=reason,
            code=code,
            dnssec=weakest(*(each.security for each in security)) if security else "indeterminate",
            steps=tuple(self._journal.steps),
            warnings=tuple(self._journal.warnings),
            cost=self._journal.cost(),
            at=self._journal.at,
        )
        return Index(told=told)


def _entries_of_map(parsed: JsonObject) -> list[IndexEntry]:
    """`{"name": {"location": {"fqdn", "endpoint"}, "capability": {"protocols": []}}}`."""
    agents = parsed.get("agents") if isinstance(parsed.get("agents"), dict) else parsed
    entries = []
    for name, item in list((agents or {}).items())[: limits.INDEX_AGENTS]:
        location = item.get("location") if isinstance(item, Mapping) else None
        fqdn = location.get("fqdn") if isinstance(location, Mapping) else None
        if isinstance(fqdn, str) and is_host(fqdn.lower().removesuffix(".")):
            protocols = (
                (item.get("capability") or {}).get("protocols") if isinstance(item.get("capability"), Mapping) else ()
            )
            first = next((each for each in protocols or () if isinstance(each, str)), "")
            domain = fqdn.lower().removesuffix(".")
            entries.append(IndexEntry(name=name[:128], domain=domain, protocol=first[:32], via="index"))
    return entries


def _entry_of(document: bytes, listed_at: str) -> IndexEntry:
    """An entry of a catalogue: where its document is, else the catalogue that holds it."""
    try:
        parsed: Any = msgspec.json.decode(document)
    except msgspec.DecodeError:
        parsed = None
    told = parsed if isinstance(parsed, dict) else {}
    names = (told.get(key) for key in ("displayName", "name", "identifier", "id"))
    stated = told.get("url")
    url = stated if isinstance(stated, str) and stated.startswith("https://") else listed_at
    name = next((name[:128] for name in names if isinstance(name, str)), "")
    return IndexEntry(name=name, url=url[: limits.FETCH_URL_CHARS], via="catalog")
