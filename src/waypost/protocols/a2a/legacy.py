"""A2A cards from before 1.0 (neighbours.md §1): 0.3 and 0.2, in camelCase or snake_case, are read; 0.3 is written.

Only names and structure change; the reader of 1.0 cards validates. Members that the other version does not have stay,
as unknown members. Signatures cover the bytes of one form, so a card in another form has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_flag, find_objects, find_text
from waypost.protocols.codec import need_endpoint, rename_members

CAMEL_CASE_NAMES = {
    "supported_interfaces": "supportedInterfaces",
    "default_input_modes": "defaultInputModes",
    "default_output_modes": "defaultOutputModes",
    "documentation_url": "documentationUrl",
    "icon_url": "iconUrl",
    "security_schemes": "securitySchemes",
    "security_requirements": "securityRequirements",
    "preferred_transport": "preferredTransport",
    "additional_interfaces": "additionalInterfaces",
    "protocol_version": "protocolVersion",
    "protocol_binding": "protocolBinding",
    "supports_authenticated_extended_card": "supportsAuthenticatedExtendedCard",
    "supports_extended_agent_card": "supportsExtendedAgentCard",
    "push_notifications": "pushNotifications",
    "state_transition_history": "stateTransitionHistory",
    "extended_agent_card": "extendedAgentCard",
    "input_modes": "inputModes",
    "output_modes": "outputModes",
}
_SECURITY_NAMES = {  # inside security schemes
    "api_key_security_scheme": "apiKeySecurityScheme",
    "http_auth_security_scheme": "httpAuthSecurityScheme",
    "oauth2_security_scheme": "oauth2SecurityScheme",
    "open_id_connect_security_scheme": "openIdConnectSecurityScheme",
    "mtls_security_scheme": "mtlsSecurityScheme",
    "in_": "in",  # of the Python SDK of 0.3
    "bearer_format": "bearerFormat",
    "open_id_connect_url": "openIdConnectUrl",
    "oauth2_metadata_url": "oauth2MetadataUrl",
    "authorization_code": "authorizationCode",
    "client_credentials": "clientCredentials",
    "device_code": "deviceCode",
    "authorization_url": "authorizationUrl",
    "token_url": "tokenUrl",
    "refresh_url": "refreshUrl",
    "device_authorization_url": "deviceAuthorizationUrl",
    "pkce_required": "pkceRequired",
}
_SCHEME_SUFFIX = "SecurityScheme"  # of the one key of a scheme since 1.0
_EXTENDED_CARD = ("supportsExtendedAgentCard", "supportsAuthenticatedExtendedCard")
OLDER_NAMES = (*CAMEL_CASE_NAMES, *_EXTENDED_CARD, "security")  # names in a card that the upgrade changes
_DEFAULT_TRANSPORT = "JSONRPC"
NO_VERSION = "0.0"  # of A2A, for an interface that is not A2A: the member is required, and clients parse it
_OLDEST = "0.2"  # for cards without a version: the member was added in 0.2.5
_OPEN_ACCESS = ("public", "none", "")  # names of no scheme, in the first drafts
_NAMED_SCHEMES: dict[str, JsonObject] = {  # names in the first drafts that are not schemes of HTTP
    "apikey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    "oauth2": {"oauth2SecurityScheme": {"flows": {}}},
    "mtls": {"mtlsSecurityScheme": {}},
    "mutualtls": {"mtlsSecurityScheme": {}},
}
_OPENAPI_SCHEMES = {
    "apiKey": ("apiKeySecurityScheme", {"in": "location"}),
    "http": ("httpAuthSecurityScheme", {}),
    "oauth2": ("oauth2SecurityScheme", {}),
    "openIdConnect": ("openIdConnectSecurityScheme", {}),
    "mutualTLS": ("mtlsSecurityScheme", {}),
}


def is_older_card(document: Mapping[str, Any]) -> bool:
    """Return whether a card has the form of 0.3 or earlier."""
    return "supportedInterfaces" not in document and "supported_interfaces" not in document


def upgrade_card(document: JsonObject) -> JsonObject:
    """Return the card in the 1.0 form; a 1.0 card is unchanged."""
    card = _camel(document, "$")
    is_older = "supportedInterfaces" not in card
    if is_older:
        card = _drop_nulls(card)
    for name in ("capabilities", "provider"):
        if isinstance(card.get(name), dict):
            card[name] = _camel(card[name], f"$.{name}")
    for name in ("skills", "supportedInterfaces"):
        if isinstance(card.get(name), list):
            card[name] = [
                _camel(item, f"$.{name}[{index}]") if isinstance(item, dict) else item
                for index, item in enumerate(card[name])
            ]
    if is_older:
        card = _collect_interfaces(card)
        if isinstance(card.get("name"), str):
            card.setdefault("description", card["name"])
        if isinstance(card.get("skills"), list):
            card["skills"] = [_complete_skill(skill) for skill in card["skills"]]
    return _security(_extended_card(card))


def _drop_nulls(card: JsonObject) -> JsonObject:
    """Drop the members that the first SDKs wrote as null where there was no value, and an empty description."""

    def drop(value: Any) -> Any:
        return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value

    bare: JsonObject = drop(card)
    for name in ("capabilities", "provider"):
        bare |= {name: drop(bare[name])} if name in bare else {}
    if isinstance(bare.get("skills"), list):
        bare["skills"] = [drop(skill) for skill in bare["skills"]]
    if isinstance(bare.get("description"), str) and not bare["description"].strip():
        del bare["description"]
    return bare


def _complete_skill(skill: Any) -> Any:
    """Add the description and the tags that 1.0 requires and that the first drafts leave optional."""
    if not isinstance(skill, dict):
        return skill
    completed = dict(skill)
    if "name" in skill and skill.get("description", "") == "":
        completed["description"] = skill["name"]
    if "id" in skill and skill.get("tags", []) == []:
        completed["tags"] = [skill["id"]]
    return completed


def _camel(value: JsonObject, path: str) -> JsonObject:
    return rename_members(value, CAMEL_CASE_NAMES, path)


def _collect_interfaces(card: JsonObject) -> JsonObject:
    """Combine `url`, `preferredTransport` and `additionalInterfaces` into one list, the preferred interface first."""
    if "url" not in card:
        raise InvalidDocument(
            "The card has no interface.",
            path="$.supportedInterfaces",
            hint='Add [{"url":"https://…","protocolBinding":"JSONRPC","protocolVersion":"1.0"}].',
        )
    moved = {"url", "preferredTransport", "additionalInterfaces", "protocolVersion"}
    version = find_text(card, "protocolVersion", most=limits.TAG_CHARS) or _OLDEST
    transport = find_text(card, "preferredTransport", most=limits.TAG_CHARS) or _DEFAULT_TRANSPORT
    others = find_objects(card, "additionalInterfaces", most=limits.JSON_ARRAY_ITEMS)
    for holder, path in ((card, "$"), *others):  # checked here, so that errors have the path of the older form
        need_interface_url(holder, path)
    interfaces: list[JsonObject] = []
    for item in ({"url": card["url"], "transport": transport}, *(item for item, _ in others)):
        interface = _interface(item, version)
        if interface not in interfaces:  # 0.3 repeats the preferred one in the list
            interfaces.append(interface)
    return {"supportedInterfaces": interfaces} | {name: value for name, value in card.items() if name not in moved}


def need_interface_url(item: JsonObject, path: str) -> None:
    url = need_endpoint(item, "url", path)
    if url.startswith("/"):
        raise InvalidDocument(
            f"{url[:80]!r} has no host.", path=f"{path}.url", hint="A2A requires an absolute URL, such as https://…"
        )


def _interface(item: JsonObject, version: Any) -> JsonObject:
    rest = {name: value for name, value in item.items() if name not in ("url", "transport")}
    binding = item.get("protocolBinding") or item.get("transport") or _DEFAULT_TRANSPORT
    return {"url": item.get("url"), "protocolBinding": binding, "protocolVersion": version} | rest


def _extended_card(card: JsonObject) -> JsonObject:
    claims = [find_flag(card, name) for name in _EXTENDED_CARD]
    for name in _EXTENDED_CARD:
        card.pop(name, None)
    if any(claims) and isinstance(card.get("capabilities", {}), dict):
        card["capabilities"] = {"extendedAgentCard": True} | card.get("capabilities", {})
    return card


# --- Security: OpenAPI's objects become the one-key objects of 1.0 --------------------------------


def _security(card: JsonObject) -> JsonObject:
    schemes = card.get("securitySchemes")
    if isinstance(schemes, dict):
        card["securitySchemes"] = {
            name: _scheme(_camel_scheme(value, member("$.securitySchemes", name))) for name, value in schemes.items()
        }
    elif isinstance(card.get("authentication"), dict) and not card.keys() & {"securitySchemes", "securityRequirements"}:
        card = _authentication(card)
    _requirements(card)
    skills = card.get("skills")
    for skill in skills if isinstance(skills, list) else ():
        if isinstance(skill, dict):
            _requirements(skill)
    return card


def _camel_scheme(value: Any, path: str) -> Any:
    """Rename the members of a scheme, of its body and of its flows; scopes have names of their own."""
    if not isinstance(value, dict):
        return value
    renamed = rename_members(value, _SECURITY_NAMES, path)
    return {
        name: item if name == "scopes" else _camel_scheme(item, member(path, name)) for name, item in renamed.items()
    }


def _scheme(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if (
        not isinstance(kind, str)
        or kind not in _OPENAPI_SCHEMES
        or any(name.endswith(_SCHEME_SUFFIX) for name in value)
    ):
        return value
    name, renamed = _OPENAPI_SCHEMES[kind]
    return {name: {renamed.get(key, key): item for key, item in value.items() if key != "type"}}


def _authentication(card: JsonObject) -> JsonObject:
    """Read the first drafts of 0.2, which only name schemes: `{"schemes": ["bearer"]}`."""
    names = card["authentication"].get("schemes")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return card
    rest = {name: value for name, value in card.items() if name != "authentication"}
    needed = [name for name in names if name.strip().lower() not in _OPEN_ACCESS]
    if not needed:
        return rest
    return rest | {
        "securitySchemes": {name: _named_scheme(name) for name in needed},
        "securityRequirements": [{"schemes": {name: {"list": []}}} for name in needed],
    }


def _named_scheme(name: str) -> JsonObject:
    plain = name.strip().lower()
    return _NAMED_SCHEMES.get(plain.replace("-", "").replace("_", ""), {"httpAuthSecurityScheme": {"scheme": plain}})


def _requirements(holder: JsonObject) -> None:
    """`security: [{"google": ["openid"]}]` becomes `securityRequirements: [{"schemes": {"google": {"list": […]}}}]`."""
    security = holder.get("security")
    if not isinstance(security, list) or "securityRequirements" in holder:
        return
    if all(_is_openapi_requirement(item) for item in security):
        del holder["security"]
        holder["securityRequirements"] = [
            {"schemes": {name: {"list": scopes} for name, scopes in item.items()}} for item in security
        ]


def _is_openapi_requirement(item: Any) -> bool:
    return isinstance(item, Mapping) and all(isinstance(scopes, list) for scopes in item.values())


# --- One flow per scheme --------------------------------------------------------------------------

_OAUTH2 = "oauth2SecurityScheme"
_ALTERNATIVES = 16  # requirements that one becomes; more are not needed by anybody


def split_flows(card: JsonObject) -> JsonObject:
    """Return the card with a scheme for each OAuth flow. Until 0.3 a scheme could have several; clients of 1.0 refuse a card
    with such a scheme."""
    schemes: JsonObject = {}
    names: dict[str, list[str]] = {}  # of a scheme -> of the schemes that it becomes
    for name, scheme in (card.get("securitySchemes") or {}).items():
        body = scheme.get(_OAUTH2)
        flows = body.get("flows") if isinstance(body, dict) else None
        if not isinstance(flows, dict) or len(flows) < 2:
            schemes[name] = scheme
            continue
        for flow, value in flows.items():
            part = f"{name}-{flow}" if name in schemes else name
            names.setdefault(name, []).append(part)
            schemes[part] = {**scheme, _OAUTH2: {**body, "flows": {flow: value}}}
    if not names or len(schemes) != len(card["securitySchemes"]) + sum(len(parts) - 1 for parts in names.values()):
        return card  # nothing to split, or a name is taken
    split = _split_requirements(card | {"securitySchemes": schemes}, names)
    return split | {"skills": [_split_requirements(skill, names) for skill in card.get("skills") or ()]}


def _split_requirements(holder: JsonObject, names: Mapping[str, Sequence[str]]) -> JsonObject:
    """Let a requirement of a split scheme be met by any of its parts."""
    if not holder.get("securityRequirements"):
        return holder
    written: list[JsonObject] = []
    for item in holder["securityRequirements"]:
        schemes = item.get("schemes") or {}
        choices = product(*(names.get(name, (name,)) for name in schemes))
        written += [
            {**item, "schemes": dict(zip(choice, schemes.values(), strict=True))}
            for choice in islice(choices, _ALTERNATIVES)
        ]
    return {**holder, "securityRequirements": written}


# --- 1.0 -> 0.3 -----------------------------------------------------------------------------------

OLDER_VERSION = "0.3.0"
_ONE_KEY_SCHEMES = {
    name: (kind, {new: old for old, new in renamed.items()}) for kind, (name, renamed) in _OPENAPI_SCHEMES.items()
}
_OLDER_MEMBERS = {
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "authentication",
    *_EXTENDED_CARD,
}
_HISTORY = "stateTransitionHistory"  # a capability until 0.3
_REPLACED = ("supportedInterfaces", "securityRequirements", "securitySchemes", "signatures")


def to_current_form(received: JsonObject | None, card: JsonObject) -> JsonObject:
    """Return an agent's card in the form of 1.0. `received` is what its publisher sent, if it was a card; `card` is made
    from the record. Of a signed card nothing is left out: the signature may cover it."""
    if received is None:
        return card
    if _is_current(received):
        return received if received.get("signatures") else _drop_older_members(received)
    return _drop_older_members({name: value for name, value in card.items() if name != "signatures"})


def _is_current(card: JsonObject) -> bool:
    """Return whether a card has the form of 1.0, perhaps with the members of 0.3 beside it."""
    return upgrade_card(card) == {name: value for name, value in card.items() if name not in _EXTENDED_CARD}


def _drop_older_members(card: JsonObject) -> JsonObject:
    """Return a card of 1.0 without the members of 0.3 beside its own, as SDKs serve it; the same object if it has none."""
    bare = _drop_security({name: value for name, value in card.items() if name not in _OLDER_MEMBERS})
    if isinstance(bare.get("capabilities"), dict):
        bare["capabilities"] = {name: value for name, value in bare["capabilities"].items() if name != _HISTORY}
    if bare.get("skills"):
        bare["skills"] = [_drop_security(skill) for skill in bare["skills"]]
    if bare.get("securitySchemes"):
        bare["securitySchemes"] = {name: _drop_type(scheme) for name, scheme in bare["securitySchemes"].items()}
    return card if bare == card else bare


def _drop_security(holder: JsonObject) -> JsonObject:
    return {name: value for name, value in holder.items() if name != "security" or "securityRequirements" not in holder}


def _drop_type(scheme: JsonObject) -> JsonObject:
    current = {name: value for name, value in scheme.items() if name.endswith(_SCHEME_SUFFIX)}
    return current if current and "type" in scheme else scheme


def to_older_form(received: JsonObject | None, card: JsonObject) -> JsonObject:
    """Return an agent's card in the form of 0.3; the arguments are those of `to_current_form`."""
    if received is not None and is_older_card(received):
        return received
    return downgrade_card(to_current_form(received, card))


def to_both_forms(received: JsonObject | None, card: JsonObject) -> JsonObject:
    """Return an agent's card in the form of 1.0 with the members of 0.3 beside it; the arguments are those of
    `to_current_form`. A card that its publisher signed stays as it is: not every verifier ignores unsigned members."""
    current = to_current_form(received, card)
    if current.get("signatures"):
        return current
    both = add_older_members(current)
    history = (card.get("capabilities") or {}).get(_HISTORY)
    return both if history is None else both | {"capabilities": {**both["capabilities"], _HISTORY: history}}


def add_older_members(card: JsonObject) -> JsonObject:
    """Return a valid 1.0 card with the members of 0.3 beside its own, so that clients of both versions read it. The SDKs do
    the same when they serve a card: 1.0 was made so that no name has two meanings."""
    older = downgrade_card(card)
    both = _add_missing(card, older)
    both["skills"] = [_add_missing(*pair) for pair in zip(card.get("skills") or (), older["skills"], strict=True)]
    schemes = card.get("securitySchemes")
    if schemes:
        both["securitySchemes"] = {
            name: _add_missing(scheme, older["securitySchemes"][name]) for name, scheme in schemes.items()
        }
    return both


def _add_missing(current: JsonObject, older: JsonObject) -> JsonObject:
    return current | {name: value for name, value in older.items() if name not in current}


def downgrade_card(card: JsonObject) -> JsonObject:
    """Return a valid 1.0 card in the form of 0.3. Interfaces of 0.x, if there are any, come first: a client of 0.3 uses
    `url`."""
    first, *others = sorted(card["supportedInterfaces"], key=lambda item: not _is_older(item.get("protocolVersion")))
    written: JsonObject = {
        "protocolVersion": OLDER_VERSION,
        "url": first["url"],
        "preferredTransport": first["protocolBinding"],
    }
    listed: list[JsonObject] = []
    for item in map(_older_interface, (first, *others)):
        if item not in listed:  # without their versions, two interfaces may be the same
            listed.append(item)
    if len(listed) > 1:
        written["additionalInterfaces"] = listed
    written |= {name: value for name, value in card.items() if name not in _REPLACED and name not in written}
    capabilities = dict(card.get("capabilities") or {})
    if capabilities.pop("extendedAgentCard", None):
        written["supportsAuthenticatedExtendedCard"] = True
    written["capabilities"] = capabilities
    for name in ("defaultInputModes", "defaultOutputModes"):
        written.setdefault(name, [])
    written["skills"] = [_older_requirements({"tags": []} | skill) for skill in card.get("skills") or ()]
    schemes = card.get("securitySchemes")
    if schemes:
        written["securitySchemes"] = {name: _older_scheme(scheme) for name, scheme in schemes.items()}
    return written | _older_requirements({name: card[name] for name in ("securityRequirements",) if card.get(name)})


def _is_older(version: Any) -> bool:
    return isinstance(version, str) and version.startswith("0.") and version != NO_VERSION


def _older_interface(item: JsonObject) -> JsonObject:
    rest = {name: value for name, value in item.items() if name not in ("url", "protocolBinding", "protocolVersion")}
    return {"url": item["url"], "transport": item["protocolBinding"]} | rest


def _older_scheme(scheme: JsonObject) -> JsonObject:
    for name, (kind, renamed) in _ONE_KEY_SCHEMES.items():
        if isinstance(scheme.get(name), dict):
            return {"type": kind} | {renamed.get(key, key): value for key, value in scheme[name].items()}
    return scheme


def _older_requirements(holder: JsonObject) -> JsonObject:
    if "securityRequirements" not in holder:
        return holder
    requirements = holder["securityRequirements"] or ()
    rest = {name: value for name, value in holder.items() if name != "securityRequirements"}
    return rest | {
        "security": [
            {name: _scopes(value) for name, value in (item.get("schemes") or {}).items()} for item in requirements
        ]
    }


def _scopes(value: Any) -> list[str]:
    return list(value.get("list") or ()) if isinstance(value, dict) else list(value)
