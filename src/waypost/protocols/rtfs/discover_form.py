"""The `(discover-agents …)` form: text to a JSON-RPC call with options, a response to the form's value (rtfs.md §7).

This module does no I/O. Criteria must be literal data: nothing is evaluated (RTFS-62).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from waypost import limits
from waypost.errors import InvalidDocument, InvalidRequest, Timeout, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_json
from waypost.protocols.rtfs.sexpr import (
    Context,
    Form,
    Key,
    Keyword,
    List,
    Map,
    Quote,
    Symbol,
    Vector,
    form_to_json,
    json_name,
    json_to_form,
    parse_form,
    print_form,
    print_line,
    profile_key,
)

HEAD = Symbol("discover-agents")
METHOD = "rtfs.registry.discover"
CACHE_POLICIES = ("use-cache", "no-cache", "refresh-cache")
_ALIASES = {"capability": "capability_id", "tags": "discovery_tags", "version": "version_constraint"}
_STRING_CRITERIA = ("capability_id", "agent_id", "version_constraint")
_CRITERIA = (*_STRING_CRITERIA, "discovery_tags", "discovery_query")


@dataclass(frozen=True, slots=True)
class DiscoverOptions:
    """Options for the caller of the form. They are never sent to a registry (RTFS-61)."""

    registry_uri: str | None = None
    timeout_ms: int = limits.RTFS_TIMEOUT_MS_DEFAULT
    cache_policy: str = CACHE_POLICIES[0]


@dataclass(frozen=True, slots=True)
class DiscoverForm:
    params: JsonObject
    options: DiscoverOptions = field(default_factory=DiscoverOptions)
    warnings: tuple[str, ...] = ()

    def request(self, call_id: str) -> bytes:
        return dump_json({"jsonrpc": "2.0", "method": METHOD, "params": self.params, "id": call_id})


def is_discover_form(text: str) -> bool:
    """True for text that begins as a `(discover-agents …)` form, rather than a task in words."""
    head, opened, rest = text.partition("(")
    return not head.strip() and bool(opened) and rest.lstrip().startswith(HEAD.name)


def parse_discover(source: str | bytes) -> DiscoverForm:
    """The call of a form. Criteria are one map or inline pairs; options are a map, bare or alone in a vector (P-36)."""
    form = parse_form(source)
    if not isinstance(form, List) or form.items[:1] != (HEAD,):
        raise InvalidDocument("Expected a (discover-agents …) form.", path="discover-agents")
    criteria, options = _split_arguments(form.items[1:])
    warnings: list[str] = []
    params = _parse_criteria(criteria, warnings)
    chosen = _parse_options(options, params, warnings)
    if not any(params.get(name) not in (None, [], {}) for name in _CRITERIA):
        raise InvalidDocument(
            "A search needs at least one criterion.",
            path="discover-agents",
            hint="Give :capability-id, :discovery-tags …",
        )
    return DiscoverForm(params, chosen, tuple(warnings))


def _split_arguments(items: tuple[Form, ...]) -> tuple[Map, Map]:
    if items and isinstance(items[0], Map):
        return items[0], _parse_option_map(items[1:])
    entries: list[tuple[Key, Form]] = []
    at = 0
    while at + 1 < len(items):
        key = items[at]
        if not isinstance(key, Keyword):
            break
        if any(known == key for known, _ in entries):
            raise InvalidDocument("A criterion is given twice.", path=print_line(key))
        entries.append((key, items[at + 1]))
        at += 2
    return Map(tuple(entries)), _parse_option_map(items[at:])


def _parse_option_map(rest: tuple[Form, ...]) -> Map:
    if not rest:
        return Map()
    first = rest[0]
    if isinstance(first, Vector) and len(first.items) == 1:
        first = first.items[0]
    if len(rest) > 1 or not isinstance(first, Map):
        raise InvalidDocument(
            f"Expected options, found {print_line(rest[-1])[:40]}.",
            path="discover-agents",
            hint="Options are one map, e.g. {:timeout-ms 5000}.",
        )
    return first


# --- Criteria -------------------------------------------------------------------------------------


def _parse_criteria(criteria: Map, warnings: list[str]) -> JsonObject:
    params: JsonObject = {}
    for key, value in criteria.entries:
        name = json_name(key)
        name = _ALIASES.get(name, name)
        path = print_line(key)
        if name in params and name != "discovery_query":
            raise InvalidDocument("A criterion is given twice.", path=path)
        if name in _STRING_CRITERIA:
            params[name] = _parse_string(value, path)
        elif name == "discovery_tags":
            params[name] = _parse_tags(value, path)
        elif name == "discovery_query":
            params.setdefault(name, {}).update(_parse_query(value, path, warnings))
        elif name == "capability_constraints":
            constraints = _parse_literal(value, path, warnings)
            if not isinstance(constraints, dict):
                raise InvalidDocument("Expected a map.", path=path)
            members = {f"capabilities.{member}": item for member, item in constraints.items()}
            params.setdefault("discovery_query", {}).update(members)
        elif name == "limit":
            params[name] = _parse_integer(value, path)
        else:
            warnings.append(f"{path}: not a criterion; it was ignored.")
    return params


def _parse_literal(value: Form, path: str, warnings: list[str]) -> Any:
    return form_to_json(value, path, warnings, symbols=False)


def _parse_string(value: Form, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _unexpected(value, path, "Expected a string.")


def _unexpected(value: Form, path: str, message: str) -> InvalidDocument:
    if isinstance(value, (Symbol, List, Quote, Context)):
        return InvalidDocument(
            f"{print_line(value)[:40]} is not data.", path=path, hint="Write the value itself: nothing is evaluated."
        )
    return InvalidDocument(message, path=path)


def _parse_integer(value: Form, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _unexpected(value, path, "Expected an integer.")


def _parse_tags(value: Form, path: str) -> list[str]:
    if not isinstance(value, Vector):
        raise _unexpected(value, path, "Expected a vector of tags.")
    tags: list[str] = []
    for item in value.items:
        if not isinstance(item, (Keyword, str)):
            raise _unexpected(item, path, "A tag is a keyword or a string.")
        tags.append(item.name if isinstance(item, Keyword) else item)
    return tags


def _parse_query(value: Form, path: str, warnings: list[str]) -> JsonObject:
    if not isinstance(value, Map):
        raise _unexpected(value, path, "Expected a map.")
    query: JsonObject = {}
    for key, item in value.entries:
        name = key.name if isinstance(key, Keyword) else str(key)
        name = "text_search" if name == "text-search" else name
        query[name] = _parse_literal(item, f"{path} {print_line(key)}", warnings)
    return query


# --- Options --------------------------------------------------------------------------------------


def _parse_options(form: Map, params: JsonObject, warnings: list[str]) -> DiscoverOptions:
    chosen: dict[str, Any] = {}
    for key, value in form.entries:
        name, path = json_name(key), print_line(key)
        if name == "limit":
            params.setdefault("limit", _parse_integer(value, path))
        elif name in _OPTIONS:
            chosen[name] = _OPTIONS[name](value, path)
        else:
            warnings.append(f"{path}: not an option; it was ignored.")
    return DiscoverOptions(**chosen)


def _parse_registry_uri(value: Form, path: str) -> str:
    text = _parse_string(value, path)
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidDocument("Expected an absolute http or https URL without a user name.", path=path)
    return text


def _parse_timeout(value: Form, path: str) -> int:
    timeout = _parse_integer(value, path)
    if not 1 <= timeout <= limits.RTFS_TIMEOUT_MS_MAX:
        raise InvalidDocument(f"A timeout has 1 to {limits.RTFS_TIMEOUT_MS_MAX} ms.", path=path)
    return timeout


def _parse_policy(value: Form, path: str) -> str:
    name = value.name if isinstance(value, Keyword) else value
    if not isinstance(name, str) or name not in CACHE_POLICIES:
        raise InvalidDocument("Unknown cache policy.", path=path, hint=f"Use :{', :'.join(CACHE_POLICIES)}.")
    return name


_OPTIONS: dict[str, Callable[[Form, str], Any]] = {
    "registry_uri": _parse_registry_uri,
    "timeout_ms": _parse_timeout,
    "cache_policy": _parse_policy,
}


def print_discover(form: DiscoverForm) -> str:
    """The text of a call: a map of criteria, then a map of the options that differ from their defaults."""
    criteria = json_to_form(
        {name: value for name, value in form.params.items() if name != "discovery_query"}, profile_key
    )
    entries = criteria.entries if isinstance(criteria, Map) else ()
    query = form.params.get("discovery_query")
    if query is not None:
        entries += ((Keyword("discovery-query"), json_to_form(query, str)),)
    items: list[Form] = [HEAD, Map(entries)]
    defaults = DiscoverOptions()
    options: list[tuple[Key, Form]] = []
    if form.options.registry_uri is not None:
        options.append((Keyword("registry-uri"), form.options.registry_uri))
    if form.options.timeout_ms != defaults.timeout_ms:
        options.append((Keyword("timeout-ms"), form.options.timeout_ms))
    if form.options.cache_policy != defaults.cache_policy:
        options.append((Keyword("cache-policy"), Keyword(form.options.cache_policy)))
    if options:
        items.append(Map(tuple(options)))
    return print_form(List(tuple(items)))


# --- The value of a form --------------------------------------------------------------------------

UNAVAILABLE = "unavailable"
TIMEOUT = "timeout"
QUERY_FAILED = "query-failed"
UNAUTHORIZED = "unauthorized"
RATE_LIMITED = "rate-limited"
INVALID_RESPONSE = "invalid-response"
_BY_RPC_CODE = {
    -32603: UNAVAILABLE,
    -32011: UNAVAILABLE,
    -32600: QUERY_FAILED,
    -32601: QUERY_FAILED,
    -32602: QUERY_FAILED,
    -32700: QUERY_FAILED,
    -32004: QUERY_FAILED,
    -32003: UNAUTHORIZED,
    -32008: UNAUTHORIZED,
    -32009: RATE_LIMITED,
}
_BY_ERROR_CODE = {  # `data.code` decides, because the numbers of registries overlap (rtfs.md §4)
    "unauthorized": UNAUTHORIZED,
    "forbidden": UNAUTHORIZED,
    "rate_limited": RATE_LIMITED,
    "unavailable": UNAVAILABLE,
    "internal": UNAVAILABLE,
}
_BY_STATUS = {401: UNAUTHORIZED, 403: UNAUTHORIZED, 429: RATE_LIMITED}


@dataclass(frozen=True, slots=True)
class DiscoverFailure:
    """`type` is the last part of `:error/discovery.…`."""

    type: str
    message: str
    details: JsonObject = field(default_factory=dict)

    def form(self) -> Vector:
        """`[:error {:type :error/discovery.… :message "…" :details {…}}]` (P-37)."""
        details = {name.replace("_", "-"): value for name, value in self.details.items()}
        body = Map(
            (
                (Keyword("type"), Keyword(f"error/discovery.{self.type}")),
                (Keyword("message"), self.message),
                (Keyword("details"), json_to_form(details)),
            )
        )
        return Vector((Keyword("error"), body))


@dataclass(frozen=True, slots=True)
class DiscoverValue:
    """What a form evaluates to: cards, or a failure (RTFS-63). `warnings` name keys that were ignored."""

    cards: tuple[JsonObject, ...] = ()
    failure: DiscoverFailure | None = None
    warnings: tuple[str, ...] = ()

    def form(self) -> Vector:
        """Cards are maps whose keys are keywords of the JSON names, unchanged."""
        return Vector(tuple(map(json_to_form, self.cards))) if self.failure is None else self.failure.form()

    @property
    def text(self) -> str:
        """The value as RTFS text, after its warnings as comments."""
        comments = "".join(f"; warning: {' '.join(warning.split())}\n" for warning in self.warnings)
        return f"{comments}{print_form(self.form())}\n"


def failed_discovery(error: WaypostError, *, registry_uri: str | None = None) -> DiscoverValue:
    """The value of a form that was refused before a request was sent, or whose request got no response."""
    if isinstance(error, InvalidRequest):
        return DiscoverValue(failure=DiscoverFailure(QUERY_FAILED, str(error)))
    details = {} if registry_uri is None else {"registry_uri": registry_uri}
    failure_type = TIMEOUT if isinstance(error, Timeout) else _BY_ERROR_CODE.get(error.code, UNAVAILABLE)
    return DiscoverValue(failure=DiscoverFailure(failure_type, error.message, details))


def parse_response(
    status: int, body: bytes, call_id: str, *, registry_uri: str | None = None, warnings: tuple[str, ...] = ()
) -> DiscoverValue:
    """The value that a registry's HTTP response gives. `warnings` are those of the form."""
    details: JsonObject = {"registry_uri": registry_uri} if registry_uri is not None else {}
    details["http_status"] = status

    def fail(failure_type: str, message: str) -> DiscoverValue:
        return DiscoverValue(failure=DiscoverFailure(failure_type, message, details), warnings=warnings)

    try:
        response = parse_json(body, max_bytes=limits.RTFS_ANSWER_BYTES, depth=limits.RTFS_DEPTH)
    except WaypostError as error:
        return fail(_type_by_status(status), f"The response is not JSON: {error.message}")
    error_member = response.get("error") if isinstance(response, dict) else None
    if isinstance(error_member, dict):
        return DiscoverValue(failure=_parse_error(error_member, status, details), warnings=warnings)
    if status >= 400:
        return fail(_type_by_status(status), f"The registry answered with status {status}.")
    problem = _find_problem(response, call_id)
    if problem is not None:
        return fail(INVALID_RESPONSE, problem)
    result = response["result"]
    reported = result.get("warnings")
    if isinstance(reported, list):
        warnings = (*warnings, *(item for item in reported if isinstance(item, str)))
    return DiscoverValue(cards=tuple(result["agents"]), warnings=warnings)


def _type_by_status(status: int) -> str:
    return _BY_STATUS.get(status, UNAVAILABLE if status >= 500 else INVALID_RESPONSE)


def _parse_error(error: JsonObject, status: int, details: JsonObject) -> DiscoverFailure:
    code, data = error.get("code"), error.get("data")
    members = data if isinstance(data, dict) else {}
    word = members.get("code")
    failure_type = _BY_ERROR_CODE.get(word) if isinstance(word, str) else None
    if failure_type is None:
        failure_type = (_BY_RPC_CODE.get(code) if isinstance(code, int) else None) or _type_by_status(status)
    added = {"code": code, "data": data, "retry_after": members.get("retry_after")}
    details = details | {name: value for name, value in added.items() if value is not None}
    return DiscoverFailure(failure_type, str(error.get("message", "")), details)


def _find_problem(response: Any, call_id: str) -> str | None:
    if not isinstance(response, dict) or not isinstance(response.get("result"), dict):
        return "The response has neither result nor error."
    if response.get("id") != call_id:
        return "The response belongs to another call."
    agents = response["result"].get("agents")
    if not isinstance(agents, list) or not all(isinstance(card, dict) and card.get("agent_id") for card in agents):
        return "The response has a card without agent_id."
    return None
