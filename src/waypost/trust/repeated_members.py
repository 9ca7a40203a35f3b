"""A2A cards that have the members of 0.3 beside those of 1.0, as the SDKs serve them.

The SDKs sign the members of 1.0 and add the others when they serve the card. What is added is not signed, so it may only
repeat what is. It may tell less: 0.3 has no PKCE, no device flow and no tenants.
"""

from __future__ import annotations

from typing import Any, Final

from waypost.model.json import JsonObject

_INTERFACE: Final = frozenset({"url", "preferredTransport", "protocolVersion"})  # of the preferred one
_ADDED: Final = _INTERFACE | {"additionalInterfaces", "security", "supportsAuthenticatedExtendedCard"}
_VERSIONS: Final = frozenset({"0.3", "0.3.0"})  # of the added members
_SCHEMES: Final = {  # the one member of a scheme -> its type in 0.3
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


def drop_repeated_members(card: JsonObject) -> JsonObject | None:
    """Return a 1.0 card without the members of 0.3; None if it has none, or one that does not repeat a member of 1.0."""
    try:
        bare = {name: value for name, value in card.items() if name not in _ADDED}
        if "skills" in card:
            bare["skills"] = [_drop_from_skill(skill) for skill in card["skills"]]
        if "securitySchemes" in card:
            schemes = card["securitySchemes"].items()
            bare["securitySchemes"] = {name: _drop_from_scheme(scheme) for name, scheme in schemes}
        is_repeated = _repeats_interfaces(card) and _repeats_security(card) and _repeats_extended_card(card)
    except (AttributeError, KeyError, TypeError, ValueError):  # of another shape than a card has
        return None
    return bare if is_repeated and bare != card else None


def _repeats_interfaces(card: JsonObject) -> bool:
    signed = {(item["url"], item["protocolBinding"]) for item in card["supportedInterfaces"]}
    added = [(item["url"], item["transport"]) for item in card.get("additionalInterfaces", [])]
    if any(item.keys() != {"url", "transport"} for item in card.get("additionalInterfaces", [])):
        return False
    if added or card.keys() & _INTERFACE:  # a client of 0.3 takes JSON-RPC and 0.3 for granted
        added.append((card["url"], card.get("preferredTransport", "JSONRPC")))
    versions = _VERSIONS | {item.get("protocolVersion") for item in card["supportedInterfaces"]}
    version = card.get("protocolVersion", "0.3")
    return version.startswith("0.") and version in versions and signed.issuperset(added)


def _repeats_extended_card(card: JsonObject) -> bool:
    name = "supportsAuthenticatedExtendedCard"
    return name not in card or card[name] is card["capabilities"].get("extendedAgentCard", False)


def _repeats_security(holder: JsonObject) -> bool:
    """A requirement that was left out would open what is closed, so they are all there."""
    if "security" not in holder:
        return True
    signed = [
        {name: scopes.get("list", []) for name, scopes in item.get("schemes", {}).items()}
        for item in holder.get("securityRequirements", [])
    ]
    return bool(holder["security"] == signed)


def _drop_from_skill(skill: JsonObject) -> JsonObject:
    if not _repeats_security(skill):
        raise ValueError
    return {name: value for name, value in skill.items() if name != "security"}


def _drop_from_scheme(scheme: JsonObject) -> JsonObject:
    [(name, body)] = [(name, body) for name, body in scheme.items() if name in _SCHEMES]
    added = {key: value for key, value in scheme.items() if key != name}
    signed = {"in" if key == "location" else key: value for key, value in body.items()} | {"type": _SCHEMES[name]}
    if added and not ("type" in added and _is_part(added, signed)):
        raise ValueError
    return {name: body}


def _is_part(added: Any, signed: Any) -> bool:
    """Return whether everything that is added is signed. Empty objects, such as `scopes`, may be left out of what is."""
    if isinstance(added, dict) and isinstance(signed, dict):
        return all(_is_part(value, signed.get(name, {})) for name, value in added.items())
    return bool(added == signed)
