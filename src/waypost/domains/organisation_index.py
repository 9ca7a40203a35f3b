"""What an index says of one agent, in each of the forms that indices have (AID-5). Believes nothing of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.dane import DaneCheck
from waypost.domains.ports import DnsLookup, DnsResolver, DomainFetcher
from waypost.domains.target import find_well_known_path, https_origin, is_same_organisation, parse_target
from waypost.domains.trace import (
    ResolutionRefused,
    ResolutionTrace,
    error_code,
    is_denied,
    raise_for_lookup,
    weakest_security,
)
from waypost.domains.zone_signatures import ZoneKeyFetcher, verify_index_entry
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, InvalidParameter, RateLimited
from waypost.model.json import JsonObject
from waypost.model.resolution import OrganisationIndex, OrganisationIndexEntry, Outcome
from waypost.model.verdict import Verdict
from waypost.protocols.dialects import unpack_documents
from waypost.protocols.dns_aid.svcb import CAP, WELL_KNOWN, ServiceBinding, parse_svcb
from waypost.protocols.dns_rdata import is_hostname, read_text
from waypost.registry.ports import Clock, FetchResponse
from waypost.trust.jose import JoseKey


def parse_index_entry(document: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return msgspec.json.decode(document)
    except msgspec.DecodeError:
        return None


def parse_index_map(parsed: JsonObject) -> Iterator[tuple[JsonObject, OrganisationIndexEntry]]:
    """`{"name": {"location": {"fqdn", "endpoint"}, "capability": {"protocols": []}}}`."""
    agents = parsed.get("agents") if isinstance(parsed.get("agents"), dict) else parsed
    for name, item in list((agents or {}).items())[: limits.INDEX_AGENTS]:
        location = item.get("location") if isinstance(item, Mapping) else None
        fqdn = location.get("fqdn") if isinstance(location, Mapping) else None
        if isinstance(fqdn, str) and is_hostname(fqdn.lower().removesuffix(".")):
            domain = fqdn.lower().removesuffix(".")
            yield (
                item,
                OrganisationIndexEntry(name=name[:128], domain=domain, protocol=_protocol(item)[:32], via="index"),
            )


def _protocol(item: Mapping[str, Any]) -> str:
    capability = item.get("capability")
    protocols = capability.get("protocols") if isinstance(capability, Mapping) else None
    return next((each for each in protocols if isinstance(each, str)), "") if isinstance(protocols, list) else ""


def catalog_index_entry(document: bytes, listed_at: str) -> OrganisationIndexEntry:
    """An entry of a catalogue: where its document is, else the catalogue that holds it."""
    parsed = parse_index_entry(document)
    told = parsed if isinstance(parsed, dict) else {}
    names = (told.get(key) for key in ("displayName", "name", "identifier", "id"))
    stated = told.get("url")
    url = stated if isinstance(stated, str) and stated.startswith("https://") else listed_at
    name = next((name[:128] for name in names if isinstance(name, str)), "")
    return OrganisationIndexEntry(name=name, url=url[: limits.FETCH_URL_CHARS], via="catalog")


# ---- The agents of an organisation: its index at `_index._agents` or `_catalog._agents`, its list of aliases at
# `_agents`, or the
# TXT list (AID-2…6, AID-11, AID-25, AID-26; ADP-8).
#
# Several aliases at one name are no list to RFC 9460, which picks one of them; here the records are read as they are (C-5, D12).
# An index of another organisation counts as far as its entries are signed by the one that was asked for, or where the pointer to
# it is signed and that is wanted.

INDEX_ENTRY_CHECK: Final = "index-entry"

INDEX_PREFIX, CATALOG_PREFIX, ALIASES_PREFIX = "_index._agents.", "_catalog._agents.", "_agents."

_DEFAULT_PATHS: Final = {INDEX_PREFIX: "/.well-known/agents-index.json", CATALOG_PREFIX: "/.well-known/ai-catalog.json"}

_AGENTS = re.compile(r"\s*agents\s*=", re.IGNORECASE)

_AGENT_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


class FetchedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of it, and the documents that it holds itself, as they are."""

    told: OrganisationIndex
    documents: tuple[bytes, ...] = ()
    url: str = ""


class IndexPointer(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` is None where the word of the index counts as it is; else its entries count as far as one of them signed them."""

    url: str
    lookup: DnsLookup
    keys: tuple[JoseKey, ...] | None = None


class OrganisationReader:
    """`follow_signed` lets a signed pointer lead to another organisation (AID-25)."""

    def __init__(self, dns: DnsResolver, fetcher: DomainFetcher, clock: Clock, *, follow_signed: bool = False) -> None:
        self._dns = dns
        self._fetcher = fetcher
        self._clock = clock
        self._follow_signed = follow_signed

    async def read(self, domain: str) -> FetchedIndex:
        """What an organisation lists. A failure is told in the answer."""
        return await _IndexRead(
            parse_target(domain).domain, self._dns, self._fetcher, self._clock, self._follow_signed
        ).read()


class _IndexRead:
    def __init__(
        self, domain: str, dns: DnsResolver, fetcher: DomainFetcher, clock: Clock, follow_signed: bool
    ) -> None:
        self._domain = domain
        self._fetcher = fetcher
        self._clock = clock
        self._journal = ResolutionTrace(dns, clock)
        self._keys = ZoneKeyFetcher(self._journal, fetcher)
        self._follow_signed = follow_signed

    async def read(self) -> FetchedIndex:
        try:
            return await self._read()
        except ResolutionRefused as refusal:
            return self._told("failed", code=refusal.code, reason=refusal.reason)

    async def _read(self) -> FetchedIndex:
        d = self._domain
        catalog, index, aliases, listed = await self._journal.ask(
            (CATALOG_PREFIX + d, "SVCB"),
            (INDEX_PREFIX + d, "SVCB"),
            (ALIASES_PREFIX + d, "SVCB"),
            (INDEX_PREFIX + d, "TXT"),
        )
        for found in (catalog, index, aliases, listed):
            self._journal.add_lookup(found)
            raise_for_lookup(found)
        pointers = [*await self._pointers(catalog, CATALOG_PREFIX), *await self._pointers(index, INDEX_PREFIX)][
            : limits.SVCB_TARGETS
        ]
        for pointer in pointers:
            fetched = await self._fetch(pointer)
            if fetched is not None:
                return self._of_document(fetched, pointer, aliases)
        entries = [*self._aliases(aliases), *self._listed(listed)]
        if not entries:
            return self._told("not_found", code="no_index", reason="the organisation lists no agents in the DNS")
        return self._told("resolved", entries, security=(aliases, listed))

    # --- Pointers --------------------------------------------------------------------------------

    async def _pointers(self, found: DnsLookup, prefix: str) -> list[IndexPointer]:
        pointers: list[IndexPointer] = []
        for record in self._records(found):
            if record.is_alias or record.unknown_mandatory:
                continue
            host = record.host(found.owner or found.name)
            if not is_hostname(host):
                self._journal.warn(f"{host} cannot serve an index: no certificate can be for it (AID-4).")
            elif (url := self._url(record, host, prefix)) is not None:
                pointers += await self._followed(found, url)
        return pointers

    async def _followed(self, found: DnsLookup, url: str) -> list[IndexPointer]:
        """AID-25: at home as it is; elsewhere where the pointer is signed and that is wanted, or as far as the organisation
        signed the entries. Where it has no keys, nobody is asked."""
        host = urlsplit(url).hostname or ""
        if is_same_organisation(host, self._domain):
            return [IndexPointer(url=url, lookup=found)]
        keys = await self._keys.of_zone(self._domain)
        if self._follow_signed and found.security == "secure":
            return [IndexPointer(url=url, lookup=found, keys=keys)]
        if keys:
            return [IndexPointer(url=url, lookup=found, keys=keys)]
        self._journal.warn(f"The index points at {host}, of another organisation; it was not followed (AID-25).")
        return []

    def _url(self, record: ServiceBinding, host: str, prefix: str) -> str | None:
        cap = record.text(CAP)
        if cap is not None and cap.startswith("https://"):
            return cap
        stated = record.text(WELL_KNOWN) if WELL_KNOWN in record.params else None
        path = _DEFAULT_PATHS[prefix] if WELL_KNOWN not in record.params else find_well_known_path(stated or "")
        if path is None:
            self._journal.warn("The path in `well-known` of the index is none that is followed.")
            return None
        return https_origin(host, record.port or 443) + path

    def _records(self, found: DnsLookup) -> list[ServiceBinding]:
        if is_denied(found):
            return []
        try:
            records = [parse_svcb(data) for data in found.records[: limits.SVCB_RECORDS]]
        except InvalidDocument as error:
            raise ResolutionRefused("malformed", error.message) from None
        return sorted(records, key=lambda one: (one.priority, one.target))

    # --- Documents -------------------------------------------------------------------------------

    async def _fetch(self, pointer: IndexPointer) -> FetchResponse | None:
        parts = urlsplit(pointer.url)
        host = parts.hostname or ""
        hosted = host != self._domain
        dane = DaneCheck(self._journal, host, parts.port or 443, leading=pointer.lookup.security, hosted=hosted)
        self._journal.fetches += 1
        try:
            dane.begin()
            fetched = await self._fetcher.fetch(pointer.url, "index", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
            self._journal.tell(
                "index", "failed" if code == "dane" else "unknown", error.message, code=code, url=pointer.url
            )
            if code == "dane":
                raise ResolutionRefused("dane_mismatch", error.message) from None
            return None
        finally:
            await dane.close()
        if not fetched.is_success:
            self._journal.tell("index", "unknown", f"status {fetched.status}", code="status", url=pointer.url)
            return None
        return fetched

    def _of_document(self, fetched: FetchResponse, pointer: IndexPointer, aliases: DnsLookup) -> FetchedIndex:
        """AID-5: the format is open. A catalogue holds documents; the map of names leads to domains."""
        try:
            packed = unpack_documents(fetched.body)
            parsed = None if packed is not None else msgspec.json.decode(fetched.body)
        except (msgspec.DecodeError, RecursionError):
            raise ResolutionRefused("malformed", "the index is not JSON") from None
        if packed is not None:
            documents = tuple(packed[: limits.INDEX_AGENTS])
            listed = [(parse_index_entry(each), catalog_index_entry(each, fetched.url), each) for each in documents]
        elif isinstance(parsed, dict):
            listed = [(item, entry, b"") for item, entry in parse_index_map(parsed)]
        else:
            raise ResolutionRefused("malformed", "the index is neither a catalogue nor a map of agents")
        kept = [each for item, entry, body in listed for each in self._admitted(item, entry, body, pointer)]
        self._journal.tell(
            "index", "passed", url=fetched.url, agents=len(kept), refused=len(listed) - len(kept) or None
        )
        entries = [*(entry for entry, _ in kept), *self._aliases(aliases)]
        told = self._told("resolved", entries, security=(pointer.lookup,))
        return msgspec.structs.replace(told, documents=tuple(body for _, body in kept if body), url=fetched.url)

    def _admitted(
        self, item: Any, entry: OrganisationIndexEntry, body: bytes, pointer: IndexPointer
    ) -> tuple[()] | tuple[tuple[OrganisationIndexEntry, bytes]]:
        """AID-25. What is signed must hold; what is not signed counts only where the pointer is trusted."""
        if pointer.keys is None:
            return ((entry, body),)
        judged = verify_index_entry(item, self._domain, pointer.keys, self._clock.now())
        trusted = self._follow_signed and pointer.lookup.security == "secure"
        if judged.state == "passed" or (trusted and judged.state != "failed"):
            verdict = Verdict(
                check=INDEX_ENTRY_CHECK,
                state=judged.state,
                reason=judged.reason,
                evidence=judged.evidence,
                at=self._journal.at,
            )
            return ((msgspec.structs.replace(entry, signature=verdict), body),)
        name = entry.domain or entry.name
        self._journal.warn(f"{name} in the index of another organisation was left out: {judged.reason} (AID-25).")
        if len(self._journal.steps) < limits.INDEX_STEPS:
            self._journal.tell("entry", judged.state, judged.reason, code=judged.code, agent=name, url=entry.url)
        return ()

    # --- Lists in the DNS ------------------------------------------------------------------------

    def _aliases(self, found: DnsLookup) -> list[OrganisationIndexEntry]:
        records = [record for record in self._records(found) if record.is_alias and is_hostname(record.target)]
        return [
            OrganisationIndexEntry(name=record.target.split(".")[0], domain=record.target, via="aliases")
            for record in records[: limits.SVCB_RECORDS]
        ]

    def _listed(self, found: DnsLookup) -> list[OrganisationIndexEntry]:
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
                    if _AGENT_LABEL.match(name):
                        domain = f"{name}.{self._domain}"
                        entries.append(
                            OrganisationIndexEntry(name=name, domain=domain, protocol=protocol[:32], via="txt")
                        )
        return entries[: limits.INDEX_AGENTS]

    def _told(
        self,
        outcome: Outcome,
        entries: list[OrganisationIndexEntry] | None = None,
        *,
        code: str = "",
        reason: str = "",
        security: tuple[DnsLookup, ...] = (),
    ) -> FetchedIndex:
        told = OrganisationIndex(
            domain=self._domain,
            outcome=outcome,
            entries=tuple({(each.domain or each.name, each.url): each for each in entries or ()}.values()),
            reason=reason,
            code=code,
            dnssec=weakest_security(*(each.security for each in security)) if security else "indeterminate",
            steps=tuple(self._journal.steps),
            warnings=tuple(self._journal.warnings),
            cost=self._journal.cost(),
            at=self._journal.at,
        )
        return FetchedIndex(told=told)
