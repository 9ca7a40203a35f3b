"""Names of agents: path-safe forms of ids, folded tags, domains in ids."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

from waypost import limits
from waypost.errors import InvalidParameter

_PATH_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\Z")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]{1,254}))(?::[0-9]{0,5})?\Z")
_SLUG = re.compile(r"[uh]-")
_URN = "urn:uuid:"
_UUID = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\Z")
_AUTHORITY_END = re.compile(r"[/\\?#]")
# A URL whose host needs no normalization: its scheme, its host and the rest.
_PLAIN_URL = re.compile(r"([a-z][a-z0-9+.-]*://)([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)((?:[/\\?#].*)?)\Z", re.DOTALL)
# Characters that name resolution removes from a host (UTS 46: "ignored"): nobody sees them, and both spellings are one domain.
_IGNORED_IN_HOSTS = dict.fromkeys(
    map(ord, "\u00ad\u034f\u180b\u180c\u180d\u180f\u200b\u2060\u2064\ufeff" + "".join(map(chr, range(0xFE00, 0xFE10))))
)
_DEFAULT_PORTS = {"https": "443", "wss": "443", "http": "80", "ws": "80"}


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
    """Return the domain that an id names: `agent:d`, `https://d/…`, `did:web:d`, `urn:air:d:…`, `dns:d`, `spiffe://d/…`.

    Spellings of one domain give the same result: case, a final dot, a port, a user name, percent-encoding and
    compatibility characters are removed, and other characters become A-labels.
    """
    named = _split_named_domain(agent_id)
    return None if named is None else named[1]


def find_uuid(text: str) -> str | None:
    """Return a UUID in the form of RFC 9562 (lower case, with hyphens); None if the text is none.

    Parsers of UUIDs also read capitals, no hyphens, braces and a leading `urn:uuid:`: all of these are one UUID.
    """
    folded = text.lower().removeprefix(_URN)
    if folded[:1] == "{" and folded[-1:] == "}":
        folded = folded[1:-1]
    found = _UUID.match(folded)
    return None if found is None else "-".join(found.groups())


@lru_cache(limits.NAMED_DOMAIN_CACHE)
def canonical_id(agent_id: str) -> str:
    """Return the form in which ids are compared. `X` and `urn:uuid:X` are one id, and so are the spellings of a UUID and of a
    domain."""
    if ":" not in agent_id or agent_id[:9].lower() == _URN:
        uuid = find_uuid(agent_id)
        if uuid is not None:
            return _URN + uuid
        return agent_id.lower() if ":" in agent_id else agent_id
    named = _split_named_domain(agent_id)
    return agent_id if named is None else "".join(named)


def is_same_id(one: str, other: str) -> bool:
    return canonical_id(one) == canonical_id(other)


@lru_cache(limits.NAMED_DOMAIN_CACHE)
def equivalent_ids(agent_id: str) -> tuple[str, ...]:
    """Return the other common spellings of an id: the canonical one, and a UUID without its prefix."""
    canonical = canonical_id(agent_id)
    if canonical.startswith(_URN):
        return tuple(name for name in (canonical, canonical[9:]) if name != agent_id)
    return () if canonical == agent_id else (canonical,)


@lru_cache(limits.NAMED_DOMAIN_CACHE)
def stored_spellings(agent_id: str) -> tuple[str, ...]:
    """Return the other spellings under which an agent may be stored: earlier releases took a UUID without hyphens for
    another id."""
    others = equivalent_ids(agent_id)
    uuid = find_uuid(others[0]) if others else None
    if uuid is None:
        return others
    digits = uuid.replace("-", "")
    return (*others, *(name for name in (_URN + digits, digits) if name != agent_id))


@lru_cache(limits.NAMED_DOMAIN_CACHE)
def _split_named_domain(agent_id: str) -> tuple[str, str, str] | None:
    """Return the part before the domain, the domain and the part after it, normalized; None if the id names no domain."""
    plain = _PLAIN_URL.match(agent_id)
    if plain is not None and not agent_id[-1].isspace():  # nearly all ids, in a sixth of the time
        return plain[1], plain[2], plain[3]
    return _normalize_named(agent_id)


def _normalize_named(agent_id: str) -> tuple[str, str, str] | None:
    scheme, colon, rest = agent_id.strip().partition(":")
    scheme = scheme.lower()
    if not colon:
        return None
    if rest.startswith("//"):
        return _join_named(f"{scheme}://", *_split_authority(rest[2:]))
    if scheme == "agent":
        return _join_named("agent:", *_split_authority(rest))
    if scheme == "dns":
        return _join_named("dns:", rest.lower().removeprefix("_agent."), "")
    nid, colon, rest = rest.partition(":")
    if not colon or (scheme, nid.lower()) not in (("urn", "air"), ("did", "web")):
        return None
    domain, colon, end = rest.partition(":")
    return _join_named(f"{scheme}:{nid.lower()}:", domain, colon + end)


def _split_authority(text: str) -> tuple[str, str]:
    match = _AUTHORITY_END.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.start() :])


def _join_named(start: str, authority: str, end: str) -> tuple[str, str, str] | None:
    host, port = _split_port(unquote(authority).rpartition("@")[2])
    domain = normalize_host(host)
    if not domain:
        return None
    if start.startswith("did:"):
        return start, domain, f"%3A{port}{end}" if port else end
    is_usual = not port or start == "agent:" or port == _DEFAULT_PORTS.get(start.partition(":")[0])
    return start, domain, end if is_usual else f":{port}{end}"


def _split_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        return address, port.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def normalize_host(host: str) -> str:
    """Return a host in lower case, in A-labels and without final dots; an empty text if nothing is left."""
    if not host.isascii():
        host = unicodedata.normalize("NFKC", host.translate(_IGNORED_IN_HOSTS)).replace(
            "\N{IDEOGRAPHIC FULL STOP}", "."
        )
    labels = host.strip().lower().rstrip(".").split(".")
    return ".".join(label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels)
