"""The `sig` of a record (dns-aid.md §7): verified by the keys of its zone, reported with what it covers."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from support.dns_aid_signing import JWKS, KEY, ORG, OTHER, UsualPort, claims, jwk, plain, sign
from support.resolve_fixtures import Bench
from waypost.domains.record_checks import candidate_zones, jwks_urls
from waypost.domains.resolver import DomainResolver
from waypost.model.resolution import SIGNATURE, Resolution
from waypost.net.clock import SystemClock


async def resolve(bench: Bench, **how: Any) -> Resolution:
    return await DomainResolver(bench.zones, UsualPort(bench), SystemClock()).resolve(bench.domain, **how)


def publish(bench: Bench, sig: str, params: str = "", *keys: dict[str, Any]) -> None:
    bench.publish(params=f'{params} key65405="{sig}"')
    bench.web.put(JWKS, {"keys": list(keys) or [jwk(KEY)]})


@pytest.mark.parametrize("kid", ["one", None])
async def test_a_signed_record_is_reported_with_what_the_signature_covers(bench: Bench, kid: str | None) -> None:
    publish(bench, sign(claims(bench), kid=kid), "", jwk(OTHER, "zero"), jwk(KEY))
    found = await resolve(bench)
    assert (found.outcome, found.level) == ("resolved", "key-verified")
    verdict = found.find_verdict(SIGNATURE)
    assert verdict is not None
    assert (verdict.state, verdict.evidence["covers"]) == ("passed", "endpoint")


@pytest.mark.parametrize("named", ["{}", "key65400"])
async def test_a_digest_covers_the_other_parameters_too(bench: Bench, named: str) -> None:
    cap = bench.url("/cap.json")
    bench.web.put("/cap.json", {"any": "thing"})
    params = {"cap" if named == "{}" else named: cap}
    digest = plain(hashlib.sha256(b"svcb1:" + json.dumps(params, separators=(",", ":")).encode()).digest())
    publish(bench, sign(claims(bench, svcb=digest)), f'key65400="{cap}"')
    verdict = (await resolve(bench)).find_verdict(SIGNATURE)
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
async def test_a_record_with_an_invalid_signature_is_refused(bench: Bench, sig: str) -> None:
    made = {"other": sign(claims(bench), OTHER), "none": sign(claims(bench), alg="none")}
    publish(bench, made.get(sig, sig))
    found = await resolve(bench)
    assert (found.outcome, found.code) == ("failed", "bad_signature")
    verdict = found.find_verdict(SIGNATURE)
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
    verdict = found.find_verdict(SIGNATURE)
    assert verdict is not None
    assert (found.outcome, verdict.state, verdict.evidence["code"]) == ("resolved", "unknown", "no_key")


async def test_the_cheapest_layer_judges_no_signature(bench: Bench) -> None:
    publish(bench, "nonsense")
    found = await resolve(bench, depth="dns")
    assert (found.outcome, found.find_verdict(SIGNATURE), bench.web.connections) == ("resolved", None, 0)


def test_keys_are_looked_for_in_the_zone_alone() -> None:
    assert candidate_zones("a.b.example.com") == ["b.example.com", "example.com"]
    assert candidate_zones("example.com") == ["example.com"]
    assert candidate_zones("alice.github.io") == ["alice.github.io"]
    assert jwks_urls(ORG) == [f"https://dns-aid.example.com{JWKS}", f"https://example.com{JWKS}"]
