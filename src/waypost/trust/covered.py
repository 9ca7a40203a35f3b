"""What the signatures of each dialect cover, as bytes. Signing and verifying ask the same functions.

An A2A card is signed without its `signatures` and without members that only repeat a default (neighbours.md §1). `_DEFAULTED`
says for each object of a card which members these are; required members and those that tell absent from default stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from waypost.model.json import JsonObject
from waypost.trust.canonical import JCS, canonical

Canon: TypeAlias = Callable[[Any], bytes]
A2A = "a2a"
A2A_SDK = "a2a-sdk"
_DESCRIBED = ("description",)
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
    "api-key": (_DESCRIBED, {}),
    "described": (_DESCRIBED, {}),
    "http": ((*_DESCRIBED, "bearerFormat"), {}),
    "oauth2": ((*_DESCRIBED, "oauth2MetadataUrl"), {"flows": "flows"}),
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
    return canonical(_without_defaults(_unsigned(card, "signatures"), "card"))


def a2a_payload_forms(card: JsonObject) -> tuple[tuple[str, bytes], ...]:
    """The forms that are found signed, that of the specification first: others drop every empty value, or none."""
    bare = _unsigned(card, "signatures")
    specified = _without_defaults(bare, "card")
    return (
        (A2A, canonical(specified)),
        (A2A_SDK, canonical(_without_empty(specified) or {})),
        (JCS, canonical(bare)),
    )


def sdk_form_leaves_out_security(card: JsonObject) -> bool:
    """Whether a demand for a credential is among the empty values that `A2A_SDK` drops, so that it does not cover it.

    `{"schemes": {"key": {"list": []}}}` is such a demand: it is empty all through, and means an API key.
    """
    specified = _without_defaults(card, "card")
    skills = specified.get("skills")
    holders = [specified, *(skills if isinstance(skills, list) else ())]
    parts = [holder.get(name) for holder in holders if isinstance(holder, dict) for name in _SECURITY]
    return any(part is not None and _without_empty(part) != part for part in parts)


def profile_payload(document: JsonObject, canon: Canon = canonical) -> bytes:
    """A profile record without its `signature`."""
    return canon(_unsigned(document, "signature"))


def ard_payload(manifest: JsonObject) -> bytes:
    """A trust manifest without its `signature`. The entry around it is not covered (ARD-19)."""
    return canonical(_unsigned(manifest, "signature"))


def adp_payload(domain: str) -> bytes:
    """What `publicKey.proof` signs: the agent's URI (adp.md, ADP-26)."""
    return f"agent:{domain}".encode()


def _unsigned(document: JsonObject, name: str) -> JsonObject:
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
