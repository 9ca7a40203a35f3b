"""Documents that are known and yet are not one agent: collections, messages, pointers. Each is refused with the way to go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from waypost.errors import InvalidDocument


class _Refusal(msgspec.Struct, frozen=True):
    matches: Callable[[Mapping[str, Any]], bool]
    message: str
    path: str
    hint: str


def _is_aid(document: Mapping[str, Any]) -> bool:
    """AID's JSON fallback (neighbours.md §3): `v`/`version` aid1 or aid2 beside `u`/`uri`."""
    version = document.get("v", document.get("version"))
    return isinstance(version, str) and version.startswith("aid") and ("u" in document or "uri" in document)


def _holds(name: str, *without: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda document: isinstance(document.get(name), list) and not any(other in document for other in without)


_ONE_BY_ONE = "Register its items one by one, as lines to /api/v1/agents:batch, or with `waypost import`."

_REFUSALS = (
    _Refusal(_holds("entries", "identifier", "id"), "An AI catalogue is not one agent.", "$.entries", _ONE_BY_ONE),
    _Refusal(_holds("agents", "id", "name"), "A list of agents is not one agent.", "$.agents", _ONE_BY_ONE),
    _Refusal(_holds("servers", "id", "name"), "A list of MCP servers is not one agent.", "$.servers", _ONE_BY_ONE),
    _Refusal(
        lambda document: "query" in document and "protocol_version" in document,
        "An announce query is not an agent.",
        "$.query",
        "Send it to /agents.",
    ),
    _Refusal(
        lambda document: isinstance(document.get("invite"), dict) and "identity" not in document,
        "An ADP invitation is not an agent.",
        "$.invite",
        "Fetch the document that `invite.wellKnown` names.",
    ),
    _Refusal(
        lambda document: "jsonrpc" in document and "method" in document,
        "A JSON-RPC request is not an agent.",
        "$.method",
        "Send it to /rtfs, or only its `params` here.",
    ),
    _Refusal(_is_aid, "An AID record points at an agent; it does not describe one.", "$", "Fetch what its uri names."),
)


def refuse_what_is_no_agent(document: Mapping[str, Any]) -> None:
    for refusal in _REFUSALS:
        if refusal.matches(document):
            raise InvalidDocument(refusal.message, path=refusal.path, hint=refusal.hint)
