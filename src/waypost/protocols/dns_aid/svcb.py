"""SVCB and HTTPS records (RFC 9460): rdata to values and back, with the keys of DNS-AID and ADP.

The format and its rules: order, duplicates, mandatory keys, AliasMode. The DNS-AID keys have no IANA numbers yet, so
they are written as `keyNNNNN` (AID-13); their values are plain text.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.protocols.dns_rdata import malformed_record, read_name, write_name

MANDATORY, ALPN, NO_DEFAULT_ALPN, PORT, IPV4HINT, ECH, IPV6HINT = range(7)
CAP, CAP_SHA256, BAP, POLICY, REALM, SIG, CONNECT_CLASS, CONNECT_META, ENROLL_URI, WELL_KNOWN, PK = range(65400, 65411)

# All supported keys. A record with another mandatory key must not be used.
NAMES: Final[dict[int, str]] = {
    MANDATORY: "mandatory",
    ALPN: "alpn",
    NO_DEFAULT_ALPN: "no-default-alpn",
    PORT: "port",
    IPV4HINT: "ipv4hint",
    ECH: "ech",
    IPV6HINT: "ipv6hint",
    CAP: "cap",
    CAP_SHA256: "cap-sha256",
    BAP: "bap",
    POLICY: "policy",
    REALM: "realm",
    SIG: "sig",
    CONNECT_CLASS: "connect-class",
    CONNECT_META: "connect-meta",
    ENROLL_URI: "enroll-uri",
    WELL_KNOWN: "well-known",
    PK: "pk",
}
NUMBERS: Final[dict[str, int]] = {name: number for number, name in NAMES.items()} | {"capsha256": CAP_SHA256}
AGENT_KEYS: Final = frozenset(range(CAP, PK + 1))

_GENERIC = re.compile(r"key([0-9]|[1-9][0-9]{1,4})\Z")
_INVALID_KEY: Final = 65535
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f]')
_KIND: Final = "SVCB"
_TRANSPORT = re.compile(r"(h2c?|h3(-.*)?|hq(-.*)?|http/.*|spdy/.*|quic.*|dot|doq|acme-tls/.*)\Z", re.IGNORECASE)


class ServiceBinding(msgspec.Struct, frozen=True, kw_only=True):
    """One record. `params` are the wire values by key number; empty in AliasMode."""

    priority: int
    target: str  # lower case, without a final dot; empty for "."
    params: Mapping[int, bytes] = {}

    @property
    def is_alias(self) -> bool:
        return self.priority == 0

    def host(self, owner: str) -> str:
        """Return the TargetName; "." is the owner itself (ADP-4)."""
        return self.target or owner

    @property
    def unknown_mandatory(self) -> tuple[str, ...]:
        """Mandatory keys that are not supported: the record must not be used (AID-10)."""
        return tuple(key_name(key) for key in _keys(self.params.get(MANDATORY, b"")) if key not in NAMES)

    @property
    def alpn(self) -> tuple[str, ...]:
        return tuple(item.decode("latin-1") for item in _items(self.params.get(ALPN, b"")))

    @property
    def port(self) -> int | None:
        value = self.params.get(PORT)
        return None if value is None else int.from_bytes(value, "big")

    @property
    def hints(self) -> tuple[str, ...]:
        return (*_addresses(self.params.get(IPV4HINT, b""), 4), *_addresses(self.params.get(IPV6HINT, b""), 16))

    def text(self, key: int) -> str | None:
        """Return the value of a text key; None if it is absent or not plain text."""
        value = self.params.get(key)
        if value is None:
            return None
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return None if _UNSAFE.search(text) else text

    @property
    def is_agent(self) -> bool:
        """Whether the record describes an agent: HTTPS records of ordinary web sites do not."""
        return not AGENT_KEYS.isdisjoint(self.params) or self.protocol() is not None

    def protocol(self) -> str | None:
        """Return the agent's protocol: `bap`, else the first ALPN id that is not a transport (AID-9). One token
        (AID-15)."""
        bap = self.text(BAP)
        if bap:
            return re.split(r"[,/=]", bap, maxsplit=1)[0].strip().lower() or None
        return next((item for item in self.alpn if not _TRANSPORT.match(item)), None)


# --- Reading --------------------------------------------------------------------------------------


def parse_svcb(data: bytes) -> ServiceBinding:
    """Parse rdata; raises InvalidDocument for what RFC 9460 calls malformed."""
    if len(data) < 3:
        raise malformed_record(_KIND, "it is too short")
    priority = int.from_bytes(data[:2], "big")
    target, at = read_name(_KIND, data, 2)
    if priority == 0:  # parameters are ignored
        return ServiceBinding(priority=0, target=target)
    params = _parse_params(data, at)
    for key, check in _CHECKS.items():
        if key in params:
            check(params[key])
    _check_mandatory(params)
    return ServiceBinding(priority=priority, target=target, params=params)


def _parse_params(data: bytes, at: int) -> dict[int, bytes]:
    params: dict[int, bytes] = {}
    last = -1
    while at < len(data):
        if len(data) - at < 4:
            raise malformed_record(_KIND, "a parameter is truncated")
        key, size = struct.unpack_from("!HH", data, at)
        value = data[at + 4 : at + 4 + size]
        if len(value) < size:
            raise malformed_record(_KIND, f"the value of {key_name(key)} is truncated")
        if key <= last:
            raise malformed_record(_KIND, f"{key_name(key)} is repeated, or the keys are not in order")
        if key == _INVALID_KEY:
            raise malformed_record(_KIND, "65535 is not a valid key")
        if len(params) == limits.SVCB_PARAMS:
            raise malformed_record(_KIND, f"it has more than {limits.SVCB_PARAMS} parameters")
        params[key] = value
        last, at = key, at + 4 + size
    return params


def _check_mandatory(params: Mapping[int, bytes]) -> None:
    keys = _keys(params.get(MANDATORY, b""))
    if any(one >= other for one, other in pairwise(keys)):
        raise malformed_record(_KIND, "mandatory repeats a key, or is not in order")
    if MANDATORY in keys:
        raise malformed_record(_KIND, "mandatory lists itself")
    missing = [key_name(key) for key in keys if key not in params]
    if missing:
        raise malformed_record(_KIND, f"{missing[0]} is mandatory and missing")
    if NO_DEFAULT_ALPN in params and ALPN not in params:
        raise malformed_record(_KIND, "no-default-alpn requires alpn")


def _check_keys(value: bytes) -> None:
    if not value or len(value) % 2:
        raise malformed_record(_KIND, "mandatory is not a list of keys")


def _check_items(value: bytes) -> None:
    at = 0
    while at < len(value) and value[at]:
        at += 1 + value[at]
    if not value or at != len(value):
        raise malformed_record(_KIND, "alpn is not a list of protocols")


def _check_empty(value: bytes) -> None:
    if value:
        raise malformed_record(_KIND, "no-default-alpn has a value")


def _check_port(value: bytes) -> None:
    if len(value) != 2:
        raise malformed_record(_KIND, "port is not two octets")


def _check_addresses(size: int) -> Callable[[bytes], None]:
    def check(value: bytes) -> None:
        if not value or len(value) % size:
            raise malformed_record(_KIND, "a hint is not a list of addresses")

    return check


_CHECKS: Final[dict[int, Callable[[bytes], None]]] = {
    MANDATORY: _check_keys,
    ALPN: _check_items,
    NO_DEFAULT_ALPN: _check_empty,
    PORT: _check_port,
    IPV4HINT: _check_addresses(4),
    IPV6HINT: _check_addresses(16),
}


def _items(value: bytes) -> list[bytes]:
    items, at = [], 0
    while at < len(value):
        items.append(value[at + 1 : at + 1 + value[at]])
        at += 1 + value[at]
    return items


def _keys(value: bytes) -> list[int]:
    return [int.from_bytes(value[at : at + 2], "big") for at in range(0, len(value), 2)]


def _addresses(value: bytes, size: int) -> list[str]:
    parts = [value[at : at + size] for at in range(0, len(value), size)]
    return [str(ipaddress.IPv4Address(part) if size == 4 else ipaddress.IPv6Address(part)) for part in parts]


# --- Writing --------------------------------------------------------------------------------------


def key_name(key: int) -> str:
    return NAMES.get(key, f"key{key}")


def key_number(name: str) -> int:
    """Return the number of a key by its name or `keyNNNNN`."""
    generic = _GENERIC.match(name)
    number = int(generic[1]) if generic else NUMBERS.get(name)
    if number is None or number >= _INVALID_KEY:
        raise InvalidParameter(f"{name[:64]!r} is not an SVCB key.", path="svcb", hint=f"Known: {', '.join(NUMBERS)}.")
    return number


def write_svcb(binding: ServiceBinding) -> bytes:
    """Return the rdata, with parameters in the order of their numbers."""
    head = binding.priority.to_bytes(2, "big") + write_name(binding.target)
    params = () if binding.is_alias else sorted(binding.params.items())
    return head + b"".join(struct.pack("!HH", key, len(value)) + value for key, value in params)


def encode_params(values: Mapping[int, str | int | Iterable[str]]) -> dict[int, bytes]:
    """Encode values for the wire. Characters that could end a quoted value are rejected (AID-18)."""
    return {key: _wire_value(key, value) for key, value in values.items()}


def _wire_value(key: int, value: str | int | Iterable[str]) -> bytes:
    if key == NO_DEFAULT_ALPN:
        return b""
    if key == PORT:
        return _wire_port(value)
    items = [value] if isinstance(value, str) else [str(value)] if isinstance(value, int) else list(value)
    for item in items:
        if _UNSAFE.search(item):
            raise InvalidParameter(
                f"The value of {key_name(key)} has a quote, a backslash or a control character.",
                path=key_name(key),
                hint="Remove it: it could end the quoted value.",
            )
    if key == MANDATORY:
        return b"".join(number.to_bytes(2, "big") for number in sorted(map(key_number, items)))
    if key == ALPN:
        return b"".join(_wire_item(item) for item in items)
    if key in (IPV4HINT, IPV6HINT):
        return b"".join(ipaddress.ip_address(item).packed for item in items)
    return ",".join(items).encode()


def _wire_port(value: str | int | Iterable[str]) -> bytes:
    if not isinstance(value, int) or not 0 < value < 65536:
        raise InvalidParameter(f"{value!r} is not a port.", path="port", hint="Use 1 to 65535.")
    return value.to_bytes(2, "big")


def _wire_item(item: str) -> bytes:
    data = item.encode()
    if not 0 < len(data) < 256:
        raise InvalidParameter("A protocol in alpn must have 1 to 255 octets.", path="alpn")
    return bytes((len(data),)) + data


def to_presentation(binding: ServiceBinding, *, names: bool = False) -> str:
    """Return the zone-file form. Keys without an IANA number are `keyNNNNN`, unless `names` is set (AID-13)."""
    parts = [str(binding.priority), f"{binding.target}."]
    parts += [_param_text(key, value, names=names) for key, value in sorted(binding.params.items())]
    return " ".join(parts)


def _param_text(key: int, value: bytes, *, names: bool) -> str:
    name = key_name(key) if key <= IPV6HINT or names else f"key{key}"
    if key == NO_DEFAULT_ALPN:
        return name
    if key == MANDATORY:
        listed = ",".join(key_name(one) if one <= IPV6HINT or names else f"key{one}" for one in _keys(value))
        return f"{name}={listed}"
    if key == PORT:
        return f"{name}={int.from_bytes(value, 'big')}"
    if key in (IPV4HINT, IPV6HINT):
        return f"{name}={','.join(_addresses(value, 4 if key == IPV4HINT else 16))}"
    if key == ALPN:
        return f'{name}="{",".join(_quoted(_escaped_item(item)) for item in _items(value))}"'
    return f'{name}="{_quoted(value)}"'


def _escaped_item(item: bytes) -> bytes:
    """Escape comma and backslash inside a list (RFC 9460 appendix A.1)."""
    return item.replace(b"\\", b"\\\\").replace(b",", b"\\,")


def _quoted(value: bytes) -> str:
    return "".join(
        f"\\{chr(octet)}" if octet in b'"\\' else chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"
        for octet in value
    )
