"""Parts of an ADP document and the record's members that say the same: capabilities, endpoints, security (neighbours.md §5)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from waypost import limits
from waypost.dialects.codec import residue_name
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of, member
from waypost.model.record import (
    AgentRecord,
    Binding,
    find_object,
    find_text,
    find_texts,
    need_array,
    need_object,
    need_text,
)

PLACE = residue_name("adp")  # where a binding keeps the name of its ADP endpoint
_LANGUAGE = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\Z")
_BOUND = {"chat": ("agp", "streaming"), "tasks": ("https", "request-response"), "swarm": ("https", "request-response")}
_PLAIN = ("wellKnown", "discovery", "webhook")
CAPABILITY_TEXTS = ("input", "output", "interfaces", "languages")


# --- Capabilities ---------------------------------------------------------------------------------


class Abilities(msgspec.Struct, frozen=True):
    """What a record takes from `capabilities`. `description` is empty when none is told."""

    tags: tuple[str, ...] = ()
    description: str = ""
    names: tuple[str, ...] = ()
    pricing: JsonObject = {}


def read_capabilities(value: Any, path: str) -> Abilities:
    items = [
        _capability(item, f"{path}[{index}]")
        for index, item in enumerate(need_array(value, path, limits.JSON_ARRAY_ITEMS))
    ]
    languages = [language for item in items for language in item.get("languages") or ()]
    tags = [item["id"] for item in items] + [f"lang-{language.lower()}" for language in languages]
    told = dict.fromkeys(item["description"] for item in items if (item.get("description") or "").strip())
    return Abilities(
        tags=tuple(tag for tag in dict.fromkeys(tags) if len(tag) <= limits.TAG_CHARS)[: limits.TAGS],
        description=_clipped(" ".join(told), limits.DESCRIPTION_CHARS),
        names=tuple(item.get("name") or item["id"] for item in items),
        pricing={item["id"]: item["pricing"] for item in items if item.get("pricing")},
    )


def _capability(value: Any, path: str) -> JsonObject:
    item = need_object(value, path)
    need_text(item, "id", path, most=limits.ID_CHARS)
    find_text(item, "name", path, most=limits.ID_CHARS)
    find_text(item, "description", path, most=limits.DESCRIPTION_CHARS)
    for name in CAPABILITY_TEXTS:
        find_texts(item, name, path, most=limits.JSON_OBJECT_KEYS, chars=limits.ENDPOINT_CHARS)
    find_object(item, "pricing", path)
    return item


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def write_capabilities(record: AgentRecord, own: Any) -> list[JsonObject]:
    """The document's own wording while it still tells the record's tags and description, else one capability for each tag."""
    pricing = (record.constraints or {}).get("pricing") or {}
    if isinstance(own, list):
        try:
            told = read_capabilities(own, "$")
        except InvalidDocument:  # anybody may write our residue into a profile document
            told = Abilities()
        if told.tags == record.tags and (told.description or record.description) == record.description:
            return own
    spoken = [tag for tag in record.tags if tag.startswith("lang-") and _LANGUAGE.match(tag[5:])]
    ids = [tag for tag in record.tags if tag not in spoken] or ["agent"]
    items: list[JsonObject] = [{"id": tag, "name": tag} for tag in ids]
    items[0]["description"] = record.description
    if spoken:
        items[0]["languages"] = [tag[5:] for tag in spoken]
    for item in items:
        if isinstance(pricing, dict) and isinstance(pricing.get(item["id"]), dict):
            item["pricing"] = pricing[item["id"]]
    return items


# --- Endpoints ------------------------------------------------------------------------------------


def read_endpoints(value: Any, path: str) -> tuple[Binding, ...]:
    """`chat` speaks AGP, `tasks` and `swarm` https. With none of them, the document itself is what can be reached."""
    endpoints = need_object(value, path)
    need_address(endpoints, "wellKnown", path)
    for name in (*_PLAIN, *_BOUND):
        if endpoints.get(name) is not None:
            need_address(endpoints, name, path)
    bound = tuple(
        Binding(protocol=protocol, endpoint=endpoints[name], interaction_model=model, extra={PLACE: name})
        for name, (protocol, model) in _BOUND.items()
        if endpoints.get(name) is not None
    )
    return bound or (Binding(protocol="adp", endpoint=endpoints["wellKnown"]),)


def need_address(endpoints: JsonObject, name: str, path: str) -> str:
    text = need_text(endpoints, name, path, most=limits.ENDPOINT_CHARS)
    if not text.isprintable() or " " in text:
        raise InvalidDocument("An address has no spaces and no control characters.", path=member(path, name))
    return text


def write_endpoints(bindings: tuple[Binding, ...], well_known: str) -> JsonObject:
    """Bindings that came from ADP go back to their place, AGP goes to `chat`; no other protocol is passed off as ADP's."""
    endpoints: JsonObject = {"wellKnown": well_known}
    for binding in bindings:
        place = binding.extra.get(PLACE)
        if isinstance(place, str) and place in _BOUND and binding.protocol == _BOUND[place][0]:
            endpoints.setdefault(place, binding.endpoint)
        elif binding.protocol == "agp":
            endpoints.setdefault("chat", binding.endpoint)
    return endpoints


def reads_as_binding(name: str) -> bool:
    return name in _BOUND


# --- Security -------------------------------------------------------------------------------------


def read_security(value: Any, path: str) -> JsonObject:
    """ADP-29. `tlsRequired` may be missing (a tolerant reader), but not false."""
    if value is None:
        return {}
    security = need_object(value, path)
    required = security.get("tlsRequired")
    if required is not None and required is not True:
        raise InvalidDocument(f"'tlsRequired' must be true, not {kind_of(required)}.", path=member(path, "tlsRequired"))
    find_text(security, "minProtocolVersion", path, most=limits.TAG_CHARS)
    find_texts(security, "authMethods", path, most=limits.FILTER_VALUES, chars=limits.TAG_CHARS)
    find_object(security, "rateLimit", path)
    return security


def read_auth(security: JsonObject) -> JsonObject | None:
    methods = security.get("authMethods")
    return {"schemes": [{"type": method} for method in methods]} if methods else None


def write_security(record: AgentRecord) -> JsonObject:
    """`authMethods` and `rateLimit` when the record tells them in the way they are read; else nothing."""
    security: JsonObject = {}
    methods = _methods(record.auth)
    if methods:
        security["authMethods"] = methods
    rate = (record.constraints or {}).get("rateLimit")
    if isinstance(rate, dict) and rate:
        security["rateLimit"] = rate
    return {"tlsRequired": True, **security} if security else {}


def _methods(auth: Any) -> list[str]:
    schemes = auth.get("schemes") if isinstance(auth, dict) else None
    if not isinstance(schemes, list):
        return []
    types = [scheme.get("type") if isinstance(scheme, dict) else None for scheme in schemes[: limits.FILTER_VALUES]]
    return [kind for kind in types if isinstance(kind, str) and len(kind) <= limits.TAG_CHARS]
