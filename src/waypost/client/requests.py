"""Requests of the client and the values of its answers, shared by the async and the sync client. No I/O except documents
from files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.client.http import ServerEvent
from waypost.errors import InvalidDocument, InvalidRequest, TooLarge, WaypostError
from waypost.model.json import dump_json
from waypost.model.record import MappingLoss
from waypost.model.verdict import TrustSummary
from waypost.protocols.rtfs.discover_form import DiscoverForm, DiscoverValue
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE, is_sexpr_text
from waypost.responses.agents import BatchLine, Change, Receipt
from waypost.responses.base import Answer

AGENTS = "/api/v1/agents"

ALLOW = "/api/v1/allow"

APIKEYS = "/api/v1/apikeys"
PEERS = "/api/v1/peers"
FEED = "/api/v1/feed"
DOMAINS = "/api/v1/domains"

INVITATIONS = "/api/v1/invitations"

KEYS = "/api/v1/keys"

SWARMS = "/agent/swarm"

TASKS = "/agent/tasks"

JSON = "application/json"

NDJSON = "application/x-ndjson"

Registrable: TypeAlias = Mapping[str, Any] | bytes | str | os.PathLike[str]

"""A document as a mapping, as bytes, as JSON text, or the path of a file that contains one."""

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a batch that was refused. The other documents are not affected.

    Example:
        for result in client.register_many(documents):
            if isinstance(result, Failure):
                print(result.error)
    """

    error: WaypostError

    @property
    def outcome(self) -> str:
        """Always `failed`, where a receipt has its outcome."""
        return "failed"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in one dialect: `content` are the bytes as received, `body` is the JSON in them (empty for a text).

    Example:
        card = client.document("invoice-translator", "a2a")
        Path("agent-card.json").write_bytes(card.content)
    """

    dialect: str
    content: bytes
    body: dict[str, Any]
    etag: str | None = None
    last_modified: str | None = None
    losses: tuple[MappingLoss, ...] = ()
    trust: str | None = None  # verified, self_asserted or failed
    health: str | None = None  # healthy, suspect or unhealthy, if the service checks the endpoint

    def __repr__(self) -> str:
        return f"<Document {self.dialect} {len(self.content)} bytes etag={self.etag!r}>"


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `repeatable`: sending it twice has the same effect as sending it once."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    read_seconds: float | None = None  # overrides the client's timeout


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a document is registered."""

    dialect: str | None = None
    visibility: str | None = None
    ttl_seconds: int | None = None
    if_match: str | None = None
    idempotency_key: str | None = None
    base: str | None = None
    fetched_from: str | None = None

    def params(self) -> tuple[tuple[str, str], ...]:
        """The query parameters of the request."""
        return query_params(
            dialect=self.dialect, ttl_seconds=self.ttl_seconds, base=self.base, fetched_from=self.fetched_from
        )

    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        return drop_none(
            {
                "Waypost-Visibility": self.visibility,
                "If-Match": quote_etag(self.if_match),
                "Idempotency-Key": self.idempotency_key,
            }
        )


# --- Parts of requests ---------------------------------------------------------------------------


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


def drop_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that have a value."""
    return {name: value for name, value in members.items() if value is not None}


def item_path(collection: str, name: str, verb: str = "") -> str:
    """The path of one item of a collection. Any name fits one segment."""
    segment = quote(name, safe="")
    if not segment.strip("."):
        segment = segment.replace(".", "%2E")  # "." and ".." would be taken for folders
    return f"{collection}/{segment}{verb}"


def agent_path(agent_id: str, verb: str = "") -> str:
    """The path of one agent."""
    return item_path(AGENTS, agent_id, verb)


def quote_etag(etag: str | None) -> str | None:
    """An entity tag as a header writes it."""
    if etag is None or etag == "*" or etag.startswith(('"', "W/")):
        return etag
    return f'"{etag}"'


def document_bytes(document: Registrable) -> bytes:
    """The bytes to send: bytes, texts and files unchanged, mappings as JSON."""
    if isinstance(document, bytes):
        content = document
    elif isinstance(document, str) and document.lstrip("\ufeff \t\r\n").startswith(("{", "(")):  # not a file name
        content = document.encode()
    elif isinstance(document, Mapping):
        content = dump_json(dict(document))
    else:
        content = _read_file(Path(document))
    if len(content) > limits.DOCUMENT_BYTES:
        raise TooLarge(
            f"The document has {len(content)} bytes; at most {limits.DOCUMENT_BYTES} are accepted.",
            path="$",
            hint="Shorten it, or send several documents with register_many.",
        )
    return content


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"The file {path} cannot be read: {error.strerror}.",
            path=str(path),
            hint=f"Is the path right? It is relative to {Path.cwd()}."
            if not path.is_absolute()
            else "Is the path right?",
        ) from None


def media_type(content: bytes) -> str:
    """JSON, unless the content is an S-expression."""
    return RTFS_TEXT_TYPE if is_sexpr_text(content) else JSON


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
    """A document on one line. A line break in JSON is always between tokens: inside a string it is escaped."""
    stripped = content.strip()
    if b"\n" in stripped or b"\r" in stripped:
        return stripped.replace(b"\r", b" ").replace(b"\n", b" ")
    return stripped


# --- Requests ------------------------------------------------------------------------------------


def get_request(path: str, **params: Any) -> ApiRequest:
    """A GET with query parameters."""
    return ApiRequest(method="GET", path=path, params=query_params(**params))


def json_request(
    path: str, body: Mapping[str, Any], *, params: tuple[tuple[str, str], ...] = (), repeatable: bool = False
) -> ApiRequest:
    """A POST with a JSON object."""
    return ApiRequest(
        method="POST",
        path=path,
        params=params,
        headers={"Content-Type": JSON},
        content=dump_json(dict(body)),
        repeatable=repeatable,
    )


def register_request(content: bytes, options: WriteOptions) -> ApiRequest:
    """Register one document."""
    return ApiRequest(
        method="POST",
        path=AGENTS,
        params=options.params(),
        headers={"Content-Type": media_type(content), **options.headers()},
        content=content,
        repeatable=options.idempotency_key is not None,
    )


def batch_request(lines: Sequence[bytes], options: WriteOptions) -> ApiRequest:
    """Register many documents."""
    return ApiRequest(
        method="POST",
        path=f"{AGENTS}:batch",
        params=options.params(),
        headers={"Content-Type": NDJSON, "Accept": NDJSON, **options.headers()},
        content=b"".join(line + b"\n" for line in lines),
        repeatable=False,
    )


def fetch_request(body: Mapping[str, Any], options: WriteOptions) -> ApiRequest:
    """Fetch the documents at an address."""
    request = json_request(f"{AGENTS}:fetch", drop_none(body), params=options.params())
    return msgspec.structs.replace(request, headers={**request.headers, **options.headers()})


def verify_request(content: bytes, dialect: str | None) -> ApiRequest:
    """Check a document."""
    return ApiRequest(
        method="POST",
        path=f"{AGENTS}:verify",
        params=query_params(dialect=dialect),
        headers={"Content-Type": media_type(content)},
        content=content,
    )


def discover_request(body: Mapping[str, Any]) -> ApiRequest:
    """A Discovery Request without its empty members."""
    given = {name: value for name, value in body.items() if value not in (None, (), {})}
    return json_request("/profile/v1/discover", given, repeatable=True)


# --- Answers -------------------------------------------------------------------------------------


def parse_answer(kind: type[AnswerT], response: httpx2.Response) -> AnswerT:
    """The answer of a service as a value of a response type."""
    document = parse_json_object(response)
    try:
        return kind.parse(document) if issubclass(kind, Answer) else msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise InvalidDocument(
            f"The service's answer is not understood: {error}.",
            hint="Is this the address of a Waypost service, and is this client up to date?",
        ) from None


def parse_json_object(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an answer."""
    value = parse_json_body(response.content)
    if not isinstance(value, dict):
        raise InvalidDocument(
            "The service's answer is not a JSON object.", hint="Is this the address of a Waypost service?"
        )
    return value


def parse_json_body(content: bytes) -> Any:
    """The JSON of an answer."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidDocument(
            "The service's answer is not JSON.", hint="Is this the address of a Waypost service?"
        ) from None


def parse_batch_line(content: bytes) -> Receipt | Failure:
    """The result of one document of a batch. Its receipt has only id, outcome and etag."""
    line = BatchLine.parse(parse_json_body(content))
    if line.error is not None:
        return Failure(error=line.error.to_error())
    receipt = Receipt(
        id=line.id,
        aliases=(),
        dialect="",
        outcome=line.outcome,
        etag=line.etag,
        losses=(),
        warnings=(),
        trust=TrustSummary(level="self_asserted"),
    )
    receipt.__dict__["document"] = line.document
    return receipt


def parse_document(response: httpx2.Response, dialect: str) -> Document:
    """A document with the headers that belong to it."""
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


def parse_change(event: ServerEvent) -> Change:
    """The change in an event of a watch."""
    return Change.from_event(parse_json_body(event.data.encode()), event.id or "")


def _parse_losses(header: str | None) -> tuple[MappingLoss, ...]:
    if not header:
        return ()
    try:
        return msgspec.convert(json.loads(header), tuple[MappingLoss, ...])
    except (ValueError, msgspec.ValidationError):
        return ()


def _unquote_etag(etag: str | None) -> str | None:
    """Without the suffix of a compressed response, so that it equals the tag in a receipt."""
    return None if etag is None else etag.removeprefix("W/").strip('"').removesuffix("-gzip")


# RTFS `(discover-agents …)` forms: their requests, and a cache of their values (RTFS-61).


def registry_origin(uri: str) -> str:
    """The origin of a registry.

    Args:
        uri: The `:registry-uri` of a form.
    """
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"


def form_request(form: DiscoverForm, call_id: str) -> ApiRequest:
    """The request of a form. Its path is that of `:registry-uri`.

    Args:
        form: The form.
        call_id: The id of the JSON-RPC call.
    """
    uri = form.options.registry_uri
    return ApiRequest(
        method="POST",
        path="/rtfs" if uri is None else uri.removeprefix(registry_origin(uri)) or "/",
        headers={"Content-Type": JSON},
        content=form.request(call_id),
        read_seconds=form.options.timeout_ms / 1000,
    )


class DiscoverCache:
    """Values of forms, by registry and parameters. Failures are not cached."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._values: LruCache[tuple[str | None, bytes], tuple[float, DiscoverValue]] = LruCache(
            limits.RTFS_CACHED_FORMS
        )

    def find(self, form: DiscoverForm) -> DiscoverValue | None:
        """The cached value of a form, if the form allows it and it is recent enough.

        Args:
            form: The form.
        """
        cached = self._values.get(_key(form)) if form.options.cache_policy == "use-cache" else None
        if cached is None or self._now() - cached[0] > limits.RTFS_CACHE_SECONDS:
            return None
        return cached[1]

    def put(self, form: DiscoverForm, value: DiscoverValue) -> None:
        """Cache the value of a form, if the form allows it.

        Args:
            form: The form.
            value: Its value.
        """
        if value.failure is None and form.options.cache_policy != "no-cache":
            self._values.put(_key(form), (self._now(), value))


def _key(form: DiscoverForm) -> tuple[str | None, bytes]:
    return form.options.registry_uri, form.request("")
