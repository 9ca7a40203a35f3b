"""The ADP document and the capability document of each hosted agent.

A document that was registered as ADP is served as received. Any other is generated from the record, with the key that the
service holds for the domain. A zone names the digest of the capability document, and a client refuses a document with
another digest (AID-14), so a generated one contains only members that change with the record.
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
from waypost.files import create_private
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import domain_of, parse_domain
from waypost.model.principal import PUBLIC
from waypost.model.registration import Registration, verdicts_of
from waypost.model.verdict import TrustState, level_of
from waypost.protocols.dialects import get_codec
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.hosted_agents.service_agent import ServiceAgent
from waypost.server.hosted_agents.spoken_protocols import endpoint_paths
from waypost.server.http.conditional_requests import strong_etag
from waypost.server.renderer import Renderer, received_document
from waypost.trust.document_signatures import sign_adp_public_key, sign_key_rotation
from waypost.trust.encodings import encode_base64url
from waypost.trust.keys.private_key import PrivateKey

log = logging.getLogger("waypost.server")

CAPABILITIES_FOLDER = "capabilities"

DIGEST_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}\Z")


class CapabilityVersions:
    """Earlier capability documents by digest, as files that all processes and later starts share.

    A zone may name an old digest until it is rewritten and DNS caches have expired; without the old document, clients would
    refuse the agent for that time.
    """

    def __init__(self, data: Path) -> None:
        self._data = data

    def save(self, domain: str, digest: str, body: bytes) -> None:
        """A failure is only logged: the current document is served from memory."""
        try:
            folder = self._folder(domain)
            path = folder / f"{digest}.json"
            if path.exists():
                return
            temporary = folder / f".{secrets.token_hex(8)}"
            create_private(temporary, body)
            temporary.replace(path)
            self._prune(folder)
        except InvalidParameter:
            return  # the service has no domain name, so no zone names it
        except OSError as error:
            log.warning("cannot save a capability document of %s: %s", domain, error)

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

    def _prune(self, folder: Path) -> None:
        versions = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for old in versions[: -limits.CAPABILITY_VERSIONS]:
            old.unlink(missing_ok=True)


DocumentLocation = Literal["domain", "provider"]  # under the agent's domain, or under the service's host

ADP_MEDIA_TYPE = get_codec("adp").media_type.encode()

WELL_KNOWN_PATH = "/.well-known/agent.json"

CAPABILITIES_PATH = "/.well-known/agent-capabilities.json"

# For a domain whose TargetName is this service, so that Host is not the agent's domain.
PROVIDED_PATH = "/.well-known/agents/{id}.json"

PROVIDED_CAPABILITIES_PATH = "/.well-known/agent-capabilities/{id}.json"

DIGEST_PARAMETER = "sha256"

PREVIOUS_KEYS = "org.waypost.previousKeys"  # not a stable member: it ends with the overlap of a rotation

_STABLE_MEMBERS = ("protocol", "identity", "endpoints", "capabilities", "security")

_DEFAULT_SECURITY: JsonObject = {
    "tlsRequired": True,
    "minProtocolVersion": "1.3",
    "authMethods": ["pubkey", "bearer_token"],
}

_SERVICE_ENDPOINTS = (("tasks", "/agent/tasks"), ("swarm", "/agent/swarm/join"), ("webhook", "/agent/webhook"))


class HostedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of one agent at one location."""

    domain: str
    body: bytes
    etag: str  # quoted
    changed_at: float
    trust: TrustState
    capabilities: bytes
    fingerprint: str | None = None  # of the key in the document
    is_received: bool = False  # served as its publisher sent it

    @property
    def digest(self) -> str:
        """`cap-sha256`: the digest of the bytes that are served."""
        return encode_base64url(hashlib.sha256(self.capabilities).digest())


def _cached_size(cached: tuple[tuple[object, ...], HostedDocument]) -> int:
    return len(cached[1].body) + len(cached[1].capabilities)


class HostedDocuments:
    def __init__(
        self, renderer: Renderer, keys: HostedKeys, service: ServiceAgent, versions: CapabilityVersions
    ) -> None:
        self._renderer = renderer
        self._keys = keys
        self._service = service
        self._versions = versions
        self._cache: LruCache[tuple[str, str, DocumentLocation], tuple[tuple[object, ...], HostedDocument]] = LruCache(
            limits.HOSTED_DOCUMENTS_BYTES, _cached_size, max_entries=limits.HOSTED_DOCUMENTS
        )

    @property
    def own_domain(self) -> str:
        return self._renderer.host

    def origin(self, domain: str) -> str:
        """The origin of a hosted domain. A service without TLS is expected to be behind a proxy with TLS (ADP-52)."""
        if domain == self.own_domain:
            return self._renderer.base_url
        service = urlsplit(self._renderer.base_url)
        port = f":{service.port}" if service.scheme == "https" and service.port not in (None, 443) else ""
        return f"https://{domain}{port}"

    def get(self, registration: Registration, now: float, location: DocumentLocation = "domain") -> HostedDocument:
        domain = self.domain_of(registration)
        key = self._keys.key_of(domain)
        stamp = (
            registration.revision,
            registration.etag,
            None if key is None else key.public.key_id,
            [replaced.until for replaced in self._keys.replaced_keys_of(domain)],
        )
        cache_key = (registration.id, domain, location)
        cached = self._cache.get(cache_key)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        document = self._make(registration, domain, key, location, now)
        if registration.visibility == PUBLIC:
            self._versions.save(domain, document.digest, document.capabilities)
        self._cache.put(cache_key, (stamp, document))
        return document

    def find_capabilities(self, hosted: HostedDocument, digest: str | None) -> bytes | None:
        """The capability document with this digest, or the current one; None if the digest is unknown."""
        if digest is None or digest == hosted.digest:
            return hosted.capabilities
        return self._versions.find(hosted.domain, digest)

    def domain_of(self, registration: Registration) -> str:
        if registration is self._service.registration:
            return self.own_domain
        return registration.hosted or domain_of(registration.id) or self.own_domain

    def _make(
        self, registration: Registration, domain: str, key: PrivateKey | None, location: DocumentLocation, now: float
    ) -> HostedDocument:
        source = registration.source("adp")
        received = received_document(source) if source is not None else None
        document = self._renderer.document(registration, "adp", now)
        if received is not None:
            body = capabilities = received
        else:
            document = self._for_domain(document, domain, key, location)
            if location == "domain":
                document["endpoints"] |= endpoint_paths(registration.record, self.own_domain, self.origin(domain))
            body = dump_json(document)
            capabilities = dump_json({name: document[name] for name in _STABLE_MEMBERS if name in document})
        return HostedDocument(
            domain=domain,
            body=body,
            etag=strong_etag(body, ADP_MEDIA_TYPE),
            changed_at=max(registration.changed_at, self._keys.changed_at(domain)),
            trust=level_of(verdicts_of(registration)),
            capabilities=capabilities,
            fingerprint=_find_fingerprint(document),
            is_received=received is not None,
        )

    def _for_domain(
        self, document: JsonObject, domain: str, key: PrivateKey | None, location: DocumentLocation
    ) -> JsonObject:
        """The document with the domain as its id, its endpoints there and, if the service holds it, the domain's key."""
        identity = {**document["identity"], "id": f"agent:{domain}", "domain": domain}
        endpoints = {**document["endpoints"], "wellKnown": self._well_known(domain, location)}
        result = {**document, "identity": identity, "endpoints": endpoints}
        if key is None:
            return result
        identity["publicKey"] = sign_adp_public_key(key, domain)
        replaced = self._keys.replaced_keys_of(domain)
        if replaced:
            result[PREVIOUS_KEYS] = [sign_key_rotation(each.key, key, domain, each.until) for each in replaced]
        security = document.get("security")
        result["security"] = _DEFAULT_SECURITY | (security if isinstance(security, dict) else {})
        if location == "domain":
            endpoints |= self._service_endpoints(domain)
        return result

    def _well_known(self, domain: str, location: DocumentLocation) -> str:
        if location == "provider":
            return self._renderer.base_url + PROVIDED_PATH.replace("{id}", domain)
        return f"{self.origin(domain)}{WELL_KNOWN_PATH}"

    def _service_endpoints(self, domain: str) -> JsonObject:
        """Where the service acts for the agent: it holds the key, so no other endpoint could prove to be the agent."""
        origin = self.origin(domain)
        chat = f"ws{origin.removeprefix('http')}/agent/chat"
        return {
            "discovery": f"{origin}/",
            "chat": chat,
            **{name: f"{origin}{path}" for name, path in _SERVICE_ENDPOINTS},
        }


def _find_fingerprint(document: JsonObject) -> str | None:
    key = document.get("identity", {}).get("publicKey")
    fingerprint = key.get("fingerprint") if isinstance(key, dict) else None
    return fingerprint if isinstance(fingerprint, str) else None
