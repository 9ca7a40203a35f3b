"""Capability documents as they were, by their digest: a zone names the bytes that it was written for, and is read long after.

Without them every change of an agent would have it refused (AID-14) until its zone is written anew and the old answer of the
DNS has run out. They are files, so that all processes of a service and the next start have them; the last few are enough.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import domain_of, parse_domain
from waypost.model.principal import PUBLIC
from waypost.model.registration import Registration, verdicts_of
from waypost.model.verdict import TrustState, level_of
from waypost.protocols.dialects import get_codec
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.conditional_requests import strong_etag
from waypost.server.renderer import Renderer, received_document
from waypost.trust.document_signatures import sign_adp_public_key
from waypost.trust.encodings import encode_base64url
from waypost.trust.keys.private_key import PrivateKey

log = logging.getLogger("waypost.server")

CAPABILITIES_FOLDER = "capabilities"

DIGEST_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}\Z")


class CapabilityVersions:
    def __init__(self, data: Path) -> None:
        self._data = data

    def keep(self, domain: str, digest: str, body: bytes) -> None:
        """One that cannot be kept is served all the same, while it is the current one."""
        try:
            folder = self._folder(domain)
            path = folder / f"{digest}.json"
            if path.exists():
                return
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = folder / f".{secrets.token_hex(8)}"
            fresh.write_bytes(body)
            fresh.replace(path)
            self._forget(folder)
        except InvalidParameter:
            return  # the service is no domain: nothing leads to it by DNS
        except OSError as error:
            log.warning("a capability document of %s cannot be kept: %s", domain, error)

    def find(self, domain: str, digest: str) -> bytes | None:
        if not DIGEST_PATTERN.match(digest):
            return None
        try:
            body = (self._folder(domain) / f"{digest}.json").read_bytes()
        except (InvalidParameter, OSError):
            return None
        return body if encode_base64url(hashlib.sha256(body).digest()) == digest else None

    def _folder(self, domain: str) -> Path:
        return self._data / CAPABILITIES_FOLDER / parse_domain(domain, "domain")

    def _forget(self, folder: Path) -> None:
        kept = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[: -limits.CAPABILITY_VERSIONS]:
            old.unlink(missing_ok=True)


# ---- Documents of the agents that this service answers for: an ADP document with the key that the service holds for the domain,
# and the capability document whose digest the domain's zone carries.
#
# A document that came as ADP is its publisher's alone and is given back as it came. What is written here is written anew from
# the record; the capability document holds nothing that changes by itself, because a client refuses it when a byte of it did
# (AID-14).

DocumentLocation = Literal["domain", "provider"]  # under the agent's own name, or under the service's

ADP_MEDIA_TYPE = get_codec("adp").media_type.encode()

WELL_KNOWN_PATH = "/.well-known/agent.json"

CAPABILITIES_PATH = "/.well-known/agent-capabilities.json"

PROVIDED_PATH = (
    "/.well-known/agents/{id}.json"  # where a domain's TargetName is this service, so that Host is not the agent's
)

PROVIDED_CAPABILITIES_PATH = "/.well-known/agent-capabilities/{id}.json"

DIGEST_PARAMETER = "sha256"

_STABLE_MEMBERS = ("protocol", "identity", "endpoints", "capabilities", "security")

_DEFAULT_SECURITY: JsonObject = {
    "tlsRequired": True,
    "minProtocolVersion": "1.3",
    "authMethods": ["pubkey", "bearer_token"],
}

_SERVICE_ENDPOINTS = (("tasks", "/agent/tasks"), ("swarm", "/agent/swarm/join"), ("webhook", "/agent/webhook"))


class HostedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What is served for one agent at one place."""

    domain: str
    body: bytes
    etag: str  # in its field form
    changed_at: float
    trust: TrustState
    capabilities: bytes
    fingerprint: str | None = None  # of the key in the document, as far as it tells one
    is_own: bool = False  # the bytes are the publisher's

    @property
    def digest(self) -> str:
        """`cap-sha256`: of the bytes as they are served."""
        return encode_base64url(hashlib.sha256(self.capabilities).digest())


class HostedDocuments:
    def __init__(
        self, renderer: Renderer, keys: HostedKeys, service: Registration, versions: CapabilityVersions
    ) -> None:
        self._renderer = renderer
        self._keys = keys
        self._service = service
        self._versions = versions
        self._cache: LruCache[tuple[str, str, DocumentLocation], tuple[tuple[object, ...], HostedDocument]] = LruCache(
            limits.HOSTED_DOCUMENTS
        )

    @property
    def own_domain(self) -> str:
        return self._renderer.host

    def origin(self, domain: str) -> str:
        """Where a hosted domain is reached. A service without TLS stands behind something that has it (ADP-52)."""
        own = urlsplit(self._renderer.base_url)
        if domain == self.own_domain:
            return self._renderer.base_url
        port = f":{own.port}" if own.scheme == "https" and own.port not in (None, 443) else ""
        return f"https://{domain}{port}"

    def of(self, registration: Registration, now: float, place: DocumentLocation = "domain") -> HostedDocument:
        domain = self.domain_of(registration)
        key = self._keys.key_of(domain)
        stamp = (registration.revision, registration.etag, None if key is None else key.public.key_id)
        name = (registration.id, domain, place)
        cached = self._cache.get(name)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        made = self._make(registration, domain, key, place, now)
        if registration.visibility == PUBLIC:
            self._versions.keep(domain, made.digest, made.capabilities)
        self._cache.put(name, (stamp, made))
        return made

    def capabilities(self, hosted: HostedDocument, digest: str | None) -> bytes | None:
        """The capability document with this digest, or as it is now; None for one that is not known."""
        if digest is None or digest == hosted.digest:
            return hosted.capabilities
        return self._versions.find(hosted.domain, digest)

    def domain_of(self, registration: Registration) -> str:
        if registration is self._service:
            return self.own_domain
        return registration.hosted or domain_of(registration.id) or self.own_domain

    def _make(
        self, registration: Registration, domain: str, key: PrivateKey | None, place: DocumentLocation, now: float
    ) -> HostedDocument:
        source = registration.source("adp")
        own = received_document(source) if source is not None else None
        document = self._renderer.document(registration, "adp", now)
        if own is None:
            document = self._signed(document, domain, key, place)
        body = own if own is not None else dump_json(document)
        stable = (
            own
            if own is not None
            else dump_json({name: document[name] for name in _STABLE_MEMBERS if name in document})
        )
        return HostedDocument(
            domain=domain,
            body=body,
            etag=strong_etag(body, ADP_MEDIA_TYPE),
            changed_at=max(registration.changed_at, self._keys.changed_at(domain)),
            trust=level_of(verdicts_of(registration)),
            capabilities=stable,
            fingerprint=_fingerprint(document),
            is_own=own is not None,
        )

    def _signed(self, document: JsonObject, domain: str, key: PrivateKey | None, place: DocumentLocation) -> JsonObject:
        """The document under its domain: its name, its addresses and, where the service holds it, the domain's key."""
        identity = {**document["identity"], "id": f"agent:{domain}", "domain": domain}
        endpoints = {**document["endpoints"], "wellKnown": self._well_known(domain, place)}
        written = {**document, "identity": identity, "endpoints": endpoints}
        if key is None:
            return written
        identity["publicKey"] = sign_adp_public_key(key, domain)
        security = document.get("security")
        written["security"] = _DEFAULT_SECURITY | (security if isinstance(security, dict) else {})
        if place == "domain":
            endpoints |= self._acting(domain)
        return written

    def _well_known(self, domain: str, place: DocumentLocation) -> str:
        if place == "provider":
            return self._renderer.base_url + PROVIDED_PATH.replace("{id}", domain)
        return f"{self.origin(domain)}{WELL_KNOWN_PATH}"

    def _acting(self, domain: str) -> JsonObject:
        """Where the service speaks for the agent: it holds the key, so nobody else can answer by it."""
        origin = self.origin(domain)
        chat = f"ws{origin.removeprefix('http')}/agent/chat"
        return {
            "discovery": f"{origin}/",
            "chat": chat,
            **{name: f"{origin}{path}" for name, path in _SERVICE_ENDPOINTS},
        }


def _fingerprint(document: JsonObject) -> str | None:
    key = document.get("identity", {}).get("publicKey")
    told = key.get("fingerprint") if isinstance(key, dict) else None
    return told if isinstance(told, str) else None
