"""All trust levels on real servers: knot signs and serves the zones, a TLS web server has the documents, and the command, the
service and the SDK resolve, verify and register.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from support.certificates import Authority
from support.fake_dns import Identity, Site, site_in_thread, states
from support.real_dns_servers import NameServer, knot
from support.server import running_server
from support.shell import Ran, Shell
from waypost.app import Application, build
from waypost.client.aio.client import Client
from waypost.model.resolution import Resolution
from waypost.net.dns.upstreams import UpstreamResolvers
from waypost.net.dns.validator import ValidatingResolver
from waypost.net.dns.zone_client import find_servers, find_zone
from waypost.protocols.dns_rdata import tlsa_of
from waypost.settings import Settings
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors

NAMES = ("alice", "bob", "carol", "dave", "host")
ZONES = ("agents.test", "plain.test")
HOSTS = [f"{name}.{zone}" for zone in ZONES for name in NAMES]


@dataclass
class World:
    """Agents under two domains, one signed and one not."""

    web: Site
    server: NameServer
    authority: Authority
    anchors: Path
    folder: Path

    @property
    def flags(self) -> list[str]:
        return [
            "--resolver",
            self.server.address,
            "--trust-anchors",
            str(self.anchors),
            "--allow-cidr",
            "127.0.0.0/8",
            "--ca",
            str(self.authority.certificate),
        ]

    async def waypost(self, *arguments: str) -> Ran:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_COLOR": "1"}
        return await asyncio.to_thread(Shell(self.folder, environment), *arguments)

    def settings(self, data: Path) -> Settings:
        return Settings(
            data=data,
            store="memory",
            embedder="none",
            resolver=self.server.address,
            trust_anchors=self.anchors,
            allow_cidrs=("127.0.0.0/8",),
            fetch_ca=self.authority.certificate,
        )


def zone_text(zone: str, port: int, certificate: bytes, wrong: bytes) -> str:
    """alice is well; bob's document has another key; carol's certificate another TLSA; dave is hosted."""
    lines = [f"$ORIGIN {zone}.", "$TTL 300", "@ SOA ns hostmaster 1 3600 600 86400 60", "@ NS ns", "ns A 127.0.0.1"]
    for name in NAMES:
        domain = f"{name}.{zone}"
        target = f"host.{zone}." if name == "dave" else "."
        tlsa = tlsa_of(wrong if name == "carol" else certificate)
        lines += [f"{name} A 127.0.0.1", f"_{port}._tcp.{name} TLSA {tlsa}"]
        if name != "host":
            url = f"https://{domain}:{port}/{name}.json"
            lines += [
                f'{name} SVCB 1 {target} alpn="a2a,h2" port={port} key65402="a2a" key65409="/{name}.json"',
                f"_agent.{name} TXT {Identity(domain).txt(url)}",
            ]
    lines += ["_agents SVCB 0 alice", "_agents SVCB 0 dave"]
    if zone == "plain.test":  # and a catalog
        lines.append(f"_catalog._agents SVCB 1 host alpn=h2 port={port}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def files(authority: Authority) -> tuple[Path, Path]:
    return authority.server_files(*HOSTS)


@pytest.fixture(scope="module")
def web(files: tuple[Path, Path]) -> Iterator[Site]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    with site_in_thread(context) as running:
        yield running


@pytest.fixture(scope="module")
def server(folder: Path, web: Site, authority: Authority, files: tuple[Path, Path]) -> Iterator[NameServer]:
    certificate = ssl.PEM_cert_to_DER_cert(files[0].read_text())
    wrong = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    place = folder / "knot"
    place.mkdir()
    zones = {zone: zone_text(zone, web.port, certificate, wrong) for zone in ZONES}
    with knot(place, zones, policy={"algorithm": "ed25519"}) as running:
        yield running


@pytest.fixture
def world(folder: Path, web: Site, authority: Authority, server: NameServer) -> World:
    anchors = folder / "anchors"
    keys = next(answer for answer in server.ask("agents.test", "DNSKEY").answer if answer.rdtype == 48)
    anchors.write_text("".join(f"agents.test. IN DNSKEY {key}\n" for key in keys if key.flags & 1))  # type: ignore[attr-defined]
    for name in NAMES:
        seed = bytes(32) if name == "bob" else bytes(range(32))
        web.put(f"/{name}.json", Identity(f"{name}.agents.test", seed).document())
    return World(web, server, authority, anchors, folder)


@asynccontextmanager
async def running(world: World, data: Path) -> AsyncIterator[tuple[Application, str]]:
    """The service, and its admin's token."""
    application = build(world.settings(data))
    await application.start()
    try:
        yield application, (data / "admin.token").read_text().strip()
    finally:
        await application.stop()


async def test_the_command_reaches_every_trust_level_without_a_service(world: World) -> None:
    ran = await world.waypost("resolve", "alice.agents.test", *world.flags, "-o", "json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert (found["level"], found["dnssec"], found["how"]) == ("key-verified", "secure", "svcb")
    assert [verdict["state"] for verdict in found["verdicts"]] == ["passed", "passed", "passed", "not_checked"]
    assert found["cost"]["round_trips"] <= 4
    shown = await world.waypost("resolve", "agent:alice.agents.test", *world.flags)
    assert "✓ dane-verified" in shown.out
    assert "✓ key-verified" in shown.out
    assert "key-verified" in shown.out.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "rung", "code"), [("bob", "key-verified", "key_mismatch"), ("carol", "dane-verified", "dane_mismatch")]
)
async def test_verify_fails_and_names_the_failed_check(world: World, name: str, rung: str, code: str) -> None:
    ran = await world.waypost("verify", f"{name}.agents.test", *world.flags, "-o", "json")
    assert ran.code == 1
    assert (ran.json["outcome"], ran.json["code"], ran.json["level"]) == ("failed", code, "unverified")
    assert f"{rung} failed" in ran.err


async def test_the_service_and_the_sdk_agree(world: World, tmp_path: Path) -> None:
    async with running(world, tmp_path) as (application, token):
        transport = httpx2.ASGITransport(application.http_app)
        async with Client("http://waypost.test", token, transport=transport) as client:
            alice = await client.resolve("alice.agents.test")
            assert isinstance(alice, Resolution)
            assert (alice.level, alice.dnssec) == ("key-verified", "secure")
            assert states((await client.resolve("dave.agents.test")).verdicts)["dane-verified"] == "passed"
            assert (await client.resolve("carol.agents.test")).code == "dane_mismatch"
            missing = await client.resolve("nobody.agents.test", "dns")
            assert (missing.outcome, missing.dnssec) == ("not_found", "secure")
            assert (await client.resolve("alice.agents.test")).remembered


async def test_an_organisation_is_listed_by_the_command_and_by_the_sdk(world: World, tmp_path: Path) -> None:
    ran = await world.waypost("resolve", "agents.test", "--agents", *world.flags, "-o", "json")
    assert ran.code == 0, ran.err
    assert [entry["domain"] for entry in ran.json["entries"]] == ["alice.agents.test", "dave.agents.test"]
    assert ran.json["dnssec"] == "secure"
    async with running(world, tmp_path) as (application, token):
        transport = httpx2.ASGITransport(application.http_app)
        async with Client("http://waypost.test", token, transport=transport) as client:
            index = await client.organisation("agents.test")
            assert [entry.via for entry in index.entries] == ["aliases", "aliases"]
            assert (await client.organisation("alice.agents.test")).outcome == "not_found"


async def test_an_unsigned_domain_reaches_its_key_but_not_dane(world: World, tmp_path: Path) -> None:
    world.web.put("/alice.json", Identity("alice.plain.test").document())
    async with running(world, tmp_path) as (application, token):
        transport = httpx2.ASGITransport(application.http_app)
        async with Client("http://waypost.test", token, transport=transport) as client:
            found = await client.resolve("alice.plain.test")
    assert found.level == "key-verified"
    assert found.dnssec != "secure"
    assert states(found.verdicts)["dane-verified"] == "unknown"


async def test_a_domain_is_registered_with_its_verdicts_and_an_organisation_with_all_it_lists(
    world: World, tmp_path: Path
) -> None:
    async with running(world, tmp_path) as (application, token):
        transport = httpx2.ASGITransport(application.http_app)
        async with Client("http://waypost.test", token, transport=transport) as client:
            shown = await client.fetch("alice.agents.test")
            assert [agent.id for agent in shown.agents] == ["agent:alice.agents.test"]  # type: ignore[union-attr]
            found = await client.fetch("agents.test", save=True, organisation=True)
            assert {agent.id for agent in found.agents} == {  # type: ignore[union-attr]
                "agent:alice.agents.test",
                "agent:dave.agents.test",
            }
            verified = await client.verify("agent:alice.agents.test")
            assert verified.level == "verified"
            assert {"dns-verified", "dane-verified", "key-verified"} <= {check.check for check in verified.checks}


def list_alice(world: World) -> None:
    """In a catalog of her organisation, beside an agent that has no domain of its own there."""
    entries = [
        {
            "identifier": f"urn:air:plain.test:agents:{name}",
            "displayName": name.capitalize(),
            "type": "application/json",
            "url": url,
        }
        for name, url in (
            ("alice", f"https://alice.plain.test:{world.web.port}/alice.json"),
            ("erin", "https://elsewhere.example.net/erin.json"),
        )
    ]
    world.web.put("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": entries})
    for name in ("alice", "dave"):
        world.web.put(f"/{name}.json", Identity(f"{name}.plain.test").document())


async def test_an_agent_that_is_listed_and_has_a_domain_is_one_record_however_it_is_imported(world: World) -> None:
    list_alice(world)
    alice, urn = "agent:alice.plain.test", "urn:air:plain.test:agents:alice"
    flags = ["--store", "memory", "--embedder", "none", *world.flags[:4], "--allow-cidrs", "127.0.0.0/8"]
    flags += ["--fetch-ca", str(world.authority.certificate)]
    with running_server(*flags) as server:
        token = (server.data / "admin.token").read_text().strip()
        reach = ["--server", server.url, "--token", token, "-o", "json"]
        ran = await world.waypost("import", "plain.test", *reach)
        assert ran.code == 0, ran.err
        assert sorted((each["id"], each["outcome"]) for each in ran.json) == [
            (alice, "created"),
            (alice, "updated"),
            ("agent:dave.plain.test", "created"),
            ("urn:air:plain.test:agents:erin", "created"),
        ]
        body = {"url": "plain.test", "organisation": True, "save": True}
        async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as http:
            again = (await http.post("/api/v1/agents:fetch", json=body, timeout=60)).json()
            listed = (await http.get("/profile/v1/agents")).json()["agents"]
            entry = (await http.get(f"/api/v1/agents/{alice}", params={"as": "ard"})).json()
        assert {each["outcome"] for each in again["agents"]} == {"unchanged"}
        assert sorted(each["id"] for each in listed) == [
            alice,
            "agent:dave.plain.test",
            "urn:air:plain.test:agents:erin",
        ]
        assert entry["identifier"] == urn
        async with Client(server.url, token) as client:
            found = await client.fetch("alice.plain.test", save=True)
            assert [(each.id, each.receipt.outcome) for each in found.agents] == [(alice, "unchanged")]  # type: ignore[union-attr]
            assert (await client.get(urn)).id == alice
        shown = await world.waypost("get", urn, *reach)
        assert shown.json["id"] == alice


async def test_the_nameservers_of_a_name_are_found_from_a_server_that_answers_for_it(world: World) -> None:
    anchors = TrustAnchors(parse_anchors(world.anchors.read_text()), root=False)
    dns = ValidatingResolver(
        UpstreamResolvers(world.server.address, try_seconds=20), anchors, clock=time.time, seconds=90
    )
    try:
        assert await find_zone(dns, "alice.agents.test") == ("agents.test", "ns.agents.test")
        assert await find_zone(dns, "not.even.there.plain.test") == ("plain.test", "ns.plain.test")
        assert [str(server) for server in await find_servers(dns, "agents.test")] == ["127.0.0.1:53"]
    finally:
        await dns.aclose()
