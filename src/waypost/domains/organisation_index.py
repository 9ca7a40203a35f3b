"""The agents of an organisation: its index at `_index._agents` or `_catalog._agents`, its aliases at `_agents`, or the TXT list.

(AID-2…6, AID-11, AID-25, AID-26; ADP-8.) RFC 9460 picks one of several aliases at a name; here all of them are read, as a list
(C-5, D12). In an index of another organisation, an entry counts if this organisation signed it, or if the pointer to the
index is signed and the settings allow that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.ports import DnsLookup, DnsResolver, DomainFetcher
from waypost.domains.record_checks import DaneCheck, ZoneKeyFetcher, verify_index_entry
from waypost.domains.target import find_well_known_path, https_origin, is_same_organisation, parse_target
from waypost.domains.trace import (
    ResolutionRefused,
    ResolutionTrace,
    error_code,
    is_denied,
    raise_for_lookup,
    weakest_security,
)
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, InvalidParameter, RateLimited
from waypost.model.json import JsonObject
from waypost.model.resolution import OrganisationIndex, OrganisationIndexEntry, Outcome
from waypost.model.verdict import Verdict
from waypost.protocols.dialects import unpack_documents
from waypost.protocols.dns_aid.svcb import CAP, WELL_KNOWN, ServiceBinding, parse_svcb
from waypost.protocols.dns_rdata import is_hostname, read_text
from waypost.registry.ports import Clock, FetchResponse
from waypost.trust.jose import JoseKey

INDEX_ENTRY_CHECK: Final = "index-entry"

INDEX_PREFIX, CATALOG_PREFIX, ALIASES_PREFIX = "_index._agents.", "_catalog._agents.", "_agents."

_DEFAULT_PATHS: Final = {INDEX_PREFIX: "/.well-known/agents-index.json", CATALOG_PREFIX: "/.well-known/ai-catalog.json"}

_AGENTS = re.compile(r"\s*agents\s*=", re.IGNORECASE)

_AGENT_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


def parse_index_entry(document: bytes) -> Any:
    """None if it is not JSON."""
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
    """An entry of a catalog with the URL of its document, else that of the catalog."""
    parsed = parse_index_entry(document)
    members = parsed if isinstance(parsed, dict) else {}
    names = (members.get(key) for key in ("displayName", "name", "identifier", "id"))
    stated = members.get("url")
    url = stated if isinstance(stated, str) and stated.startswith("https://") else listed_at
    name = next((name[:128] for name in names if isinstance(name, str)), "")
    return OrganisationIndexEntry(name=name, url=url[: limits.FETCH_URL_CHARS], via="catalog")


class FetchedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """An index with the documents that it contains, byte for byte."""

    index: OrganisationIndex
    documents: tuple[bytes, ...] = ()
    url: str = ""


class IndexPointer(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` is None if all entries of the index count; else only those that one of the keys signed."""

    url: str
    lookup: DnsLookup
    keys: tuple[JoseKey, ...] | None = None


class OrganisationReader:
    """`follow_signed` allows a signed pointer to the index of another organisation (AID-25)."""

    def __init__(self, dns: DnsResolver, fetcher: DomainFetcher, clock: Clock, *, follow_signed: bool = False) -> None:
        self._dns = dns
        self._fetcher = fetcher
        self._clock = clock
        self._follow_signed = follow_signed

    async def read(self, domain: str) -> FetchedIndex:
        """A failure is in the result."""
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
        self._trace = ResolutionTrace(dns, clock)
        self._keys = ZoneKeyFetcher(self._trace, fetcher)
        self._follow_signed = follow_signed

    async def read(self) -> FetchedIndex:
        try:
            return await self._read()
        except ResolutionRefused as refusal:
            return self._make_result("failed", code=refusal.code, reason=refusal.reason)

    async def _read(self) -> FetchedIndex:
        domain = self._domain
        catalog, index, aliases, txt_list = await self._trace.lookup_all(
            (CATALOG_PREFIX + domain, "SVCB"),
            (INDEX_PREFIX + domain, "SVCB"),
            (ALIASES_PREFIX + domain, "SVCB"),
            (INDEX_PREFIX + domain, "TXT"),
        )
        for found in (catalog, index, aliases, txt_list):
            self._trace.add_lookup(found)
            raise_for_lookup(found)
        pointers = [*await self._pointers(catalog, CATALOG_PREFIX), *await self._pointers(index, INDEX_PREFIX)][
            : limits.SVCB_TARGETS
        ]
        for pointer in pointers:
            response = await self._fetch(pointer)
            if response is not None:
                return self._parse_document(response, pointer, aliases)
        entries = [*self._parse_aliases(aliases), *self._parse_txt_list(txt_list)]
        if not entries:
            return self._make_result("not_found", code="no_index", reason="the organisation lists no agents in the DNS")
        return self._make_result("resolved", entries, security=(aliases, txt_list))

    async def _pointers(self, found: DnsLookup, prefix: str) -> list[IndexPointer]:
        pointers: list[IndexPointer] = []
        for record in self._parse_records(found):
            if record.is_alias or record.unknown_mandatory:
                continue
            host = record.host(found.owner or found.name)
            if not is_hostname(host):
                self._trace.warn(f"{host} cannot serve an index: no certificate can be issued for it (AID-4).")
            elif (url := self._url(record, host, prefix)) is not None:
                pointers += await self._check_pointer(found, url)
        return pointers

    async def _check_pointer(self, found: DnsLookup, url: str) -> list[IndexPointer]:
        """AID-25: within the organisation an index counts; elsewhere it needs a signed pointer, if the settings allow it, or
        keys of the organisation to verify the entries."""
        host = urlsplit(url).hostname or ""
        if is_same_organisation(host, self._domain):
            return [IndexPointer(url=url, lookup=found)]
        keys = await self._keys.of_zone(self._domain)
        if keys or (self._follow_signed and found.security == "secure"):
            return [IndexPointer(url=url, lookup=found, keys=keys)]
        self._trace.warn(f"The index points to {host}, of another organisation; it was not followed (AID-25).")
        return []

    def _url(self, record: ServiceBinding, host: str, prefix: str) -> str | None:
        cap = record.text(CAP)
        if cap is not None and cap.startswith("https://"):
            return cap
        stated = record.text(WELL_KNOWN) if WELL_KNOWN in record.params else None
        path = _DEFAULT_PATHS[prefix] if WELL_KNOWN not in record.params else find_well_known_path(stated or "")
        if path is None:
            self._trace.warn("The path in `well-known` of the index is not allowed.")
            return None
        return https_origin(host, record.port or 443) + path

    def _parse_records(self, found: DnsLookup) -> list[ServiceBinding]:
        if is_denied(found):
            return []
        try:
            records = [parse_svcb(data) for data in found.records[: limits.SVCB_RECORDS]]
        except InvalidDocument as error:
            raise ResolutionRefused("malformed", error.message) from None
        return sorted(records, key=lambda one: (one.priority, one.target))

    async def _fetch(self, pointer: IndexPointer) -> FetchResponse | None:
        parts = urlsplit(pointer.url)
        host = parts.hostname or ""
        is_third_party = host != self._domain
        dane = DaneCheck(
            self._trace,
            host,
            parts.port or 443,
            pointer_security=pointer.lookup.security,
            is_third_party=is_third_party,
        )
        self._trace.fetches += 1
        try:
            dane.begin()
            response = await self._fetcher.fetch(pointer.url, "index", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
            self._trace.add_step(
                "index", "failed" if code == "dane" else "unknown", error.message, code=code, url=pointer.url
            )
            if code == "dane":
                raise ResolutionRefused("dane_mismatch", error.message) from None
            return None
        finally:
            await dane.close()
        if not response.is_success:
            self._trace.add_step("index", "unknown", f"status {response.status}", code="status", url=pointer.url)
            return None
        return response

    def _parse_document(self, response: FetchResponse, pointer: IndexPointer, aliases: DnsLookup) -> FetchedIndex:
        """AID-5: the format is open. A catalog contains documents; a map of names leads to domains."""
        try:
            packed = unpack_documents(response.body)
            parsed = None if packed is not None else msgspec.json.decode(response.body)
        except (msgspec.DecodeError, RecursionError):
            raise ResolutionRefused("malformed", "the index is not JSON") from None
        except InvalidDocument as error:
            raise ResolutionRefused("malformed", error.message) from None
        if packed is not None:
            documents = tuple(packed[: limits.INDEX_AGENTS])
            listed = [(parse_index_entry(each), catalog_index_entry(each, response.url), each) for each in documents]
        elif isinstance(parsed, dict):
            listed = [(item, entry, b"") for item, entry in parse_index_map(parsed)]
        else:
            raise ResolutionRefused("malformed", "the index is neither a catalog nor a map of agents")
        admitted = [each for item, entry, body in listed for each in self._admit(item, entry, body, pointer)]
        self._trace.add_step(
            "index", "passed", url=response.url, agents=len(admitted), refused=len(listed) - len(admitted) or None
        )
        entries = [*(entry for entry, _ in admitted), *self._parse_aliases(aliases)]
        result = self._make_result("resolved", entries, security=(pointer.lookup,))
        return msgspec.structs.replace(result, documents=tuple(body for _, body in admitted if body), url=response.url)

    def _admit(
        self, item: Any, entry: OrganisationIndexEntry, body: bytes, pointer: IndexPointer
    ) -> tuple[()] | tuple[tuple[OrganisationIndexEntry, bytes]]:
        """AID-25: a signature must be valid; an unsigned entry counts only if the pointer is trusted."""
        if pointer.keys is None:
            return ((entry, body),)
        result = verify_index_entry(item, self._domain, pointer.keys, self._clock.now())
        is_trusted = self._follow_signed and pointer.lookup.security == "secure"
        if result.state == "passed" or (is_trusted and result.state != "failed"):
            verdict = Verdict(
                check=INDEX_ENTRY_CHECK,
                state=result.state,
                reason=result.reason,
                evidence=result.evidence,
                at=self._trace.at,
            )
            return ((msgspec.structs.replace(entry, signature=verdict), body),)
        name = entry.domain or entry.name
        self._trace.warn(f"{name} in the index of another organisation was skipped: {result.reason} (AID-25).")
        if len(self._trace.steps) < limits.INDEX_STEPS:
            self._trace.add_step("entry", result.state, result.reason, code=result.code, agent=name, url=entry.url)
        return ()

    def _parse_aliases(self, found: DnsLookup) -> list[OrganisationIndexEntry]:
        records = [record for record in self._parse_records(found) if record.is_alias and is_hostname(record.target)]
        return [
            OrganisationIndexEntry(name=record.target.split(".")[0], domain=record.target, via="aliases")
            for record in records[: limits.SVCB_RECORDS]
        ]

    def _parse_txt_list(self, found: DnsLookup) -> list[OrganisationIndexEntry]:
        """`agents=name:proto,…`: labels directly below the organisation."""
        entries = []
        for data in found.records[: limits.AGENT_TXT_RECORDS]:
            try:
                text = read_text(data)
            except InvalidDocument as error:
                self._trace.warn(error.message)
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

    def _make_result(
        self,
        outcome: Outcome,
        entries: list[OrganisationIndexEntry] | None = None,
        *,
        code: str = "",
        reason: str = "",
        security: tuple[DnsLookup, ...] = (),
    ) -> FetchedIndex:
        index = OrganisationIndex(
            domain=self._domain,
            outcome=outcome,
            entries=tuple({(each.domain or each.name, each.url): each for each in entries or ()}.values()),
            reason=reason,
            code=code,
            dnssec=weakest_security(*(each.security for each in security)) if security else "indeterminate",
            steps=tuple(self._trace.steps),
            warnings=tuple(self._trace.warnings),
            cost=self._trace.cost(),
            at=self._trace.at,
        )
        return FetchedIndex(index=index)
