"""The ADP metadata document of `/.well-known/agent.json` (adp.md §4, §10; neighbours.md §5).

Read leniently, as the draft's own examples need (C-3, C-4); what a verifier would refuse is told as a warning. It proves no
key and no domain. Unknown members are the free-form place: clients ignore them (ADP-23), so the remainder is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from waypost import limits
from waypost.dialects.adp_key import ALGORITHM, FINGERPRINT_CHARS, doubts, read_public_key
from waypost.dialects.adp_parts import (
    Abilities,
    read_auth,
    read_capabilities,
    read_endpoints,
    read_security,
    reads_as_binding,
    write_capabilities,
    write_endpoints,
    write_security,
)
from waypost.dialects.adp_schema import EXAMPLES, SCHEMA, WRITTEN_SCHEMA
from waypost.dialects.codec import CARRY, DERIVED, DecodeContext, Decoded, EncodeContext, Encoded
from waypost.dialects.profile_reader import check_times
from waypost.dialects.remainder import attach, carries_id, fill, leftover, native_and_rest, overlay, residue_of
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.names import domain_of, slug
from waypost.model.record import AgentRecord, find_object, find_text, need_object, need_text
from waypost.model.times import find_instant

PROTOCOL = "ADP/1.1"
WELL_KNOWN = "/.well-known/agent.json"
_PROTOCOL = re.compile(r"ADP/1\.[0-9]+\Z")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[^\W_](?:[\w-]*\w)?(?:\.\w(?:[\w-]*\w)?)*\.?(?::[0-9]{1,5})?\Z")
_STATUS = {"online": "active", "maintenance": "suspended", "offline": "inactive"}
_AVAILABILITY = {status: word for word, status in _STATUS.items()}
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


class AdpCodec:
    name = "adp"
    media_type = "application/vnd.adp+json"
    loses: tuple[str, ...] = ()

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
        document, rest = native_and_rest(
            record,
            residue_of(record, self.name),
            write=lambda residue: _write(record, residue, context),
            read=_read,
        )
        return Encoded(document={**document, CARRY: rest} if rest else document)

    def schema(self) -> JsonObject:
        return SCHEMA

    def written_schema(self) -> JsonObject:
        return WRITTEN_SCHEMA

    def examples(self) -> tuple[JsonObject, ...]:
        return EXAMPLES


# --- Reading --------------------------------------------------------------------------------------


def _read(document: JsonObject) -> AgentRecord:
    protocol = need_text(document, "protocol", most=16)  # before anything else (ADP-23)
    if not _PROTOCOL.match(protocol):
        raise InvalidDocument(f"{protocol!r} is not read here.", path="$.protocol", hint=f"Use {PROTOCOL}.")
    identity = _read_identity(document)
    bindings = read_endpoints(_needed(document, "endpoints"), "$.endpoints")
    abilities = read_capabilities(_needed(document, "capabilities"), "$.capabilities")
    security = read_security(document.get("security"), "$.security")
    meta = find_object(document, "meta") or {}
    availability = find_object(document, "availability") or {}
    record = AgentRecord(
        id=f"agent:{identity['domain'].lower()}",
        name=identity["name"],
        description=abilities.description or _derived(abilities, identity["domain"]),
        bindings=bindings,
        tags=abilities.tags,
        auth=read_auth(security),
        constraints=_constraints(security, abilities, find_object(document, "policies")),
        status=_STATUS.get(find_text(availability, "status", "$.availability", most=limits.TAG_CHARS) or ""),
        version=find_text(meta, "version", "$.meta", most=limits.VERSION_CHARS),
        updated_at=_updated(meta),
        signature=_signature(identity.get("publicKey")),
        extra={} if abilities.description else {DERIVED: ["description"]},
    )
    record = attach(record, "adp", _residue(document, record))
    return overlay(record, document.get(CARRY), f"$['{CARRY}']")


def _needed(document: JsonObject, name: str) -> Any:
    if document.get(name) is None:
        raise InvalidDocument(f"The member {name!r} is missing.", path=member("$", name))
    return document[name]


def _read_identity(document: JsonObject) -> JsonObject:
    """ADP-25. The id is the domain with a prefix; one that says otherwise speaks for somebody else."""
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
        read_public_key(identity["publicKey"], "$.identity.publicKey")
    return identity


def _derived(abilities: Abilities, domain: str) -> str:
    names = ", ".join(abilities.names[:8])
    return f"Agent offering {names}"[: limits.DESCRIPTION_CHARS] if names else f"Agent at {domain}"


def _constraints(security: JsonObject, abilities: Abilities, policies: JsonObject | None) -> JsonObject | None:
    parts = {"rateLimit": security.get("rateLimit"), "pricing": abilities.pricing, "policies": policies}
    return {name: part for name, part in parts.items() if part} or None


def _updated(meta: JsonObject) -> str | None:
    """A time only when it is one: older documents hold a bare date, which stays where it is."""
    text = find_text(meta, "updated", "$.meta", most=limits.TAG_CHARS)
    return text if find_instant(text) is not None else None


def _signature(key: JsonObject | None) -> JsonObject | None:
    return {"type": "adp-ed25519", "fingerprint": key["fingerprint"]} if key else None


def _residue(document: JsonObject, record: AgentRecord) -> JsonObject:
    """What the writer does not make out of the record."""
    residue = leftover(document, _MEMBERS)
    parts = {
        "protocol": None if document["protocol"] == PROTOCOL else document["protocol"],
        "identity": _identity_residue(document["identity"]),
        "endpoints": _endpoints_residue(document),
        "capabilities": None
        if document["capabilities"] == write_capabilities(record, None)
        else document["capabilities"],
        "security": _security_residue(document.get("security")),
        "availability": leftover(document.get("availability") or {}, ("status",) if record.status else ()),
        "meta": leftover(document.get("meta") or {}, ("version", *(("updated",) if record.updated_at else ()))),
    }
    residue |= {name: {} for name in ("policies", "availability", "meta", "security") if document.get(name) == {}}
    return {**residue, **{name: part for name, part in parts.items() if part}}


def _identity_residue(identity: JsonObject) -> JsonObject:
    residue = leftover(identity, ("id", "domain", "name"))
    for name in ("id", "domain"):
        if identity[name] != identity[name].lower():
            residue[name] = identity[name]
    return residue


def _endpoints_residue(document: JsonObject) -> JsonObject:
    endpoints = document["endpoints"]
    derived = {"wellKnown": f"https://{document['identity']['domain'].lower()}{WELL_KNOWN}"}
    return {
        name: value
        for name, value in endpoints.items()
        if not (reads_as_binding(name) and value is not None) and derived.get(name) != value
    }


def _security_residue(security: JsonObject | None) -> JsonObject:
    if not security:
        return {}
    told = [name for name in ("authMethods", "rateLimit") if security.get(name)]
    return leftover(security, ("tlsRequired", *told) if told else ())


def _warnings(document: JsonObject, record: AgentRecord) -> list[str]:
    warnings = []
    key = document["identity"].get("publicKey")
    if key is None:
        warnings.append("$.identity.publicKey: missing; the agent cannot prove who it is.")
    else:
        warnings.extend(doubts(key, "$.identity.publicKey"))
    if DERIVED in record.extra:
        warnings.append("$.capabilities: none has a description; the agent's is derived from their names.")
    if (document.get("meta") or {}).get("updated") and record.updated_at is None:
        warnings.append("$.meta.updated: not an RFC 3339 time; freshness cannot be told from it.")
    return warnings


# --- Writing --------------------------------------------------------------------------------------


def _write(record: AgentRecord, residue: JsonObject, context: EncodeContext) -> JsonObject:
    domain, is_own = _domain(record, context)
    document: JsonObject = {
        "protocol": residue.get("protocol", PROTOCOL),
        "identity": _write_identity(record, domain, residue),
        "endpoints": write_endpoints(record.bindings, _well_known(record, domain, is_own, residue, context)),
        "capabilities": write_capabilities(record, residue.get("capabilities")),
    }
    constraints = record.constraints or {}
    meta = {
        name: text for name, text in (("version", record.version), ("updated", record.updated_at)) if text is not None
    }
    parts = {
        "security": write_security(record),
        "policies": constraints.get("policies") if isinstance(constraints.get("policies"), dict) else None,
        "availability": {"status": _AVAILABILITY[record.status]} if record.status in _AVAILABILITY else None,
        "meta": meta,
    }
    document |= {name: part for name, part in parts.items() if part}
    return fill(document, leftover(residue, ("protocol", "capabilities", CARRY)))


def _domain(record: AgentRecord, context: EncodeContext) -> tuple[str, bool]:
    """The domain the id speaks of, and whether the id is that domain's agent; else the service's own name."""
    domain = domain_of(record.id)
    if domain and _DOMAIN.match(domain):
        return domain, record.id == f"agent:{domain}"
    return context.host, False


def _write_identity(record: AgentRecord, domain: str, residue: JsonObject) -> JsonObject:
    identity: JsonObject = {"id": f"agent:{domain}", "domain": domain, "name": record.name}
    kept = residue.get("identity")
    kept = kept if isinstance(kept, dict) else {}
    spelled = {**identity, **{name: kept[name] for name in ("id", "domain") if name in kept}}
    with suppress(InvalidDocument):  # anybody may write our residue into a profile document
        if _read_identity({"identity": spelled})["domain"].lower() == domain:
            identity = spelled
    told = _fingerprint(record.signature)
    if told and "publicKey" not in kept:
        identity["publicKey"] = {"algorithm": ALGORITHM, "fingerprint": told}
    return identity


def _fingerprint(signature: Any) -> str | None:
    if not isinstance(signature, dict) or signature.get("type") != "adp-ed25519":
        return None
    told = signature.get("fingerprint")
    return told if isinstance(told, str) and told.strip() and len(told) <= FINGERPRINT_CHARS else None


def _well_known(record: AgentRecord, domain: str, is_own: bool, residue: JsonObject, context: EncodeContext) -> str:
    """Where this document is found: at the agent's domain, or, for a record of another kind, at this service."""
    endpoints = residue.get("endpoints")
    told = endpoints.get("wellKnown") if isinstance(endpoints, dict) else None
    if isinstance(told, str):
        return told
    if is_own:
        return f"https://{domain}{WELL_KNOWN}"
    return f"{context.base_url}/api/v1/agents/{slug(record.id)}?as=adp"


ADP = AdpCodec()
