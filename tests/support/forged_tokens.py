"""Forged tokens, by the names in `tests/vectors/jwt_cases.json`, with the expected response."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.tokens import TokenIssuer, b64

_MINUTE = 61  # beyond every leeway


class Forgery(NamedTuple):
    case: str
    label: str
    token: str
    want: int = 401
    method: str = "GET"


def forgeries(issuer: TokenIssuer, canary: str) -> list[Forgery]:
    """Signed with the issuer's keys if the signature must be valid for the rest to be checked."""
    made = [*_headers(issuer, canary), *_claims(issuer), *_forms(issuer), *_scopes(issuer)]
    return made + (_of_more_keys(issuer) if len(issuer.keys) > 1 else [])


def _headers(issuer: TokenIssuer, canary: str) -> list[Forgery]:
    attacker = TokenIssuer(issuer.now, issuer.issuer, issuer.audience)
    alg = next(iter(issuer.keys))
    none = "alg none (also None, nOnE, empty signature)"
    made = [
        Forgery(none, f"{name} {tail!r}", f"{b64(issuer.header(alg, alg=name))}.{b64(issuer.claims())}.{tail}")
        for name in ("none", "None", "nOnE", "NONE")
        for tail in ("", "AA")
    ]
    made.append(Forgery(none, "empty signature", issuer.token().rpartition(".")[0] + "."))
    made.append(Forgery("alg missing", "", issuer.token(header={"alg": None})))
    made += [Forgery("alg missing", repr(odd), issuer.token(header={"alg": odd})) for odd in ("eddsa", 1, [alg], "")]
    own = f"{b64(attacker.header('EdDSA'))}.{b64(issuer.claims())}"
    made.append(
        Forgery("header jwk embeds attacker key", "", attacker.token("EdDSA", header={"jwk": attacker.jwk("EdDSA")}))
    )
    made.append(
        Forgery("header jwk embeds attacker key", "its kid", f"{own}.{b64(attacker.sign('EdDSA', own.encode()))}")
    )
    for name, value in (("jku", canary), ("x5u", canary), ("x5c", ["MIIB"]), ("x5t", "AAAA")):
        want = issuer if name != "x5t" else attacker
        made.append(Forgery("header jku/x5u/x5c attacker url", name, want.token(header={name: value})))
        made.append(
            Forgery("header jku/x5u/x5c attacker url", f"{name}, their key", attacker.token(header={name: value}))
        )
    crit = "crit with unknown extension (CVE-2026-32597 class)"
    made += [
        Forgery(crit, repr(names), issuer.token(header={"crit": names, "x-ours": 1}))
        for names in (["x-ours"], ["exp"], [], "exp")
    ]
    made.append(Forgery("b64=false", "", issuer.token(header={"b64": False})))
    made.append(Forgery("b64=false", "critical", issuer.token(header={"b64": False, "crit": ["b64"]})))
    kids = ("../../dev/null", "' OR 1=1 --", "k" * 10_000 if len(issuer.keys) > 1 else "k" * 6000, "unknown", canary)
    made += [
        Forgery(
            "kid ../../dev/null, kid ' OR 1=1, kid of 10 kB, kid unknown", kid[:20], attacker.token(header={"kid": kid})
        )
        for kid in kids
    ]
    made += [
        Forgery("typ at+jwt vs id token confusion", repr(kind), issuer.token(header={"typ": kind}))
        for kind in (("dpop+jwt", "logout+jwt", "JWE", 7) if len(issuer.keys) > 1 else ())
    ]
    made.append(Forgery("typ at+jwt vs id token confusion", "nonce", issuer.token(nonce="n", at_hash="h")))
    return made


def _claims(issuer: TokenIssuer) -> list[Forgery]:
    now = int(issuer.now)
    wrong: dict[str, list[dict[str, Any]]] = {
        "exp missing": [{"exp": None}],
        "exp past by 61 s": [{"exp": now - _MINUTE}],
        "exp > max lifetime (24 h)": [{"exp": now + 86_401}, {"exp": now + 86_401, "iat": None}, {"exp": 2**52}],
        "exp as string / float NaN / 1e400 / negative": [
            {"exp": str(now + 60)}, {"exp": -1}, {"exp": True}, {"exp": [now + 60]}, {"exp": {}},
        ],
        "nbf future by 61 s": [{"nbf": now + _MINUTE}, {"nbf": "soon"}],
        "iat future by 61 s": [{"iat": now + _MINUTE}, {"iat": "then"}],
        "aud missing / other / list without us": [
            {"aud": None}, {"aud": "other"}, {"aud": ["other", "another"]}, {"aud": []}, {"aud": "waypost "},
            {"aud": {"waypost": 1}},
        ],
        "iss other": [{"iss": None}, {"iss": "https://evil.example"}, {"iss": issuer.issuer + "/"}, {"iss": [issuer.issuer]}],
        "sub empty": [{"sub": ""}, {"sub": None}, {"sub": 7}, {"sub": "a\nb"}, {"sub": "s" * 300}],
    }  # fmt: skip
    if len(issuer.keys) == 1:
        wrong["nbf future by 61 s"] = wrong["nbf future by 61 s"][:1]
    made = [
        Forgery(case, repr(change), issuer.token(**change)) for case, changes in wrong.items() for change in changes
    ]
    good = issuer.claims()
    for text in ("NaN", "1e400", "-Infinity"):
        payload = json.dumps(good).replace(f'"exp": {good["exp"]}', f'"exp": {text}')
        made.append(Forgery("exp as string / float NaN / 1e400 / negative", text, issuer.token(payload=payload)))
    twice = json.dumps(good)[:-1] + f', "exp": {now + 600}, "sub": "bob"}}'
    made.append(Forgery("sub empty", "sub twice", issuer.token(payload=twice)))
    if len(issuer.keys) > 1:
        made += [Forgery("sub empty", name, issuer.token(sub=name)) for name in ("admin", "anonymous")]
    made.append(Forgery("iss other", "not an object", issuer.token(payload='["iss"]')))
    return made


def _forms(issuer: TokenIssuer) -> list[Forgery]:
    good = issuer.token()
    header, payload, signature = good.split(".")
    case = "JWE, nested JWT, JWS JSON serialization, 4 segments, 2 segments"
    nested = issuer.token(header={"cty": "JWT"}, payload=json.dumps(good))
    forms = {
        "five segments": f"{good}.{signature}.{signature}",
        "four segments": f"{good}.{signature}",
        "two segments": f"{header}.{payload}",
        "nested": nested,
        "JSON form": json.dumps({"protected": header, "payload": payload, "signature": signature}),
        "empty payload": f"{header}..{signature}",
        "other payload": f"{header}.{b64(issuer.claims(sub='bob'))}.{signature}",
        "other header": f"{b64(issuer.header('EdDSA', kid=issuer.kids['EdDSA'], typ='at+jwt'))}.{payload}.{signature}",
    }
    made = [Forgery(case, label, token) for label, token in forms.items()]
    encoding = "base64 with padding / newline / non-canonical trailing bits"
    padded = base64.urlsafe_b64encode(base64.urlsafe_b64decode(signature + "==")).decode()
    odd = {
        "padding": f"{header}.{payload}.{padded if padded.endswith('=') else signature + '='}",
        "percent": good.replace(".", "%2E"),
        "space inside": f"{header}. {payload}.{signature}",
        "trailing bits": good[:-1] + _next_character(good[-1]),
        "plus": f"{header}.{payload}.+{signature[1:]}",
        "slash": f"{header}.{payload}./{signature[1:]}",
    }
    made += [Forgery(encoding, label, token) for label, token in odd.items()]
    made.append(Forgery("HS256 with empty key", "", issuer.shared(b"", header={"kid": issuer.kids["EdDSA"]})))
    made.append(Forgery("HS256 with empty key", "no kid", issuer.shared(b"")))
    for algorithm in issuer.keys:
        kid = {"kid": issuer.kids[algorithm]}
        text = json.dumps(issuer.jwk(algorithm)).encode()
        jwk = "HS256 signed with the public JWK JSON text (CVE-2026-48526 class)"
        made.append(Forgery(jwk, algorithm, issuer.shared(text, header=kid)))
        pem = "HS256 signed with the RSA public key PEM"
        made.append(Forgery(pem, algorithm, issuer.shared(issuer.pem(algorithm), header=kid)))
        made.append(Forgery(pem, f"{algorithm}, no line end", issuer.shared(issuer.pem(algorithm).strip(), header=kid)))
    stranger = TokenIssuer(issuer.now, issuer.issuer, keys={"EdDSA": Ed25519PrivateKey.generate()}, kids=issuer.kids)
    made.append(Forgery("header jwk embeds attacker key", "another key, our kid", stranger.token("EdDSA")))
    made.append(Forgery("token of 64 kB", "7 kB of claims too many", issuer.token(extra="x" * 9000)))
    return made


def _next_character(char: str) -> str:
    """Another encoding of the same bytes: only unused trailing bits differ."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(char) ^ 1]


def _scopes(issuer: TokenIssuer) -> list[Forgery]:
    reading = "scope discover:read on POST /agents"
    odd = "scope as list / 'discover:writeX' / 'xdiscover:write' / scope in wrong claim"
    shapes: list[dict[str, Any]] = [
        {"scope": ["discover:write"]},
        {"scope": "discover:writeX"},
        {"scope": "xdiscover:write"},
        {"scope": "discover:read\tdiscover:write"},
        {"scope": "DISCOVER:WRITE"},
        {"scope": None, "scopes": ["discover:write"]},
        {"scope": None, "roles": ["admin"]},
        {"scope": None, "scp": "discover:write"},
        {"scope": None, "scp": [["discover:write"]]},
        {"scope": "discover:read", "scp": ["discover:write"]},
    ]
    made = [Forgery(reading, "", issuer.token(scope="discover:read"), 403, "POST")]
    made += [Forgery(odd, repr(shape), issuer.token(**shape), 403, "POST") for shape in shapes]
    return made


def _of_more_keys(issuer: TokenIssuer) -> list[Forgery]:
    """Key confusion needs an issuer with several kinds of keys."""
    case = "ES256 signature all zero (r=s=0), DER instead of raw"
    signed = f"{b64(issuer.header('ES256'))}.{b64(issuer.claims())}"
    made = [
        Forgery(case, "zero", f"{signed}.{b64(bytes(64))}"),
        Forgery(case, "DER", f"{signed}.{b64(issuer.sign_der('ES256', signed.encode()))}"),
        Forgery(case, "short", f"{signed}.{b64(issuer.sign('ES256', signed.encode())[:-1])}"),
    ]
    for claimed, used in (
        ("RS256", "ES256"),
        ("ES256", "EdDSA"),
        ("EdDSA", "RS256"),
        ("PS256", "RS256"),
        ("RS512", "RS256"),
    ):
        header = {"alg": claimed, "kid": issuer.kids[used]}
        made.append(Forgery("alg missing", f"{claimed} by the key of {used}", issuer.token(used, header=header)))
    made.append(
        Forgery("alg missing", "no kid among several", issuer.token("RS256", header={"kid": None, "alg": "ES256"}))
    )
    return made
