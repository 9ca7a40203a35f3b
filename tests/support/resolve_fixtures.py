"""Fixtures for conftest: alice.example.com on loopback, with a zone, a web server with its document, and a resolver."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.certificates import Authority
from support.fake_dns import Identity, Site, Zones, loopback_fetcher, site
from waypost.domains.organisation_index import OrganisationReader
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.net.clock import SystemClock
from waypost.protocols.dns_rdata import tlsa_of


class Bench:
    domain = "alice.example.com"
    hosts = (
        domain,
        "host.provider.net",
        "cdn.example.com",
        "agent-index.example.com",
        "bob.example.com",
        "dns-aid.example.com",
        "example.com",
    )

    def __init__(self, zones: Zones, web: Site, authority: Authority, certificate: bytes) -> None:
        self.zones = zones
        self.web = web
        self.authority = authority
        self.certificate = certificate
        self.alice = Identity(self.domain)
        self.fetcher = loopback_fetcher(authority)
        self.resolver = DomainResolver(zones, self.fetcher, SystemClock())
        self.organisations = OrganisationReader(zones, self.fetcher, SystemClock())

    @property
    def tlsa_name(self) -> str:
        return f"_{self.web.port}._tcp.{self.domain}"

    def with_options(self, options: ResolveOptions) -> DomainResolver:
        return DomainResolver(self.zones, self.fetcher, SystemClock(), options)

    def publish(self, *, tlsa: bool = True, txt: bool = True, params: str = "", target: str = ".") -> None:
        """Publish valid records and a valid document."""
        self.set_svcb(params, target=target)
        if txt:
            self.zones.set(f"_agent.{self.domain}", "TXT", self.alice.txt(self.url("/.well-known/agent.json")))
        if tlsa:
            host = self.domain if target == "." else target.rstrip(".")
            self.zones.set(f"_{self.web.port}._tcp.{host}", "TLSA", str(tlsa_of(self.certificate)))
        self.web.put("/.well-known/agent.json", self.alice.document())

    def set_svcb(self, params: str = "", *, target: str = ".", name: str | None = None) -> None:
        text = f'1 {target} alpn="a2a,h2" port={self.web.port} {params}'.strip()
        self.zones.set(name or self.domain, "SVCB", text)

    def url(self, path: str, host: str | None = None) -> str:
        return f"https://{host or self.domain}:{self.web.port}{path}"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certificate_files(authority: Authority) -> tuple[Path, Path]:
    return authority.server_files(*Bench.hosts)


@pytest.fixture(scope="session")
def server_context(certificate_files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate_files)
    return context


@pytest.fixture
async def bench(
    authority: Authority, certificate_files: tuple[Path, Path], server_context: ssl.SSLContext
) -> AsyncIterator[Bench]:
    certificate = ssl.PEM_cert_to_DER_cert(certificate_files[0].read_text())
    async with site(server_context) as web:
        yield Bench(Zones(), web, authority, certificate)
