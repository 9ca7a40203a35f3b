"""Tokens: minted ones are accepted, others are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost import limits
from waypost.errors import InvalidParameter, Unauthorized
from waypost.trust.jwt import TokenVerifier, load_token_key, mint, new_token_key_pem, parse_duration

NOW = 1_780_000_000.0
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
VERIFIER = TokenVerifier(lambda: [KEY.public_key()], issuer="waypost", audience="waypost")
CLAIMS = {
    "iss": "waypost", "aud": "waypost", "sub": "alice", "scope": "discover:read", "iat": int(NOW), "exp": int(NOW) + 60,
}  # fmt: skip


def signed(
    claims: dict[str, Any], headers: dict[str, Any] | None = None, key: Any = KEY, algorithm: str = "EdDSA"
) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers)


def b64(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


def test_a_minted_token_is_accepted_until_it_expires() -> None:
    token = mint(
        KEY, issuer="waypost", audience="waypost", subject="alice", scopes=("discover:read", "discover:read"),
        ttl_seconds=60, now=NOW, token_id="t1",
    )  # fmt: skip
    verified = VERIFIER.verify(token, NOW)
    assert (verified.principal.subject, verified.principal.scopes) == ("alice", {"discover:read"})
    assert VERIFIER.verify(token, NOW + 59.9)
    with pytest.raises(Unauthorized, match="expired"):
        VERIFIER.verify(token, NOW + 60)


RAW_PUBLIC = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
PEM_PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def hs256(secret: bytes) -> str:
    """The classic key confusion: our public key as an HMAC secret."""
    signing_input = f"{b64({'alg': 'HS256', 'typ': 'JWT'})}.{b64(CLAIMS)}"
    return f"{signing_input}.{b64(hmac.new(secret, signing_input.encode(), hashlib.sha256).digest())}"


def by_hand(header: Any, claims: Any, *, stray: bool = False) -> str:
    """A signature that holds, around what no library would sign."""
    first = b64(header)
    if stray:
        first = b64(b'{"alg":"EdDSA"} ')  # sixteen bytes: four bits of the last character say nothing
        first = first[:-1] + chr(ord(first[-1]) + 1)
    signing_input = f"{first}.{b64(claims)}"
    return f"{signing_input}.{b64(KEY.sign(signing_input.encode()))}"


GOOD = signed(CLAIMS)
HEAD, BODY, SIGNATURE = GOOD.split(".")
FORGED = {
    "empty": "",
    "not a jwt": "hello",
    "two parts": f"{HEAD}.{BODY}",
    "four parts": f"{GOOD}.x",
    "alg none": f"{b64({'alg': 'none'})}.{b64(CLAIMS)}.",
    "alg none with a signature": f"{b64({'alg': 'none'})}.{b64(CLAIMS)}.{SIGNATURE}",
    "alg None": f"{b64({'alg': 'None'})}.{b64(CLAIMS)}.{SIGNATURE}",
    "no alg": f"{b64({'typ': 'JWT'})}.{b64(CLAIMS)}.{SIGNATURE}",
    "alg eddsa in lower case": f"{b64({'alg': 'eddsa'})}.{BODY}.{SIGNATURE}",
    "hs256 with the raw key": hs256(RAW_PUBLIC),
    "hs256 with the pem": hs256(PEM_PUBLIC),
    "es256 with another key": signed(CLAIMS, key=generate_private_key(SECP256R1()), algorithm="ES256"),
    "another ed25519 key": signed(CLAIMS, key=Ed25519PrivateKey.from_private_bytes(bytes(32))),
    "jwk header": signed(CLAIMS, {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": b64(RAW_PUBLIC)}}),
    "jku header": signed(CLAIMS, {"jku": "https://evil.example/jwks"}),
    "x5u header": signed(CLAIMS, {"x5u": "https://evil.example/cert"}),
    "x5c header": signed(CLAIMS, {"x5c": ["AAAA"]}),
    "crit header": signed(CLAIMS, {"crit": ["exp"]}),
    "body changed": f"{HEAD}.{b64({**CLAIMS, 'sub': 'admin'})}.{SIGNATURE}",
    "head changed": f"{b64({'alg': 'EdDSA', 'kid': 'x'})}.{BODY}.{SIGNATURE}",
    "signature cut": GOOD[:-4],
    "signature padded": GOOD + "==",
    "a space inside": f"{HEAD}. {BODY}.{SIGNATURE}",
    "a line break": GOOD + "\n",
    "too long": signed({**CLAIMS, "x": "y" * 9000}),
    "no exp": signed(without("exp")),
    "no iat": signed(without("iat")),
    "no sub": signed(without("sub")),
    "no aud": signed(without("aud")),
    "no iss": signed(without("iss")),
    "other aud": signed({**CLAIMS, "aud": "elsewhere"}),
    "other iss": signed({**CLAIMS, "iss": "elsewhere"}),
    "empty sub": signed({**CLAIMS, "sub": ""}),
    "expired": signed({**CLAIMS, "iat": int(NOW) - 100, "exp": int(NOW)}),
    "from the future": signed({**CLAIMS, "iat": int(NOW) + 31, "exp": int(NOW) + 60}),
    "lives too long": signed({**CLAIMS, "exp": int(NOW) + limits.TOKEN_TTL_MAX_SECONDS + 1}),
    "exp as text": signed({**CLAIMS, "exp": "4000000000"}),
    "exp as truth": signed({**CLAIMS, "exp": True}),
    "claims are a list": f"{HEAD}.{b64([1])}.{SIGNATURE}",
    "claims are a list that is signed": by_hand({"alg": "EdDSA"}, [1]),
    "b64 header": by_hand({"alg": "EdDSA", "b64": False}, CLAIMS),
    "alg as a list": by_hand({"alg": ["EdDSA"]}, CLAIMS),
    "alg twice": by_hand(b'{"alg":"EdDSA","alg":"none"}', CLAIMS),
    "a claim twice": by_hand({"alg": "EdDSA"}, json.dumps(CLAIMS).encode()[:-1] + b',"sub":"admin"}'),
    "signature with stray bits": GOOD[:-1] + chr(ord(GOOD[-1]) + 1),
    "head with stray bits": by_hand({"alg": "EdDSA"}, CLAIMS, stray=True),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        VERIFIER.verify(FORGED[name], NOW)
    assert caught.value.hint


def test_a_handmade_token_is_accepted_and_a_minted_one_is_read_by_another_library() -> None:
    assert VERIFIER.verify(by_hand({"alg": "EdDSA"}, {**CLAIMS, "aud": ["other", "waypost"]}), NOW)
    token = mint(
        KEY, issuer="waypost", audience="waypost", subject="alice", scopes=("discover:read",), ttl_seconds=60, now=NOW,
        token_id="t1",
    )  # fmt: skip
    claims = jwt.decode(
        token, KEY.public_key(), algorithms=["EdDSA"], audience="waypost", options={"verify_exp": False}
    )
    assert claims == {**CLAIMS, "jti": "t1"}


def test_unknown_scopes_are_not_taken_over_and_partial_names_do_not_match() -> None:
    token = signed({**CLAIMS, "scope": "discover:writer discover admin2 discover:read"})
    assert VERIFIER.verify(token, NOW).principal.scopes == {"discover:read"}


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("1d", 86_400)])
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1h", "1w", "1.5h", "h", "99999999s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_duration(text)


def test_a_key_survives_its_file() -> None:
    assert load_token_key(new_token_key_pem(bytes(range(32)))).public_key() == KEY.public_key()
