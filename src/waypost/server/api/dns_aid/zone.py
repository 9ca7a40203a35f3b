"""The DNS records that a zone should contain for an agent, from its registration, documents and the current certificate. Makes
no DNS lookups."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from waypost import limits
from waypost.domains.zone import (
    DEFAULT_PORT,
    PLAIN_FORMATS,
    ZONE_FORMATS,
    ExtraProtocol,
    ZoneIndexEntry,
    ZonePlan,
    format_zone,
    make_zone,
)
from waypost.errors import Conflict, InvalidParameter, NotFound
from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of, parse_domain
from waypost.model.principal import PUBLIC, Principal
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration
from waypost.protocols.dns_rdata import DANE_EE, SHA256, SPKI, TlsaRecord, is_hostname, tlsa_of
from waypost.registry.registry import Registry
from waypost.responses.agents import AgentZone, AgentZoneRecord
from waypost.server.hosted_agents.documents import (
    CAPABILITIES_PATH,
    DIGEST_PARAMETER,
    PROVIDED_CAPABILITIES_PATH,
    PROVIDED_PATH,
    WELL_KNOWN_PATH,
    DocumentLocation,
    HostedDocuments,
)
from waypost.server.hosted_agents.service_agent import ServiceAgent
from waypost.server.hosted_agents.spoken_protocols import is_address, spoken_protocols
from waypost.server.http.asgi import AnyResponse, Request, json_response
from waypost.server.http.request_params import read_integer
from waypost.server.http.routing import ParameterSpec, RequestContext, Route

CertificateSource = Callable[[], bytes | None]  # DER certificate of this service, if it has one
_PREFIX = "/.well-known/"
_DOCUMENTS = "https"  # the label of a host that only serves the documents of the agent


class ZoneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters besides the agent."""

    form: str = "bind"
    target: str | None = None
    port: int | None = None
    ttl: int = 3600
    organisation: str | None = None
    addresses: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()  # SHA-256 of certificate public keys, hex


class ZoneApi:
    def __init__(
        self, registry: Registry, hosting: HostedDocuments, service: ServiceAgent, certificate: CertificateSource
    ) -> None:
        self._registry = registry
        self._hosting = hosting
        self._service = service
        self._certificate = certificate

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:zone",
                operation="zone",
                handler=self.zone,
                summary="The DNS records for an agent, by id or domain",
                parameters=(
                    ParameterSpec(
                        name="format",
                        schema={"enum": list(ZONE_FORMATS), "default": "bind"},
                        description="how the records are written",
                    ),
                    ParameterSpec(name="target", description="the host that serves the agent, if it is not the domain"),
                    ParameterSpec(
                        name="port",
                        schema={"type": "integer", "minimum": 1, "maximum": 65535},
                        description="the port of the host",
                    ),
                    ParameterSpec(
                        name="ttl",
                        schema={"type": "integer", "minimum": 5, "maximum": 86400, "default": 3600},
                        description="the TTL of the records in seconds",
                    ),
                    ParameterSpec(name="org", description="include the index of this organisation"),
                    ParameterSpec(name="address", description="an address of the host; repeatable"),
                    ParameterSpec(name="spki", description="SHA-256 of a certificate's public key, hex; repeatable"),
                ),
                answers={200: AgentZone},
            )
        ]

    async def zone(self, call: RequestContext) -> AnyResponse:
        wishes = parse_zone_request(call.request)
        registration = await self._find(call.principal, call.id)
        if registration.visibility != PUBLIC:
            raise Conflict(
                "This agent is not public, so it must not be published in the DNS (ADP-55).",
                path="visibility",
                hint="Register it with the header Waypost-Visibility: public, or use invitations.",
            )
        zone = make_zone(await self._plan(registration, wishes), private_keys=wishes.form not in PLAIN_FORMATS)
        records = tuple(
            AgentZoneRecord(name=record.name, type=record.type, ttl=record.ttl, data=record.text)
            for record in zone.records
        )
        return json_response(
            AgentZone(
                id=registration.id,
                domain=zone.domain,
                format=wishes.form,
                text=format_zone(zone, wishes.form),
                records=records,
                warnings=zone.warnings,
            )
        )

    async def _find(self, principal: Principal, name: str) -> Registration:
        """Find an agent by id, alias or hosted domain."""
        own = self._hosting.own_domain
        if name.lower().rstrip(".") in (own, f"agent:{own}"):
            return self._service.registration
        hosted = self._registry.hosted(name)
        try:
            return await self._registry.get(principal, hosted.id if hosted is not None else name)
        except NotFound:
            if ":" in name or "." not in name:
                raise
        return await self._registry.get(principal, f"agent:{name.lower().rstrip('.')}")

    async def _plan(self, registration: Registration, wishes: ZoneRequest) -> ZonePlan:
        hosted = registration is self._service.registration or registration.hosted is not None
        plan = self._hosted_plan(registration, wishes) if hosted else _plan_elsewhere(registration, wishes)
        plan = _with_protocols(plan, self._spoken(registration.record))
        org = wishes.organisation
        return msgspec.structs.replace(
            plan,
            ttl=wishes.ttl,
            addresses=wishes.addresses,
            certificates=self._certificates(wishes, hosted),
            organisation=org,
            index=await self._index(org, plan) if org is not None else (),
            index_host=self._index_host(org) if org is not None else None,
        )

    def _hosted_plan(self, registration: Registration, wishes: ZoneRequest) -> ZonePlan:
        domain = self._hosting.domain_of(registration)
        if not is_hostname(domain) or "." not in domain or is_address(domain):
            raise _no_domain(domain)
        place: DocumentLocation = "domain" if wishes.target in (None, domain) else "provider"
        served = self._hosting.get(registration, self._registry.clock.now(), place)
        own = urlsplit(self._hosting.origin(domain))
        port = wishes.port or own.port or DEFAULT_PORT
        host = domain if place == "domain" else wishes.target or domain
        origin = f"https://{host}" + (f":{port}" if port != DEFAULT_PORT else "")
        path = WELL_KNOWN_PATH if place == "domain" else PROVIDED_PATH.replace("{id}", domain)
        capabilities = CAPABILITIES_PATH if place == "domain" else PROVIDED_CAPABILITIES_PATH.replace("{id}", domain)
        return ZonePlan(
            domain=domain,
            target="" if place == "domain" else host,
            port=port,
            transports=("http/1.1",) if self._certificate() is not None else ("h2",),
            metadata_url=origin + path,
            well_known=path.removeprefix(_PREFIX),
            capabilities_url=f"{origin}{capabilities}?{DIGEST_PARAMETER}={served.digest}",
            capabilities_digest=served.digest,
            fingerprint=served.fingerprint,
        )

    def _certificates(self, wishes: ZoneRequest, hosted: bool) -> tuple[TlsaRecord, ...]:
        if wishes.digests:
            return tuple(
                TlsaRecord(usage=DANE_EE, selector=SPKI, matching=SHA256, data=bytes.fromhex(text))
                for text in wishes.digests
            )
        own = self._certificate() if hosted else None
        return () if own is None else (tlsa_of(own),)

    async def _index(self, organisation: str, plan: ZonePlan) -> tuple[ZoneIndexEntry, ...]:
        """All public agents hosted below the organisation, each with its own label: the index is one record set."""
        domains = {plan.domain, *self._registry.hosted_below(organisation)}
        below = sorted(name for name in domains if name == organisation or name.endswith(f".{organisation}"))
        below = below[: limits.ZONE_AGENTS]
        entries = {name: entry for name in below if (entry := self._registry.hosted(name)) is not None}
        found = await self._registry.registrations([entry.id for entry in entries.values()])
        records = {registration.id: registration.record for registration in found}
        labels = {plan.domain: _index_label(plan)}
        for name, entry in entries.items():
            if name not in labels and entry.id in records:
                other = ZonePlan(domain=name, metadata_url="", port=plan.port)  # hosted here, like the first one
                labels[name] = _index_label(_with_protocols(other, self._spoken(records[entry.id])))
        return tuple(ZoneIndexEntry(domain=name, protocol=labels.get(name, _DOCUMENTS)) for name in below)

    def _spoken(self, record: AgentRecord) -> tuple[ExtraProtocol, ...]:
        return spoken_protocols(record, self._hosting.own_domain)

    def _index_host(self, organisation: str) -> str | None:
        """The host of the index: this service if it belongs to the organisation (AID-25); other hosts list only themselves."""
        own = self._hosting.own_domain
        inside = own == organisation or own.endswith(f".{organisation}")
        return own if inside and is_hostname(own) and not is_address(own) else None


def read_certificate(path: Path | None) -> CertificateSource:
    """The current certificate of the service; the file may have been renewed."""

    def read() -> bytes | None:
        if path is None:
            return None
        try:
            return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)
        except (OSError, ValueError):
            return None  # the listener reports it

    return read


# --- Agents hosted elsewhere ----------------------------------------------------------------------


def _plan_elsewhere(registration: Registration, wishes: ZoneRequest) -> ZonePlan:
    """For an agent with an ADP document that is not hosted here. `cap` is left out, because the bytes served there are not
    known here."""
    source = registration.source("adp")
    domain = domain_of(registration.id)
    if domain is None or not is_hostname(domain):
        raise _no_domain(registration.id)
    if source is None:
        raise Conflict(
            f"{domain} is not hosted here, and the agent was not registered with an ADP document.",
            path="id",
            hint=f"Host it with `waypost host {domain} {registration.id}`, or register its ADP document.",
        )
    document = parse_object(source.document)
    url = str(document["endpoints"]["wellKnown"])
    where = urlsplit(url)
    if where.scheme != "https" or not where.hostname:
        raise Conflict(
            "The document does not name the https address at which it is served.",
            path="$.endpoints.wellKnown",
            hint="Register it with endpoints.wellKnown.",
        )
    host = wishes.target or where.hostname
    return ZonePlan(
        domain=domain,
        target="" if host == domain else host,
        port=wishes.port or where.port or DEFAULT_PORT,
        metadata_url=url,
        well_known=where.path.removeprefix(_PREFIX),
        fingerprint=_fingerprint(document),
    )


def _fingerprint(document: JsonObject) -> str | None:
    key = document["identity"].get("publicKey")
    return str(key["fingerprint"]) if isinstance(key, dict) else None


def _with_protocols(plan: ZonePlan, spoken: Sequence[ExtraProtocol]) -> ZonePlan:
    """The plan with the label of its own host, where the documents are, and with records for protocols at other hosts."""
    here = [each for each in spoken if each.host == plan.host and each.port == plan.port]
    protocol = here[0].protocol if here else _DOCUMENTS
    others = tuple(each for each in spoken if each.protocol != protocol)
    return msgspec.structs.replace(plan, protocol=protocol, extra_protocols=others)


def _index_label(plan: ZonePlan) -> str:
    """The protocol that the agent speaks, also if it does so at another host than that of its documents."""
    if plan.protocol == _DOCUMENTS and plan.extra_protocols:
        return plan.extra_protocols[0].protocol
    return plan.protocol


def _no_domain(name: str) -> Conflict:
    return Conflict(
        f"{name[:80]!r} has no domain, so there are no records to write.",
        path="id",
        hint="Host it with `waypost host DOMAIN AGENT`; for the service itself set base_url.",
    )


# --- Parameters -----------------------------------------------------------------------------------


def parse_zone_request(request: Request) -> ZoneRequest:
    target, organisation = request.param("target"), request.param("org")
    return ZoneRequest(
        form=_read_form(request.param("format", "bind")),
        target=None if target is None else parse_domain(target, "target"),
        port=read_integer(request, "port", 1, 65535),
        ttl=read_integer(request, "ttl", limits.DNS_TTL_MIN_SECONDS, limits.DNS_TTL_MAX_SECONDS) or 3600,
        organisation=None if organisation is None else parse_domain(organisation, "org"),
        addresses=_repeated(request, "address", _read_address),
        digests=_repeated(request, "spki", _read_digest),
    )


def _read_form(text: str | None) -> str:
    if text not in ZONE_FORMATS:
        raise InvalidParameter(
            f"{str(text)[:32]!r} is not a zone format.",
            path="format",
            hint=f"Use one of {', '.join(ZONE_FORMATS)}.",
        )
    return str(text)


def _repeated(request: Request, name: str, read: Callable[[str], str]) -> tuple[str, ...]:
    given = [value for key, value in request.query if key == name]
    if len(given) > limits.ZONE_VALUES:
        raise InvalidParameter(
            f"{name} is repeated {len(given)} times.", path=name, hint=f"At most {limits.ZONE_VALUES}."
        )
    return tuple(map(read, given))


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InvalidParameter(
            f"{text[:64]!r} is not an address.", path="address", hint="Write it like 192.0.2.1 or 2001:db8::1."
        ) from None


def _read_digest(text: str) -> str:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) != 32:
        raise InvalidParameter(
            "spki must be 64 hex digits.", path="spki", hint="Use the SHA-256 of the certificate's public key."
        )
    return data.hex()
