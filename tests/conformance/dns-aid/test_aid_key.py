"""AID: the key in the record, proven by the server that the record names (neighbours.md §3)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.fake_dns import states
from support.resolve_fixtures import Bench
from waypost.trust.checks.aid import parse_aid2_key

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
X = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
KEYID = "1IG2tMH7J2wbJZnOf8LJzQitKf7LMvoAElsuDMVM54Y"
COMPONENTS = '("@method";req "@target-uri";req "@authority";req "@status")'


def signer(key: Ed25519PrivateKey = KEY, **changed: str) -> Callable[[str, str, int], dict[str, str]]:
    """A server that signs as requested, except for the changed members."""

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
    assert parse_aid2_key(X).thumbprint() == KEYID


@pytest.mark.req("AIDTXT-5")
async def test_a_server_proves_its_key_regardless_of_its_answer(bench: Bench) -> None:
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
async def test_a_key_is_not_checked_without_an_http_endpoint(bench: Bench) -> None:
    publish(bench, signer(), record=f'"v=aid2;p=websocket;u=wss://{bench.domain}/ws;k={X}"')
    found = await bench.resolver.resolve(bench.domain)
    assert (states(found.verdicts)["key-verified"], found.level) == ("not_checked", "dns-verified")
    publish(bench, signer(), record='"v=aid2;p=mcp;u=https://closed.example.com:2/mcp;k=' + X + '"')
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert states(found.verdicts)["key-verified"] == "unknown"
    assert found.level == "dns-verified"


# --- The first version ----------------------------------------------------------------------------

FIRST = ("AID-Challenge", "@method", "@target-uri", "host", "date")
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


RAW = KEY.public_key().public_bytes_raw()


def first_signer(
    key: Ed25519PrivateKey = KEY, names: tuple[str, ...] = FIRST, **changed: str
) -> Callable[[str, str, int], dict[str, str]]:
    def sign(head: str, url: str, status: int) -> dict[str, str]:
        asked = dict(line.split(": ", 1) for line in head.lower().split("\r\n") if ": " in line)
        exact = dict(line.split(": ", 1) for line in head.split("\r\n") if ": " in line)
        date = changed.get("date", formatdate(usegmt=True))
        values = {
            "aid-challenge": changed.get("nonce", exact.get("AID-Challenge", "")),
            "@method": "GET",
            "@target-uri": changed.get("url", url),
            "host": asked["host"],
            "date": date,
        }
        listed = " ".join(f'"{name}"' for name in names)
        created = changed.get("created", str(int(time.time())))
        params = (
            f'({listed});created={created};keyid="{changed.get("keyid", "k1")}";alg="{changed.get("alg", "ed25519")}"'
        )
        lines = [f'"{name}": {values[name.lower()]}' for name in names]
        base = "\n".join([*lines, f'"@signature-params": {params}'])
        signature = base64.b64encode(key.sign(base.encode())).decode()
        return {"Signature-Input": f"sig={params}", "Signature": f"sig=:{signature}:", "Date": date}

    return sign


def publish_first(bench: Bench, sign: Any, key: str = "z" + base58(RAW)) -> None:
    publish(bench, sign, record=f'"v=aid1;p=mcp;u={bench.url("/mcp")};k={key};i=k1"')
    bench.web.put("/mcp", {})


@pytest.mark.req("AIDTXT-5")
@pytest.mark.parametrize("names", [FIRST, ("date", "host", "@target-uri", "@method", "aid-challenge")])
@pytest.mark.parametrize("key", ["z" + base58(RAW), "z" + base58(b"\xed\x01" + RAW)], ids=["raw", "multicodec"])
async def test_a_server_of_the_first_version_proves_its_key_too(bench: Bench, key: str, names: tuple[str, ...]) -> None:
    publish_first(bench, first_signer(names=names), key)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.how, found.level) == ("aid", "key-verified")
    assert found.key is not None
    assert found.key.public_key


@pytest.mark.req("AIDTXT-5")
@pytest.mark.parametrize(
    "sign",
    [
        lambda head, url, status: {},
        first_signer(OTHER),
        first_signer(nonce="an-older-one"),
        first_signer(keyid="k2"),
        first_signer(alg="rsa"),
        first_signer(url="https://evil.example.net/"),
        first_signer(created="1000"),
        first_signer(date="Mon, 01 Jan 2024 00:00:00 GMT"),
        first_signer(date="yesterday"),
        first_signer(names=FIRST[1:]),
        first_signer(names=(*FIRST, "date")),
        lambda head, url, status: signer()(f'{head}Accept-Signature: nonce="none"\r\n', url, status),
    ],
    ids=[
        "unsigned", "key", "nonce", "keyid", "alg", "address", "old", "old date", "no date", "less", "twice", "second"
    ],
)  # fmt: skip
async def test_of_the_first_version_too_anything_else_proves_nothing(bench: Bench, sign: Any) -> None:
    publish_first(bench, sign)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "bad_proof", "unverified")


@pytest.mark.req("AIDTXT-5")
async def test_an_error_proves_nothing_in_the_first_version(bench: Bench) -> None:
    publish_first(bench, first_signer())
    bench.web.put("/mcp", {}, status=500)
    assert (await bench.resolver.resolve(bench.domain)).code == "bad_proof"


@pytest.mark.req("AIDTXT-5")
@pytest.mark.parametrize("key", ["z", "zAbc", "z0OIl", "z" + "1" * 32, "z" + base58(bytes([1]) * 40)])
async def test_a_key_of_the_first_version_that_is_none_is_refused(bench: Bench, key: str) -> None:
    publish_first(bench, first_signer(), key)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code) == ("failed", "bad_key")
    assert bench.web.connections == 0
