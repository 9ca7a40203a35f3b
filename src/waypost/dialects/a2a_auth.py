"""A2A's security schemes and requirements <-> the record's `auth` (neighbours.md §1, §5).

`auth` is `{"schemes": [{"id","type",…,"scopes"?}], "required": bool}`; types are OpenAPI's. It knows no transport and checks
no credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_object, find_objects, find_text, find_texts, need_object

# scheme member -> (type in `auth`, member names there)
_SCHEMES: dict[str, tuple[str, dict[str, str]]] = {
    "apiKeySecurityScheme": ("apiKey", {"location": "in", "name": "name"}),
    "httpAuthSecurityScheme": ("http", {"scheme": "scheme", "bearerFormat": "bearer_format"}),
    "oauth2SecurityScheme": ("oauth2", {"flows": "flows", "oauth2MetadataUrl": "metadata_url"}),
    "openIdConnectSecurityScheme": ("openIdConnect", {"openIdConnectUrl": "url"}),
    "mtlsSecurityScheme": ("mutualTLS", {}),
}
_BY_TYPE = {kind: (name, members) for name, (kind, members) in _SCHEMES.items()}
_SPELLINGS: dict[str, JsonObject] = {  # how other dialects name the same thing
    "bearer": {"type": "http", "scheme": "bearer"},
    "bearer_token": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "api-key": {"type": "apiKey"},
    "apikey": {"type": "apiKey"},
    "mtls": {"type": "mutualTLS"},
}
_API_KEY_DEFAULTS = {"location": "header", "name": "X-API-Key"}


def read_auth(card: Mapping[str, Any]) -> JsonObject | None:
    schemes = find_object(card, "securitySchemes") or {}
    requirements = read_requirements(card)
    if not schemes and not requirements:
        return None
    scopes = _scopes(requirements)
    names = [*scopes, *sorted(schemes)]  # an object has no order: the requirements', then the alphabet's
    listed = [_scheme(name, schemes[name], scopes.get(name)) for name in dict.fromkeys(names) if name in schemes]
    return {"schemes": listed, "required": bool(requirements) and all(requirements)}


def _scheme(name: str, value: Any, scopes: list[str] | None) -> JsonObject:
    path = member("$.securitySchemes", name)
    scheme = need_object(value, path)
    known = [key for key in scheme if key in _SCHEMES]
    if len(known) > 1:
        raise InvalidDocument(
            "A security scheme has exactly one key.", path=path, hint=f"Keep one of {', '.join(known)}."
        )
    if not known:
        return {"id": name, "type": "other"}
    kind, members = _SCHEMES[known[0]]
    where = member(path, known[0])
    body = need_object(scheme[known[0]], where)
    for key in members:
        if key == "flows":
            find_object(body, key, where)
        else:
            find_text(body, key, where, most=limits.ENDPOINT_CHARS)
    told = {members[key]: item for key, item in body.items() if key in members}
    return {"id": name, "type": kind} | told | ({"scopes": scopes} if scopes else {})


def read_requirements(holder: Mapping[str, Any], path: str = "$") -> list[dict[str, list[str]]]:
    """Each requirement of a card or a skill as {scheme: scopes}; any one of them is enough."""
    items = find_objects(holder, "securityRequirements", path, most=limits.JSON_ARRAY_ITEMS)
    return [_requirement(item, where) for item, where in items]


def _requirement(item: JsonObject, path: str) -> dict[str, list[str]]:
    schemes = find_object(item, "schemes", path) or {}
    return {name: _listed(value, member(f"{path}.schemes", name)) for name, value in schemes.items()}


def _listed(value: Any, path: str) -> list[str]:
    """`{"list": […]}`, or the array alone."""
    holder = {"list": value} if isinstance(value, list) else need_object(value, path)
    return list(find_texts(holder, "list", path, most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS))


def _scopes(requirements: list[dict[str, list[str]]]) -> dict[str, list[str]]:
    scopes: dict[str, list[str]] = {}
    for requirement in requirements:
        for name, listed in requirement.items():
            known = scopes.setdefault(name, [])
            known.extend(scope for scope in listed if scope not in known)
    return scopes


def write_auth(auth: Any) -> JsonObject:
    """`securitySchemes` and `securityRequirements`, as far as `auth` names schemes that A2A has; else nothing."""
    items = auth.get("schemes") if isinstance(auth, dict) else None
    schemes: JsonObject = {}
    requirements: list[JsonObject] = []
    for item in items if isinstance(items, list) else ():
        scheme = _spelled(item)
        if scheme is None:
            continue
        own = scheme.get("id")
        name = own if isinstance(own, str) else str(scheme["type"])
        schemes[name] = _written(scheme)
        requirements.append({"schemes": {name: {"list": _texts(scheme.get("scopes"))}}})
    if not schemes:
        return {}
    required = auth.get("required") is True
    return {"securitySchemes": schemes} | ({"securityRequirements": requirements} if required else {})


def _spelled(item: Any) -> JsonObject | None:
    kind = item.get("type") if isinstance(item, dict) else item
    if not isinstance(kind, str):
        return None
    scheme = (item if isinstance(item, dict) else {}) | _SPELLINGS.get(kind.lower(), {"type": kind})
    return scheme if scheme["type"] in _BY_TYPE else None


def _written(scheme: JsonObject) -> JsonObject:
    name, members = _BY_TYPE[scheme["type"]]
    kinds = {"flows": dict}
    body = {key: scheme[told] for key, told in members.items() if isinstance(scheme.get(told), kinds.get(key, str))}
    if name == "apiKeySecurityScheme":
        body = _API_KEY_DEFAULTS | body
    elif name == "oauth2SecurityScheme" and "flows" not in body:
        body["flows"] = {"authorizationCode": _code_flow(scheme)}
    elif name == "httpAuthSecurityScheme":
        body = {"scheme": "bearer"} | body
    return {name: body}


def _code_flow(scheme: JsonObject) -> JsonObject:
    """The profile's own wording of OAuth (profile.md, gaps): two URLs and scopes."""
    flow = {"authorizationUrl": scheme.get("authorization_url"), "tokenUrl": scheme.get("token_url")}
    scopes = dict.fromkeys(_texts(scheme.get("scopes")), "")
    return {name: url for name, url in flow.items() if isinstance(url, str)} | {"scopes": scopes}


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
