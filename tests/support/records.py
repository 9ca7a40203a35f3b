"""Hypothesis strategies for records of every shape the profile allows, and the clock that tests of dialects share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

from waypost import limits
from waypost.model.record import STATUSES, AgentRecord, Binding, Example
from waypost.protocols import dialects
from waypost.protocols.codec import CARRY, Codec, DecodeContext, EncodeContext, residue_name

NOW = 1_790_000_000.0  # 2026-09-21
BASE = "https://registry.example.org"
DECODE = DecodeContext(now=NOW, base_url=BASE)
ENCODE = EncodeContext(
    now=NOW, base_url=BASE, host="registry.example.org", announce_id="3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
)
CODECS: dict[str, Codec] = {name: dialect.codec for name, dialect in dialects.DIALECTS.items()}
DIALECTS = ("profile", "af", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")

_characters = st.characters(codec="utf-8", exclude_categories=("Cs",))


def texts(most: int, least: int = 1) -> st.SearchStrategy[str]:
    """Non-empty texts: many languages, line ends, some control characters."""
    return st.text(_characters, min_size=least, max_size=most).filter(lambda text: bool(text.strip()) or least == 0)


def _names(most: int) -> st.SearchStrategy[str]:
    return st.text(_characters, min_size=1, max_size=most).filter(
        lambda text: text.isprintable() and not any(char.isspace() for char in text)
    )


ids = st.one_of(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"https://[a-z]{1,9}\.example/[a-z0-9/._-]{0,30}", fullmatch=True),
    st.from_regex(r"(agent:|did:web:|dns:_agent\.)[a-z]{1,9}\.example", fullmatch=True),
    st.from_regex(r"urn:air:[a-z]{1,9}\.example:agent:[a-z0-9._-]{1,20}", fullmatch=True),
    st.uuids(version=4).map(lambda uuid: f"urn:uuid:{uuid}"),
    st.from_regex(r"[uh]-[A-Za-z0-9_-]{1,40}", fullmatch=True),
    _names(60),
    st.just("x" * limits.ID_CHARS),
)

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    texts(20, 0),
)


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """JSON values with small arrays and objects."""
    return st.one_of(inner, st.lists(inner, max_size=2), st.dictionaries(texts(12), inner, max_size=2))


json_values: st.SearchStrategy[object] = _nested(_nested(_scalars))  # two levels, each bounded
objects = st.dictionaries(texts(12), json_values, max_size=4)
tags = st.lists(
    st.sampled_from(["translation", "finance", "Änderung", "json-output", "日本語"]) | texts(limits.TAG_CHARS),
    max_size=6,
).map(tuple)


@st.composite
def times(draw: st.DrawFn, least: int = 1_600_000_000, most: int = int(NOW)) -> str:
    """RFC 3339 times in various spellings."""
    zone = draw(st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(-timedelta(hours=5, minutes=30))]))
    moment = datetime.fromtimestamp(draw(st.integers(least, most)), zone)
    fraction = draw(st.sampled_from(["", ".5", ".123456"]))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction
    return text + ("Z" if zone is UTC else moment.isoformat()[-6:])


def _extra(known: frozenset[str]) -> st.SearchStrategy[dict[str, object]]:
    """Members that the profile does not define. `visibility` belongs to the envelope, not to the record."""
    names = st.sampled_from(["com.example.tier", "x-note", "urn:example:flag", "metadata"]) | texts(16)
    return st.dictionaries(names.filter(lambda name: name not in known), json_values, max_size=3)


def _residues() -> st.SearchStrategy[dict[str, object]]:
    """A profile document may contain members with our prefix; codecs must accept them."""
    names = st.sampled_from([residue_name(dialect) for dialect in DIALECTS] + [CARRY, "org.waypost.derived"])
    inner = st.sampled_from(
        [
            "metadata",
            "endpoints",
            "capabilities",
            "communication",
            "identity",
            "skills",
            "summary",
            "security",
            "securitySchemes",
            "signatures",
            "packages",
            "remotes",
            "headers",
            "transport",
            "protocolVersion",
            "title",
            "type",
            "version",
            "updatedAt",
            "trustManifest",
            "annotations",
            "locators",
            "details",
            "card",
            "default_input_modes",
            "authentication",
            "server",
            "status",
            "provider_id",
        ]
    )
    return st.dictionaries(names, json_values | st.dictionaries(inner, json_values, max_size=3), max_size=2)


_KNOWN_RECORD = frozenset({*AgentRecord.__struct_fields__, "visibility"})
_endpoints = st.one_of(
    st.just(f"{BASE}/v1/message:send"),
    st.just(f"{BASE}/v1/message:stream"),
    st.from_regex(r"https://[a-z]{1,9}\.example/[a-z0-9/._:-]{0,30}", fullmatch=True),
    st.from_regex(r"wss://[a-z]{1,9}\.example/chat", fullmatch=True),
    st.from_regex(r"tcp://10\.0\.0\.[1-9]:9[0-9]{3}", fullmatch=True),
    st.just("pkg:npm/%40scope/server@1.0.0"),
    _names(40),
)
bindings = st.builds(
    Binding,
    protocol=st.sampled_from(
        ["https", "http", "a2a+jsonrpc", "a2a+grpc", "mcp", "mcp-package", "agp", "tcp", "ws", "grpc"]
    )
    | _names(16),
    endpoint=_endpoints,
    media_types=st.lists(st.sampled_from(["application/json", "text/plain", "image/png"]), max_size=2, unique=True).map(
        tuple
    ),
    interaction_model=st.none() | st.sampled_from(["request-response", "streaming", "batch", "x-own"]),
    priority=st.none() | st.integers(-5, 70_000),
    extra=_extra(frozenset(Binding.__struct_fields__)) | _residues(),
)
examples = st.builds(
    Example,
    text=texts(80),
    id=st.none() | texts(20, 0),
    tags=tags,
    input_schema=st.none() | objects,
    output_schema=st.none() | objects,
    language=st.none() | st.sampled_from(["en", "de-CH", "ja"]),
    extra=_extra(frozenset(Example.__struct_fields__)) | _residues(),
)


def speaks_its_own(record: AgentRecord, dialect: str) -> bool:
    """Whether the record carries members of the dialect, which are returned unchanged."""
    name = residue_name(dialect)
    return any(name in part.extra for part in (record, *record.bindings, *record.examples))


@st.composite
def records(draw: st.DrawFn) -> AgentRecord:
    return AgentRecord(
        id=draw(ids),
        name=draw(texts(limits.NAME_CHARS)),
        description=draw(texts(200) | st.just("Reads invoices. " * 200)),
        bindings=tuple(draw(st.lists(bindings, min_size=1, max_size=4))),
        tags=draw(tags),
        examples=tuple(draw(st.lists(examples, max_size=3))),
        auth=draw(st.none() | objects),
        constraints=draw(st.none() | objects),
        status=draw(st.none() | st.sampled_from(STATUSES)),
        expires_at=draw(st.none() | times(int(NOW) + 60, int(NOW) + 10**8)),
        version=draw(st.none() | st.sampled_from(["1.0.0", "2.1.0-beta+7", "v3"]) | texts(20, 0)),
        updated_at=draw(st.none() | times()),
        signature=draw(st.none() | objects),
        extra={**draw(_extra(_KNOWN_RECORD)), **draw(_residues())},
    )
