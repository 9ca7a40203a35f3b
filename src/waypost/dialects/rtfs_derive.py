"""From an agent profile to the agent_card that a registry stores (rtfs.md §3). The profile stays the source of truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from waypost import limits
from waypost.dialects.rtfs_profile import Profile, maps_in
from waypost.dialects.rtfs_schema import schema_of
from waypost.model.json import JsonObject, dump_json
from waypost.model.sexpr import Form, Keyword, Map
from waypost.model.sexpr_json import form_to_json, json_name, map_to_json

_WEB = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_TIMES = {"updated_at": "last_updated_timestamp"}
_METADATA_ELSEWHERE = ("name", "version", "description", "tags", "discovery_tags")


class Derivation:
    """One walk over a profile, collecting warnings on its way."""

    def __init__(self, profile: Profile, *, base: str | None, annotations: bool) -> None:
        self.profile = profile
        self.base = base
        self.annotations = annotations
        self.warnings = list(profile.warnings)

    def card(self) -> JsonObject:
        metadata = map_to_json(self.profile.map("metadata"), ":metadata", self.warnings)
        communication = self.communication()
        uri = self.profile_uri(communication["endpoints"])
        card: JsonObject = {"agent_id": self.profile.id}
        if uri is not None:
            card["agent_profile_uri"] = uri
        card["name"] = _text(metadata.get("name")) or self.profile.id[: limits.NAME_CHARS]
        for name in ("version", "description"):
            text = _text(metadata.get(name))
            if text is not None:
                card[name] = text
        card["capabilities"] = [
            self.capability(item, f":capabilities[{at}]", uri or "")
            for at, item in enumerate(self.profile.maps("capabilities"))
        ]
        card["communication"] = communication
        tags = list(_distinct(_texts(metadata.get("discovery_tags")) + _texts(metadata.get("tags"))))
        if tags:
            card["discovery_tags"] = tags
        rest = self.metadata(metadata)
        return card | ({"metadata": rest} if rest else {})

    def metadata(self, converted: JsonObject) -> JsonObject:
        rest = {_TIMES.get(name, name): value for name, value in converted.items() if name not in _METADATA_ELSEWHERE}
        interoperability = self.profile.map("interoperability")
        if interoperability.entries:
            rest["interoperability"] = map_to_json(interoperability, ":interoperability", self.warnings)
        return rest

    # --- Capabilities ----------------------------------------------------------------------------

    def capability(self, form: Map, path: str, profile_uri: str) -> JsonObject:
        name = str(form.find("capability-id"))
        card: JsonObject = {"capability_id": name}
        for key in ("description", "type", "version"):
            text = _text(self.value(form.find(key), f"{path} :{key}"))
            if text is not None:
                card[key] = text
        for side in ("input", "output"):
            kind = form.find(f"{side}-schema")
            if kind is not None:
                card[f"{side}_schema_ref"] = _schema_reference(
                    kind, f"{profile_uri}#/capabilities/{name}/{side}_schema"
                )
        notes = form.find("annotations")
        if self.annotations and isinstance(notes, Map):
            card["annotations"] = map_to_json(notes, f"{path} :annotations", self.warnings)
        return card

    # --- Communication ---------------------------------------------------------------------------

    def communication(self) -> JsonObject:
        """`:communication-endpoints`; where it is absent, the card-shaped `:communication` as it is (P-14)."""
        listed = self.profile.maps("communication-endpoints")
        if not listed and self.profile.map("communication").entries:
            return self.communication_as_is(self.profile.map("communication"))
        endpoints = [self.endpoint(item, f":communication-endpoints[{at}]") for at, item in enumerate(listed)]
        return {"protocols": _protocols(endpoints), "endpoints": endpoints}

    def communication_as_is(self, form: Map) -> JsonObject:
        endpoints = [
            map_to_json(item, f":communication :endpoints[{at}]", self.warnings)
            for at, item in enumerate(maps_in(form.find("endpoints")))
        ]
        protocols = _texts(self.value(form.find("protocols"), ":communication :protocols"))
        return {"protocols": protocols or _protocols(endpoints), "endpoints": endpoints}

    def endpoint(self, form: Map, path: str) -> JsonObject:
        protocol = form.find("protocol") or form.find("transport")
        scheme = str(form.find("uri")).split(":", 1)[0].lower()
        endpoint: JsonObject = {
            "protocol": _text(self.value(protocol, f"{path} :protocol")) or scheme,
            "uri": form.find("uri"),
        }
        details = self.details(form.find("details"), f"{path} :details")
        for key in ("endpoint-id", "transport", "provides-capabilities"):
            value = self.value(form.find(key), f"{path} :{key}")
            if value is not None:
                details[json_name(Keyword(key))] = value
        return endpoint | ({"details": details} if details else {})

    def details(self, form: Form, path: str) -> JsonObject:
        if not isinstance(form, Map):
            return {}
        converted = map_to_json(form, path, self.warnings)
        return {"methods" if name == "http_methods" else name: value for name, value in converted.items()}

    def value(self, form: Form, path: str) -> Any:
        return form_to_json(form, path, self.warnings)

    # --- Where the profile itself is served ------------------------------------------------------

    def profile_uri(self, endpoints: list[JsonObject]) -> str | None:
        for at, mechanism in enumerate(self.profile.maps("discovery-mechanisms")):
            path = f":discovery-mechanisms[{at}]"
            registered = mechanism.find("registration-id")
            if registered is not None and registered != self.profile.id:
                self.warnings.append(f"{path} :registration-id: differs from :id and is ignored.")
        for mechanism in self.profile.maps("discovery-mechanisms"):
            uri = mechanism.find("uri")
            if mechanism.find("type") == Keyword("well-known-uri") and isinstance(uri, str):
                return self.absolute(uri, endpoints)
        return None

    def absolute(self, uri: str, endpoints: list[JsonObject]) -> str | None:
        base = self.base or next(filter(None, (_origin(item.get("uri")) for item in endpoints)), None)
        resolved = _join(base, uri)
        if resolved is None:
            self.warnings.append(f":discovery-mechanisms: {uri[:80]!r} gives no http(s) address and is left out.")
        return resolved


def derive_card(
    profile: Profile, *, base: str | None = None, endpoint_url: str | None = None, annotations: bool = False
) -> tuple[JsonObject, tuple[str, ...]]:
    """The card of a profile, and what was read past. Relative references belong to `base`, else to an endpoint's origin."""
    walk = Derivation(profile, base=base or _origin(endpoint_url), annotations=annotations)
    return walk.card(), tuple(walk.warnings)


def _schema_reference(kind: Form, reference: str) -> JsonObject | str:
    """A text is a reference already; a type expression is put inline while it is small."""
    if isinstance(kind, str):
        return kind
    schema = schema_of(kind)
    inline: JsonObject = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    if len(dump_json(inline)) > limits.RTFS_INLINE_SCHEMA_BYTES or _depth(inline) > limits.RTFS_INLINE_SCHEMA_DEPTH:
        return reference
    return inline


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _origin(uri: Any) -> str | None:
    if not isinstance(uri, str):
        return None
    try:
        parts = urlsplit(uri)
        scheme, host = _WEB.get(parts.scheme), parts.hostname
    except ValueError:
        return None
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}/" if scheme and host else None


def _join(base: str | None, uri: str) -> str | None:
    try:
        resolved = urljoin(base or "", uri)
        parts = urlsplit(resolved)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    return resolved if usable else None


def _protocols(endpoints: list[JsonObject]) -> list[str]:
    return list(dict.fromkeys(item["protocol"] for item in endpoints if isinstance(item.get("protocol"), str)))


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text.casefold() not in seen:
            seen.add(text.casefold())
            yield text


def _text(value: Any) -> str | None:
    if isinstance(value, str) and value.strip():
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
