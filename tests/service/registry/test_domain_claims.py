"""Domain proofs through the service: real DNS and HTTPS on loopback, a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dns.rcode
import httpx2
import pytest

from support.certificates import Authority
from support.external_server import answer, external_server
from support.fake_dns_server import DnsServer, dns_server
from support.ports import free_port
from support.records import CODECS
from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import OverQuota, ProofMissing
from waypost.model.json import dump_json, parse_object
from waypost.model.principal import Principal
from waypost.model.registration import trust_of
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import DomainProofLookup, SafeFetcher
from waypost.registry.domain_claims import DomainClaimOptions, DomainClaims

DAY = 86_400
ALICE = Principal(subject="alice", scopes=frozenset(("discover:read", "discover:write")))


@pytest.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


@pytest.fixture
async def bench(tmp_path: Path, names: DnsServer) -> AsyncIterator[Bench]:
    async with service(tmp_path, resolver=names.address) as made:
        yield made


@pytest.fixture
def domains(bench: Bench, names: DnsServer) -> DomainClaims:
    """The claims of the service, rechecked when the test advances the clock."""
    return make_domains(bench, names.address)


def make_domains(bench: Bench, resolver: str, **how: Any) -> DomainClaims:
    asked = StubResolver(resolver, timeout_seconds=20.0)
    port, ca_file = how.get("port", 443), how.get("ca_file")
    fetcher = SafeFetcher(AddressPolicy(["127.0.0.1/32"]), asked, ca_file=ca_file)
    options = DomainClaimOptions(service="registry.test", recheck_seconds=DAY, discreet_seconds=0.1)
    return DomainClaims(bench.registry, DomainProofLookup(asked, fetcher, port=port), options, chance=lambda: 0.5)


async def claim(client: httpx2.AsyncClient, domain: str, method: str = "dns") -> dict[str, Any]:
    answered = await client.post("/api/v1/domains", json={"domain": domain, "method": method})
    assert answered.status_code == 201, answered.text
    return dict(answered.json())


async def prove(client: httpx2.AsyncClient, names: DnsServer, domain: str) -> None:
    made = await claim(client, domain)
    names.set(made["place"], "TXT", [f'"{made["line"]}"'])
    answered = await client.post(f"/api/v1/domains/{domain}:check")
    assert answered.status_code == 200, answered.text


def adp(domain: str) -> dict[str, Any]:
    text = dump_json(CODECS["adp"].examples()[0]).replace(b"alice.example.com", domain.encode())
    return dict(parse_object(text))


async def served(bench: Bench, host: str) -> str:
    answered = await bench.client(None, Host=host).get("/.well-known/agent.json")
    return str(answered.json()["identity"]["id"])


async def checks(bench: Bench, agent_id: str) -> dict[str, str]:
    registration = await bench.registry.get(Principal(scopes=frozenset(("admin",))), agent_id)
    return {check.check: check.state for check in trust_of(registration).checks or ()}


# --- Claiming and proving -------------------------------------------------------------------------


async def test_a_domain_is_proven_by_a_line_in_its_zone(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    made = await claim(alice, "Example.com.")
    assert (made["domain"], made["state"], made["subdomains"]) == ("example.com", "pending", True)
    assert made["place"] == "_waypost.example.com"
    missing = await alice.post("/api/v1/domains/example.com:check")
    assert missing.status_code == 409
    assert (missing.json()["title"], missing.json()["line"]) == ("Proof missing", made["line"])
    names.set(made["place"], "TXT", ['"v=spf1 -all"', f'"{made["line"][:20]}" "{made["line"][20:]}"'])
    proven = (await alice.post("/api/v1/domains/example.com:check")).json()
    assert proven["state"] == "proven"
    assert names.count("_waypost.example.com", "TXT") == 1 + 2  # two looks before it is granted
    (listed,) = (await alice.get("/api/v1/domains")).json()["domains"]
    assert listed == proven
    assert [held.domain for held in bench.registry.proofs.proven_domains("alice")] == ["example.com"]


async def test_a_domain_is_proven_by_a_file_on_its_web_server(bench: Bench, names: DnsServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    names.set("example.com", "A", ["127.0.0.1"])
    async with external_server(tls=authority.server_context("example.com")) as site:
        domains = make_domains(bench, names.address, port=site.port, ca_file=authority.certificate)
        made = await domains.prove(ALICE, "example.com", "http")
        assert made.place == "https://example.com/.well-known/waypost-proof"
        site.pages["/.well-known/waypost-proof"] = answer(f"# ours\r\n{made.line}\r\n".encode())
        assert (await domains.check(ALICE, "example.com")).state == "proven"
        assert site.connections == 2
        assert not bench.registry.proofs.proven_domains("alice")[0].covers("a.example.com")


@pytest.mark.parametrize(
    "page",
    [
        answer(b"", status="404 Not Found"),
        answer(b"", status="302 Found", location="https://elsewhere.example/"),
        answer(b"x" * (limits.FETCH_SMALL_BYTES + 1)),
        answer(b"v=waypost1; subject=alice; nonce=other"),
    ],
)
async def test_a_file_that_is_not_there_redirects_or_is_too_long_proves_nothing(
    bench: Bench, names: DnsServer, tmp_path: Path, page: bytes
) -> None:
    authority = Authority(tmp_path)
    names.set("example.com", "A", ["127.0.0.1"])
    async with external_server(tls=authority.server_context("example.com")) as site:
        site.pages["/.well-known/waypost-proof"] = page
        domains = make_domains(bench, names.address, port=site.port, ca_file=authority.certificate)
        await domains.prove(ALICE, "example.com", "http")
        with pytest.raises(ProofMissing):
            await domains.check(ALICE, "example.com")


async def test_a_line_of_another_subject_or_of_an_older_claim_proves_nothing(bench: Bench, names: DnsServer) -> None:
    alice, bob = bench.as_("alice"), bench.as_("bob")
    first = await claim(alice, "example.com")
    names.set(first["place"], "TXT", [f'"{first["line"]}"'])
    await claim(bob, "example.com")
    assert (await bob.post("/api/v1/domains/example.com:check")).status_code == 409
    assert (await bench.as_("carol").post("/api/v1/domains/example.com:check")).status_code == 404
    assert (await alice.delete("/api/v1/domains/example.com")).status_code == 204
    second = await claim(alice, "example.com")
    assert second["line"] != first["line"]
    assert (await alice.post("/api/v1/domains/example.com:check")).status_code == 409


async def test_a_claim_again_gives_the_same_line_until_it_expires(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    first = await claim(alice, "example.com")
    assert await claim(alice, "example.com") == first
    names.set(first["place"], "TXT", [f'"{first["line"]}"'])
    bench.clock.advance(limits.PROOF_TTL_SECONDS)
    alice = bench.as_("alice")
    assert (await alice.post("/api/v1/domains/example.com:check")).status_code == 404
    assert (await claim(alice, "example.com"))["line"] != first["line"]


async def test_two_resolvers_must_agree(bench: Bench, names: DnsServer) -> None:
    async with dns_server() as second:
        domains = make_domains(bench, f"{names.address},{second.address}")
        made = await domains.prove(ALICE, "example.com", "dns")
        names.set(made.place, "TXT", [f'"{made.line}"'])
        with pytest.raises(ProofMissing):
            await domains.check(ALICE, "example.com")
        second.set(made.place, "TXT", [f'"{made.line}"'])
        assert (await domains.check(ALICE, "example.com")).state == "proven"
        assert second.count(made.place, "TXT") == 2


async def test_several_subjects_may_prove_one_domain(bench: Bench, names: DnsServer) -> None:
    alice, bob = bench.as_("alice"), bench.as_("bob")
    lines = [(await claim(client, "example.com"))["line"] for client in (alice, bob)]
    names.set("_waypost.example.com", "TXT", [f'"{line}"' for line in lines])
    for client in (alice, bob):
        assert (await client.post("/api/v1/domains/example.com:check")).status_code == 200
        assert len((await client.get("/api/v1/domains")).json()["domains"]) == 1
    assert len((await bench.admin().get("/api/v1/domains")).json()["domains"]) == 2


async def test_only_the_claimer_or_an_admin_gives_a_claim_up(bench: Bench, names: DnsServer) -> None:
    await prove(bench.as_("alice"), names, "example.com")
    assert (await bench.as_("bob").delete("/api/v1/domains/example.com")).status_code == 404
    assert (await bench.as_("bob").delete("/api/v1/domains/example.com?subject=alice")).status_code == 404
    assert (await bench.admin().delete("/api/v1/domains/example.com?subject=alice")).status_code == 204
    assert bench.registry.proofs.proven_domains("alice") == ()


@pytest.mark.parametrize("domain", ["com", "co.uk", "127.0.0.1", "localhost", "a b", 7])
async def test_names_that_cannot_be_registered_are_refused(bench: Bench, domain: object) -> None:
    """D15."""
    answered = await bench.as_("alice").post("/api/v1/domains", json={"domain": domain})
    assert (answered.status_code, answered.json()["path"]) == (400, "$.domain")


async def test_writers_only(bench: Bench) -> None:
    body = {"domain": "example.com"}
    assert (await bench.anonymous().post("/api/v1/domains", json=body)).status_code == 401
    assert (await bench.as_("alice", "discover:read").post("/api/v1/domains", json=body)).status_code == 403


async def test_the_number_of_domain_claims_per_subject_is_limited(bench: Bench, domains: DomainClaims) -> None:
    for number in range(limits.PROOF_DOMAINS):
        await domains.prove(ALICE, f"d{number}.example.com", "dns")
    await domains.prove(ALICE, "d0.example.com", "dns")
    with pytest.raises(OverQuota):
        await domains.prove(ALICE, "more.example.com", "dns")


async def test_each_step_is_in_the_audit_trail(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    await prove(alice, names, "example.com")
    await alice.delete("/api/v1/domains/example.com")
    entries = (await bench.admin().get("/api/v1/audit?object=example.com")).json()["entries"]
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("claim", "alice"),
        ("prove", "alice"),
        ("unclaim", "alice"),
    ]


# --- What it changes ------------------------------------------------------------------------------


async def test_a_proven_domain_is_reported_and_hosted_until_the_proof_ends(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    assert (await alice.post("/api/v1/agents", json=adp("bot.example.com"))).status_code == 201
    assert await served(bench, "bot.example.com") != "agent:bot.example.com"
    await prove(alice, names, "example.com")
    assert await served(bench, "bot.example.com") == "agent:bot.example.com"
    assert (await checks(bench, "agent:bot.example.com"))["domain"] == "passed"
    later = await alice.post("/api/v1/agents", json=adp("new.example.com"))
    assert later.json()["trust"]["level"] == "verified"
    assert await served(bench, "new.example.com") == "agent:new.example.com"
    await alice.delete("/api/v1/domains/example.com")
    for host in ("bot.example.com", "new.example.com"):
        assert await served(bench, host) != f"agent:{host}"
        assert "domain" not in await checks(bench, f"agent:{host}")


async def test_a_domain_proof_does_not_apply_to_other_owners_or_domains(bench: Bench, names: DnsServer) -> None:
    alice, bob = bench.as_("alice"), bench.as_("bob")
    await prove(alice, names, "example.com")
    await bob.post("/api/v1/agents", json=adp("bob.example.com"))
    await alice.post("/api/v1/agents", json=adp("victim.example"))
    elsewhere = profile(
        "https://victim.example/id", bindings=[{"protocol": "https", "endpoint": "https://example.com/"}]
    )
    await alice.post("/api/v1/agents", json=elsewhere)
    for agent_id in ("agent:bob.example.com", "agent:victim.example", "https://victim.example/id"):
        assert "domain" not in await checks(bench, agent_id)
    assert await served(bench, "bob.example.com") != "agent:bob.example.com"


async def test_an_id_without_a_domain_is_judged_by_all_its_endpoints(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    await prove(alice, names, "example.com")

    def agent(name: str, *hosts: str) -> dict[str, Any]:
        bindings = [{"protocol": "https", "endpoint": f"https://{host}/"} for host in hosts]
        return profile(name, bindings=bindings)

    await alice.post("/api/v1/agents", json=agent("both-ours", "a.example.com", "example.com"))
    await alice.post("/api/v1/agents", json=agent("one-ours", "a.example.com", "victim.example"))
    assert (await checks(bench, "both-ours"))["domain"] == "passed"
    assert "domain" not in await checks(bench, "one-ours")


async def test_an_agent_hosted_by_an_admin_stays_when_a_domain_proof_ends(bench: Bench, names: DnsServer) -> None:
    alice, admin = bench.as_("alice"), bench.admin()
    await alice.post("/api/v1/agents", json=profile("plain"))
    await admin.post("/api/v1/agents/plain:host", json={"domain": "given.example.com"})
    await prove(alice, names, "example.com")
    await alice.delete("/api/v1/domains/example.com")
    assert bench.registry.hosted("given.example.com") is not None


async def test_an_update_by_an_admin_keeps_the_owners_proof(bench: Bench, names: DnsServer) -> None:
    alice = bench.as_("alice")
    await prove(alice, names, "example.com")
    document = adp("bot.example.com")
    await alice.post("/api/v1/agents", json=document)
    document["identity"]["name"] = "Renamed"
    answered = await bench.admin().post("/api/v1/agents", json=document)
    assert answered.status_code == 200, answered.text
    assert (await checks(bench, "agent:bot.example.com"))["domain"] == "passed"


# --- Time -----------------------------------------------------------------------------------------


async def test_a_proof_is_looked_at_again_and_ends_after_three_failures(
    bench: Bench, names: DnsServer, domains: DomainClaims
) -> None:
    await prove(bench.as_("alice"), names, "example.com")
    await bench.as_("alice").post("/api/v1/agents", json=adp("example.com"))
    asked = names.count("_waypost.example.com", "TXT")
    await domains.recheck()
    assert names.count("_waypost.example.com", "TXT") == asked  # not due
    bench.clock.advance(1.1 * DAY)
    await domains.recheck()
    assert names.count("_waypost.example.com", "TXT") == asked + 1
    names.remove("_waypost.example.com", "TXT")
    bench.clock.advance(1.1 * DAY)
    for failures in (1, 2, 3):
        assert await served(bench, "example.com") == "agent:example.com"
        await domains.recheck()
        (held,) = await domains.list(ALICE)
        assert held.failures == failures
        bench.clock.advance(1.2 * DAY / limits.PROOF_RETRY_DIVISOR)
    assert held.state == "lapsed"
    assert await served(bench, "example.com") != "agent:example.com"
    assert "domain" not in await checks(bench, "agent:example.com")


async def test_a_line_that_comes_back_in_time_ends_the_count(
    bench: Bench, names: DnsServer, domains: DomainClaims
) -> None:
    await prove(bench.as_("alice"), names, "example.com")
    (held,) = await domains.list(ALICE)
    names.remove("_waypost.example.com", "TXT")
    bench.clock.advance(1.1 * DAY)
    await domains.recheck()
    names.set("_waypost.example.com", "TXT", [f'"{held.line}"'])
    bench.clock.advance(DAY)
    await domains.recheck()
    (held,) = await domains.list(ALICE)
    assert (held.state, held.failures) == ("proven", 0)


async def test_a_lapsed_proof_is_not_raised_by_its_old_line(
    bench: Bench, names: DnsServer, domains: DomainClaims
) -> None:
    alice = bench.as_("alice")
    await prove(alice, names, "example.com")
    (held,) = await domains.list(ALICE)
    names.remove(held.place, "TXT")
    for _ in range(limits.PROOF_FAILURES):
        bench.clock.advance(1.1 * DAY)
        await domains.recheck()
    names.set(held.place, "TXT", [f'"{held.line}"'])
    alice = bench.as_("alice")
    assert (await alice.post("/api/v1/domains/example.com:check")).status_code == 404
    assert (await claim(alice, "example.com"))["line"] != held.line


async def test_our_own_resolver_failing_ends_no_proof_until_it_lasts(
    bench: Bench, names: DnsServer, domains: DomainClaims
) -> None:
    await prove(bench.as_("alice"), names, "example.com")
    names.rcode = dns.rcode.SERVFAIL
    for _ in range(5):
        bench.clock.advance(1.1 * DAY)
        await domains.recheck()
    (held,) = await domains.list(ALICE)
    assert (held.state, held.failures) == ("proven", 0)
    for _ in range(5):
        bench.clock.advance(1.1 * DAY)
        await domains.recheck()
    (held,) = await domains.list(ALICE)
    assert held.state == "lapsed"


async def test_a_proof_outlives_a_restart(tmp_path: Path, names: DnsServer) -> None:
    async with service(tmp_path, resolver=names.address, store="sqlite") as bench:
        await prove(bench.as_("alice"), names, "example.com")
    async with service(tmp_path, resolver=names.address, store="sqlite") as bench:
        assert [held.domain for held in bench.registry.proofs.proven_domains("alice")] == ["example.com"]
        await bench.as_("alice").post("/api/v1/agents", json=adp("example.com"))
        assert await served(bench, "example.com") == "agent:example.com"


async def test_only_admin_learns_why_a_file_cannot_be_read(bench: Bench, names: DnsServer) -> None:
    """S1: denied, closed and missing look alike."""
    domains = make_domains(bench, names.address, port=free_port())
    names.set("denied.example.com", "A", ["10.0.0.1"])
    names.set("closed.example.com", "A", ["127.0.0.1"])
    told = set()
    for name in ("denied", "closed", "missing"):
        await domains.prove(ALICE, f"{name}.example.com", "http")
        with pytest.raises(ProofMissing) as refusal:
            await domains.check(ALICE, f"{name}.example.com")
        told.add(refusal.value.message.replace(name, ""))
    assert len(told) == 1
