"""The `(discover-agents …)` form: text to a JSON-RPC call and its options, an answer to a vector (rtfs.md §7).

It opens no connection and keeps no cache; whoever calls does, as the options say. Criteria are data: nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument, InvalidRequest, WaypostError
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
_TEXTS = ("capability_id", "agent_id", "version_constraint")
_CRITERIA = (*_TEXTS, "discovery_tags", "discovery_query")


@dataclass(frozen=True, slots=True)
class DiscoverOptions:
    """What stays with the caller and is never sent."""

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


def parse_discover(source: str | bytes | Form) -> DiscoverForm:
    """The call in a form. Criteria are one map or inline pairs; options a map, bare or alone in a vector."""
    form = parse_form(source) if isinstance(source, (str, bytes)) else source
    if not isinstance(form, List) or form.items[:1] != (HEAD,):
        raise InvalidDocument("Expected a (discover-agents …) form.", path="discover-agents")
    criteria, options = _parts(form.items[1:])
    warnings: list[str] = []
    params = _params(criteria, warnings)
    chosen = _options(options, params, warnings)
    if not any(params.get(name) not in (None, [], {}) for name in _CRITERIA):
        raise InvalidDocument(
            "A search needs at least one criterion.",
            path="discover-agents",
            hint="Give :capability-id, :discovery-tags …",
        )
    return DiscoverForm(params, chosen, tuple(warnings))


def _parts(items: tuple[Form, ...]) -> tuple[Map, Map]:
    if items and isinstance(items[0], Map):
        return items[0], _option_map(items[1:])
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
    return Map(tuple(entries)), _option_map(items[at:])


def _option_map(rest: tuple[Form, ...]) -> Map:
    if not rest:
        return Map()
    first = rest[0]
    if isinstance(first, Vector) and len(first.items) == 1:
        first = first.items[0]
    if len(rest) > 1 or not isinstance(first, Map):
        raise InvalidDocument(
            f"{print_line(rest[-1])[:40]} stands where options are expected.",
            path="discover-agents",
            hint="Options are one map, e.g. {:timeout-ms 5000}.",
        )
    return first


# --- Criteria -------------------------------------------------------------------------------------


def _params(criteria: Map, warnings: list[str]) -> JsonObject:
    params: JsonObject = {}
    for key, value in criteria.entries:
        name = json_name(key)
        name = _ALIASES.get(name, name)
        where = print_line(key)
        if name in params and name != "discovery_query":
            raise InvalidDocument("A criterion is given twice.", path=where)
        if name in _TEXTS:
            params[name] = _need_text(value, where)
        elif name == "discovery_tags":
            params[name] = _tags(value, where)
        elif name == "discovery_query":
            params.setdefault(name, {}).update(_query(value, where, warnings))
        elif name == "capability_constraints":
            constraints = _literal(value, where, warnings)
            if not isinstance(constraints, dict):
                raise InvalidDocument("A map is expected.", path=where)
            found = {f"capabilities.{member}": wanted for member, wanted in constraints.items()}
            params.setdefault("discovery_query", {}).update(found)
        elif name == "limit":
            params[name] = _whole(value, where)
        else:
            warnings.append(f"{where}: not a criterion; it was ignored.")
    return params


def _literal(value: Form, where: str, warnings: list[str]) -> Any:
    return form_to_json(value, where, warnings, symbols=False)


def _need_text(value: Form, where: str) -> str:
    if isinstance(value, str):
        return value
    raise _not_data(value, where, "A text is expected.")


def _not_data(value: Form, where: str, otherwise: str) -> InvalidDocument:
    evaluated = isinstance(value, (Symbol, List, Quote, Context))
    return InvalidDocument(
        f"{print_line(value)[:40]} is not data." if evaluated else otherwise,
        path=where,
        hint="Write the value itself: nothing is evaluated." if evaluated else None,
    )


def _whole(value: Form, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _not_data(value, where, "A whole number is expected.")


def _tags(value: Form, where: str) -> list[str]:
    if not isinstance(value, Vector):
        raise _not_data(value, where, "A vector of tags is expected.")
    tags: list[str] = []
    for item in value.items:
        if not isinstance(item, (Keyword, str)):
            raise _not_data(item, where, "A tag is a keyword or a text.")
        tags.append(item.name if isinstance(item, Keyword) else item)
    return tags


def _query(value: Form, where: str, warnings: list[str]) -> JsonObject:
    if not isinstance(value, Map):
        raise _not_data(value, where, "A map is expected.")
    query: JsonObject = {}
    for key, item in value.entries:
        name = key.name if isinstance(key, Keyword) else str(key)
        name = "text_search" if name == "text-search" else name
        query[name] = _literal(item, f"{where} {print_line(key)}", warnings)
    return query


# --- Options --------------------------------------------------------------------------------------


def _options(form: Map, params: JsonObject, warnings: list[str]) -> DiscoverOptions:
    chosen: dict[str, Any] = {}
    for key, value in form.entries:
        name, where = json_name(key), print_line(key)
        if name == "limit":
            params.setdefault("limit", _whole(value, where))
        elif name in _OPTIONS:
            chosen[name] = _OPTIONS[name](value, where)
        else:
            warnings.append(f"{where}: not an option; it was ignored.")
    return DiscoverOptions(**chosen)


def _timeout(value: Form, where: str) -> int:
    timeout = _whole(value, where)
    if not 1 <= timeout <= limits.RTFS_TIMEOUT_MS_MAX:
        raise InvalidDocument(f"A timeout has 1 to {limits.RTFS_TIMEOUT_MS_MAX} ms.", path=where)
    return timeout


def _policy(value: Form, where: str) -> str:
    name = value.name if isinstance(value, Keyword) else value
    if not isinstance(name, str) or name not in CACHE_POLICIES:
        raise InvalidDocument("This is not a cache policy.", path=where, hint=f"Use :{', :'.join(CACHE_POLICIES)}.")
    return name


_OPTIONS: dict[str, Callable[[Form, str], Any]] = {
    "registry_uri": _need_text,
    "timeout_ms": _timeout,
    "cache_policy": _policy,
}


def print_discover(form: DiscoverForm) -> str:
    """The text of a call: a map of criteria, and a map of those options that are not the default."""
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


# --- Answers --------------------------------------------------------------------------------------

UNAVAILABLE = "unavailable"
TIMEOUT = "timeout"
QUERY_FAILED = "query-failed"
UNAUTHORIZED = "unauthorized"
RATE_LIMITED = "rate-limited"
INVALID_RESPONSE = "invalid-response"
_BY_CODE = {
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
_BY_WORD = {  # `data.code` decides where numbers overlap
    "unauthorized": UNAUTHORIZED,
    "forbidden": UNAUTHORIZED,
    "rate_limited": RATE_LIMITED,
    "unavailable": UNAVAILABLE,
    "internal": UNAVAILABLE,
}
_BY_STATUS = {401: UNAUTHORIZED, 403: UNAUTHORIZED, 429: RATE_LIMITED}


def result_form(cards: list[JsonObject]) -> Vector:
    """Cards as maps whose keys are keywords of the JSON names, unchanged."""
    return Vector(tuple(json_to_form(card) for card in cards))


def error_form(kind: str, message: str, **details: Any) -> Vector:
    """`[:error {:type :error/discovery.… :message "…" :details {…}}]`."""
    told = {name.replace("_", "-"): value for name, value in details.items() if value is not None}
    body = Map(
        (
            (Keyword("type"), Keyword(f"error/discovery.{kind}")),
            (Keyword("message"), message),
            (Keyword("details"), json_to_form(told)),
        )
    )
    return Vector((Keyword("error"), body))


def refused_form(error: InvalidRequest) -> Vector:
    """A form that was refused before anything was sent."""
    return error_form(QUERY_FAILED, str(error))


def answer_form(status: int, body: bytes, call_id: str, *, registry_uri: str | None = None) -> Vector:
    """What a registry answered, as the form's value."""
    told = {"registry_uri": registry_uri, "http_status": status}
    try:
        answer = parse_json(body, max_bytes=limits.RTFS_ANSWER_BYTES, depth=limits.RTFS_DEPTH)
    except WaypostError as error:
        return error_form(_kind_by_status(status), f"The answer is not JSON: {error.message}", **told)
    error_member = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error_member, dict):
        return _error_of(error_member, told)
    if status >= 400:
        return error_form(_kind_by_status(status), f"The registry answered with status {status}.", **told)
    problem = _response_problem(answer, call_id)
    if problem is not None:
        return error_form(INVALID_RESPONSE, problem, **told)
    return result_form(answer["result"]["agents"])


def _kind_by_status(status: int) -> str:
    return _BY_STATUS.get(status, UNAVAILABLE if status >= 500 else INVALID_RESPONSE)


def _error_of(error: JsonObject, told: dict[str, Any]) -> Vector:
    code, data = error.get("code"), error.get("data")
    word = data.get("code") if isinstance(data, dict) else None
    kind = _BY_WORD.get(word) if isinstance(word, str) else None
    kind = kind or (_BY_CODE.get(code) if isinstance(code, int) else None) or _kind_by_status(told["http_status"])
    retry_after = data.get("retry_after") if isinstance(data, dict) else None
    return error_form(kind, str(error.get("message", "")), **told, code=code, data=data, retry_after=retry_after)


def _response_problem(answer: Any, call_id: str) -> str | None:
    if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
        return "The answer has neither result nor error."
    if answer.get("id") != call_id:
        return "The answer belongs to another call."
    agents = answer["result"].get("agents")
    if not isinstance(agents, list) or not all(isinstance(card, dict) and card.get("agent_id") for card in agents):
        return "The answer holds a card without agent_id."
    return None
