"""AID: the key in the record, proven by the server that the record names (neighbours.md §3)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.resolving import Bench
from support.zones import states
from waypost.trust.aid_proof import parse_pka

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
X = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
KEYID = "1IG2tMH7J2wbJZnOf8LJzQitKf7LMvoAElsuDMVM54Y"
COMPONENTS = '("@method";req "@target-uri";req "@authority";req "@status")'


def signer(key: Ed25519PrivateKey = KEY, **changed: str) -> Callable[[str, str, int], dict[str, str]]:
    """A server that signs as it is asked to, but for what is changed."""

    def sign(head: str, url: str, status: int) -> dict[str, str]:
        asked = next(line for line in head.split("\r\n") if line.lower().startswith("accept-signature:"))
        nonce = re.search(r'nonce="([^"]+)"', asked)
        assert nonce is not None
        now = int(time.time())
        given = {"created": str(now), "expires": str(now + 60), "keyid": KEYID, "nonce": nonce[1], "tag": "aid-pka-v2"}
        given |= changed
        times = f";created={given['created']};expires={given['expires']}"
        rest = f';keyid="{given["keyid"]}";alg="ed25519";nonce="{given["nonce"]}";tag="{given["tag"]}"'
        params = f"{COMPONENTS}{times}{rest}"
        authority = url.split("/")[2]
        base = (
            f'"@method";req: GET\n"@target-uri";req: {given.get("url", url)}\n"@authority";req: {authority}\n'
            f'"@status": {given.get("status", status)}\n"@signature-params": {params}'
        )
        signature = base64.b64encode(key.sign(base.encode())).decode()
        return {
            "Signature-Input": f"aid-pka={params}",
            "Signature": f"aid-pka=:{signature}:",
            "Cache-Control": given.get("cache", "no-store"),
        }

    return sign


def publish(bench: Bench, sign: Any, *, record: str = "") -> None:
    url = bench.url("/mcp")
    bench.zones.set(f"_agent.{bench.domain}", "TXT", record or f'"v=aid2;p=mcp;u={url};k={X}"')
    bench.web.sign = sign


@pytest.mark.req("AIDTXT-5")
def test_the_key_is_known_by_its_thumbprint() -> None:
    assert parse_pka(X).thumbprint() == KEYID


@pytest.mark.req("AIDTXT-5")
async def test_a_server_that_holds_the_key_proves_it_whatever_else_it_answers(bench: Bench) -> None:
    publish(bench, signer())
    found = await bench.resolver.resolve(bench.domain)
    assert (found.how, found.level) == ("aid", "key-verified")
    assert bench.web.requests == [bench.url("/mcp")]
    assert found.key is not None
    assert found.key.public_key


@pytest.mark.req("AIDTXT-5")
@pytest.mark.parametrize(
    "sign",
    [
        lambda head, url, status: {},
        signer(OTHER),
        signer(nonce="an-older-one"),
        signer(keyid="another"),
        signer(tag="another"),
        signer(url="https://evil.example.net/"),
        signer(status="200"),
        signer(cache="max-age=60"),
        signer(created="1000", expires="1060"),
        signer(expires=str(int(time.time()) + 4000)),
    ],
    ids=["unsigned", "key", "nonce", "keyid", "tag", "address", "status", "kept", "old", "long"],
)
async def test_anything_else_proves_nothing_and_is_not_trusted(bench: Bench, sign: Any) -> None:
    publish(bench, sign)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "bad_proof", "unverified")


@pytest.mark.req("AIDTXT-5")
async def test_a_key_that_is_not_asked_for_is_not_checked(bench: Bench) -> None:
    publish(bench, signer(), record=f'"v=aid1;p=mcp;u={bench.url("/mcp")};k=zAbc;i=k1"')
    found = await bench.resolver.resolve(bench.domain)
    assert (states(found.verdicts)["key-verified"], found.level) == ("not_checked", "dns-verified")
    publish(bench, signer(), record='"v=aid2;p=mcp;u=https://closed.example.com:2/mcp;k=' + X + '"')
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert states(found.verdicts)["key-verified"] == "unknown"
    assert found.level == "dns-verified"
