"""The bytes that a signature over JSON covers: RFC 8785, and the older form that some announcers still sign.

The value comes from `model/json.py`, which has refused what two readers could read differently; what it cannot have
refused (a value built by hand) is refused here. No text is normalised: NFC and NFD are two texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import rfc8785

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject

JCS = "jcs"

LEGACY = "legacy"

_sorted_encoder = msgspec.json.Encoder(order="sorted")  # ten times as fast, and the same for what is plain

_FRACTION = re.compile(rb"(?:\A|[:,\[])-?[0-9]+[.eE]")  # each one that is a value; also some words inside texts

_CANONICAL_HINT = "Leave the member out, or write it as a text."


def canonicalize(value: Any) -> bytes:
    """RFC 8785: one sequence of bytes for each JSON value."""
    try:
        return _sorted_encoder.encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidDocument(f"This has no canonical form: {error}.", path="$", hint=_CANONICAL_HINT) from None
    except RecursionError:
        raise InvalidDocument("This is nested too deeply to be signed.", path="$", hint="Make it flatter.") from None


def canonicalize_parsed(value: Any) -> bytes:
    """The same for a value that `model/json.py` has just read, or a part of one: nothing in it needs refusing any more, so
    that its text tells whether sorting is all there is to do."""
    data = _sorted_encoder.encode(value)
    return canonicalize(value) if _FRACTION.search(data) or not data.isascii() else data


def _is_plain(value: Any) -> bool:
    """Whether sorting is all there is to do: no fraction, whose text is an art, and no name that UTF-16 sorts otherwise."""
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and name.isascii() and _is_plain(item) for name, item in value.items())
    if kind is list:
        return all(_is_plain(item) for item in value)
    if isinstance(value, int):
        return kind is bool or abs(value) <= limits.JSON_INTEGER_MAX
    return kind is str or value is None


def canonicalize_legacy(value: Any) -> bytes:
    """What `json.dumps` with sorted names writes (announce.md §12, P-35): read only, never signed.

    It tells `1.0` from `1`, as the value does: our reader keeps an integer an integer and a fraction a fraction.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidDocument("This has no canonical form.", path="$", hint=_CANONICAL_HINT) from None
    return text.encode("ascii")


# ---- What the signatures of each dialect cover, as bytes. Signing and verifying ask the same functions.
#
# An A2A card is signed without its `signatures` and without members that only repeat a default (neighbours.md §1). `_DEFAULTED`
# says for each object of a card which members these are; required members and those that tell absent from default stay.

Canonicalizer: TypeAlias = Callable[[Any], bytes]

A2A = "a2a"

A2A_SDK = "a2a-sdk"

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
    """What a signature of this card covers, by the rules of A2A 1.0."""
    return canonicalize(_without_defaults(_without_signature(card, "signatures"), "card"))


def a2a_payload_forms(card: JsonObject) -> tuple[tuple[str, bytes], ...]:
    """The forms that are found signed, that of the specification first: others drop every empty value, or none."""
    bare = _without_signature(card, "signatures")
    specified = _without_defaults(bare, "card")
    return (
        (A2A, canonicalize(specified)),
        (A2A_SDK, canonicalize(_without_empty(specified) or {})),
        (JCS, canonicalize(bare)),
    )


def sdk_form_drops_security(card: JsonObject) -> bool:
    """Whether a demand for a credential is among the empty values that `A2A_SDK` drops, so that it does not cover it.

    `{"schemes": {"key": {"list": []}}}` is such a demand: it is empty all through, and means an API key.
    """
    specified = _without_defaults(card, "card")
    skills = specified.get("skills")
    holders = [specified, *(skills if isinstance(skills, list) else ())]
    parts = [holder.get(name) for holder in holders if isinstance(holder, dict) for name in _SECURITY]
    return any(part is not None and _without_empty(part) != part for part in parts)


def profile_payload(document: JsonObject, canon: Canonicalizer = canonicalize) -> bytes:
    """A profile record without its `signature`."""
    return canon(_without_signature(document, "signature"))


def ard_payload(manifest: JsonObject) -> bytes:
    """A trust manifest without its `signature`. The entry around it is not covered (ARD-19)."""
    return canonicalize(_without_signature(manifest, "signature"))


def adp_payload(domain: str) -> bytes:
    """What `publicKey.proof` signs: the agent's URI (adp.md, ADP-26)."""
    return f"agent:{domain}".encode()


def _without_signature(document: JsonObject, name: str) -> JsonObject:
    return {member: value for member, value in document.items() if member != name}


def _without_defaults(value: Any, kind: str) -> Any:
    if not isinstance(value, dict):
        return value
    droppable, parts = _DEFAULTED[kind]
    kept: JsonObject = {}
    for name, item in value.items():
        if item is None or (name in droppable and item in ("", False, [], {})):
            continue
        kept[name] = _part(name, item, parts[name]) if name in parts else item
    return kept


def _part(name: str, item: Any, kind: str) -> Any:
    if isinstance(item, list):
        return [_without_defaults(each, kind) for each in item]
    if name in _MAPS and isinstance(item, dict):
        return {key: _without_defaults(each, kind) for key, each in item.items()}
    return _without_defaults(item, kind)


def _without_empty(value: Any) -> Any:
    """The value without empty texts, arrays and objects at any depth; None when nothing is left."""
    if isinstance(value, dict):
        return {name: kept for name, item in value.items() if (kept := _without_empty(item)) is not None} or None
    if isinstance(value, list):
        return [kept for item in value if (kept := _without_empty(item)) is not None] or None
    return None if value == "" else value
