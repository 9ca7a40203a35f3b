"""Signatures of a zone: the `sig` of a record, and of entries in an index that another organisation keeps (AID-25)."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from support.resolving import Bench
from waypost.domains.organisation import OrganisationReader
from waypost.domains.ports import Check
from waypost.domains.resolving import DomainResolver
from waypost.domains.zone_keys import places_of, zones_of
from waypost.model.resolution import SIGNATURE, Resolution
from waypost.net.clock import SystemClock
from waypost.registry.fetching import Fetched, Purpose

ORG = "example.com"
JWKS = "/.well-known/dns-aid-jwks.json"
CATALOGUE = "/.well-known/ai-catalog.json"
KEY, OTHER = (ec.derive_private_key(number, ec.SECP256R1()) for number in (7, 8))
Key = ec.EllipticCurvePrivateKey


def plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(key: Key, kid: str | None = "one") -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    named = {} if kid is None else {"kid": kid}
    point = {name: plain(value.to_bytes(32, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))}
    return {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", **point, **named}


def sign(payload: bytes, key: Key = KEY, *, kid: str | None = "one", alg: str = "ES256", detached: bool = False) -> str:
    header = {"alg": alg, "typ": "JWT"} | ({} if kid is None else {"kid": kid})
    signed = f"{plain(json.dumps(header).encode())}.{plain(payload)}"
    pair = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    signature = plain(b"".join(number.to_bytes(32, "big") for number in pair))
    return f"{signed.split('.')[0]}..{signature}" if detached else f"{signed}.{signature}"


def claims(bench: Bench, **changed: Any) -> bytes:
    now = int(time.time())
    told = {"fqdn": bench.domain, "target": bench.domain, "port": bench.web.port, "alpn": "a2a"}
    return json.dumps({**told, "iat": now - 10, "exp": now + 86_400, **changed}, sort_keys=True).encode()


class UsualPort:
    """The bench's fetcher, with what is asked for at the usual port asked for at the bench's."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.asked: list[str] = []

    async def fetch(self, url: str, purpose: Purpose, *, check: Check | None = None) -> Fetched:
        self.asked.append(url)
        scheme, _, host, *path = url.split("/")
        place = host if ":" in host else f"{host}:{self._bench.web.port}"
        return await self._bench.fetcher.fetch("/".join((scheme, "", place, *path)), purpose, check=check)

    async def send(self, url: str, purpose: Purpose, **how: Any) -> Fetched:
        return await self._bench.fetcher.send(url, purpose, **how)


async def resolve(bench: Bench, **how: Any) -> Resolution:
    return await DomainResolver(bench.zones, UsualPort(bench), SystemClock()).resolve(bench.domain, **how)


def publish(bench: Bench, sig: str, params: str = "", *keys: dict[str, Any]) -> None:
    bench.publish(params=f'{params} key65405="{sig}"')
    bench.web.put(JWKS, {"keys": list(keys) or [jwk(KEY)]})


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kid", ["one", None])
async def test_a_record_that_its_zone_signed_is_told_with_what_the_signature_covers(
    bench: Bench, kid: str | None
) -> None:
    publish(bench, sign(claims(bench), kid=kid), "", jwk(OTHER, "zero"), jwk(KEY))
    found = await resolve(bench)
    assert (found.outcome, found.level) == ("resolved", "key-verified")
    verdict = found.rung(SIGNATURE)
    assert verdict is not None
    assert (verdict.state, verdict.evidence["covers"]) == ("passed", "endpoint")


@pytest.mark.parametrize("named", ["{}", "key65400"])
async def test_a_digest_covers_the_other_parameters_too(bench: Bench, named: str) -> None:
    cap = bench.url("/cap.json")
    bench.web.put("/cap.json", {"any": "thing"})
    params = {"cap" if named == "{}" else named: cap}
    digest = plain(hashlib.sha256(b"svcb1:" + json.dumps(params, separators=(",", ":")).encode()).digest())
    publish(bench, sign(claims(bench, svcb=digest)), f'key65400="{cap}"')
    verdict = (await resolve(bench)).rung(SIGNATURE)
    assert verdict is not None
    assert (verdict.state, verdict.evidence["covers"]) == ("passed", "record")
    publish(bench, sign(claims(bench, svcb=digest)), f'key65400="{cap}?other"')
    found = await resolve(bench)
    assert (found.outcome, found.code) == ("failed", "unbound")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"fqdn": "bob.example.com"}, "unbound"),
        ({"target": "host.provider.net"}, "unbound"),
        ({"port": 1}, "unbound"),
        ({"alpn": "mcp"}, "unbound"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"iat": 4_000_000_000, "exp": 4_000_000_001}, "bad_signature"),
        ({"exp": "tomorrow"}, "bad_signature"),
    ],
)
async def test_a_signature_of_something_else_or_of_another_time_refuses_the_record(
    bench: Bench, changed: dict[str, Any], code: str
) -> None:
    publish(bench, sign(claims(bench, **changed)))
    found = await resolve(bench)
    assert (found.outcome, found.code, found.level) == ("failed", code, "unverified")
    assert all(JWKS in url for url in bench.web.requests)  # nothing was asked of where the record points


@pytest.mark.parametrize("sig", ["nonsense", "a.b.c", "other", "none"])
async def test_a_signature_that_does_not_hold_refuses_the_record(bench: Bench, sig: str) -> None:
    made = {"other": sign(claims(bench), OTHER), "none": sign(claims(bench), alg="none")}
    publish(bench, made.get(sig, sig))
    found = await resolve(bench)
    assert (found.outcome, found.code) == ("failed", "bad_signature")
    verdict = found.rung(SIGNATURE)
    assert verdict is not None
    assert verdict.state == "failed"


@pytest.mark.parametrize("keys", ["missing", "another name", "no key set", "too large"])
async def test_keys_that_cannot_be_had_are_no_sign_of_anything(bench: Bench, keys: str) -> None:
    publish(bench, sign(claims(bench)), "", jwk(OTHER, "two"))
    if keys == "missing":
        bench.web.put(JWKS, b"", status=404)
    elif keys == "no key set":
        bench.web.put(JWKS, b"<html>")
    elif keys == "too large":
        bench.web.put(JWKS, b'{"keys":[' + b" " * 70_000 + b"]}")
    found = await resolve(bench)
    verdict = found.rung(SIGNATURE)
    assert verdict is not None
    assert (found.outcome, verdict.state, verdict.evidence["code"]) == ("resolved", "unknown", "no_key")


async def test_the_cheapest_layer_judges_no_signature(bench: Bench) -> None:
    publish(bench, "nonsense")
    found = await resolve(bench, depth="dns")
    assert (found.outcome, found.rung(SIGNATURE), bench.web.connections) == ("resolved", None, 0)


def test_keys_are_looked_for_in_the_zone_alone() -> None:
    assert zones_of("a.b.example.com") == ["b.example.com", "example.com"]
    assert zones_of("example.com") == ["example.com"]
    assert zones_of("alice.github.io") == ["alice.github.io"]
    assert places_of(ORG) == [f"https://dns-aid.example.com{JWKS}", f"https://example.com{JWKS}"]


# --- An index that another organisation keeps -----------------------------------------------------


def entry(name: str, url: str, **members: Any) -> dict[str, Any]:
    identifier = f"urn:air:{ORG}:agents:{name}"
    return {"identifier": identifier, "displayName": name, "type": "application/json", "url": url, **members}


def manifest(name: str, key: Key = KEY, **members: Any) -> dict[str, Any]:
    told = {"identity": f"urn:air:{ORG}:agents:{name}", "identityType": "other", **members}
    payload = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    return {**told, "signature": sign(payload, key, detached=True)}


def point(bench: Bench, *entries: dict[str, Any], keys: bool = True) -> None:
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        f'1 host.provider.net. alpn=h2 port={bench.web.port} key65409="ai-catalog.json"',
    )
    bench.web.put(CATALOGUE, {"specVersion": "1.0", "entries": list(entries)})
    if keys:
        bench.web.put(JWKS, {"keys": [jwk(KEY)]})


def reader(bench: Bench, *, willing: bool = False) -> OrganisationReader:
    return OrganisationReader(bench.zones, UsualPort(bench), SystemClock(), follow_signed=willing)


@pytest.mark.req("AID-25")
async def test_of_a_foreign_index_only_entries_that_the_organisation_signed_count(bench: Bench) -> None:
    bench.zones.security = "insecure"
    home, elsewhere = bench.url("/a.json"), bench.url("/a.json", "host.provider.net")
    point(
        bench,
        entry("signed", home, sig=sign(claims(bench))),
        entry("manifest", home, trustManifest=manifest("manifest")),
        entry("unsigned", home),
        entry("another", home, sig=sign(claims(bench, fqdn="bob.example.com", target="bob.example.com"))),
        entry("forged", home, sig=sign(claims(bench), OTHER)),
        entry("expired", home, sig=sign(claims(bench, exp=1))),
        entry("moved", elsewhere, trustManifest=manifest("moved")),
        entry("renamed", home, trustManifest=manifest("signed")),
    )
    index = await reader(bench).read(ORG)
    assert [each.name for each in index.told.entries] == ["signed", "manifest"]
    assert [each.signature.state for each in index.told.entries if each.signature is not None] == ["passed", "passed"]
    assert len(index.documents) == 2
    refused = {step.evidence["agent"]: (step.state, step.code) for step in index.told.steps if step.name == "entry"}
    assert refused == {
        "unsigned": ("not_checked", "unsigned"),
        "another": ("failed", "unbound"),
        "forged": ("failed", "bad_signature"),
        "expired": ("failed", "expired"),
        "moved": ("failed", "unbound"),
        "renamed": ("failed", "unbound"),
    }
    assert sum("AID-25" in warning for warning in index.told.warnings) == len(refused)


@pytest.mark.req("AID-25")
async def test_a_map_of_names_is_judged_in_the_same_way(bench: Bench) -> None:
    point(bench)
    agents = {
        "alice": {"location": {"fqdn": bench.domain}, "sig": sign(claims(bench))},
        "bob": {"location": {"fqdn": "bob.example.com"}, "sig": sign(claims(bench))},
        "carol": {"location": {"fqdn": "carol.example.com"}},
    }
    bench.web.put(CATALOGUE, agents)
    index = await reader(bench).read(ORG)
    assert [each.domain for each in index.told.entries] == [bench.domain]


@pytest.mark.req("AID-25")
async def test_without_keys_of_the_organisation_nobody_else_is_asked(bench: Bench) -> None:
    point(bench, entry("signed", bench.url("/a.json"), sig=sign(claims(bench))), keys=False)
    index = await reader(bench).read(ORG)
    assert (index.told.outcome, index.documents) == ("not_found", ())
    assert not any(CATALOGUE in url for url in bench.web.requests)


@pytest.mark.req("AID-25")
async def test_where_the_pointer_is_signed_and_wanted_what_is_not_signed_counts_and_what_is_forged_does_not(
    bench: Bench,
) -> None:
    point(
        bench,
        entry("unsigned", bench.url("/a.json")),
        entry("forged", bench.url("/a.json"), sig=sign(claims(bench), OTHER)),
    )
    index = await reader(bench, willing=True).read(ORG)
    assert [(each.name, each.signature.state) for each in index.told.entries if each.signature] == [
        ("unsigned", "not_checked")
    ]


@pytest.mark.req("AID-25")
async def test_a_capability_address_does_not_lead_out_of_the_organisation_either(bench: Bench) -> None:
    url = bench.url(CATALOGUE, "host.provider.net")
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        f'1 agent-index.example.com. alpn=h2 port={bench.web.port} key65400="{url}"',
    )
    bench.web.put(CATALOGUE, {"specVersion": "1.0", "entries": [entry("a", bench.url("/a.json"))]})
    assert (await reader(bench).read(ORG)).told.outcome == "not_found"
