"""Signatures over JSON documents: canonical forms, the bytes that each dialect's signature covers, and signing.

Canonicalization is RFC 8785, and the older form that some announcers still sign. Values come from `model/json.py`,
which rejects everything that two parsers could read differently; other values are checked here. Strings are not
normalised: NFC and NFD are two strings.

An A2A card is signed without its `signatures` and without members that only repeat a default (neighbours.md §1).
`_DEFAULTED` lists these members for each object of a card; required members, and those where absent differs from the
default, stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import rfc8785

from waypost import limits
from waypost.errors import InvalidDocument, InvalidKey
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.trust.encodings import encode_base64, encode_base64url
from waypost.trust.repeated_members import drop_repeated_members

if TYPE_CHECKING:  # `canonicalize` is used where cryptography is not loaded
    from waypost.trust.keys.private_key import PrivateKey

# --- Canonical forms ------------------------------------------------------------------------------

JCS: Final = "jcs"
LEGACY: Final = "legacy"
A2A: Final = "a2a"
A2A_SDK: Final = "a2a-sdk"
A2A_SDK_0_3: Final = "a2a-sdk-0.3"

Canonicalizer: TypeAlias = Callable[[Any], bytes]

_sorted_encoder = msgspec.json.Encoder(order="sorted")  # ten times as fast as rfc8785, and equal for plain values
_FRACTION: Final = re.compile(rb"(?:\A|[:,\[])-?[0-9]+[.eE]")  # matches every fraction, and some strings
_CANONICAL_HINT: Final = "Leave the member out, or write it as a string."


def canonicalize(value: Any) -> bytes:
    """Return the RFC 8785 form: one byte sequence per JSON value."""
    try:
        return _sorted_encoder.encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidDocument(f"This value has no canonical form: {error}.", path="$", hint=_CANONICAL_HINT) from None
    except RecursionError:
        raise InvalidDocument("The value is nested too deeply to be signed.", path="$", hint="Flatten it.") from None


def canonicalize_parsed(value: Any) -> bytes:
    """Canonicalize a value that `model/json.py` has just parsed, or a part of one.

    Such a value needs no checks, so its sorted text shows whether sorting was all there is to do.
    """
    data = _sorted_encoder.encode(value)
    return canonicalize(value) if _FRACTION.search(data) or not data.isascii() else data


def _is_plain(value: Any) -> bool:
    """Return whether sorting suffices: no float, whose text is defined by ECMAScript, and no name that UTF-16 sorts
    otherwise."""
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and name.isascii() and _is_plain(item) for name, item in value.items())
    if kind is list:
        return all(_is_plain(item) for item in value)
    if isinstance(value, int):
        return kind is bool or abs(value) <= limits.JSON_INTEGER_MAX
    return kind is str or value is None


def canonicalize_legacy(value: Any) -> bytes:
    """Return what `json.dumps` with sorted names writes (announce.md §12, P-35): verified only, never signed.

    It distinguishes `1.0` from `1`: our parser keeps integers and floats apart.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidDocument("This value has no canonical form.", path="$", hint=_CANONICAL_HINT) from None
    return text.encode("ascii")


# --- What a signature covers ----------------------------------------------------------------------

_DESCRIPTION_ONLY = ("description",)
_FLOW = ("refreshUrl", "pkceRequired")
_OLD_FLOW = ("authorizationUrl", "tokenUrl", "refreshUrl", "scopes")

# object -> (members left out at their default, members that are objects, or arrays or maps of objects)
_DEFAULTED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "card": (
        ("securitySchemes", "securityRequirements"),
        {
            "supportedInterfaces": "interface",
            "capabilities": "capabilities",
            "skills": "skill",
            "securitySchemes": "scheme",
            "securityRequirements": "requirement",
        },
    ),
    "interface": (("tenant",), {}),
    "capabilities": (("extensions",), {"extensions": "extension"}),
    "extension": (("uri", "description", "required"), {}),
    "skill": (
        ("examples", "inputModes", "outputModes", "securityRequirements"),
        {"securityRequirements": "requirement"},
    ),
    "requirement": (("schemes",), {"schemes": "strings"}),
    "strings": (("list",), {}),
    "scheme": (
        (),
        {
            "apiKeySecurityScheme": "api-key",
            "httpAuthSecurityScheme": "http",
            "oauth2SecurityScheme": "oauth2",
            "openIdConnectSecurityScheme": "described",
            "mtlsSecurityScheme": "described",
        },
    ),
    "api-key": (_DESCRIPTION_ONLY, {}),
    "described": (_DESCRIPTION_ONLY, {}),
    "http": ((*_DESCRIPTION_ONLY, "bearerFormat"), {}),
    "oauth2": ((*_DESCRIPTION_ONLY, "oauth2MetadataUrl"), {"flows": "flows"}),
    "flows": (
        (),
        {
            "authorizationCode": "flow",
            "clientCredentials": "flow",
            "deviceCode": "flow",
            "implicit": "old-flow",
            "password": "old-flow",
        },
    ),
    "flow": (_FLOW, {}),
    "old-flow": (_OLD_FLOW, {}),
}
_SECURITY = ("securitySchemes", "securityRequirements")
_MAPS = frozenset({"securitySchemes", "schemes"})


def a2a_payload(card: JsonObject) -> bytes:
    """Return what a signature of this card covers, by the rules of A2A 1.0."""
    return canonicalize(_without_defaults(_without_signature(card, "signatures"), "card"))


def a2a_payload_forms(card: JsonObject) -> tuple[tuple[str, bytes], ...]:
    """Return the forms that signers use, the specification's first: others drop every empty value, or none; and the SDKs
    add members of 0.3 to a card that is signed."""
    bare = _without_signature(card, "signatures")
    forms = (*_current_forms(bare), (JCS, canonicalize(bare)))
    signed = None if is_older_card(card) else drop_repeated_members(bare)
    if signed is not None:
        forms += _current_forms(signed)
    if is_older_card(card):
        forms += ((A2A_SDK_0_3, canonicalize_legacy(_without_empty(_without_older_defaults(bare)) or {})),)
    return forms


def _current_forms(bare: JsonObject) -> tuple[tuple[str, bytes], ...]:
    specified = _without_defaults(bare, "card")
    return (A2A, canonicalize(specified)), (A2A_SDK, canonicalize(_without_empty(specified) or {}))


def sdk_form_drops_security(card: JsonObject) -> bool:
    """Return whether `A2A_SDK` drops a security requirement as empty, so that the signature does not cover it.

    `{"schemes": {"key": {"list": []}}}` is one: it is empty at every level, and requires an API key.
    """
    is_older = is_older_card(card)
    specified = _without_older_defaults(card) if is_older else _without_defaults(card, "card")
    skills = specified.get("skills")
    holders = [specified, *(skills if isinstance(skills, list) else ())]
    names = ("securitySchemes", "security") if is_older else _SECURITY
    parts = [holder.get(name) for holder in holders if isinstance(holder, dict) for name in names]
    return any(part is not None and _without_empty(part) != part for part in parts)


# Pre-1.0 cards have no specified form to sign. The Python SDK 0.3 leaves out members at the defaults of its classes, then
# everything empty, and writes sorted ASCII JSON. `type` of a security scheme is such a default; it is left out only from a
# scheme that has exactly the members of its type, so that another type cannot take its place.
_OLDER_DEFAULTS: Final = {"preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
_OLDER_SCHEMES: Final = {
    "apiKey": ({"in", "name"}, {"description"}),
    "http": ({"scheme"}, {"bearerFormat", "description"}),
    "oauth2": ({"flows"}, {"oauth2MetadataUrl", "description"}),
    "openIdConnect": ({"openIdConnectUrl"}, {"description"}),
    "mutualTLS": (set[str](), {"description"}),
}


def is_older_card(card: JsonObject) -> bool:
    """Return whether a card has the form of A2A 0.3 or earlier."""
    return "url" in card and "supportedInterfaces" not in card


def _without_older_defaults(card: JsonObject) -> JsonObject:
    bare = {name: value for name, value in card.items() if _OLDER_DEFAULTS.get(name) != value or value is None}
    schemes = card.get("securitySchemes")
    if isinstance(schemes, dict):
        bare["securitySchemes"] = {name: _without_scheme_type(scheme) for name, scheme in schemes.items()}
    specified: JsonObject = _without_null(bare)
    return specified


def _without_scheme_type(scheme: Any) -> Any:
    if not isinstance(scheme, dict) or not isinstance(scheme.get("type"), str):
        return scheme
    required, optional = _OLDER_SCHEMES.get(scheme["type"], (None, set()))
    rest = {name: value for name, value in scheme.items() if name != "type"}
    return rest if required is not None and required <= rest.keys() <= required | optional else scheme


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def profile_payload(document: JsonObject, canon: Canonicalizer = canonicalize) -> bytes:
    """Return a profile record without its `signature`."""
    return canon(_without_signature(document, "signature"))


def ard_payload(manifest: JsonObject) -> bytes:
    """Return a trust manifest without its `signature`. The entry around it is not covered (ARD-19)."""
    return canonicalize(_without_signature(manifest, "signature"))


def adp_payload(domain: str) -> bytes:
    """Return what `publicKey.proof` signs: the agent's URI (adp.md, ADP-26)."""
    return f"agent:{domain}".encode()


def _without_signature(document: JsonObject, name: str) -> JsonObject:
    return {member: value for member, value in document.items() if member != name}


def _without_defaults(value: Any, kind: str) -> Any:
    if not isinstance(value, dict):
        return value
    droppable, parts = _DEFAULTED[kind]
    result: JsonObject = {}
    for name, item in value.items():
        if item is None or (name in droppable and item in ("", False, [], {})):
            continue
        result[name] = _part(name, item, parts[name]) if name in parts else item
    return result


def _part(name: str, item: Any, kind: str) -> Any:
    if isinstance(item, list):
        return [_without_defaults(each, kind) for each in item]
    if name in _MAPS and isinstance(item, dict):
        return {key: _without_defaults(each, kind) for key, each in item.items()}
    return _without_defaults(item, kind)


def _without_empty(value: Any) -> Any:
    """Drop empty strings, arrays and objects at any depth; None if nothing is left."""
    if isinstance(value, dict):
        return {name: part for name, item in value.items() if (part := _without_empty(item)) is not None} or None
    if isinstance(value, list):
        return [part for item in value if (part := _without_empty(item)) is not None] or None
    return None if value == "" else value


# --- Signing --------------------------------------------------------------------------------------


def sign_profile(document: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """Add the `signature` (jws-jcs) to a profile record."""
    protected, signature = _sign_jws(key, profile_payload(document), kid)
    names = {"format": "jws-jcs", "alg": key.jose_algorithm, "kid": kid or key.public.key_id}
    return {**document, "signature": {**names, "protected": protected, "signature": signature}}


def sign_adp_public_key(key: PrivateKey, domain: str) -> JsonObject:
    """Make `identity.publicKey` of an ADP document, with its proof."""
    fingerprint = key.public.fingerprint()
    if fingerprint is None:
        raise InvalidKey("ADP accepts Ed25519 keys only.", path="key", hint="Make one with `waypost keys new`.")
    proof = "signature:" + encode_base64(key.sign(adp_payload(domain)))
    return {"algorithm": "ed25519", "fingerprint": fingerprint, "full": key.public.pem(), "proof": proof}


def key_rotation_payload(domain: str, previous: str, current: str) -> bytes:
    """The bytes with which a replaced key confirms its successor; both are given by their fingerprints."""
    return f"waypost key rotation\n{domain}\n{previous}\n{current}\n".encode()


def sign_key_rotation(previous: PrivateKey, current: PrivateKey, domain: str, until: float) -> JsonObject:
    """A member of `org.waypost.previousKeys`: a replaced key, and its signature over the current one."""
    fingerprint = previous.public.fingerprint() or ""
    payload = key_rotation_payload(domain, fingerprint, current.public.fingerprint() or "")
    return {
        "algorithm": "ed25519",
        "fingerprint": fingerprint,
        "full": previous.public.pem(),
        "until": to_rfc3339(until),
        "successor": "signature:" + encode_base64(previous.sign(payload)),
    }


def _sign_jws(key: PrivateKey, payload: bytes, kid: str | None) -> tuple[str, str]:
    header = {"alg": key.jose_algorithm, "kid": kid or key.public.key_id}
    protected = encode_base64url(dump_json(header))
    return protected, encode_base64url(key.sign_jose(f"{protected}.{encode_base64url(payload)}".encode()))
