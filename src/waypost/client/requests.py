"""Each operation as a request, and each answer as a value: shared by the async client and its sync twin. No sockets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx2
import msgspec

from waypost import limits
from waypost.client.agent import Agent
from waypost.client.http import ServerEvent, error_from_batch_line
from waypost.client.results import (
    Change,
    Document,
    DomainClaim,
    Failure,
    FetchedAgent,
    FetchResult,
    Page,
    Receipt,
    ReportedLoss,
)
from waypost.errors import InvalidDocument, InvalidRequest, TooLarge
from waypost.model.json import dump_json
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE, is_sexpr_text

AGENTS = "/api/v1/agents"
DOMAINS = "/api/v1/domains"
JSON = "application/json"
NDJSON = "application/x-ndjson"

Registrable: TypeAlias = Mapping[str, Any] | bytes | str | os.PathLike[str]
"""A document as a mapping, as bytes, or the path of a file that holds one."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `repeatable`: doing it twice is the same as doing it once."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    read_seconds: float | None = None  # instead of the client's own timeout


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a document is to be registered."""

    dialect: str | None = None
    visibility: str | None = None
    ttl_seconds: int | None = None
    if_match: str | None = None
    idempotency_key: str | None = None
    base: str | None = None
    fetched_from: str | None = None

    def params(self) -> tuple[tuple[str, str], ...]:
        return query_params(
            dialect=self.dialect, ttl_seconds=self.ttl_seconds, base=self.base, fetched_from=self.fetched_from
        )

    def headers(self) -> dict[str, str]:
        return {
            name: value
            for name, value in (
                ("Waypost-Visibility", self.visibility),
                ("If-Match", quote_etag(self.if_match)),
                ("Idempotency-Key", self.idempotency_key),
            )
            if value is not None
        }


def query_params(**values: Any) -> tuple[tuple[str, str], ...]:
    """Query parameters: None is left out, a sequence repeats."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, (list, tuple, set, frozenset)):
            pairs.extend((name, str(item)) for item in value)
        elif isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif value is not None:
            pairs.append((name, str(value)))
    return tuple(pairs)


def agent_path(agent_id: str, verb: str = "") -> str:
    """The path of one agent; any id fits one segment."""
    segment = quote(agent_id, safe="")
    if not segment.strip("."):
        segment = segment.replace(".", "%2E")  # "." and ".." would be taken for folders
    return f"{AGENTS}/{segment}{verb}"


def quote_etag(etag: str | None) -> str | None:
    if etag is None or etag == "*" or etag.startswith(('"', "W/")):
        return etag
    return f'"{etag}"'


def document_bytes(document: Registrable) -> bytes:
    """The document as it is sent: bytes, texts and files untouched, mappings as JSON."""
    if isinstance(document, bytes):
        content = document
    elif isinstance(document, str) and document.lstrip("\ufeff \t\r\n").startswith(("{", "(")):  # no name of a file
        content = document.encode()
    elif isinstance(document, Mapping):
        content = dump_json(dict(document))
    else:
        content = _file_bytes(Path(document))
    if len(content) > limits.DOCUMENT_BYTES:
        raise TooLarge(
            f"The document has {len(content)} bytes; at most {limits.DOCUMENT_BYTES} are taken.",
            path="$",
            hint="Shorten it, or send several documents with register_many.",
        )
    return content


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"The file {path} cannot be read: {error.strerror}.", path=str(path)) from None


def media_type(content: bytes) -> str:
    """JSON, unless the text starts as an S-expression or a comment of one does."""
    return RTFS_TEXT_TYPE if is_sexpr_text(content) else JSON


def register_request(content: bytes, writing: WriteOptions) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path=AGENTS,
        params=writing.params(),
        headers={"Content-Type": media_type(content), **writing.headers()},
        content=content,
        repeatable=writing.idempotency_key is not None,
    )


def fetch_request(wanted: Mapping[str, Any], writing: WriteOptions) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path=f"{AGENTS}:fetch",
        params=writing.params(),
        headers={"Content-Type": JSON, **writing.headers()},
        content=dump_json({name: value for name, value in wanted.items() if value is not None}),
        repeatable=False,
    )


def parse_fetch_result(document: Mapping[str, Any]) -> FetchResult:
    agents = tuple(map(_parse_fetched_agent, document["agents"]))
    return FetchResult(url=document["url"], digest=document["digest"], agents=agents)


def _parse_fetched_agent(item: Mapping[str, Any]) -> FetchedAgent | Failure:
    if "error" in item:
        return Failure(error=error_from_batch_line(item["error"]))
    receipt = parse_receipt(item) if "etag" in item else None
    return msgspec.structs.replace(msgspec.convert(item, FetchedAgent), receipt=receipt)


def verify_request(content: bytes, dialect: str | None) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path=f"{AGENTS}:verify",
        params=query_params(dialect=dialect),
        headers={"Content-Type": media_type(content)},
        content=content,
    )


def domain_path(domain: str, verb: str = "") -> str:
    return f"{DOMAINS}/{quote(domain, safe='')}{verb}"


def parse_domain_claim(document: Mapping[str, Any]) -> DomainClaim:
    return msgspec.convert(document, DomainClaim)


def batch_request(lines: Sequence[bytes], writing: WriteOptions) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path=f"{AGENTS}:batch",
        params=writing.params(),
        headers={"Content-Type": NDJSON, "Accept": NDJSON, **writing.headers()},
        content=b"".join(line + b"\n" for line in lines),
        repeatable=False,
    )


def json_request(path: str, value: Mapping[str, Any]) -> ApiRequest:
    """A POST that is not done twice."""
    headers = {"Content-Type": JSON}
    return ApiRequest(method="POST", path=path, headers=headers, content=dump_json(dict(value)), repeatable=False)


def discover_request(request: Mapping[str, Any]) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path="/profile/v1/discover",
        headers={"Content-Type": JSON},
        content=dump_json({name: value for name, value in request.items() if value not in (None, (), {})}),
    )


def batches(documents: Iterable[Registrable]) -> Iterator[list[bytes]]:
    """Documents as lines, in groups that share a request."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        line = join_lines(document_bytes(document))
        if lines and (len(lines) >= limits.CLIENT_BATCH_LINES or size + len(line) > limits.CLIENT_BATCH_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines


def join_lines(content: bytes) -> bytes:
    """A document without line ends. Between tokens a line end is white space; inside a JSON string it cannot stand."""
    stripped = content.strip()
    if b"\n" in stripped or b"\r" in stripped:
        return stripped.replace(b"\r", b" ").replace(b"\n", b" ")
    return stripped


def parse_json_object(response: httpx2.Response) -> dict[str, Any]:
    value = parse_json_body(response.content)
    if not isinstance(value, dict):
        raise InvalidDocument("The service's answer is not a JSON object.", hint="Is this the address of a Waypost?")
    return value


def parse_json_body(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise InvalidDocument(
            "The service's answer is not JSON.", hint="Is this the address of a Waypost service?"
        ) from None


def parse_receipt(document: Mapping[str, Any]) -> Receipt:
    return msgspec.convert(document, Receipt)


def parse_batch_line(line: bytes) -> Receipt | Failure:
    document = parse_json_body(line)
    if "error" in document:
        return Failure(error=error_from_batch_line(document["error"]))
    return parse_receipt(document)


def parse_document(response: httpx2.Response, dialect: str) -> Document:
    return Document(
        dialect=dialect,
        content=response.content,
        body={} if response.headers.get("content-type") == RTFS_TEXT_TYPE else parse_json_object(response),
        etag=_unquote_etag(response.headers.get("etag")),
        last_modified=response.headers.get("last-modified"),
        losses=_parse_losses(response.headers.get("waypost-losses")),
        trust=response.headers.get("waypost-trust"),
        health=response.headers.get("waypost-health"),
    )


def parse_page(document: Mapping[str, Any]) -> Page:
    agents = tuple(Agent.from_document(item) for item in document.get("agents", ()))
    health = document.get("health", {})
    for agent in agents:
        agent.health = health.get(agent.get("id"))
    return msgspec.structs.replace(msgspec.convert({**document, "agents": ()}, Page), agents=agents)


def parse_change(event: ServerEvent) -> Change:
    document = parse_json_body(event.data.encode())
    agent = document.get("agent")
    return Change(
        type=document["type"],
        id=document["id"],
        at=document["at"],
        etag=document.get("etag"),
        cursor=event.id or "",
        agent=None if agent is None else Agent.from_document(agent),
    )


def _parse_losses(header: str | None) -> tuple[ReportedLoss, ...]:
    if not header:
        return ()
    try:
        return msgspec.convert(json.loads(header), tuple[ReportedLoss, ...])
    except (ValueError, msgspec.ValidationError):
        return ()


def _unquote_etag(etag: str | None) -> str | None:
    return None if etag is None else etag.removeprefix("W/").strip('"')
