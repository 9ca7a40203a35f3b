"""A2A cards that have the members of 0.3 beside those of 1.0, as the SDKs serve them.

The SDKs sign the members of 1.0 and add the others when they serve the card. What is added is not signed, so it may only
repeat what is.
"""

from __future__ import annotations

from typing import Any, Final

from waypost.model.json import JsonObject

_INTERFACES: Final = frozenset({"url", "preferredTransport", "additionalInterfaces"})
_ADDED: Final = _INTERFACES | {"protocolVersion", "security", "supportsAuthenticatedExtendedCard"}
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
        bare |= {name: _drop_from(name, card[name]) for name in ("skills", "securitySchemes") if name in card}
        is_repeated = _repeats_interfaces(card) and _repeats_security(card) and _repeats_extended_card(card)
    except (AttributeError, KeyError, TypeError, ValueError):  # of another shape than a card has
        return None
    return bare if is_repeated and bare != card else None


def _drop_from(name: str, value: Any) -> Any:
    if name == "skills":
        return [_drop_from_skill(skill) for skill in value]
    return {key: _drop_from_scheme(scheme) for key, scheme in value.items()}


def _repeats_interfaces(card: JsonObject) -> bool:
    signed = {(item["url"], item["protocolBinding"]) for item in card["supportedInterfaces"]}
    added = [{"url": card["url"], "transport": card.get("preferredTransport", "JSONRPC")}] if "url" in card else []
    added += card.get("additionalInterfaces") or []
    is_older = str(card.get("protocolVersion", "0.3")).startswith("0.")
    return is_older and all(
        item.keys() == {"url", "transport"} and (item["url"], item["transport"]) in signed for item in added
    )


def _repeats_extended_card(card: JsonObject) -> bool:
    name = "supportsAuthenticatedExtendedCard"
    return name not in card or card[name] == card["capabilities"].get("extendedAgentCard", False)


def _repeats_security(holder: JsonObject) -> bool:
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
    repeated = {"in" if key == "location" else key: value for key, value in body.items()} | {"type": _SCHEMES[name]}
    if added and added != repeated:
        raise ValueError
    return {name: body}
