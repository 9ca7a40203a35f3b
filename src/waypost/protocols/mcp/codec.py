"""Package URLs for the packages of an MCP server: `pkg:npm/%40scope/name@1.0.2`. Only what the mapping needs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from msgspec.structs import replace

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.names import domain_of
from waypost.model.record import (
    AgentRecord,
    Binding,
    check_id,
    find_flag,
    find_object,
    find_objects,
    find_text,
    need_object,
    need_text,
)
from waypost.model.times import find_instant
from waypost.protocols.codec import (
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MappingLoss,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    collect_tags,
    make_remainder,
    need_endpoint,
    residue_members,
    residue_name,
    residue_of,
    restore_wording,
    truncate_text,
    unknown_members,
)
from waypost.protocols.mcp.legacy import OFFICIAL, OLDER_NAMES, is_wrapped, upgrade_server
from waypost.protocols.record_reader import check_times


def to_purl(registry_type: str, identifier: str, version: str | None) -> str:
    """The package URL. What is fetched from a plain address (mcpb) is that address."""
    if "://" in identifier:
        return identifier
    name, tag = _image_tag(identifier) if registry_type == "oci" else (identifier, None)
    path = "/".join(quote(part, safe="._-~+") for part in name.split("/"))
    version = version or tag
    return f"pkg:{quote(registry_type, safe='')}/{path}" + (f"@{quote(version, safe='._-~+:')}" if version else "")


def _image_tag(identifier: str) -> tuple[str, str | None]:
    """`ghcr.io/org/image:1.0` apart; a digest stays with the name."""
    head, colon, tag = identifier.rpartition(":")
    return (head, tag) if colon and "/" not in tag and "@" not in head else (identifier, None)


def from_purl(text: str) -> JsonObject | None:
    """`registryType`, `identifier` and `version` behind a package URL, or None when it is not one."""
    if not text.startswith("pkg:"):
        return None
    kind, slash, rest = text[4:].partition("/")
    path, at, version = rest.partition("@")
    if not kind or not slash or not path or "?" in rest or "#" in rest:
        return None
    package: JsonObject = {"registryType": unquote(kind), "identifier": unquote(path)}
    if at:
        package["version"] = unquote(version)
    return package


# ---- Remotes and packages of a server.json, and the inputs they ask for: what must be there, and of which type
# (neighbours.md §2).
#
# A client builds a request or a command line out of them, so a part that it could not use is refused, with its place.

REMOTE_TYPES: Final = ("streamable-http", "sse")

_PACKAGE_TYPES: Final = ("stdio", *REMOTE_TYPES)


def check_remote(item: JsonObject, path: str) -> None:
    need_endpoint(item, "url", path)
    _check_type(item, path, REMOTE_TYPES)
    _check_inputs(item, "headers", path, named=True)
    for name, value in (find_object(item, "variables", path) or {}).items():
        where = member(f"{path}.variables", name)
        _check_input(need_object(value, where), where)


def check_package(item: JsonObject, path: str) -> None:
    need_text(item, "registryType", path, most=limits.TAG_CHARS)
    need_endpoint(item, "identifier", path)
    find_text(item, "version", path, most=limits.VERSION_CHARS)
    for name in ("registryBaseUrl", "fileSha256", "runtimeHint"):
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in ("runtimeArguments", "packageArguments"):
        _check_inputs(item, name, path)
    _check_inputs(item, "environmentVariables", path, named=True)
    where = f"{path}.transport"
    if "transport" not in item:
        raise InvalidDocument("The package names no transport.", path=where, hint='Add {"type":"stdio"}.')
    transport = need_object(item["transport"], where)
    _check_type(transport, where, _PACKAGE_TYPES)
    find_text(transport, "url", where, most=limits.ENDPOINT_CHARS)
    _check_inputs(transport, "headers", where, named=True)


def _check_type(item: JsonObject, path: str, known: tuple[str, ...]) -> None:
    kind = need_text(item, "type", path, most=limits.TAG_CHARS)
    if kind not in known:
        raise InvalidDocument(f"{kind!r} is not a transport.", path=f"{path}.type", hint=f"Use {' or '.join(known)}.")


def _check_inputs(item: JsonObject, name: str, path: str, *, named: bool = False) -> None:
    """Arguments, or what goes by a name: a header or a variable without one cannot be set."""
    for entry, where in find_objects(item, name, path, most=limits.JSON_ARRAY_ITEMS):
        if named:
            need_text(entry, "name", where, most=limits.ID_CHARS)
        _check_input(entry, where)


def _check_input(entry: JsonObject, path: str) -> None:
    for name in ("name", "description", "value"):
        find_text(entry, name, path, most=limits.DOCUMENT_BYTES)
    for name in ("isRequired", "isSecret"):
        find_flag(entry, name, path)


# ---- MCP server.json (neighbours.md §2, §5): the 2025-12-11 form is written; the snake_case form of 2025-07 and a registry's
# envelope `{"server": …, "_meta": …}` are read too.
#
# Remotes become `mcp` bindings, packages `mcp-package` bindings with a package URL; what else they say rides with the binding.
# `_meta` is the format's free-form place: what is left of a record travels there as `org.waypost/record`, among it the id of a
# record whose id is no server name, and a description of more than 100 characters.

SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

CARRY = "org.waypost/record"

REMOTE = "mcp"

PACKAGE = "mcp-package"

DESCRIPTION_CHARS = 100

TITLE_CHARS = 100

NAME_CHARS = 200

_RESIDUE = residue_name("mcp")

_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+\Z")

_RANGE = re.compile(r"[\^~<>=*|]|\b[xX]\b|\A(?:latest|next)\Z|\s-\s")

_STATUSES = {"active": "active", "deprecated": "deprecated", "deleted": "inactive"}

_DEFAULT_VERSION = "1.0.0"

_PACKAGE_IDENTITY = ("registryType", "identifier", "version")

_STDIO = {"type": "stdio"}

_FACETS = (
    MemberGroup(("packages", "remotes"), ("bindings", "auth", "constraints")),
    MemberGroup(("title",), ("name",)),
    MemberGroup(("description",), ("description",)),
    MemberGroup(("_meta",), ("status", "updated_at")),
    MemberGroup(("websiteUrl", "icons", "repository"), ()),
    MemberGroup(OLDER_NAMES, ()),
)

_MARKS = ("packages", "remotes", "version_detail", "_meta", "repository", "version")

_OTHERS = (
    "bindings",
    "skills",
    "schema_version",
    "supportedInterfaces",
    "identifier",
    "agent_id",
    "protocol",
    "endpoints",
    "summary",
)

_OUTSIDE = ("$.server", "$._meta")  # paths into a registry's envelope; all others lead into the server inside it

_NO_BINDING = "Neither a remote nor a package: the record has no binding."


class McpCodec(Codec):
    name = "mcp"
    loses = ("$.bindings",)

    def recognises(self, document: Mapping[str, Any]) -> bool:
        server = document["server"] if isinstance(document.get("server"), dict) else document
        name = server.get("name")
        if not isinstance(name, str) or not _NAME.match(name) or any(other in server for other in _OTHERS):
            return False
        return any(mark in server for mark in _MARKS)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        try:
            return _decode(document, context)
        except InvalidDocument as error:
            if is_wrapped(document) and not (error.path or "").startswith(_OUTSIDE):
                error.path = f"$.server{(error.path or '$')[1:]}"
            raise

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        written = _write(record, context.host)
        residue = residue_of(record, self.name, "_meta")
        server = restore_wording(written, residue, record, _FACETS, _read_again)
        carried = make_remainder(record, _with_residue(read_server(server), server))
        if carried:
            server = server | {"_meta": {**server.get("_meta", {}), CARRY: carried}}
        losses = () if record.bindings else (MappingLoss("$.bindings", _NO_BINDING),)
        return Encoded(document=server, losses=losses)


def _decode(document: JsonObject, context: DecodeContext) -> Decoded:
    server, carried = _uncarried(upgrade_server(document))
    record = apply_remainder(_with_residue(read_server(server), server), carried, f"$._meta[{CARRY!r}]")
    if not record.bindings:
        raise InvalidDocument(
            "The server has neither a remote nor a package.",
            path="$.remotes",
            hint='Add [{"type":"streamable-http","url":"https://…"}], or a package.',
        )
    record, aliases = (record, ()) if carries_id(carried) else _located(record, document, context.source_url)
    check_times(record, context.now, updated_at="$._meta", expires_at="$._meta")
    return Decoded(record=record, source_id=record.id, aliases=aliases, warnings=tuple(_warnings(document)))


def _with_residue(record: AgentRecord, server: JsonObject) -> AgentRecord:
    residue = residue_members(server, _write(record, "localhost"))
    residue.pop("$schema", None)  # says the form, not the server
    return attach_residue(record, "mcp", residue)


def _uncarried(server: JsonObject) -> tuple[JsonObject, Any]:
    meta = find_object(server, "_meta")
    if not meta:
        return unknown_members(server, ("_meta",)), None
    if CARRY not in meta:
        return server, None
    rest = unknown_members(meta, (CARRY,))
    return unknown_members(server, ("_meta",)) | ({"_meta": rest} if rest else {}), meta[CARRY]


def _located(record: AgentRecord, document: JsonObject, source_url: str | None) -> tuple[AgentRecord, tuple[str, ...]]:
    """A server that came from a registry is named by its place there; its own name stays as an alias."""
    base, found, _ = (source_url or "").partition("/servers")
    if not found or not is_wrapped(document):
        return record, ()
    name = record.id
    return replace(record, id=check_id(f"{base}/servers/{quote(name, safe='')}", "$.name")), (name,)


def _warnings(document: JsonObject) -> list[str]:
    server = document["server"] if is_wrapped(document) else document
    old = [name for name in ("version_detail", "status") if name in server]
    old += [name for name in ("packages", "remotes") for item in server.get(name) or () if _is_old(item)]
    return [f"$.{old[0]}: the spelling of 2025; it is written in the present form."] if old else []


def _is_old(item: Any) -> bool:
    return isinstance(item, dict) and any("_" in name for name in item)


def _read_again(server: JsonObject) -> AgentRecord:
    """What a server says that is about to be written. Older names would be read as others: nobody wrote those but by hand."""
    if upgrade_server(server) != server:
        raise InvalidDocument("The server has names of 2025.", path="$")
    return read_server(server)


# --- Server -> record -----------------------------------------------------------------------------


def read_mcp_document(document: JsonObject) -> AgentRecord:
    """Read the native members of a server.json of any version, e.g. one that another document embeds."""
    return read_server(upgrade_server(document))


def read_server(server: JsonObject) -> AgentRecord:
    """What a server.json in its present form says by its own members."""
    name = _name(server)
    remotes, packages = read_remotes(server), read_packages(server)
    official = find_object(find_object(server, "_meta") or {}, OFFICIAL, "$._meta") or {}
    _check_unmapped(server)
    return AgentRecord(
        id=name,
        name=find_text(server, "title", most=limits.NAME_CHARS) or truncate_text(name, limits.NAME_CHARS),
        description=need_text(server, "description", most=limits.DESCRIPTION_CHARS),
        bindings=read_bindings(remotes, packages),
        tags=collect_tags([REMOTE, name.partition("/")[2]], [item["registryType"] for item in packages]),
        auth=_auth(remotes),
        constraints=_constraints(remotes, packages),
        status=_STATUSES.get(str(official.get("status"))),
        version=_version(server),
        updated_at=_updated_at(official),
    )


def _name(server: JsonObject) -> str:
    name = need_text(server, "name", most=NAME_CHARS)
    if not _NAME.match(name):
        raise InvalidDocument(
            f"{name[:60]!r} is not a server name.", path="$.name", hint="Write it like io.github.owner/server."
        )
    return name


def _version(server: JsonObject) -> str:
    version = need_text(server, "version", most=limits.VERSION_CHARS)
    if _RANGE.search(version):
        raise InvalidDocument(
            f"{version[:40]!r} is a range, not a version.", path="$.version", hint="Name one version, such as 1.0.2."
        )
    return version


def _updated_at(official: JsonObject) -> str | None:
    text = official.get("updatedAt")
    return text if isinstance(text, str) and find_instant(text) is not None else None


def _check_unmapped(server: JsonObject) -> None:
    find_text(server, "websiteUrl", most=limits.ENDPOINT_CHARS)
    for item, path in find_objects(server, "icons", most=limits.JSON_ARRAY_ITEMS):
        need_text(item, "src", path, most=limits.DOCUMENT_BYTES)
    repository = find_object(server, "repository") or {}
    for name in ("url", "source", "id", "subfolder"):
        find_text(repository, name, "$.repository", most=limits.ENDPOINT_CHARS)


def read_remotes(server: JsonObject) -> list[JsonObject]:
    items = find_objects(server, "remotes", most=limits.JSON_ARRAY_ITEMS)
    for item, path in items:
        check_remote(item, path)
    return [item for item, _ in items]


def read_packages(server: JsonObject) -> list[JsonObject]:
    items = find_objects(server, "packages", most=limits.JSON_ARRAY_ITEMS)
    for item, path in items:
        check_package(item, path)
    return [item for item, _ in items]


def read_bindings(remotes: list[JsonObject], packages: list[JsonObject]) -> tuple[Binding, ...]:
    bindings = [*map(_remote_binding, remotes), *map(_package_binding, packages)]
    return tuple(bindings[: limits.BINDINGS])


def _remote_binding(item: JsonObject) -> Binding:
    rest = unknown_members(item, ("url",) if item["type"] != REMOTE_TYPES[0] else ("url", "type"))
    extra = {_RESIDUE: rest} if rest else {}
    return Binding(protocol=REMOTE, endpoint=item["url"], interaction_model="streaming", extra=extra)


def _package_binding(item: JsonObject) -> Binding:
    endpoint = to_purl(item["registryType"], item["identifier"], item.get("version"))[: limits.ENDPOINT_CHARS]
    told = from_purl(endpoint) or {}
    exact = bool(told) and all(told.get(name) == item.get(name) for name in _PACKAGE_IDENTITY)
    rest = unknown_members(item, _PACKAGE_IDENTITY if exact else ())
    if rest.get("transport") == _STDIO:
        del rest["transport"]
    return Binding(protocol=PACKAGE, endpoint=endpoint, extra={_RESIDUE: rest} if rest else {})


def _auth(remotes: list[JsonObject]) -> JsonObject | None:
    """Secret headers are what a caller must bring."""
    secret = [
        header
        for item in remotes
        for header in item.get("headers") or ()
        if isinstance(header, dict) and header.get("isSecret") is True and isinstance(header.get("name"), str)
    ]
    if not secret:
        return None
    names = dict.fromkeys(header["name"] for header in secret)
    schemes = [{"type": "apiKey", "in": "header", "name": name} for name in names]
    return {"schemes": schemes, "required": any(header.get("isRequired") is True for header in secret)}


def _constraints(remotes: list[JsonObject], packages: list[JsonObject]) -> JsonObject | None:
    runtimes = [item["runtimeHint"] for item in packages if isinstance(item.get("runtimeHint"), str)]
    variables = [name for item in remotes for name in item.get("variables") or ()]
    digests = [item["fileSha256"] for item in packages if isinstance(item.get("fileSha256"), str)]
    constraints = {
        name: list(dict.fromkeys(values))
        for name, values in (("runtimes", runtimes), ("variables", variables), ("package_sha256", digests))
        if values
    }
    return constraints or None


# --- Record -> server -----------------------------------------------------------------------------


def _write(record: AgentRecord, host: str) -> JsonObject:
    name = server_name(record.id, host)
    server: JsonObject = {"$schema": SCHEMA_URL, "name": name}
    if record.name != name:
        server["title"] = truncate_text(record.name, TITLE_CHARS)
    server["description"] = truncate_text(record.description, DESCRIPTION_CHARS)
    version = record.version or ""
    server["version"] = version if version.strip() and not _RANGE.search(version) else _DEFAULT_VERSION
    packages = [_write_package(binding) for binding in record.bindings if binding.protocol == PACKAGE]
    remotes = [_write_remote(binding) for binding in record.bindings if binding.protocol == REMOTE]
    return server | ({"packages": packages} if packages else {}) | ({"remotes": remotes} if remotes else {})


def _residue_of(binding: Binding) -> JsonObject:
    rest = binding.extra.get(_RESIDUE)
    return rest if isinstance(rest, dict) else {}


def _write_remote(binding: Binding) -> JsonObject:
    plain = {"type": REMOTE_TYPES[0], "url": binding.endpoint}
    return _worded(plain | _residue_of(binding) | {"url": binding.endpoint}, check_remote) or plain


def _write_package(binding: Binding) -> JsonObject:
    told = from_purl(binding.endpoint) or {"registryType": "mcpb", "identifier": binding.endpoint}
    plain = told | {"transport": _STDIO}
    rest = {"transport": _STDIO} | _residue_of(binding)
    return _worded(rest if "identifier" in rest else told | rest, check_package) or plain


def _worded(part: JsonObject, check: Callable[[JsonObject, str], None]) -> JsonObject | None:
    """The part in the residue's words, unless somebody wrote them so that it would no longer be one."""
    try:
        check(part, "$")
    except InvalidDocument:
        return None
    return part


def server_name(agent_id: str, host: str) -> str:
    """The server name in an id, or one minted from it: its domain reversed (else the service's), then what is left."""
    if _NAME.match(agent_id) and 3 <= len(agent_id) <= NAME_CHARS:
        return agent_id
    listed = unquote(agent_id.rpartition("/servers/")[2])
    if "/servers/" in agent_id and _NAME.match(listed) and 3 <= len(listed) <= NAME_CHARS:
        return listed
    domain = domain_of(agent_id)
    publisher = domain if domain and re.fullmatch(r"[a-z0-9.-]+", domain) else host
    space = ".".join(reversed(re.sub(r"[^a-zA-Z0-9.-]", "-", publisher).split("."))) or "localhost"
    rest = agent_id.partition(publisher)[2] if domain == publisher else agent_id
    local = re.sub(r"[^a-zA-Z0-9._-]+", "-", rest).strip("-")
    if local == rest.lstrip("/") and len(space) + len(local) < NAME_CHARS and local:
        return f"{space}/{local}"
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{space[:100]}/" + f"{local[:80]}-{digest}".lstrip("-")


MCP = McpCodec()
