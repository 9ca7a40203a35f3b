"""A2A agent cards: their `signatures` (neighbours.md §1). A card is verified when one bound key signed it.

`jku` may stand in a header and is never followed: a card must not say where the key for the card is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict, VerdictState
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, make_verdict, verify_jws_by_bound_keys
from waypost.trust.signing_input import A2A_SDK, a2a_payload_forms, sdk_form_drops_security
from waypost.trust.tokens.jose import InvalidJws, Jws, UnknownKey, parse_json_signature

CHECK = "a2a-signature"
_COVERS = "card without signatures"
_SECURITY_LEFT_OUT = "signed in a form that drops empty values, among them what the card says of security"
_STRONGER: tuple[VerdictState, ...] = (
    "unknown",
    "failed",
    "passed",
)  # one good signature is enough, a wrong one is told


def check_card(card: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    """One verdict for all signatures: the strongest that any of them gives, with its evidence."""
    signatures = card.get("signatures")
    if not signatures:
        return (make_verdict(CHECK, "not_checked", "the card is not signed", now),)
    if not isinstance(signatures, list):
        return (make_verdict(CHECK, "failed", "`signatures` is not an array", now),)
    try:
        forms = a2a_payload_forms(card)
    except WaypostError as error:
        return (make_verdict(CHECK, "failed", error.message, now),)
    found = [_check_signature(value, forms, keys, now) for value in signatures[: limits.SIGNATURES]]
    if sdk_form_drops_security(card):
        found = [_downgrade(verdict) for verdict in found]
    return (max(found, key=lambda verdict: _STRONGER.index(verdict.state)),)


def _check_signature(value: Any, forms: tuple[tuple[str, bytes], ...], keys: Sequence[BoundKey], now: float) -> Verdict:
    header: JsonObject = {}
    reason = ""
    for canon, payload in forms:
        try:
            signed = parse_json_signature(value, payload, ignoring=("jku",))
            header = _header_evidence(signed)
            bound = verify_jws_by_bound_keys(signed, keys)
        except UnknownKey as error:
            return make_verdict(CHECK, "unknown", f"a signature of the card cannot be judged: {error}", now, **header)
        except InvalidJws as error:
            reason = str(error)
            continue
        if bound is not None:
            evidence = {"key_id": bound.key.key_id, "canon": canon, "covers": _COVERS, "bound_by": bound.by}
            return make_verdict(CHECK, "passed", "", now, **evidence, **header)
    if reason:
        return make_verdict(CHECK, "failed", f"a signature of the card does not hold: {reason}", now, **header)
    return make_verdict(CHECK, "unknown", UNBOUND, now, covers=_COVERS, **header)


def _downgrade(verdict: Verdict) -> Verdict:
    """A signature over the form that drops what is empty does not cover demands for a credential that are empty."""
    if verdict.state != "passed" or verdict.evidence["canon"] != A2A_SDK:
        return verdict
    return msgspec.structs.replace(verdict, state="unknown", reason=_SECURITY_LEFT_OUT)


def _header_evidence(signed: Jws) -> JsonObject:
    named = {"algorithm": signed.header["alg"], "kid": signed.header.get("kid")}
    return named | ({"jku": "not followed"} if "jku" in signed.header else {})
