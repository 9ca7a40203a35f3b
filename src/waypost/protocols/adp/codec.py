"""The ADP metadata document of `/.well-known/agent.json` (adp.md §4, §10; neighbours.md §5).

It is read leniently, as the draft's own examples need (C-3, C-4); what a verifier would reject is a warning. Keys and
domains are not proven here. Unknown members are the free-form place: clients ignore them (ADP-23), so the remainder is
one of them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of, member
from waypost.model.names import domain_of, slug
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
from waypost.model.times import find_instant
from waypost.protocols.codec import (
    CARRY,
    DERIVED,
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    apply_remainder,
    attach_residue,
    carries_id,
    encode_with_remainder,
    merge_missing_members,
    residue_name,
    residue_of,
    unknown_members,
)
from waypost.protocols.record_reader import check_times

# Ed25519 keys: their fingerprint (adp.md §0) and the spellings in which they occur (C-3). Nothing is verified here.

FINGERPRINT: Final = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")

_ARMOUR: Final = re.compile(r"-----[^-\n]+-----")

_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: before the 32 bytes


def find_raw_key(text: str) -> bytes | None:
    """Return the 32 raw bytes of a key in PEM, or in base64 of its SPKI or of the bytes themselves; None for other
    texts."""
    body = "".join(_ARMOUR.sub("", text).split()).replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    data = data.removeprefix(_SPKI_PREFIX)
    return data if len(data) == 32 else None


def key_fingerprint(raw: bytes) -> str:
    return "ed25519:" + base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


_PROTOCOL = "ADP/1.1"

_WELL_KNOWN = "/.well-known/agent.json"

_PROTOCOL_PATTERN = re.compile(r"ADP/1\.[0-9]+\Z")

_DOMAIN = re.compile(r"(?=.{1,253}\Z)[^\W_](?:[\w-]*\w)?(?:\.\w(?:[\w-]*\w)?)*\.?(?::[0-9]{1,5})?\Z")

_STATUS = {"online": "active", "maintenance": "suspended", "offline": "inactive"}

_AVAILABILITY = {status: availability for availability, status in _STATUS.items()}

_MEMBERS = (
    "protocol",
    "identity",
    "endpoints",
    "capabilities",
    "security",
    "policies",
    "availability",
    "meta",
    CARRY,
)

_ALGORITHM = "ed25519"

_FINGERPRINT_CHARS = 512


class AdpCodec(Codec):
    name = "adp"
    media_type = "application/vnd.adp+json"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        protocol = document.get("protocol")
        return isinstance(protocol, str) and protocol.startswith("ADP/")

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        record = _read(document)
        check_times(record, context.now, updated_at="$.meta.updated", expires_at=f"$['{CARRY}']")
        minted = carries_id(document.get(CARRY))
        return Decoded(
            record=record,
            source_id=record.id if minted else document["identity"]["id"],
            warnings=tuple(_warnings(document, record)),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        document, rest = encode_with_remainder(
            record,
            residue_of(record, self.name),
            write=lambda residue: _write(record, residue, context),
            read=_read,
        )
        return Encoded(document={**document, CARRY: rest} if rest else document)


# --- Reading --------------------------------------------------------------------------------------


def _read(document: JsonObject) -> AgentRecord:
    protocol = need_text(document, "protocol", most=16)  # checked first (ADP-23)
    if not _PROTOCOL_PATTERN.match(protocol):
        raise InvalidDocument(f"{protocol!r} is not supported.", path="$.protocol", hint=f"Use {_PROTOCOL}.")
    identity = _read_identity(document)
    bindings = _read_endpoints(_needed(document, "endpoints"), "$.endpoints")
    capabilities = _read_capabilities(_needed(document, "capabilities"), "$.capabilities")
    security = _read_security(document.get("security"), "$.security")
    meta = find_object(document, "meta") or {}
    availability = find_object(document, "availability") or {}
    record = AgentRecord(
        id=f"agent:{identity['domain'].lower()}",
        name=identity["name"],
        description=capabilities.description or _derived(capabilities, identity["domain"]),
        bindings=bindings,
        tags=capabilities.tags,
        auth=_read_auth(security),
        constraints=_constraints(security, capabilities, find_object(document, "policies")),
        status=_STATUS.get(find_text(availability, "status", "$.availability", most=limits.TAG_CHARS) or ""),
        version=find_text(meta, "version", "$.meta", most=limits.VERSION_CHARS),
        updated_at=_updated(meta),
        signature=_signature(identity.get("publicKey")),
        extra={} if capabilities.description else {DERIVED: ["description"]},
    )
    record = attach_residue(record, "adp", _residue(document, record))
    return apply_remainder(record, document.get(CARRY), f"$['{CARRY}']")


def _needed(document: JsonObject, name: str) -> Any:
    if document.get(name) is None:
        raise InvalidDocument(f"The member {name!r} is missing.", path=member("$", name))
    return document[name]


def _read_identity(document: JsonObject) -> JsonObject:
    """ADP-25: the id must be the domain with a prefix."""
    identity = need_object(_needed(document, "identity"), "$.identity")
    domain = need_text(identity, "domain", "$.identity", most=260)
    if not _DOMAIN.match(domain):
        raise InvalidDocument(f"{domain!r} is not a domain.", path="$.identity.domain")
    agent_id = need_text(identity, "id", "$.identity", most=limits.ID_CHARS)
    if agent_id.lower() != f"agent:{domain.lower()}":
        raise InvalidDocument(
            f"{agent_id!r} is not the id of {domain}.", path="$.identity.id", hint=f"Write agent:{domain}."
        )
    need_text(identity, "name", "$.identity", most=limits.NAME_CHARS)
    if identity.get("publicKey") is not None:
        _read_public_key(identity["publicKey"], "$.identity.publicKey")
    return identity


def _derived(capabilities: AdpCapabilities, domain: str) -> str:
    names = ", ".join(capabilities.names[:8])
    return f"Agent offering {names}"[: limits.DESCRIPTION_CHARS] if names else f"Agent at {domain}"


def _constraints(security: JsonObject, capabilities: AdpCapabilities, policies: JsonObject | None) -> JsonObject | None:
    parts = {"rateLimit": security.get("rateLimit"), "pricing": capabilities.pricing, "policies": policies}
    return {name: part for name, part in parts.items() if part} or None


def _updated(meta: JsonObject) -> str | None:
    """Return the time if it is RFC 3339; older documents have a bare date, which stays in the residue."""
    text = find_text(meta, "updated", "$.meta", most=limits.TAG_CHARS)
    return text if find_instant(text) is not None else None


def _signature(key: JsonObject | None) -> JsonObject | None:
    return {"type": "adp-ed25519", "fingerprint": key["fingerprint"]} if key else None


def _residue(document: JsonObject, record: AgentRecord) -> JsonObject:
    """Return the members that encoding cannot derive from the record."""
    residue = unknown_members(document, _MEMBERS)
    parts = {
        "protocol": None if document["protocol"] == _PROTOCOL else document["protocol"],
        "identity": _identity_residue(document["identity"]),
        "endpoints": _endpoints_residue(document),
        "capabilities": None
        if document["capabilities"] == _write_capabilities(record, None)
        else document["capabilities"],
        "security": _security_residue(document.get("security")),
        "availability": unknown_members(document.get("availability") or {}, ("status",) if record.status else ()),
        "meta": unknown_members(document.get("meta") or {}, ("version", *(("updated",) if record.updated_at else ()))),
    }
    residue |= {name: {} for name in ("policies", "availability", "meta", "security") if document.get(name) == {}}
    return {**residue, **{name: part for name, part in parts.items() if part}}


def _identity_residue(identity: JsonObject) -> JsonObject:
    residue = unknown_members(identity, ("id", "domain", "name"))
    for name in ("id", "domain"):
        if identity[name] != identity[name].lower():
            residue[name] = identity[name]
    return residue


def _endpoints_residue(document: JsonObject) -> JsonObject:
    endpoints = document["endpoints"]
    derived = {"wellKnown": f"https://{document['identity']['domain'].lower()}{_WELL_KNOWN}"}
    return {
        name: value
        for name, value in endpoints.items()
        if not (name in _BOUND and value is not None) and derived.get(name) != value
    }


def _security_residue(security: JsonObject | None) -> JsonObject:
    if not security:
        return {}
    mapped = [name for name in ("authMethods", "rateLimit") if security.get(name)]
    return unknown_members(security, ("tlsRequired", *mapped) if mapped else ())


def _warnings(document: JsonObject, record: AgentRecord) -> list[str]:
    warnings = []
    key = document["identity"].get("publicKey")
    if key is None:
        warnings.append("$.identity.publicKey: missing; the agent cannot prove its identity.")
    else:
        warnings.extend(_key_warnings(key, "$.identity.publicKey"))
    if DERIVED in record.extra:
        warnings.append("$.capabilities: none has a description; the agent's description is derived from their names.")
    if (document.get("meta") or {}).get("updated") and record.updated_at is None:
        warnings.append("$.meta.updated: not an RFC 3339 time; it is ignored for freshness.")
    return warnings


# --- Writing --------------------------------------------------------------------------------------


def _write(record: AgentRecord, residue: JsonObject, context: EncodeContext) -> JsonObject:
    domain, is_own = _domain(record, context)
    document: JsonObject = {
        "protocol": residue.get("protocol", _PROTOCOL),
        "identity": _write_identity(record, domain, residue),
        "endpoints": _write_endpoints(record.bindings, _well_known(record, domain, is_own, residue, context)),
        "capabilities": _write_capabilities(record, residue.get("capabilities")),
    }
    constraints = record.constraints or {}
    meta = {
        name: text for name, text in (("version", record.version), ("updated", record.updated_at)) if text is not None
    }
    parts = {
        "security": _write_security(record),
        "policies": constraints.get("policies") if isinstance(constraints.get("policies"), dict) else None,
        "availability": {"status": _AVAILABILITY[record.status]} if record.status in _AVAILABILITY else None,
        "meta": meta,
    }
    document |= {name: part for name, part in parts.items() if part}
    return merge_missing_members(document, unknown_members(residue, ("protocol", "capabilities", CARRY)))


def _domain(record: AgentRecord, context: EncodeContext) -> tuple[str, bool]:
    """Return the domain in the id, and whether the id is that domain's agent; else the service's own name."""
    domain = domain_of(record.id)
    if domain and _DOMAIN.match(domain):
        return domain, record.id == f"agent:{domain}"
    return context.host, False


def _write_identity(record: AgentRecord, domain: str, residue: JsonObject) -> JsonObject:
    identity: JsonObject = {"id": f"agent:{domain}", "domain": domain, "name": record.name}
    residue_identity = residue.get("identity")
    original = residue_identity if isinstance(residue_identity, dict) else {}
    restored = {**identity, **{name: original[name] for name in ("id", "domain") if name in original}}
    with suppress(InvalidDocument):  # anyone can write a residue into a profile document
        if _read_identity({"identity": restored})["domain"].lower() == domain:
            identity = restored
    fingerprint = _fingerprint(record.signature)
    if fingerprint and "publicKey" not in original:
        identity["publicKey"] = {"algorithm": _ALGORITHM, "fingerprint": fingerprint}
    return identity


def _fingerprint(signature: Any) -> str | None:
    if not isinstance(signature, dict) or signature.get("type") != "adp-ed25519":
        return None
    value = signature.get("fingerprint")
    return value if isinstance(value, str) and value.strip() and len(value) <= _FINGERPRINT_CHARS else None


def _well_known(record: AgentRecord, domain: str, is_own: bool, residue: JsonObject, context: EncodeContext) -> str:
    """Return the URL of this document: at the agent's domain, or at this service for a record of another kind."""
    endpoints = residue.get("endpoints")
    original = endpoints.get("wellKnown") if isinstance(endpoints, dict) else None
    if isinstance(original, str):
        return original
    if is_own:
        return f"https://{domain}{_WELL_KNOWN}"
    return f"{context.base_url}/api/v1/agents/{slug(record.id)}?as=adp"


# --- Keys -----------------------------------------------------------------------------------------


def _read_public_key(value: Any, path: str) -> JsonObject:
    """Check the types of the members and the algorithm (ADP-26, leniently: C-4)."""
    key = need_object(value, path)
    algorithm = need_text(key, "algorithm", path, most=64)
    if algorithm.lower() != _ALGORITHM:
        raise InvalidDocument(
            f"{algorithm!r} is not an ADP algorithm.", path=member(path, "algorithm"), hint=f"Use {_ALGORITHM}."
        )
    need_text(key, "fingerprint", path, most=_FINGERPRINT_CHARS)
    find_text(key, "full", path, most=8192)
    return key


def _key_warnings(key: JsonObject, path: str) -> Iterator[str]:
    """Yield a warning for each member that a verifier would reject."""
    fingerprint, full = key["fingerprint"], key.get("full")
    if not FINGERPRINT.match(fingerprint):
        yield f"{path}.fingerprint: not `ed25519:` and 43 base64url characters; it cannot be verified."
    if full is None:
        return
    raw = find_raw_key(full)
    if raw is None:
        yield f"{path}.full: not an Ed25519 key in PEM or base64url."
    elif key_fingerprint(raw) != fingerprint:
        yield f"{path}.fingerprint: not the digest of the key in `full`."


# --- Parts (neighbours.md §5) ---------------------------------------------------------------------

_ENDPOINT_NAME = residue_name("adp")  # member of a binding: the name of its ADP endpoint

_LANGUAGE = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\Z")

_BOUND = {"chat": ("agp", "streaming"), "tasks": ("https", "request-response"), "swarm": ("https", "request-response")}

_PLAIN = ("wellKnown", "discovery", "webhook")

_CAPABILITY_TEXTS = ("input", "output", "interfaces", "languages")


# --- Capabilities ---------------------------------------------------------------------------------


class AdpCapabilities(msgspec.Struct, frozen=True):
    """The parts of `capabilities` for the record. `description` may be empty."""

    tags: tuple[str, ...] = ()
    description: str = ""
    names: tuple[str, ...] = ()
    pricing: JsonObject = {}


def _read_capabilities(value: Any, path: str) -> AdpCapabilities:
    items = [
        _capability(item, f"{path}[{index}]")
        for index, item in enumerate(need_array(value, path, limits.JSON_ARRAY_ITEMS))
    ]
    languages = [language for item in items for language in item.get("languages") or ()]
    tags = [item["id"] for item in items] + [f"lang-{language.lower()}" for language in languages]
    descriptions = dict.fromkeys(item["description"] for item in items if (item.get("description") or "").strip())
    return AdpCapabilities(
        tags=tuple(tag for tag in dict.fromkeys(tags) if len(tag) <= limits.TAG_CHARS)[: limits.TAGS],
        description=_clipped(" ".join(descriptions), limits.DESCRIPTION_CHARS),
        names=tuple(item.get("name") or item["id"] for item in items),
        pricing={item["id"]: item["pricing"] for item in items if item.get("pricing")},
    )


def _capability(value: Any, path: str) -> JsonObject:
    item = need_object(value, path)
    need_text(item, "id", path, most=limits.ID_CHARS)
    find_text(item, "name", path, most=limits.ID_CHARS)
    find_text(item, "description", path, most=limits.DESCRIPTION_CHARS)
    for name in _CAPABILITY_TEXTS:
        find_texts(item, name, path, most=limits.JSON_OBJECT_KEYS, chars=limits.ENDPOINT_CHARS)
    find_object(item, "pricing", path)
    return item


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _write_capabilities(record: AgentRecord, original: Any) -> list[JsonObject]:
    """Return the original capabilities while they match the record's tags and description, else one for each tag."""
    pricing = (record.constraints or {}).get("pricing") or {}
    if isinstance(original, list):
        try:
            decoded = _read_capabilities(original, "$")
        except InvalidDocument:  # anyone can write a residue into a profile document
            decoded = AdpCapabilities()
        if decoded.tags == record.tags and (decoded.description or record.description) == record.description:
            return original
    languages = [tag for tag in record.tags if tag.startswith("lang-") and _LANGUAGE.match(tag[5:])]
    ids = [tag for tag in record.tags if tag not in languages] or ["agent"]
    items: list[JsonObject] = [{"id": tag, "name": tag} for tag in ids]
    items[0]["description"] = record.description
    if languages:
        items[0]["languages"] = [tag[5:] for tag in languages]
    for item in items:
        if isinstance(pricing, dict) and isinstance(pricing.get(item["id"]), dict):
            item["pricing"] = pricing[item["id"]]
    return items


# --- Endpoints ------------------------------------------------------------------------------------


def _read_endpoints(value: Any, path: str) -> tuple[Binding, ...]:
    """Return the bindings: `chat` for AGP, `tasks` and `swarm` for https; without them the document itself."""
    endpoints = need_object(value, path)
    _need_url(endpoints, "wellKnown", path)
    for name in (*_PLAIN, *_BOUND):
        if endpoints.get(name) is not None:
            _need_url(endpoints, name, path)
    bound = tuple(
        Binding(protocol=protocol, endpoint=endpoints[name], interaction_model=model, extra={_ENDPOINT_NAME: name})
        for name, (protocol, model) in _BOUND.items()
        if endpoints.get(name) is not None
    )
    return bound or (Binding(protocol="adp", endpoint=endpoints["wellKnown"]),)


def _need_url(endpoints: JsonObject, name: str, path: str) -> str:
    text = need_text(endpoints, name, path, most=limits.ENDPOINT_CHARS)
    if not text.isprintable() or " " in text:
        raise InvalidDocument("A URL must not contain spaces or control characters.", path=member(path, name))
    return text


def _write_endpoints(bindings: tuple[Binding, ...], well_known: str) -> JsonObject:
    """Write bindings that came from ADP under their names, and AGP under `chat`; other protocols are left out."""
    endpoints: JsonObject = {"wellKnown": well_known}
    for binding in bindings:
        name = binding.extra.get(_ENDPOINT_NAME)
        if isinstance(name, str) and name in _BOUND and binding.protocol == _BOUND[name][0]:
            endpoints.setdefault(name, binding.endpoint)
        elif binding.protocol == "agp":
            endpoints.setdefault("chat", binding.endpoint)
    return endpoints


# --- Security -------------------------------------------------------------------------------------


def _read_security(value: Any, path: str) -> JsonObject:
    """ADP-29: `tlsRequired` may be missing, but not false."""
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


def _read_auth(security: JsonObject) -> JsonObject | None:
    methods = security.get("authMethods")
    return {"schemes": [{"type": method} for method in methods]} if methods else None


def _write_security(record: AgentRecord) -> JsonObject:
    """Return `authMethods` and `rateLimit` if the record has them in the form in which they are read."""
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


ADP = AdpCodec()
