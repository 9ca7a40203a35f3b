"""For any document a check returns a verdict; any key or token is parsed or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.signing import NOW, agent, card, key_of, seed_key, sign_card, sign_manifest
from waypost.errors import InvalidKey, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.model.verdict import Verdict
from waypost.trust.announce.signed_announcement import parse_announced_key, sign_announcement
from waypost.trust.checks.adp import check_adp
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import check_ard_entry, check_card, check_profile
from waypost.trust.document_signatures import sign_adp_public_key, sign_profile
from waypost.trust.jose import InvalidJws, jose_key, parse_jwks, verify_compact
from waypost.trust.keys.public_key import parse_jwk

DOMAIN = "alice.example.com"
RECORD: JsonObject = {
    "id": "a:b",
    "name": "n",
    "description": "d",
    "bindings": [{"protocol": "p", "endpoint": "https://a.example"}],
}
FLOWS = {"clientCredentials": {"tokenUrl": "https://a.example", "scopes": {"a": "b"}}}
SECURED = card(
    securitySchemes={"o": {"oauth2SecurityScheme": {"flows": FLOWS}}},
    securityRequirements=[{"schemes": {"o": {"list": ["a"]}}}],
)
URN = "urn:air:acme.com:agent:x"
MANIFEST: JsonObject = {"identity": URN, "attestations": [{"type": "a", "uri": "b", "digest": "sha256:" + "0" * 64}]}

Check = Callable[[JsonObject, Sequence[BoundKey], float], tuple[Verdict, ...]]
SIGNED: dict[Check, JsonObject] = {
    check_announcement: sign_announcement(agent(), key_of(), key_of(number=1)),
    check_card: sign_card(SECURED, key_of()),
    check_profile: sign_profile(RECORD, key_of()),
    check_ard_entry: {"identifier": URN, "trustManifest": sign_manifest(MANIFEST, key_of())},
    check_adp: {"identity": {"domain": DOMAIN, "publicKey": sign_adp_public_key(seed_key(), DOMAIN)}},
}
KEYS = [BoundKey(key_of().public, "pin"), BoundKey(seed_key().public, "pin", "k")]

TEXT = st.text(max_size=12) | st.sampled_from(
    ["", "none", "ed25519:", "signature:", "a..b", "..", "-----BEGIN PUBLIC KEY-----"]
)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        found += paths(item, (*path, name))
    return found


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@given(st.data())
@settings(max_examples=examples(300))
def test_a_check_of_a_distorted_document_gives_a_verdict(data: st.DataObject) -> None:
    check = data.draw(st.sampled_from(sorted(SIGNED, key=lambda each: each.__name__)))
    document = SIGNED[check]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(document)[1:]))
        document = replaced(document, path, data.draw(JSON))
    verdicts = check(document, KEYS, NOW)
    assert verdicts
    for verdict in verdicts:
        assert verdict.state in ("passed", "failed", "unknown", "not_checked")
        assert verdict.reason or verdict.state == "passed"
        dump_json(verdict.evidence)


@given(JSON)
@settings(max_examples=examples(300))
def test_whatever_is_given_as_a_key_is_read_or_refused(value: Any) -> None:
    for read in (parse_announced_key, parse_jwk):
        with suppress(InvalidKey):
            read(value)
    with suppress(WaypostError):
        parse_jwks(dump_json({"keys": value}))


@given(
    st.text(max_size=60)
    | st.from_regex(r"[A-Za-z0-9_-]{0,20}\.[A-Za-z0-9_-]{0,20}\.[A-Za-z0-9_-]{0,20}", fullmatch=True)
)
@settings(max_examples=examples(300))
def test_whatever_is_given_as_a_token_is_refused(text: str) -> None:
    with suppress(InvalidJws):
        verify_compact(text, (jose_key(key_of().public),))
        raise AssertionError(text)
