"""A service that is broken in one way fails in exactly the requirements that this breaks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.mutating_proxy import Change, Exchange, MutatingProxy, running_app
from support.ports import free_port
from support.server import running_server
from waypost.conformance import run
from waypost.model.times import to_rfc3339

LIST = re.compile(r"/\.(well-known/agentframework|agent-framework)/v1/agents")
ITEM = re.compile(r"/\.well-known/agentframework/v1/agents/.+")
RECORD = re.compile(r"/profile/v1/agents/.+")
CATALOG = "/.well-known/ai-catalog.json"
DOCUMENT = "/.well-known/agent.json"
CARD = "/.well-known/agent-card.json"


@pytest.fixture(scope="module")
def proxy() -> Iterator[tuple[MutatingProxy, str]]:
    """The demo behind a proxy. Its base URL is the proxy's, so that its links lead there."""
    proxy, port, inner = MutatingProxy(), free_port(), free_port()
    proxy.upstream = f"http://127.0.0.1:{inner}"
    with (
        running_app(proxy, port) as url,
        running_server("--base-url", url, "--port", str(inner), command="demo"),
    ):
        yield proxy, url


@dataclass
class Mutant:
    """One way to be broken, and the requirements that it breaks."""

    name: str
    spec: str
    breaks: str
    on_request: Change | None = None
    on_answer: Change | None = None
    on_message: Callable[[str | bytes], str | bytes] | None = None
    confirms_subprotocol: bool = True
    write: bool = False


def at(path: str | re.Pattern[str], change: Callable[[Exchange], None], status: int | None = None) -> Change:
    """Apply a change to one path, and only to answers of one status."""

    def apply(exchange: Exchange) -> None:
        fits = path.fullmatch(exchange.path) if isinstance(path, re.Pattern) else exchange.path == path
        if fits and status in (None, exchange.status):
            change(exchange)

    return apply


def change_json(edit: Callable[[Any], Any]) -> Callable[[Exchange], None]:
    """Edit the JSON of an answer: in place, or by returning another value."""

    def apply(exchange: Exchange) -> None:
        value = exchange.json
        if value is not None:
            edited = edit(value)
            exchange.json = value if edited is None else edited

    return apply


def change_sent(edit: Callable[[Any], Any]) -> Callable[[Exchange], None]:
    def apply(exchange: Exchange) -> None:
        value = exchange.sent
        if isinstance(value, dict):
            edit(value)
            if value != exchange.sent:  # JSON that is invalid on purpose stays as it is
                exchange.sent = value

    return apply


def without_headers(*names: str) -> Callable[[Exchange], None]:
    def apply(exchange: Exchange) -> None:
        for name in names:
            exchange.answer_headers.pop(name, None)

    return apply


def with_header(name: str, value: str) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.answer_headers.__setitem__(name, value)


def with_status(status: int) -> Callable[[Exchange], None]:
    return lambda exchange: setattr(exchange, "status", status)


def without_params(*names: str) -> Callable[[Exchange], None]:
    def apply(exchange: Exchange) -> None:
        kept = [pair for pair in exchange.query.split("&") if pair.partition("=")[0] not in names]
        exchange.query = "&".join(kept)

    return apply


def each(member: str, edit: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Edit every object in an array of the answer."""

    def apply(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.get(member) or ():
                edit(item)

    return apply


def drop(*names: str) -> Callable[[Any], None]:
    def apply(value: Any) -> None:
        if isinstance(value, dict):
            for name in names:
                value.pop(name, None)

    return apply


def put(**members: Any) -> Callable[[Any], None]:
    return lambda value: value.update(members) if isinstance(value, dict) else None


def reverse(member: str) -> Callable[[Any], None]:
    return lambda value: value[member].reverse() if isinstance(value, dict) and member in value else None


def accept_anything(exchange: Exchange) -> None:
    exchange.headers["accept"] = "*/*"


def ids_as_text(value: Any) -> None:
    if isinstance(value, dict) and isinstance(value.get("id"), int):
        value["id"] = str(value["id"])


def corrupt_signature(message: str | bytes) -> str | bytes:
    value = json.loads(message)
    value["body"]["content"] += " "
    return json.dumps(value)


def no_status(message: str | bytes) -> str | bytes:
    return b"\x03" + message[1:] if isinstance(message, bytes) else message


def refresh_time(value: dict[str, Any]) -> None:
    value["updated_at"] = to_rfc3339(time.time())


def ignore_required_tags(value: dict[str, Any]) -> None:
    if isinstance(value.get("required_tags"), list):
        del value["required_tags"]


def ignore_limit(exchange: Exchange) -> None:
    if b'"limit"' in exchange.content:
        change_sent(lambda value: value["params"].pop("limit"))(exchange)


def add_odd_agent(exchange: Exchange) -> None:
    if not exchange.query:
        change_json(lambda value: value["agents"].append({"id": "a/b", "name": "~~~", "tags": []}))(exchange)


def pretend_deleted(exchange: Exchange) -> None:
    if exchange.method == "DELETE" and exchange.headers.get("x-for-real") is None:
        exchange.status = 204


def pretend_batch(exchange: Exchange) -> None:
    if exchange.sent == []:
        exchange.status, exchange.answer = 200, b"[]"
        exchange.answer_headers = {"content-type": "application/json"}


def trailing_slash(exchange: Exchange) -> None:
    exchange.path = exchange.path.removesuffix("/")


def major_9_is_1(value: dict[str, Any]) -> None:
    if value.get("protocol_version") == "v9.0":
        value["protocol_version"] = "v1.0"


def known_members_only(value: dict[str, Any]) -> None:
    value.pop("conformance", None)


def unsigned_integer_scores(row: dict[str, Any]) -> None:
    row["score"] = float(row["score"]) + 0.5


def pad(exchange: Exchange) -> None:
    exchange.answer = exchange.answer[:-1] + b" " * 300_000 + b"}"


def fake_cursor(value: Any) -> None:
    value["next_cursor"] = "again"


def leak_questions() -> Change:
    """Name the question before in each answer."""
    questions = [""]

    def apply(exchange: Exchange) -> None:
        question = exchange.sent.get("query") if isinstance(exchange.sent, dict) else None
        if isinstance(question, str):
            change_json(lambda value: value.update(warnings=[f"Others asked: {questions[0]}"]))(exchange)
            questions[0] = question

    return at("/profile/v1/discover", apply, 200)


def obey(value: Any) -> None:
    """A ranker that does what a description says."""
    candidates = value.get("candidates") or []
    candidates.sort(key=lambda row: "ranked first" not in row.get("description", ""))
    for row in candidates[:1]:
        if "ranked first" in row.get("description", ""):
            row["score"] = 1.0


def publishers_with_case(value: dict[str, Any]) -> None:
    query = value.get("query")
    filters = query.get("filter") if isinstance(query, dict) else None
    if isinstance(filters, dict) and str(filters.get("publisher", "")).isupper():
        filters["publisher"] = "none.invalid"


def signed_by_nobody(value: Any) -> None:
    entry = value["entries"][0]
    entry["trustManifest"] = {"identity": entry["identifier"], "signature": "eyJhbGciOiJub25lIn0..AAAA"}


def ignore_cursor(exchange: Exchange) -> None:
    without_params("cursor")(exchange)


MUTANTS = [
    # Agent Framework
    Mutant("no ETag", "af", "AF-33 AF-34 AF-36", on_answer=at(LIST, without_headers("etag"))),
    Mutant(
        "404 of a version without the versions",
        "af",
        "AF-3",
        on_answer=at("/.well-known/agentframework/v999/agents", change_json(drop("supported_versions"))),
    ),
    Mutant(
        "errors without correlation_id", "af", "AF-40", on_answer=at(ITEM, change_json(drop("correlation_id")), 404)
    ),
    Mutant("tag is ignored", "af", "AF-22", on_request=at(LIST, without_params("tag"))),
    Mutant("view is ignored", "af", "AF-24 AF-34 AF-38", on_request=at(LIST, without_params("view"))),
    Mutant("the list is reversed", "af", "AF-27", on_answer=at(LIST, change_json(reverse("agents")), 200)),
    Mutant("null members", "af", "AF-19", on_answer=at(ITEM, change_json(put(version=None)), 200)),
    Mutant("Accept is ignored", "af", "AF-29 AF-30 AF-31 AF-38 AF-40 AF-42", on_request=accept_anything),
    Mutant(
        "a trailing slash is served",
        "af",
        "AF-9",
        on_request=at("/.well-known/agentframework/v1/agents/", trailing_slash),
    ),
    Mutant(
        "Last-Modified in the future",
        "af",
        "AF-35 AF-37",
        on_answer=at(LIST, with_header("last-modified", "Fri, 01 Jan 2100 00:00:00 GMT")),
    ),
    Mutant("pages without a total", "af", "AF-26", on_answer=at(LIST, change_json(drop("total")), 200)),
    Mutant("an id that is no path segment", "af", "AF-11 AF-12", on_answer=at(LIST, add_odd_agent, 200)),
    # Profile
    Mutant(
        "candidates are not ranked",
        "profile",
        "PRO-26",
        on_answer=at("/profile/v1/discover", change_json(reverse("candidates"))),
    ),
    Mutant(
        "required_tags is ignored",
        "profile",
        "PRO-24",
        on_request=at("/profile/v1/discover", change_sent(ignore_required_tags)),
    ),
    Mutant(
        "unsupported filters are not listed",
        "profile",
        "PRO-53 PRO-60",
        on_answer=at("/profile/v1/discover", change_json(drop("unsupported_filters"))),
    ),
    Mutant(
        "no freshness",
        "profile",
        "PRO-21 PRO-58",
        on_answer=at("/profile/v1/discover", change_json(each("candidates", drop("freshness")))),
    ),
    Mutant(
        "an unknown error code",
        "profile",
        "PRO-49",
        on_answer=at("/profile/v1/discover", change_json(put(code="oops")), 400),
    ),
    Mutant(
        "500 for invalid requests",
        "profile",
        "PRO-23 PRO-25 PRO-50",
        on_answer=at("/profile/v1/discover", with_status(500), 400),
    ),
    Mutant("a record changes its id", "profile", "PRO-10", on_answer=at(RECORD, change_json(put(id="urn:other")), 200)),
    Mutant(
        "errors as text",
        "profile",
        "PRO-48 PRO-49 PRO-50",
        on_answer=at("/profile/v1/discover", lambda exchange: setattr(exchange, "answer", b"oops"), 400),
    ),
    Mutant(
        "stale updates are accepted",
        "profile",
        "PRO-21 PRO-41",
        on_request=lambda exchange: change_sent(refresh_time)(exchange) if exchange.method == "PUT" else None,
        write=True,
    ),
    Mutant(
        "unknown members are lost",
        "profile",
        "PRO-9 PRO-18",
        on_answer=at(RECORD, change_json(drop("example.conformance")), 200),
        write=True,
    ),
    Mutant("withdrawal does nothing", "profile", "PRO-63", on_request=at(RECORD, pretend_deleted), write=True),
    Mutant("questions are shown to others", "profile", "PRO-38", on_answer=leak_questions()),
    Mutant(
        "a description gives orders",
        "profile",
        "PRO-56",
        on_answer=at("/profile/v1/discover", change_json(obey), 200),
        write=True,
    ),
    # RTFS
    Mutant("ids come back as text", "rtfs", "RTFS-31", on_answer=at("/rtfs", change_json(ids_as_text))),
    Mutant("an empty batch is answered by one", "rtfs", "RTFS-32", on_request=at("/rtfs", pretend_batch)),
    Mutant(
        "no warnings",
        "rtfs",
        "RTFS-33",
        on_answer=at(
            "/rtfs",
            change_json(
                lambda value: (
                    value.get("result", {}).pop("warnings", None) and None if isinstance(value, dict) else None
                )
            ),
        ),
    ),
    Mutant("405 without Allow", "rtfs", "RTFS-34", on_answer=at("/rtfs", without_headers("allow"), 405)),
    Mutant("limit is ignored", "rtfs", "RTFS-51", on_request=at("/rtfs", ignore_limit)),
    Mutant(
        "deregister is not repeatable",
        "rtfs",
        "RTFS-44",
        on_answer=at(
            "/rtfs",
            change_json(
                lambda value: value.get("result", {}).pop("already", None) and None if isinstance(value, dict) else None
            ),
        ),
        write=True,
    ),
    # Announce
    Mutant(
        "responses do not match",
        "announce",
        "ANN-7",
        on_answer=at(re.compile("/agents.*"), change_json(each("agents", put(matched=False)))),
    ),
    Mutant(
        "another major version is answered", "announce", "ANN-50", on_request=at("/agents", change_sent(major_9_is_1))
    ),
    Mutant(
        "the cursor loops",
        "announce",
        "ANN-34",
        on_request=at("/agents", ignore_cursor),
        on_answer=at("/agents", change_json(fake_cursor), 200),
    ),
    Mutant(
        "another error name",
        "announce",
        "ANN-34",
        on_answer=at(re.compile("/agents/.*"), change_json(put(error={"code": "ErrGone"})), 404),
    ),
    Mutant("the subprotocol is not confirmed", "announce", "ANN-36", confirms_subprotocol=False),
    Mutant("queries on the WebSocket do not end", "announce", "ANN-36", on_message=no_status),
    Mutant(
        "queries are ignored",
        "announce",
        "ANN-6",
        on_request=at(
            "/agents", change_sent(lambda value: value["query"].pop("agent_id", None) if "query" in value else None)
        ),
    ),
    # ADP
    Mutant("another media type", "adp", "ADP-22", on_answer=at(DOCUMENT, with_header("content-type", "text/plain"))),
    Mutant(
        "another fingerprint",
        "adp",
        "ADP-26 ADP-33",
        on_answer=at(
            DOCUMENT,
            change_json(lambda value: value["identity"]["publicKey"].update(fingerprint="ed25519:" + "A" * 43)),
        ),
    ),
    Mutant(
        "an id of another domain",
        "adp",
        "ADP-25 ADP-33 ADP-34",
        on_answer=at(DOCUMENT, change_json(lambda value: value["identity"].update(id="agent:other.example"))),
    ),
    Mutant(
        "no wellKnown",
        "adp",
        "ADP-27 ADP-33",
        on_answer=at(DOCUMENT, change_json(lambda value: value["endpoints"].pop("wellKnown") and None)),
    ),
    Mutant(
        "TLS is not required",
        "adp",
        "ADP-29",
        on_answer=at(DOCUMENT, change_json(lambda value: value["security"].update(tlsRequired=False))),
    ),
    Mutant(
        "a page without metadata",
        "adp",
        "ADP-33",
        on_answer=at("/", lambda exchange: setattr(exchange, "answer", exchange.answer.replace(b"ld+json", b"x-json"))),
    ),
    Mutant("messages with a broken signature", "adp", "ADP-41 ADP-42 ADP-43", on_message=corrupt_signature),
    Mutant(
        "tasks are answered by 200",
        "adp",
        "ADP-44 ADP-45",
        on_answer=at("/agent/tasks", with_status(200), 202),
        write=True,
    ),
    # DNS-AID
    Mutant("a card of 300 kB", "dns-aid", "AID-26", on_answer=at(CARD, pad, 200)),
    # ARD
    Mutant(
        "scores are not integers",
        "ard",
        "ARD-24 ARD-38",
        on_answer=at("/ard/search", change_json(each("results", unsigned_integer_scores))),
    ),
    Mutant(
        "the catalog is plain JSON",
        "ard",
        "ARD-9",
        on_answer=at(CATALOG, with_header("content-type", "application/json")),
    ),
    Mutant(
        "identifiers of the old scheme",
        "ard",
        "ARD-13 ARD-14 ARD-15 ARD-37",
        on_answer=at(
            CATALOG, lambda exchange: setattr(exchange, "answer", exchange.answer.replace(b"urn:air:", b"urn:ai:"))
        ),
    ),
    Mutant(
        "url and data",
        "ard",
        "ARD-4 ARD-37",
        on_answer=at(CATALOG, change_json(lambda value: value["entries"][0].update(data={}))),
    ),
    Mutant(
        "an entry twice",
        "ard",
        "ARD-7",
        on_answer=at(CATALOG, change_json(lambda value: value["entries"].append(value["entries"][0]))),
    ),
    Mutant(
        "unknown members are accepted", "ard", "ARD-23", on_request=at("/ard/search", change_sent(known_members_only))
    ),
    Mutant(
        "publishers are compared with case",
        "ard",
        "ARD-16",
        on_request=at("/ard/search", change_sent(publishers_with_case)),
    ),
    Mutant(
        "a manifest is signed with the algorithm none",
        "ard",
        "ARD-19",
        on_answer=at(CATALOG, change_json(signed_by_nobody), 200),
    ),
    Mutant(
        "the page token loops",
        "ard",
        "ARD-25",
        on_request=at(
            "/ard/search",
            change_sent(lambda value: value.pop("pageToken", None) if value.get("pageToken") == "again" else None),
        ),
        on_answer=at(
            "/ard/search",
            change_json(lambda value: value.update(pageToken="again") if value.get("pageToken") else None),
            200,
        ),
    ),
    Mutant(
        "errors as problem documents",
        "ard",
        "ARD-34",
        on_answer=at("/ard/search", with_header("content-type", "application/problem+json"), 400),
    ),
    Mutant(
        "filters are ignored",
        "ard",
        "ARD-2 ARD-22",
        on_request=at(
            "/ard/search",
            change_sent(
                lambda value: value["query"].pop("filter", None) if isinstance(value.get("query"), dict) else None
            ),
        ),
    ),
    Mutant(
        "explore counts too much",
        "ard",
        "ARD-26",
        on_answer=at(
            "/ard/explore",
            change_json(lambda value: value["facets"]["type"].update(otherCount=7) if "facets" in value else None),
        ),
    ),
    Mutant(
        "the list has scores", "ard", "ARD-31", on_answer=at("/ard/agents", change_json(each("items", put(score=5))))
    ),
    # Neighbours
    Mutant("a card without skills", "a2a", "A2A-2 A2A-5", on_answer=at(CARD, change_json(drop("skills")))),
    Mutant(
        "an interface without a version",
        "a2a",
        "A2A-3",
        on_answer=at(CARD, change_json(each("supportedInterfaces", drop("protocolVersion")))),
    ),
    *(
        Mutant(name, "a2a", "A2A-6", on_answer=at(CARD, change_json(put(securitySchemes={"key": scheme}))))
        for name, scheme in {
            "a security scheme of two kinds": {"httpAuthSecurityScheme": {"scheme": "basic"}, "mtlsSecurityScheme": {}},
            "a security scheme of 0.3": {"type": "http", "scheme": "basic"},
            "a security scheme with another one of 0.3": {"mtlsSecurityScheme": {}, "type": "http", "scheme": "basic"},
            "a security scheme with unknown members": {"mtlsSecurityScheme": {}, "scheme": "basic"},
        }.items()
    ),
    Mutant(
        "a card that cannot be cached", "a2a", "A2A-9", on_answer=at(CARD, without_headers("etag", "last-modified"))
    ),
    Mutant(
        "an unknown kind of remote",
        "mcp",
        "MCP-2",
        on_answer=at(
            "/v0.1/servers",
            change_json(
                each(
                    "servers",
                    lambda row: [remote.update(type="carrier-pigeon") for remote in row["server"].get("remotes", [])],
                )
            ),
        ),
    ),
    Mutant(
        "no isLatest",
        "mcp",
        "MCP-5",
        on_answer=at(
            "/v0.1/servers",
            change_json(
                each("servers", lambda row: row["_meta"]["io.modelcontextprotocol.registry/official"].pop("isLatest"))
            ),
        ),
    ),
    Mutant(
        "the MCP cursor loops",
        "mcp",
        "MCP-6",
        on_request=at("/v0.1/servers", ignore_cursor),
        on_answer=at("/v0.1/servers", change_json(lambda value: value["metadata"].update(nextCursor="again"))),
    ),
]


def _failed(url: str, spec: str, *, write: bool = False) -> tuple[set[str], str]:
    report = run(url, specs=[spec], write=write)
    assert report.recognised, report.specifications
    return {result.id for result in report.failures}, "\n".join(f"{row.id}: {row.message}" for row in report.failures)


@pytest.mark.parametrize("spec", ["af", "profile", "rtfs", "announce", "adp", "dns-aid", "ard", "mcp"])
def test_behind_a_proxy_that_changes_nothing_all_is_well(proxy: tuple[MutatingProxy, str], spec: str) -> None:
    proxy[0].reset()
    assert _failed(proxy[1], spec) == (set(), "")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.spec}: {mutant.name}")
def test_a_broken_service_fails_in_exactly_the_requirements_that_it_breaks(
    proxy: tuple[MutatingProxy, str], mutant: Mutant
) -> None:
    app, url = proxy
    app.reset()
    app.on_request = mutant.on_request or app.on_request
    app.on_answer = mutant.on_answer or app.on_answer
    app.on_message = mutant.on_message or app.on_message
    app.confirms_subprotocol = mutant.confirms_subprotocol
    failed, messages = _failed(url, mutant.spec, write=mutant.write)
    assert failed == set(mutant.breaks.split()), messages


def test_the_mutants_cover_every_specification() -> None:
    assert len(MUTANTS) >= 25
    assert {mutant.spec for mutant in MUTANTS} == {
        "af",
        "profile",
        "rtfs",
        "announce",
        "adp",
        "dns-aid",
        "ard",
        "a2a",
        "mcp",
    }
