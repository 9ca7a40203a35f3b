"""The agents of an organisation: its index at `_index._agents` or `_catalog._agents`, its list of aliases at `_agents`, or the
TXT list (AID-2…6, AID-11, AID-25, AID-26; ADP-8).

Several aliases at one name are no list to RFC 9460, which picks one of them; here the records are read as they are (C-5, D12).
An index of another organisation counts as far as its entries are signed by the one that was asked for, or where the pointer to
it is signed and that is wanted.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.dialects.packing import unpack
from waypost.domains.dane import Dane
from waypost.domains.journal import Journal, Refusal, code_of, is_denied, refuse_failure, weakest
from waypost.domains.listed import entries_of_map, entry_of, parse_entry
from waypost.domains.naming import find_path, is_same_organisation, origin, parse_asked
from waypost.domains.ports import Dns, DomainFetcher, Lookup
from waypost.domains.signed_records import judge_listed
from waypost.domains.zone_keys import ZoneKeys
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, InvalidParameter, RateLimited
from waypost.model.resolution import IndexEntry, OrganisationIndex, Outcome
from waypost.model.verdict import Verdict
from waypost.registry.fetching import Fetched
from waypost.registry.ports import Clock
from waypost.trust.jose import JoseKey
from waypost.wire.dns_data import is_host, read_text
from waypost.wire.svcb import CAP, WELL_KNOWN, ServiceBinding, parse_svcb

ENTRY: Final = "index-entry"
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
    """`keys` is None where the word of the index counts as it is; else its entries count as far as one of them signed them."""

    url: str
    lookup: Lookup
    keys: tuple[JoseKey, ...] | None = None


class OrganisationReader:
    """`follow_signed` lets a signed pointer lead to another organisation (AID-25)."""

    def __init__(self, dns: Dns, fetcher: DomainFetcher, clock: Clock, *, follow_signed: bool = False) -> None:
        self._dns = dns
        self._fetcher = fetcher
        self._clock = clock
        self._follow_signed = follow_signed

    async def read(self, domain: str) -> Index:
        """What an organisation lists. A failure is told in the answer."""
        return await _Reading(
            parse_asked(domain).domain, self._dns, self._fetcher, self._clock, self._follow_signed
        ).read()


class _Reading:
    def __init__(self, domain: str, dns: Dns, fetcher: DomainFetcher, clock: Clock, follow_signed: bool) -> None:
        self._domain = domain
        self._fetcher = fetcher
        self._clock = clock
        self._journal = Journal(dns, clock)
        self._keys = ZoneKeys(self._journal, fetcher)
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
        pointers = [*await self._pointers(catalog, CATALOG), *await self._pointers(index, INDEX)][: limits.SVCB_TARGETS]
        for pointer in pointers:
            fetched = await self._fetch(pointer)
            if fetched is not None:
                return self._of_document(fetched, pointer, aliases)
        entries = [*self._aliases(aliases), *self._listed(listed)]
        if not entries:
            return self._told("not_found", code="no_index", reason="the organisation lists no agents in the DNS")
        return self._told("resolved", entries, security=(aliases, listed))

    # --- Pointers --------------------------------------------------------------------------------

    async def _pointers(self, found: Lookup, prefix: str) -> list[Pointer]:
        pointers: list[Pointer] = []
        for record in self._records(found):
            if record.is_alias or record.unknown_mandatory:
                continue
            host = record.host(found.owner or found.name)
            if not is_host(host):
                self._journal.warn(f"{host} cannot serve an index: no certificate can be for it (AID-4).")
            elif (url := self._url(record, host, prefix)) is not None:
                pointers += await self._followed(found, url)
        return pointers

    async def _followed(self, found: Lookup, url: str) -> list[Pointer]:
        """AID-25: at home as it is; elsewhere where the pointer is signed and that is wanted, or as far as the organisation
        signed the entries. Where it has no keys, nobody is asked."""
        host = urlsplit(url).hostname or ""
        if is_same_organisation(host, self._domain):
            return [Pointer(url=url, lookup=found)]
        keys = await self._keys.of_zone(self._domain)
        if self._follow_signed and found.security == "secure":
            return [Pointer(url=url, lookup=found, keys=keys)]
        if keys:
            return [Pointer(url=url, lookup=found, keys=keys)]
        self._journal.warn(f"The index points at {host}, of another organisation; it was not followed (AID-25).")
        return []

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
            listed = [(parse_entry(each), entry_of(each, fetched.url), each) for each in documents]
        elif isinstance(parsed, dict):
            listed = [(item, entry, b"") for item, entry in entries_of_map(parsed)]
        else:
            raise Refusal("malformed", "the index is neither a catalogue nor a map of agents")
        kept = [each for item, entry, body in listed for each in self._admitted(item, entry, body, pointer)]
        self._journal.tell(
            "index", "passed", url=fetched.url, agents=len(kept), refused=len(listed) - len(kept) or None
        )
        entries = [*(entry for entry, _ in kept), *self._aliases(aliases)]
        told = self._told("resolved", entries, security=(pointer.lookup,))
        return msgspec.structs.replace(told, documents=tuple(body for _, body in kept if body), url=fetched.url)

    def _admitted(
        self, item: Any, entry: IndexEntry, body: bytes, pointer: Pointer
    ) -> tuple[()] | tuple[tuple[IndexEntry, bytes]]:
        """AID-25. What is signed must hold; what is not signed counts only where the pointer is trusted."""
        if pointer.keys is None:
            return ((entry, body),)
        judged = judge_listed(item, self._domain, pointer.keys, self._clock.now())
        trusted = self._follow_signed and pointer.lookup.security == "secure"
        if judged.state == "passed" or (trusted and judged.state != "failed"):
            verdict = Verdict(
                check=ENTRY, state=judged.state, reason=judged.reason, evidence=judged.evidence, at=self._journal.at
            )
            return ((msgspec.structs.replace(entry, signature=verdict), body),)
        name = entry.domain or entry.name
        self._journal.warn(f"{name} in the index of another organisation was left out: {judged.reason} (AID-25).")
        if len(self._journal.steps) < limits.INDEX_STEPS:
            self._journal.tell("entry", judged.state, judged.reason, code=judged.code, agent=name, url=entry.url)
        return ()

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
