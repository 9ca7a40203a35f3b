"""The announce protocol's `transport` and the profile's bindings (announce.md §1, §13)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import Binding, need_object, need_text

_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@]+):(\d{1,5})\Z")
_PREFIX_CHARS = len("tcp://")  # a binding's endpoint may be that much longer
_SCHEMES = {"ws": ("ws", "wss"), "http": ("http", "https")}


def read_transport(value: Any, path: str) -> Binding:
    """The binding that a transport speaks of. Types we do not know are kept and not dialled."""
    transport = need_object(value, path)
    kind = need_text(transport, "type", path, most=limits.TAG_CHARS)
    endpoint = need_text(transport, "endpoint", path, most=limits.ENDPOINT_CHARS - _PREFIX_CHARS)
    where = member(path, "endpoint")
    for name, text in (("type", kind), ("endpoint", endpoint)):
        if not text.isprintable() or " " in text:
            raise InvalidDocument("No spaces and no control characters.", path=member(path, name))
    if kind == "tcp":
        return Binding(protocol="tcp", endpoint=f"tcp://{_host_and_port(endpoint, where)}")
    if kind == "unix":
        return Binding(protocol="unix", endpoint=f"unix:{_absolute_path(endpoint, where)}")
    if kind in _SCHEMES:
        scheme = _scheme(endpoint, _SCHEMES[kind], where)
        return Binding(protocol=scheme if kind == "http" else kind, endpoint=endpoint)
    return Binding(protocol=kind, endpoint=endpoint)


def to_transport(binding: Binding) -> JsonObject:
    """The transport that reads back as the binding, as far as its two members go."""
    protocol, endpoint = binding.protocol, binding.endpoint
    candidates = [
        {"type": "tcp", "endpoint": endpoint.removeprefix("tcp://")},
        {"type": "unix", "endpoint": endpoint.removeprefix("unix:")},
        {"type": "http", "endpoint": endpoint},
        {"type": protocol, "endpoint": endpoint},
    ]
    for candidate in candidates:
        try:
            back = read_transport(candidate, "$")
        except InvalidDocument:
            continue
        if (back.protocol, back.endpoint) == (protocol, endpoint):
            return candidate
    return {"type": f"x-{protocol}"[: limits.TAG_CHARS], "endpoint": endpoint[: limits.ENDPOINT_CHARS - _PREFIX_CHARS]}


def _host_and_port(text: str, path: str) -> str:
    found = _HOST_PORT.match(text)
    if not found or not 1 <= int(found[1]) <= 65535:
        raise InvalidDocument(f"{text[:80]!r} is not host:port.", path=path, hint="Write it like 10.0.0.12:9000.")
    return text


def _absolute_path(text: str, path: str) -> str:
    if not text.startswith("/"):
        raise InvalidDocument("A unix endpoint is an absolute path.", path=path)
    return text


def _scheme(url: str, allowed: tuple[str, ...], path: str) -> str:
    try:
        parts = urlsplit(url)
        scheme = parts.scheme if parts.hostname and parts.port != 0 else ""
    except ValueError:
        scheme = ""
    if scheme not in allowed:
        raise InvalidDocument(f"{url[:80]!r} is not a URL with {' or '.join(allowed)}.", path=path)
    return scheme
