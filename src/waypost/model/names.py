"""Names of agents: path-safe forms of ids, folded tags, domains in ids."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import urlsplit

from waypost.errors import InvalidParameter

_PATH_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\Z")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]{1,254}))(?::[0-9]{0,5})?\Z")
_SLUG = re.compile(r"[uh]-")


def is_path_safe(agent_id: str) -> bool:
    """AF-12: return whether the id fits one path segment without escaping."""
    return _PATH_SAFE.match(agent_id) is not None


def slug(agent_id: str) -> str:
    """AF-13: return an injective, path-safe form. A path-safe id is its own slug unless it looks like a generated
    one."""
    if is_path_safe(agent_id) and not looks_like_slug(agent_id):
        return agent_id
    raw = agent_id.encode("utf-8", "surrogatepass")
    encoded = "u-" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return encoded if len(encoded) <= 128 else hash_slug(agent_id)


def looks_like_slug(text: str) -> bool:
    """Return whether the text may be the slug of another id."""
    return _SLUG.match(text) is not None


def hash_slug(agent_id: str) -> str:
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).digest()
    return "h-" + base64.b32encode(digest).decode().rstrip("=").lower()


def unslug(text: str) -> str | None:
    """Return the id of a `u-` slug; None for other texts (an `h-` slug needs a table)."""
    if not text.startswith("u-"):
        return None
    body = text[2:]
    try:
        agent_id = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True).decode("utf-8")
    except ValueError:
        return None
    return agent_id if slug(agent_id) == text else None


def fold(text: str) -> str:
    """Return the form in which names and tags are compared: NFKC, then casefold. Never stored, never signed."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def fold_tag(tag: str) -> str:
    return fold(tag.strip()).lstrip(":")


def fold_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the folded tags, each once, in order. One check of all tags shows whether only their case needs
    folding."""
    joined = "".join(tags)
    is_plain = joined.isascii() and joined.isprintable() and " " not in joined and ":" not in joined
    return tuple(dict.fromkeys(map(str.casefold if is_plain else fold_tag, tags)))


def parse_domain(value: object, path: str) -> str:
    """Parse a host name to lower case without a final dot: LDH labels of at most 63 characters."""
    text = value.lower().rstrip(".") if isinstance(value, str) else ""
    if not text or len(text) > 253 or not all(_LABEL.match(label) for label in text.split(".")):
        raise InvalidParameter(
            f"{str(value)[:64]!r} is not a domain name.",
            path=path,
            hint="Write it like agent.example.com, in A-labels.",
        )
    return text


def parse_authority(text: str) -> str | None:
    """Parse the value of a Host header: the name or IP address in lower case, without port, brackets and final dot.

    None if it is not `host` or `host:port`. Of an IPv6 address, only the form in brackets is valid (RFC 3986).
    """
    found = _AUTHORITY.match(text)
    if found is None:
        return None
    if found["ipv6"] is not None:
        try:
            return str(ipaddress.IPv6Address(found["ipv6"]))
        except ValueError:
            return None
    return found["name"].lower().removesuffix(".") or None


def domain_of(agent_id: str) -> str | None:
    """Return the domain in an id: `agent:d`, `https://d/…`, `did:web:d`, `urn:air:d:…`, `spiffe://d/…`."""
    if agent_id.startswith("agent:"):
        return agent_id[6:].lower() or None
    if agent_id.startswith("did:web:"):
        return agent_id[8:].split(":", 1)[0].split("%3A", 1)[0].lower() or None
    if agent_id.lower().startswith("urn:air:"):
        return agent_id[8:].split(":", 1)[0].lower() or None
    if agent_id.startswith("dns:"):
        return agent_id[4:].removeprefix("_agent.").lower() or None
    if "://" in agent_id:
        try:
            return urlsplit(agent_id).hostname
        except ValueError:
            return None
    return None
