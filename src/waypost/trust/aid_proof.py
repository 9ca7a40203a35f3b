"""Proof of the key in an AID record (`aid2`): the server at its address signs an answer with it (RFC 9421), with a nonce of ours.

What is signed is the method, the address and the authority that were asked, and the status of the answer; nothing of its body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from waypost import limits
from waypost.errors import InvalidKey
from waypost.trust.encodings import decode_base64
from waypost.trust.keys import PublicKey, parse_ed25519_raw

TAG: Final = "aid-pka-v2"
_LABEL: Final = "aid-pka"
_COMPONENTS: Final = '("@method";req "@target-uri";req "@authority";req "@status")'
_VALUES = r"(?:;[a-z]+=(?:\"[^\"]{0,256}\"|[0-9]{1,12}))+"
_INPUT = re.compile(rf"{_LABEL}=(?P<params>{re.escape(_COMPONENTS)}(?P<rest>{_VALUES}))\Z")
_PARAMETER = re.compile(r";([a-z]+)=(?:\"([^\"]*)\"|([0-9]+))")
_SIGNATURE = re.compile(rf"{_LABEL}=:([A-Za-z0-9+/]+={{0,2}}):\Z")


def parse_pka(text: str) -> PublicKey:
    """The `k` of an aid2 record: the x of an Ed25519 JWK."""
    try:
        return parse_ed25519_raw(decode_base64(text))
    except ValueError:
        raise InvalidKey("The key of the AID record cannot be read.", path="k") from None


def accept_signature(key: PublicKey, nonce: str) -> str:
    """The header that asks for the proof."""
    asked = f'created;expires;keyid="{key.thumbprint()}";alg="ed25519";nonce="{nonce}";tag="{TAG}"'
    return f"{_LABEL}={_COMPONENTS};{asked}"


class Challenge:
    """One request and what its answer must have signed."""

    def __init__(self, key: PublicKey, nonce: str, url: str, authority: str) -> None:
        self._key = key
        self._nonce = nonce
        self._url = url
        self._authority = authority

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return (("Accept-Signature", accept_signature(self._key, self._nonce)),)

    def find_fault(self, status: int, headers: Mapping[str, str], now: float) -> str | None:
        """What is wrong with an answer; None when it proves the key. Names of headers are in lower case."""
        stated = _INPUT.match(headers.get("signature-input", ""))
        signed = _SIGNATURE.match(headers.get("signature", ""))
        if stated is None or signed is None:
            return "the answer is not signed in the way of AID"
        if 300 <= status < 400:
            return "the answer leads elsewhere"
        if "no-store" not in headers.get("cache-control", "").lower():
            return "the answer may have been kept (no Cache-Control: no-store)"
        fault = self._find_wrong_parameter(stated["rest"], now)
        if fault is not None:
            return fault
        base = self._base(status, stated["params"])
        return None if self._key.verify(decode_base64(signed[1]), base) else "the signature does not hold"

    def _find_wrong_parameter(self, rest: str, now: float) -> str | None:
        given = {name: text or number for name, text, number in _PARAMETER.findall(rest)}
        wanted = {"keyid": self._key.thumbprint(), "alg": "ed25519", "nonce": self._nonce, "tag": TAG}
        wrong = next((name for name, value in wanted.items() if given.get(name) != value), None)
        if wrong is not None:
            return f"`{wrong}` of the signature is not what was asked for"
        created, expires = given.get("created", ""), given.get("expires", "")
        if not created.isdigit() or not expires.isdigit():
            return "the signature has no times"
        if not 0 <= int(expires) - int(created) <= limits.AID_PROOF_SECONDS:
            return "the signature holds for too long"
        in_time = int(created) - limits.AID_PROOF_SKEW_SECONDS <= now <= int(expires) + limits.AID_PROOF_SKEW_SECONDS
        return None if in_time else "the signature is not of this time"

    def _base(self, status: int, params: str) -> bytes:
        lines = (
            '"@method";req: GET',
            f'"@target-uri";req: {self._url}',
            f'"@authority";req: {self._authority}',
            f'"@status": {status}',
            f'"@signature-params": {params}',
        )
        return "\n".join(lines).encode()
