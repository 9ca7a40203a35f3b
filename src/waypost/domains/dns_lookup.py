"""Where an agent is, by the DNS: SVCB first; where there is none for certain, HTTPS, then the TXT and SRV of ADP, then AID's.

Knows which question follows from which answer (ADP-14…20, AID-1…12). Only that a record is not there leads on to the next
place; whatever fails ends the way (C-11, D3).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.ports import DnsLookup, SecurityState
from waypost.domains.target import ResolveTarget, agent_txt_name, legacy_names, srv_name
from waypost.domains.trace import (
    DnsQuestion,
    ResolutionRefused,
    ResolutionTrace,
    error_code,
    raise_for_lookup,
    weakest_security,
)
from waypost.errors import InvalidDocument
from waypost.model.resolution import AgentEndpoint, AgentKey, Depth, LookupMethod
from waypost.protocols.adp.keys import FINGERPRINT
from waypost.protocols.adp.txt_record import AdpTxt, select_adp_txt
from waypost.protocols.dns_aid.svcb import BAP, PK, ServiceBinding, parse_svcb
from waypost.protocols.dns_aid.txt_records import AidRecord, CompanionTxt, find_companion_txt, select_aid
from waypost.protocols.dns_rdata import is_hostname, select_srv


class AgentService(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the agent, and the record that names it; None where an alias ended at a host without one."""

    host: str
    port: int
    binding: ServiceBinding | None = None
    owner: str = ""  # the name that the record stands at


class AgentLocation(msgspec.Struct, frozen=True, kw_only=True):
    """What the DNS says of an agent. `how` is None when it says nothing."""

    domain: str  # of the agent, which a name below `_agents` only points at
    how: LookupMethod | None = None
    security: SecurityState = "indeterminate"
    services: tuple[AgentService, ...] = ()
    endpoints: tuple[AgentEndpoint, ...] = ()
    key: AgentKey | None = None
    key_error: tuple[str, str] | None = None  # code and reason: a key is stated, and cannot be used
    txt: AdpTxt | None = None
    aid: AidRecord | None = None
    companion: CompanionTxt | None = None
    ttl: int = 0


class SvcbRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records at the end of a chain of aliases: the name that was asked for them, and where they are after CNAMEs, which
    is what "." stands for (RFC 9460 §2.5.2)."""

    name: str
    owner: str
    records: tuple[ServiceBinding, ...]
    security: SecurityState
    ttl: int


class AgentLocator:
    def __init__(self, journal: ResolutionTrace, *, legacy: bool) -> None:
        self._journal = journal
        self._legacy = legacy

    async def locate(self, asked: ResolveTarget, depth: Depth) -> AgentLocation:
        """Raises Refusal."""
        name = asked.domain
        if depth == "key":  # no key is in SVCB (C-2): the TXT record is asked for beside it
            first, txt = await self._journal.ask((name, "SVCB"), (agent_txt_name(name), "TXT"))
        else:
            (first,), txt = await self._journal.ask((name, "SVCB")), None
        bindings = await self._follow(first)
        if bindings is None and self._legacy:
            bindings = await self._legacy_bindings(name)
        if bindings is None:
            return await self._fall_back(first, txt)
        domain = bindings.name if asked.is_service_name else name
        if txt is not None and domain != name:
            (txt,) = await self._journal.ask((agent_txt_name(domain), "TXT"))
        return self._with_key(self._served(domain, "svcb", bindings), txt)

    async def add_companion(self, located: AgentLocation) -> AgentLocation:
        """What the DNS itself tells of an agent that no document describes (AID-17)."""
        (found,) = await self._journal.ask((located.domain, "TXT"))
        good = found.outcome == "found" and found.security != "bogus"
        companion = find_companion_txt(found.records) if good else None
        self._journal.add_lookup(found, capabilities=list(companion.capabilities) if companion is not None else None)
        return msgspec.structs.replace(located, companion=companion)

    # --- SVCB ------------------------------------------------------------------------------------

    async def _follow(self, found: DnsLookup) -> SvcbRecords | None:
        """Through aliases to services. None when there is no record at the first name."""
        security, ttl, seen = found.security, found.ttl, [found.name]
        while True:
            records = self._read(found)
            security, ttl = weakest_security(security, found.security), min(ttl, found.ttl)
            aliases = [record for record in records if record.is_alias]
            if not records and len(seen) == 1:
                return None
            if not aliases:
                return SvcbRecords(
                    name=found.name,
                    owner=found.owner or found.name,
                    records=tuple(records),
                    security=security,
                    ttl=ttl,
                )
            target = self._alias_target(found, aliases, records, seen)
            seen.append(target)
            (found,) = await self._journal.ask((target, found.type))

    def _read(self, found: DnsLookup) -> list[ServiceBinding]:
        """RFC 9460 §2.2: one malformed record spoils them all."""
        if found.outcome != "found" or found.security == "bogus":
            self._journal.add_lookup(found)
            raise_for_lookup(found)
            return []
        try:
            records = [parse_svcb(data) for data in found.records[: limits.SVCB_RECORDS]]
        except InvalidDocument as error:
            self._journal.add_lookup(found, error.message, code="malformed")
            raise ResolutionRefused("malformed", error.message) from None
        targets = [f"{record.priority} {record.target or '.'}" for record in records]
        self._journal.add_lookup(found, records=targets)
        return sorted(records, key=lambda one: (one.priority, one.target, sorted(one.params.items())))

    def _alias_target(
        self, found: DnsLookup, aliases: list[ServiceBinding], records: list[ServiceBinding], seen: list[str]
    ) -> str:
        """D1: chains end, and a name is either an alias or a service."""
        if len(aliases) < len(records):
            raise ResolutionRefused("alias_limit", f"{found.name} has aliases beside services")
        if len(aliases) > 1:
            self._journal.warn(f"{found.name} has {len(aliases)} aliases; the first one was followed.")
        target = aliases[0].target
        if not target:
            raise ResolutionRefused("not_offered", f"{found.name} says that there is no service", state="unknown")
        if target in seen or len(seen) > limits.ALIAS_CHAIN:
            raise ResolutionRefused(
                "alias_limit", f"the aliases of {seen[0]} go in a circle, or are more than {limits.ALIAS_CHAIN}"
            )
        return target

    def _warn_of_bap(self, record: ServiceBinding) -> None:
        bap = record.text(BAP) or ""
        if "," in bap or "/" in bap:
            self._journal.warn(f"bap is {bap[:64]!r}, and names one protocol (AID-15); {record.protocol()} is taken.")

    async def _legacy_bindings(self, name: str) -> SvcbRecords | None:
        names = legacy_names(name)
        for found in await self._journal.ask(*((each, "SVCB") for each in names)) if names else ():
            bindings = await self._follow(found)
            if bindings is not None:
                self._journal.warn(f"Found at {found.name}, a name of the -01 draft of DNS-AID.")
                return bindings
        return None

    def _served(self, domain: str, how: LookupMethod, bindings: SvcbRecords) -> AgentLocation:
        """The services that can be used; AID-10: a record that demands what is not understood is passed over."""
        services = [AgentService(host=bindings.owner, port=443)] if not bindings.records else []
        for record in bindings.records:
            host = record.host(bindings.owner)
            unknown = record.unknown_mandatory
            if unknown:
                self._journal.warn(
                    f"A record demands {', '.join(unknown)}, which is not known here; it was passed over."
                )
            elif not is_hostname(host):
                self._journal.warn(
                    f"{host} is no name that a certificate can be for; its record was passed over (AID-4)."
                )
            else:
                self._warn_of_bap(record)
                services.append(AgentService(host=host, port=record.port or 443, binding=record, owner=bindings.name))
        if not services:
            raise ResolutionRefused("no_usable_record", f"none of the records of {domain} can be used")
        return AgentLocation(
            domain=domain,
            how=how,
            security=bindings.security,
            services=tuple(services),
            endpoints=tuple(map(_endpoint, services)),
            ttl=bindings.ttl,
        )

    # --- The key ---------------------------------------------------------------------------------

    def _with_key(self, located: AgentLocation, txt: DnsLookup | None) -> AgentLocation:
        """The fingerprint of the agent's key, from its TXT record, else from SVCB (C-2)."""
        stated = self._key_in_svcb(located)
        if txt is None:
            return msgspec.structs.replace(located, key=stated)
        try:
            record = self._adp_txt(txt)
        except ResolutionRefused as refusal:
            state = "unknown" if refusal.state == "unknown" else refusal.code
            return msgspec.structs.replace(located, key_error=(state, refusal.reason))
        if record is None:
            return msgspec.structs.replace(located, key=stated)
        if stated is not None and stated.fingerprint != record.fingerprint:
            return msgspec.structs.replace(
                located, key_error=("key_conflict", "SVCB and TXT give different fingerprints")
            )
        key = AgentKey(fingerprint=record.fingerprint, source=txt.name, dnssec=txt.security)
        return msgspec.structs.replace(located, key=key, txt=record, ttl=min(located.ttl, txt.ttl))

    def _key_in_svcb(self, located: AgentLocation) -> AgentKey | None:
        texts = [service.binding.text(PK) for service in located.services if service.binding is not None]
        found = {text for text in texts if text and FINGERPRINT.match(text)}
        if len(found) != 1:
            return None
        return AgentKey(fingerprint=found.pop(), source=f"{located.domain} SVCB", dnssec=located.security)

    def _adp_txt(self, found: DnsLookup) -> AdpTxt | None:
        """Raises Refusal when the record cannot be looked up or used."""
        if found.outcome != "found" or found.security == "bogus":
            self._journal.add_lookup(found)
            raise_for_lookup(found)
            return None
        try:
            record, passed = select_adp_txt(found.records)
        except InvalidDocument as error:
            self._journal.add_lookup(found, error.message, code=error_code(error, "malformed"))
            raise ResolutionRefused(error_code(error, "malformed"), error.message) from None
        for text in passed:
            self._journal.warn(text)
        self._journal.add_lookup(found, pk=record.fingerprint if record is not None else None)
        return record

    # --- Without SVCB ----------------------------------------------------------------------------

    async def _fall_back(self, first: DnsLookup, txt: DnsLookup | None) -> AgentLocation:
        """What is asked for together. A name that is not there has no other record either, but there may be names below."""
        name = first.name
        srv_asked: DnsQuestion = (srv_name(name), "SRV")
        txt_asked: tuple[DnsQuestion, ...] = () if txt is not None else ((agent_txt_name(name), "TXT"),)
        https_asked: tuple[DnsQuestion, ...] = () if first.outcome == "nxdomain" else ((name, "HTTPS"),)
        srv, *rest = await self._journal.ask(srv_asked, *txt_asked, *https_asked)
        txt = txt or rest.pop(0)
        bindings = await self._https(rest[0]) if rest else None
        if bindings is not None:
            return self._with_key(self._served(name, "https", bindings), txt)
        record = self._adp_txt(txt)
        if record is not None:
            return self._by_txt(name, record, txt, srv)
        aid = self._aid(txt)
        if aid is not None:
            endpoint = _aid_endpoint(name, aid)
            return AgentLocation(
                domain=name, how="aid", security=txt.security, endpoints=(endpoint,), aid=aid, ttl=txt.ttl
            )
        return AgentLocation(domain=name, security=txt.security)

    async def _https(self, found: DnsLookup) -> SvcbRecords | None:
        """AID-7. Every web site may have such a record; it counts when it speaks of an agent."""
        if found.outcome == "found" and found.security != "bogus" and not _has_agent_params(found.records):
            self._journal.add_lookup(found, "a record of the web site, not of an agent")
            return None
        return await self._follow(found)

    def _by_txt(self, name: str, record: AdpTxt, txt: DnsLookup, srv: DnsLookup) -> AgentLocation:
        """ADP-15…20: TXT, then SRV, then {domain} at the usual port."""
        chosen = select_srv(srv.records) if srv.outcome == "found" and srv.security != "bogus" else None
        self._journal.add_lookup(srv, target=f"{chosen.target}:{chosen.port}" if chosen is not None else None)
        raise_for_lookup(srv)
        if chosen is not None and not chosen.target:
            raise ResolutionRefused("not_offered", f"{name} says that there is no service", state="unknown")
        self._journal.warn("Found by the TXT record of the fallback: no SVCB record leads there (ADP-20).")
        host, port = (chosen.target, chosen.port) if chosen is not None else (name, record.port)
        alpn = tuple(part.strip() for part in record.alpn.split(",") if part.strip())
        protocol = record.protocol or (alpn[0] if alpn else "")
        return AgentLocation(
            domain=name,
            how="txt",
            security=txt.security,
            endpoints=(AgentEndpoint(host=host, port=port, alpn=alpn, protocol=protocol),),
            key=AgentKey(fingerprint=record.fingerprint, source=txt.name, dnssec=txt.security),
            txt=record,
            ttl=txt.ttl,
        )

    def _aid(self, txt: DnsLookup) -> AidRecord | None:
        try:
            return select_aid(txt.records) if txt.outcome == "found" else None
        except InvalidDocument as error:
            self._journal.tell("aid", "failed", error.message, code="malformed", **error.details)
            raise ResolutionRefused("malformed", error.message) from None


def _has_agent_params(records: Sequence[bytes]) -> bool:
    for data in records:
        try:
            binding = parse_svcb(data)
        except InvalidDocument:
            continue
        if binding.is_agent:
            return True
    return False


def _aid_endpoint(name: str, aid: AidRecord) -> AgentEndpoint:
    """The server in its address; what runs here (`docker:`, `zeroconf:`) has none."""
    try:
        at = urlsplit(aid.uri)
        host, port = (at.hostname, at.port) if at.scheme in ("https", "wss") else (None, None)
    except ValueError:  # it is told as it stands; who connects will see
        host, port = None, None
    return AgentEndpoint(host=host or name, port=port or 443, protocol=aid.proto, url=aid.uri)


def _endpoint(service: AgentService) -> AgentEndpoint:
    record = service.binding
    if record is None:
        return AgentEndpoint(host=service.host, port=service.port)
    return AgentEndpoint(
        host=service.host,
        port=service.port,
        alpn=record.alpn,
        protocol=record.protocol() or "",
        priority=record.priority,
        hints=record.hints,
    )
