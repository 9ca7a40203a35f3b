"""A2A agent cards (neighbours.md §1, §5): 1.0 is written; 1.0, 0.3 and 0.2 are read.

A card has no id. Its id is the URL it was fetched from, else that of its first interface (with `#tenant`).

The remainder is one entry of `capabilities.extensions`, with the URI EXTENSION. A2A intends that list for additional
data and clients ignore unknown entries; the entry is never `required`, and is left out if the card expresses the whole
record.

A binding that is not A2A's becomes an interface with the URN `urn:waypost:binding:<protocol>`, which no client takes
for A2A, and without A2A's version.

`signatures` are kept verbatim in the residue. The first is also the record's `signature`, with the source `a2a-jws`;
`trust` verifies it. Security schemes and requirements map to the record's `auth`: `{"schemes":
[{"id","type",…,"scopes"?}], "required": bool}` with OpenAPI's types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from msgspec.structs import replace

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.names import hash_slug
from waypost.model.record import (
    AgentRecord,
    Binding,
    Example,
    MappingLoss,
    check_id,
    find_flag,
    find_object,
    find_objects,
    find_text,
    find_texts,
    need_array,
    need_object,
    need_text,
)
from waypost.protocols.a2a.legacy import (
    NO_VERSION,
    OLDER_NAMES,
    is_older_card,
    need_interface_url,
    split_flows,
    upgrade_card,
)
from waypost.protocols.codec import (
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    collect_tags,
    cut_losses,
    make_remainder,
    need_cut_text,
    residue_members,
    residue_name,
    residue_of,
    restore_wording,
    sort_by_priority,
    truncate_text,
    unknown_members,
)
from waypost.protocols.record_reader import MEDIA_TYPE_CHARS, check_times

EXTENSION = "urn:waypost:record"
PROTOCOL_VERSION = "1.0"
TAG = "a2a"
_RESIDUE = residue_name("a2a")
_PROTOCOLS = {"JSONRPC": "a2a+jsonrpc", "GRPC": "a2a+grpc", "HTTP+JSON": "a2a+http-json"}
_BINDINGS = {protocol: binding for binding, protocol in _PROTOCOLS.items()} | {TAG: "JSONRPC"}
_FOREIGN_BINDING = "urn:waypost:binding:"  # then the protocol of a binding that is not A2A
_FLAGS = ("streaming", "pushNotifications", "extendedAgentCard")
_DEFAULT_MODES = ("text/plain",)
_DEFAULT_VERSION = "1.0.0"
_BOUNDS = {"name": limits.NAME_CHARS, "description": limits.DESCRIPTION_CHARS}
_GROUPS = (
    MemberGroup(("name",), ("name",)),
    MemberGroup(
        ("supportedInterfaces", "capabilities", "defaultInputModes", "defaultOutputModes"), ("bindings", "constraints")
    ),
    MemberGroup(("description", "skills"), ("description", "tags", "examples")),
    MemberGroup(("securitySchemes", "securityRequirements", "authentication"), ("auth",)),
    MemberGroup(("signatures",), ("signature",)),
    MemberGroup(("provider", "documentationUrl", "iconUrl"), ()),
    MemberGroup(OLDER_NAMES, ()),
)
_INTERFACE_LISTS = ("supportedInterfaces", "supported_interfaces", "additionalInterfaces", "additional_interfaces")
_NO_BINDING = "An A2A card needs an interface; the record has no binding."
_NO_HOST = "An A2A interface needs an absolute URL; the endpoints of the record have no host."


class A2ACodec(Codec):
    name = "a2a"
    loses = ("$.bindings",)

    def recognises(self, document: Mapping[str, Any]) -> bool:
        if "supportedInterfaces" in document or "supported_interfaces" in document:
            return True
        older = "url" in document and isinstance(document.get("skills"), list) and "schema_version" not in document
        return older and ("capabilities" in document or "defaultInputModes" in document)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        card, carried, path = _split_carried(upgrade_card(_resolve_urls(document, context.source_url)))
        native = read_card(card)
        record = apply_remainder(_with_residue(native, card), carried, path)
        if carries_id(carried):
            aliases: tuple[str, ...] = ()
        else:
            record, aliases = _with_source_url(record, context.source_url)
        check_times(record, context.now, updated_at=path, expires_at=path)
        return Decoded(
            record=record,
            source_id=record.id,
            aliases=aliases,
            losses=() if carried else cut_losses(card, _BOUNDS),
            warnings=tuple(_warnings(document, card)),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        residue = residue_of(record, self.name, "capabilities")
        bindings = tuple(binding for binding in record.bindings if not binding.endpoint.startswith("/"))
        written = _write(replace(record, bindings=bindings))
        card = split_flows(restore_wording(written, residue, record, _GROUPS, _read_written))
        if not bindings:
            reason = _NO_HOST if record.bindings else _NO_BINDING
            return Encoded(document=card, losses=(MappingLoss("$.bindings", reason),))
        carried = make_remainder(record, _with_residue(read_card(card), card))
        return Encoded(document=_with_carried(card, carried) if carried else card)


def _with_residue(record: AgentRecord, card: JsonObject) -> AgentRecord:
    return attach_residue(record, "a2a", residue_members(card, _write(record)))


def _with_source_url(record: AgentRecord, source_url: str | None) -> tuple[AgentRecord, tuple[str, ...]]:
    """Use the URL of a fetched card as its id; the interface stays as an alias."""
    if source_url is None or source_url == record.id:
        return record, ()
    from_card = record.id
    return replace(record, id=check_id(source_url, "$")), (from_card,)


def _read_written(card: JsonObject) -> AgentRecord:
    """Read a card that is about to be written. A residue edited by hand may have older names, which would be read
    differently."""
    if upgrade_card(card) != card:
        raise InvalidDocument("The card has member names from before 1.0.", path="$")
    return read_card(card)


# --- Card -> record -------------------------------------------------------------------------------


def read_a2a_document(document: JsonObject) -> AgentRecord:
    """Read the native members of a card of any version, e.g. one that another document embeds."""
    return read_card(upgrade_card(document))


def read_card(card: JsonObject) -> AgentRecord:
    """Read the native members of a 1.0 card."""
    capabilities = _capabilities(card)
    interfaces = _interfaces(card)
    skills = _skills(card)
    _check_unmapped(card)
    return AgentRecord(
        id=_identity(interfaces[0]),
        name=need_cut_text(card, "name", most=limits.NAME_CHARS),
        description=_description(card, skills),
        bindings=_read_bindings(card, interfaces, capabilities),
        tags=_tags(skills),
        examples=_examples(skills),
        auth=read_auth(card),
        constraints=_constraints(capabilities, interfaces[0]),
        version=need_text(card, "version", most=limits.VERSION_CHARS),
        signature=_signature(card),
    )


def _check_unmapped(card: JsonObject) -> None:
    provider = find_object(card, "provider") or {}
    for name in ("organization", "url"):
        find_text(provider, name, "$.provider", most=limits.ENDPOINT_CHARS)
    for name in ("documentationUrl", "iconUrl"):
        find_text(card, name, most=limits.ENDPOINT_CHARS)


def _capabilities(card: JsonObject) -> JsonObject:
    capabilities = find_object(card, "capabilities") or {}
    for name in _FLAGS:
        find_flag(capabilities, name, "$.capabilities")
    return capabilities


def _interfaces(card: JsonObject) -> list[JsonObject]:
    path = "$.supportedInterfaces"
    items: list[JsonObject] = need_array(card.get("supportedInterfaces"), path, limits.JSON_ARRAY_ITEMS)
    if not items:
        raise InvalidDocument(
            "The card has no interface.",
            path=path,
            hint='Add {"url":"https://…","protocolBinding":"JSONRPC","protocolVersion":"1.0"}.',
        )
    for index, item in enumerate(items):
        _check_interface(need_object(item, f"{path}[{index}]"), f"{path}[{index}]")
    return items


def _resolve_urls(card: JsonObject, source_url: str | None) -> JsonObject:
    """Return a card of any version with the paths among its URLs as URLs of the host that served it."""
    if source_url is None:
        return card
    resolved: JsonObject = _resolve_url(card, source_url)
    for name in _INTERFACE_LISTS:
        if isinstance(card.get(name), list):
            resolved = resolved | {name: [_resolve_url(item, source_url) for item in card[name]]}
    return resolved


def _resolve_url(item: Any, source_url: str) -> Any:
    url = item.get("url") if isinstance(item, dict) else None
    return {**item, "url": urljoin(source_url, url)} if isinstance(url, str) and url.startswith("/") else item


def _check_interface(item: JsonObject, path: str) -> None:
    need_interface_url(item, path)
    need_text(item, "protocolBinding", path, most=limits.ENDPOINT_CHARS)
    find_text(item, "protocolVersion", path, most=limits.TAG_CHARS)
    find_text(item, "tenant", path, most=limits.ID_CHARS)


def _identity(interface: JsonObject) -> str:
    """Return the interface's URL and tenant; a digest if they are too long for an id."""
    tenant = interface.get("tenant")
    name = interface["url"] + (f"#{tenant}" if tenant else "")
    return check_id(name if len(name) <= limits.ID_CHARS else hash_slug(name), "$.supportedInterfaces[0]")


def _read_bindings(card: JsonObject, interfaces: list[JsonObject], capabilities: JsonObject) -> tuple[Binding, ...]:
    modes = [
        mode
        for name in ("defaultInputModes", "defaultOutputModes")
        for mode in find_texts(card, name, most=limits.JSON_ARRAY_ITEMS, chars=MEDIA_TYPE_CHARS)
    ]
    media_types = tuple(dict.fromkeys(modes))
    model = "streaming" if capabilities.get("streaming") is True else None
    return tuple(
        Binding(
            protocol=_protocol(item["protocolBinding"]),
            endpoint=item["url"],
            media_types=media_types[: limits.FILTER_VALUES],
            interaction_model=model,
            priority=index,
            extra=_interface_residue(item),
        )
        for index, item in enumerate(interfaces[: limits.BINDINGS])
    )


def _protocol(binding: str) -> str:
    """Return the record's name of a `protocolBinding`, also of one in lower case. A custom one keeps its own, if it is
    short enough."""
    if binding.upper() in _PROTOCOLS:
        return _PROTOCOLS[binding.upper()]
    name = binding.removeprefix(_FOREIGN_BINDING)
    return name if name.strip() and len(name) <= limits.TAG_CHARS else TAG


def _interface_residue(item: JsonObject) -> dict[str, Any]:
    rest = unknown_members(item, ("url",))
    written = _write_binding(_protocol(rest["protocolBinding"]))
    for name in ("protocolBinding", "protocolVersion"):
        if rest.get(name) == written[name]:
            del rest[name]
    return {_RESIDUE: rest} if rest else {}


def _skills(card: JsonObject) -> list[JsonObject]:
    items = find_objects(card, "skills", most=limits.JSON_ARRAY_ITEMS)
    for item, path in items:
        need_text(item, "id", path, most=limits.ID_CHARS)
        need_text(item, "name", path, most=limits.ID_CHARS)
        need_text(item, "description", path, most=limits.DOCUMENT_BYTES, blank=True)
        for name in ("tags", "examples", "inputModes", "outputModes"):
            find_texts(item, name, path, most=limits.JSON_ARRAY_ITEMS, chars=limits.DOCUMENT_BYTES)
        read_requirements(item, path)
    return [item for item, _ in items]


def _description(card: JsonObject, skills: list[JsonObject]) -> str:
    """Return the card's text and a line for each skill that adds to it, up to the limit."""
    text = need_cut_text(card, "description", most=limits.DESCRIPTION_CHARS)
    for skill in skills:
        line = f"\n{skill['name']}: {skill['description'].strip()}"
        if skill["description"].strip() not in text and len(text) + len(line) <= limits.DESCRIPTION_CHARS:
            text += line
    return text


def _tags(skills: list[JsonObject]) -> tuple[str, ...]:
    own = [tag for skill in skills for tag in skill.get("tags") or ()]
    tags = collect_tags(own, [skill["id"] for skill in skills])
    return (*[tag for tag in tags if tag != TAG][: limits.TAGS - 1], TAG)


def _examples(skills: list[JsonObject]) -> tuple[Example, ...]:
    examples = [
        Example(
            id=f"{skill['id']}-{number}"[: limits.ID_CHARS],
            text=truncate_text(text, limits.EXAMPLE_CHARS),
            tags=collect_tags(skill.get("tags") or ()),
        )
        for skill in skills
        for number, text in enumerate(skill.get("examples") or (), 1)
        if text.strip()
    ]
    return tuple(examples[: limits.EXAMPLES])


def _constraints(capabilities: JsonObject, first: JsonObject) -> JsonObject | None:
    constraints: JsonObject = {}
    uris = [item["uri"] for item in _extensions(capabilities) if item.get("required") is True]
    if uris:
        constraints["required_extensions"] = uris
    if first.get("tenant"):
        constraints["tenant"] = first["tenant"]
    return constraints or None


def _extensions(capabilities: JsonObject) -> list[JsonObject]:
    items = find_objects(capabilities, "extensions", "$.capabilities", most=limits.JSON_ARRAY_ITEMS)
    for item, path in items:
        need_text(item, "uri", path, most=limits.ENDPOINT_CHARS)
        find_text(item, "description", path, most=limits.DOCUMENT_BYTES)
        find_flag(item, "required", path)
        find_object(item, "params", path)
    return [item for item, _ in items]


def _signature(card: JsonObject) -> JsonObject | None:
    items = find_objects(card, "signatures", most=limits.JSON_ARRAY_ITEMS)
    for item, path in items:
        for name in ("protected", "signature"):
            need_text(item, name, path, most=limits.DOCUMENT_BYTES)
        find_object(item, "header", path)
    return {**items[0][0], "source": "a2a-jws"} if items else None


def _warnings(document: JsonObject, card: JsonObject) -> list[str]:
    missing = ("capabilities", "defaultInputModes", "defaultOutputModes", "skills")
    warnings = [f"$.{name}: A2A requires it; read as empty." for name in missing if name not in card]
    if is_older_card(document):
        warnings.append("$.url: a card from before A2A 1.0; it is written in the 1.0 form.")
    return warnings


# --- Record -> card -------------------------------------------------------------------------------


def _write(record: AgentRecord) -> JsonObject:
    """Write the card from the record's members, with every REQUIRED member."""
    streaming = any(binding.interaction_model == "streaming" for binding in record.bindings)
    modes = list(dict.fromkeys(mode for binding in record.bindings for mode in binding.media_types))
    card: JsonObject = {
        "name": record.name,
        "description": record.description,
        "supportedInterfaces": [_write_interface(binding) for binding in sort_by_priority(record.bindings)],
        "version": record.version if record.version and record.version.strip() else _DEFAULT_VERSION,
        "capabilities": {"streaming": True} if streaming else {},
        "defaultInputModes": modes[: limits.FILTER_VALUES] or [*_DEFAULT_MODES],
        "defaultOutputModes": modes[: limits.FILTER_VALUES] or [*_DEFAULT_MODES],
        "skills": [_write_skill(record)],
    }
    return card | write_auth(record.auth)


def _write_binding(protocol: str, *, is_link: bool = False) -> JsonObject:
    if protocol in _BINDINGS and not is_link:
        return {"protocolBinding": _BINDINGS[protocol], "protocolVersion": PROTOCOL_VERSION}
    return {"protocolBinding": f"{_FOREIGN_BINDING}{protocol}", "protocolVersion": NO_VERSION}


def _write_interface(binding: Binding) -> JsonObject:
    interface = {"url": binding.endpoint, **_write_binding(binding.protocol, is_link=binding.is_link)}
    rest = binding.extra.get(_RESIDUE)
    restored = interface | (rest if isinstance(rest, dict) else {}) | {"url": binding.endpoint}
    try:
        _check_interface(restored, "$")
    except InvalidDocument:  # anyone can write a residue into a profile document
        return interface
    return restored if _protocol(restored["protocolBinding"]) == binding.protocol else interface


def _write_skill(record: AgentRecord) -> JsonObject:
    skill_id = re.sub(r"[^a-z0-9]+", "-", record.name.lower()).strip("-") or "agent"
    skill: JsonObject = {
        "id": skill_id,
        "name": record.name,
        "description": record.description,
        "tags": list(record.tags) or [skill_id],  # SDKs take an empty list for a missing one
    }
    if record.examples:
        skill["examples"] = [example.text for example in record.examples]
    return skill


# --- The remainder --------------------------------------------------------------------------------


def _with_carried(card: JsonObject, carried: JsonObject) -> JsonObject:
    capabilities = dict(card["capabilities"])
    entry = {"uri": EXTENSION, "description": "What A2A has no member for.", "params": carried}
    capabilities["extensions"] = [*(capabilities.get("extensions") or ()), entry]
    return card | {"capabilities": capabilities}


def _split_carried(card: JsonObject) -> tuple[JsonObject, Any, str]:
    """Return the card without our extension, the remainder in it, and its path."""
    capabilities = find_object(card, "capabilities")
    if capabilities is None:
        return unknown_members(card, ("capabilities",)), None, "$"
    for index, item in enumerate(_extensions(capabilities)):
        if item["uri"] != EXTENSION:
            continue
        rest = [other for other in capabilities["extensions"] if other is not item]
        bare = unknown_members(capabilities, ("extensions",)) | ({"extensions": rest} if rest else {})
        return card | {"capabilities": bare}, item.get("params"), f"$.capabilities.extensions[{index}].params"
    return card, None, "$"


# --- Security schemes <-> auth --------------------------------------------------------------------

# scheme member -> (type in `auth`, member names there)
_SCHEMES: dict[str, tuple[str, dict[str, str]]] = {
    "apiKeySecurityScheme": ("apiKey", {"location": "in", "name": "name"}),
    "httpAuthSecurityScheme": ("http", {"scheme": "scheme", "bearerFormat": "bearer_format"}),
    "oauth2SecurityScheme": ("oauth2", {"flows": "flows", "oauth2MetadataUrl": "metadata_url"}),
    "openIdConnectSecurityScheme": ("openIdConnect", {"openIdConnectUrl": "url"}),
    "mtlsSecurityScheme": ("mutualTLS", {}),
}
_BY_TYPE = {kind: (name, members) for name, (kind, members) in _SCHEMES.items()}
_ALIASES: dict[str, JsonObject] = {  # names of the same schemes in other dialects
    "bearer": {"type": "http", "scheme": "bearer"},
    "bearer_token": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "api-key": {"type": "apiKey"},
    "apikey": {"type": "apiKey"},
    "mtls": {"type": "mutualTLS"},
}
_API_KEY_PLACES = ("header", "query", "cookie")
_FLOW_URLS = {  # that a flow must have: SDKs refuse a card with an incomplete one
    "authorizationCode": ("authorizationUrl", "tokenUrl"),
    "clientCredentials": ("tokenUrl",),
    "implicit": ("authorizationUrl",),
    "password": ("tokenUrl",),
    "deviceCode": ("deviceAuthorizationUrl", "tokenUrl"),
}
_OWN_FLOWS = ("authorizationCode", "clientCredentials", "implicit")  # that two URLs can describe
_API_KEY_DEFAULTS = {"location": "header", "name": "X-API-Key"}


def read_auth(card: Mapping[str, Any]) -> JsonObject | None:
    schemes = find_object(card, "securitySchemes") or {}
    requirements = read_requirements(card)
    if not schemes and not requirements:
        return None
    scopes = _scopes(requirements)
    names = [*scopes, *sorted(schemes)]  # objects have no order: first as in the requirements, then alphabetical
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
    known_members = {members[key]: item for key, item in body.items() if key in members}
    return {"id": name, "type": kind} | known_members | ({"scopes": scopes} if scopes else {})


def read_requirements(holder: Mapping[str, Any], path: str = "$") -> list[dict[str, list[str]]]:
    """Return each requirement of a card or skill as {scheme: scopes}; one of them suffices."""
    items = find_objects(holder, "securityRequirements", path, most=limits.JSON_ARRAY_ITEMS)
    return [_requirement(item, where) for item, where in items]


def _requirement(item: JsonObject, path: str) -> dict[str, list[str]]:
    schemes = find_object(item, "schemes", path) or {}
    return {name: _listed(value, member(f"{path}.schemes", name)) for name, value in schemes.items()}


def _listed(value: Any, path: str) -> list[str]:
    """Read `{"list": […]}`, or the array alone."""
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
    """Return `securitySchemes` and `securityRequirements` for the schemes of `auth` that A2A has."""
    items = auth.get("schemes") if isinstance(auth, dict) else None
    schemes: JsonObject = {}
    requirements: list[JsonObject] = []
    for item in items if isinstance(items, list) else ():
        scheme = _normalize_scheme(item)
        if scheme is None:
            continue
        own = scheme.get("id")
        name = own if isinstance(own, str) else str(scheme["type"])
        schemes[name] = _write_scheme(scheme)
        requirements.append({"schemes": {name: {"list": _texts(scheme.get("scopes"))}}})
    if not schemes:
        return {}
    required = auth.get("required") is True
    return {"securitySchemes": schemes} | ({"securityRequirements": requirements} if required else {})


def _normalize_scheme(item: Any) -> JsonObject | None:
    kind = item.get("type") if isinstance(item, dict) else item
    if not isinstance(kind, str):
        return None
    scheme = (item if isinstance(item, dict) else {}) | _ALIASES.get(kind.lower(), {"type": kind})
    if scheme["type"] == "openIdConnect" and not isinstance(scheme.get("url"), str):
        return None  # A2A requires its URL
    return scheme if scheme["type"] in _BY_TYPE else None


def _write_scheme(scheme: JsonObject) -> JsonObject:
    name, members = _BY_TYPE[scheme["type"]]
    kinds = {"flows": dict}
    body = {
        key: scheme[source] for key, source in members.items() if isinstance(scheme.get(source), kinds.get(key, str))
    }
    if name == "apiKeySecurityScheme":
        body = _API_KEY_DEFAULTS | body
        if body["location"] not in _API_KEY_PLACES:
            body["location"] = _API_KEY_DEFAULTS["location"]
    elif name == "oauth2SecurityScheme":
        body["flows"] = _complete_flows(body["flows"]) if "flows" in body else _write_flows(scheme)
    elif name == "httpAuthSecurityScheme":
        body = {"scheme": "bearer"} | body
    return {name: body}


def _write_flows(scheme: JsonObject) -> JsonObject:
    """Write the profile's own form of OAuth (profile.md, gaps): two URLs and scopes. Without an authorization URL no user
    is asked: the client has credentials of its own."""
    urls = {"authorizationUrl": scheme.get("authorization_url"), "tokenUrl": scheme.get("token_url")}
    flow: JsonObject = {name: url for name, url in urls.items() if isinstance(url, str)}
    scopes = dict.fromkeys(_texts(scheme.get("scopes")), "")
    return {name: flow | {"scopes": scopes} for name in _OWN_FLOWS if _FLOW_URLS[name] == tuple(flow)}


def _complete_flows(flows: JsonObject) -> JsonObject:
    """Return the flows that have the members which A2A requires. They are from a record, where anything may stand."""
    written: JsonObject = {}
    for name, urls in _FLOW_URLS.items():
        flow = flows.get(name)
        if isinstance(flow, dict) and all(isinstance(flow.get(url), str) for url in urls):
            scopes = flow.get("scopes")
            described = scopes if isinstance(scopes, dict) else dict.fromkeys(_texts(scopes), "")
            written[name] = flow | {"scopes": {scope: str(text) for scope, text in described.items()}}
    return written


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


A2A = A2ACodec()
