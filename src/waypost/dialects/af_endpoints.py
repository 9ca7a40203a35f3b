"""Endpoints of the Agent Framework (AF-16, AF-17) and the profile's bindings: paths on one host against whole addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from waypost import limits
from waypost.dialects.remainder import leftover
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import Binding, find_text, need_object, need_text

METHOD = "x.method"  # where a binding keeps the endpoint's method (agentframework.md §11)
ENDPOINT = "x.endpoint"  # and its other members: description and what we do not know
_KNOWN = ("method", "path")
_PROTOCOL = "https"  # what an endpoint is called by as a binding, also where its host is reached without TLS (§11)
_TOKEN = re.compile(r"[A-Za-z!#$%&'*+.^_`|~0-9-]{1,32}\Z")
_PATH = re.compile(r"/(?!/)[^?#\\\s\x00-\x1f\x7f]*\Z")
_DOTS = re.compile(r"(?:^|/)\.\.(?:/|$)")


def origin_of(url: str) -> str | None:
    """`scheme://authority` of an http(s) address, lower-cased; None for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_path(text: str) -> bool:
    """AF-17: an absolute path with no authority, query, fragment, `..`, space or control character."""
    return _PATH.match(text) is not None and not _DOTS.search(text)


def is_http(endpoint: Mapping[str, Any]) -> bool:
    """A reader passes over endpoints whose `transport` is not HTTP (AF-17)."""
    transport = endpoint.get("transport")
    if isinstance(transport, dict):
        transport = transport.get("type", transport.get("name"))
    return transport is None or (isinstance(transport, str) and transport.lower() in ("http", "https"))


def to_endpoint(binding: Binding, origin: str | None) -> JsonObject | None:
    """The endpoint that says the same as the binding, or None when the binding is not a path on this host."""
    if origin is None or binding.protocol not in (_PROTOCOL, origin.split(":", 1)[0]):
        return None
    path = binding.endpoint[len(origin) :]
    if not binding.endpoint.startswith(origin) or not is_path(path):
        return None
    method = binding.extra.get(METHOD)
    if not isinstance(method, str) or not _TOKEN.match(method):
        method = "POST"
    return _with_more({"method": method.upper(), "path": path}, binding.extra.get(ENDPOINT))


def _with_more(endpoint: JsonObject, more: Any) -> JsonObject:
    """The endpoint with its other members, unless somebody wrote them so that it would no longer be one."""
    if not isinstance(more, dict):
        return endpoint
    whole = {**endpoint, **leftover(more, _KNOWN)}
    try:
        return read_endpoint(whole, "$") if is_http(whole) else endpoint
    except InvalidDocument:
        return endpoint


def read_endpoint(value: Any, path: str) -> JsonObject:
    """An endpoint whose shape was checked."""
    endpoint = need_object(value, path)
    if not is_http(endpoint):
        return endpoint
    method = need_text(endpoint, "method", path, most=32)
    if not _TOKEN.match(method):
        raise InvalidDocument(f"{method!r} is not an HTTP method.", path=member(path, "method"))
    where = need_text(endpoint, "path", path, most=limits.ENDPOINT_CHARS)
    if not is_path(where):
        raise InvalidDocument(
            "An endpoint's path starts with one / and has no scheme, host, query, fragment, '..' or space.",
            path=member(path, "path"),
            hint="Put addresses on other hosts under metadata.bindings.",
        )
    find_text(endpoint, "description", path, most=limits.DESCRIPTION_CHARS)
    return endpoint


def to_binding(endpoint: JsonObject, origin: str) -> Binding:
    extra: JsonObject = {METHOD: endpoint["method"].upper()}
    more = leftover(endpoint, _KNOWN)
    if more:
        extra[ENDPOINT] = more
    return Binding(
        protocol=_PROTOCOL,
        endpoint=origin + endpoint["path"],
        interaction_model="streaming" if endpoint["path"].endswith(":stream") else "request-response",
        extra=extra,
    )


def split_bindings(bindings: Iterable[Binding], origin: str | None) -> tuple[list[JsonObject], list[Binding]]:
    """The endpoints of this host, and the bindings that must be told whole."""
    endpoints: list[JsonObject] = []
    others: list[Binding] = []
    for binding in bindings:
        endpoint = to_endpoint(binding, origin)
        if endpoint is None:
            others.append(binding)
        else:
            endpoints.append(endpoint)
    return endpoints, others
