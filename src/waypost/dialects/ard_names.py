"""`urn:air:` names (ard.md §2): the strict check, how two of them compare, and minting one for an id of another kind."""

from __future__ import annotations

import base64
import hashlib
import re

import msgspec

from waypost.errors import InvalidDocument
from waypost.model.names import domain_of

PREFIX = "urn:air:"
OLD_PREFIX = "urn:ai:"  # invalid since ADR-0009, read as an alias
NAME_CHARS = 255
LOCAL_PUBLISHER = "agent.localhost"  # the naming guide's own choice where there is no domain

_URN = re.compile(r"urn:air:([a-zA-Z0-9.-]+)((?::[a-zA-Z0-9._-]+)+)\Z")
_LABEL = re.compile(r"(?!-)[a-zA-Z0-9-]{1,63}(?<!-)\Z")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+\Z")
_IPV4 = re.compile(r"[0-9.]+\Z")
_HINT = "Write it like urn:air:example.com:agent:assistant."


class Urn(msgspec.Struct, frozen=True):
    """A name taken apart. The publisher is in lower case; the rest is as it was."""

    publisher: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return PREFIX + ":".join((self.publisher, *self.namespace, self.name))


def parse_urn(text: str, path: str = "$.identifier") -> Urn:
    """The name behind `text`; scheme and publisher in any case, the old scheme `urn:ai:` included (P-7, P-8)."""
    canonical = _canonical_prefix(text)
    found = _URN.match(canonical)
    if found is None or len(canonical) > NAME_CHARS:
        raise InvalidDocument(f"{text[:80]!r} is not a urn:air name.", path=path, hint=_HINT)
    publisher = found.group(1).lower()
    if not is_publisher(publisher):
        raise InvalidDocument(
            f"The publisher {publisher[:80]!r} is not a domain name.",
            path=path,
            hint=f"Use a domain of yours, or {LOCAL_PUBLISHER} on one machine.",
        )
    *namespace, name = found.group(2)[1:].split(":")
    return Urn(publisher, tuple(namespace), name)


def _canonical_prefix(text: str) -> str:
    for prefix in (PREFIX, OLD_PREFIX):
        if text[: len(prefix)].lower() == prefix:
            return PREFIX + text[len(prefix) :]
    return text


def find_urn(text: str) -> Urn | None:
    try:
        return parse_urn(text)
    except InvalidDocument:
        return None


def is_publisher(domain: str) -> bool:
    """Two or more LDH labels, at most 253 characters, and no address."""
    labels = domain.split(".")
    fits = len(labels) >= 2 and len(domain) <= 253 and not _IPV4.match(domain)
    return fits and all(_LABEL.match(label) for label in labels)


def publisher_of(host: str) -> str:
    """The service's own publisher: its domain, or the local one when it has none."""
    domain = host.partition(":")[0].lower()
    return domain if is_publisher(domain) else LOCAL_PUBLISHER


def mint_urn(agent_id: str, host: str) -> Urn:
    """A name for an id of another scheme (P-9). Its publisher is only a claim: mark it as minted."""
    domain = domain_of(agent_id)
    publisher = domain if domain is not None and is_publisher(domain) else publisher_of(host)
    fits = _SEGMENT.match(agent_id) and len(PREFIX) + len(publisher) + len(agent_id) + 7 <= NAME_CHARS
    return Urn(publisher, ("agent",), agent_id if fits else _digest_name(agent_id))


def _digest_name(agent_id: str) -> str:
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).digest()
    return "x-" + base64.b32encode(digest).decode().lower()[:26]
