"""The name of an agent to resolve: a domain, an agent URI or an https URL; and the DNS names derived from it.

D15: a domain is in A-labels, at most 253 characters long, and neither an IP address nor a public suffix.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waypost.errors import InvalidParameter
from waypost.trust.domain_claims import is_public_suffix, registrable_domain

WELL_KNOWN_PREFIX: Final = "/.well-known/"
AGENT_JSON_PATH: Final = "/.well-known/agent.json"
AGENT_CARD_PATH: Final = "/.well-known/agent-card.json"
LEGACY_PROTOCOLS: Final = ("mcp", "a2a", "https")

_LABEL = re.compile(r"_?[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\Z")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+\Z")
_PATH_CHARS: Final = 128
_URI: Final = "agent:"


class ResolveTarget(msgspec.Struct, frozen=True, kw_only=True):
    """`url` is set if a document was named, `port` if an origin was."""

    text: str
    domain: str
    url: str = ""
    port: int = 443

    @property
    def is_service_name(self) -> bool:
        """Whether the name is below `_agents`: it points to an agent, and is none itself (AID-2)."""
        return any(label.startswith("_") for label in self.domain.split("."))


def parse_target(text: str, path: str = "name") -> ResolveTarget:
    """Raises InvalidParameter."""
    stripped = text.strip()
    if "://" in stripped:
        return _parse_url(stripped, path)
    bare = stripped[len(_URI) :] if stripped[: len(_URI)].lower() == _URI else stripped
    return ResolveTarget(text=stripped[:512], domain=parse_domain_name(bare, path))


def is_domain(text: str) -> bool:
    """Whether a text is a domain or an agent URI, not a file or another kind of id."""
    try:
        return "." in text and "/" not in text and bool(parse_target(text).domain)
    except InvalidParameter:
        return False


def parse_domain_name(text: str, path: str = "name") -> str:
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(_LABEL.match(label) for label in labels):
        raise _invalid_target(text, path, "is not a domain name", "Write it like agent.example.com, in A-labels.")
    if labels[-1].isdecimal() or re.match(r"0x[0-9a-f]*\Z", labels[-1]):
        raise _invalid_target(text, path, "is an IP address, not a domain name", "Name the domain.")
    if is_public_suffix(".".join(label for label in labels if not label.startswith("_"))):
        raise _invalid_target(text, path, "is a public suffix", "Name the domain of the agent below it.")
    return name


def _parse_url(text: str, path: str) -> ResolveTarget:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        raise _invalid_target(text, path, "is not a URL", "Use https://.") from None
    if parts.scheme != "https" or "@" in parts.netloc or "\\" in text:
        raise _invalid_target(text, path, "is not a plain https URL", "Use https://, without a user name.")
    domain = parse_domain_name(host, path)
    url = "" if parts.path in ("", "/") and not parts.query else text.split("#", 1)[0]
    return ResolveTarget(text=text[:512], domain=domain, url=url, port=port)


def _invalid_target(text: str, path: str, problem: str, hint: str) -> InvalidParameter:
    return InvalidParameter(f"{text[:64]!r} {problem}.", path=path, hint=hint)


def agent_txt_name(domain: str) -> str:
    return f"_agent.{domain}"


def srv_name(domain: str) -> str:
    return f"_agent._tcp.{domain}"


def tlsa_name(host: str, port: int) -> str:
    return f"_{port}._tcp.{host}"


def legacy_names(domain: str) -> list[str]:
    """The names of the -01 draft, which contain the protocol."""
    agent, _, organisation = domain.partition(".")
    if "." not in organisation:
        return []
    return [f"_{agent}._{protocol}._agents.{organisation}" for protocol in LEGACY_PROTOCOLS]


def is_same_organisation(one: str, other: str) -> bool:
    """Whether two names have the same registrable domain (AID-25)."""
    return registrable_domain(one) == registrable_domain(other)


def https_origin(host: str, port: int) -> str:
    return f"https://{host}" if port == 443 else f"https://{host}:{port}"


def find_well_known_path(value: str) -> str | None:
    """The path in a `well-known` key (ADP-4, AID-16), or None if it is not allowed (D9)."""
    text = value.removeprefix("/")
    is_allowed = 0 < len(value) <= _PATH_CHARS and all(
        _SEGMENT.match(segment) and segment not in (".", "..") for segment in text.split("/")
    )
    if not is_allowed:
        return None
    return value if value.startswith("/") else f"{WELL_KNOWN_PREFIX}{value}"
