"""MCP server.json (neighbours.md §2, §5): the form of 2025-12-11 is written; the snake_case form of 2025-07 and a
registry's envelope `{"server": …, "_meta": …}` are read too.

Remotes become `mcp` bindings, packages `mcp-package` bindings with a package URL; their other members are kept with the
binding. `_meta` is the format's free-form place: the remainder is `org.waypost/record` in it, e.g. an id that is not a
server name, or a description of more than 100 characters.
"""

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
from waypost.model.versions import Release
from waypost.protocols.codec import (
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    check_endpoint,
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

SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_SCHEMAS = ("https://static.modelcontextprotocol.io/schemas/", "https://modelcontextprotocol.io/schemas/")
CARRY = "org.waypost/record"
_REMOTE = "mcp"
_PACKAGE = "mcp-package"
_DESCRIPTION_CHARS = 100
_TITLE_CHARS = 100
_NAME_CHARS = 200
_RESIDUE = residue_name("mcp")
_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+\Z")
_RANGE = re.compile(r"\A[\^~]|[<>=*|]|\Av?(?:\d+\.)*[xX](?:\.[xX])*\Z|\Alatest\Z|\s-\s")
_STATUSES = {"active": "active", "deprecated": "deprecated", "deleted": "inactive"}
_DEFAULT_VERSION = "1.0.0"
_CARD_NAME = "localhost/server"  # of an embedded server card whose own name is no server name
_PACKAGE_IDENTITY = ("registryType", "identifier", "version")
_STDIO = {"type": "stdio"}
_GROUPS = (
    MemberGroup(("packages", "remotes"), ("bindings", "auth", "constraints")),
    MemberGroup(("title",), ("name",)),
    MemberGroup(("description",), ("description",)),
    MemberGroup(("_meta",), ("status", "updated_at")),
    MemberGroup(("websiteUrl", "icons", "repository"), ()),
    MemberGroup(OLDER_NAMES, ()),
)
_DISTINCTIVE = ("packages", "remotes", "version_detail", "_meta", "repository", "version")
_FOREIGN = (  # members of other dialects
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
_ENVELOPE_PATHS = ("$.server", "$._meta")  # paths in a registry's envelope; others are in the server
_NO_BINDING = "$.remotes: the server has neither a remote nor a package; it is registered without an endpoint."


class McpCodec(Codec):
    name = "mcp"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        server = document["server"] if isinstance(document.get("server"), dict) else document
        if any(name in server for name in _FOREIGN):
            return False
        name, schema = server.get("name"), server.get("$schema")
        if isinstance(schema, str) and schema.startswith(_SCHEMAS) and "serverInfo" not in server:
            return True  # so that the reader says what is wrong with the name
        return isinstance(name, str) and bool(_NAME.match(name)) and any(name in server for name in _DISTINCTIVE)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        try:
            return _decode(document, context)
        except InvalidDocument as error:
            if is_wrapped(document) and not (error.path or "").startswith(_ENVELOPE_PATHS):
                error.path = f"$.server{(error.path or '$')[1:]}"
            raise

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        written = _write(record, context.host)
        residue = residue_of(record, self.name, "_meta")
        server = restore_wording(written, residue, record, _GROUPS, _read_written)
        carried = make_remainder(record, _with_residue(read_server(server), server))
        if carried:
            server = server | {"_meta": {**server.get("_meta", {}), CARRY: carried}}
        return Encoded(document=server)


def _decode(document: JsonObject, context: DecodeContext) -> Decoded:
    server, carried = _split_carried(upgrade_server(document))
    record = apply_remainder(_with_residue(read_server(server), server), carried, f"$._meta[{CARRY!r}]")
    record, aliases = (record, ()) if carries_id(carried) else _with_source_url(record, document, context.source_url)
    check_times(record, context.now, updated_at="$._meta", expires_at="$._meta")
    warnings = _warnings(document)
    if not record.bindings:
        warnings.append(_NO_BINDING)
    return Decoded(
        record=record,
        source_id=record.id,
        aliases=aliases,
        warnings=tuple(warnings),
        release=_find_release(server) if _is_listed(document) else None,
    )


def _is_listed(document: JsonObject) -> bool:
    """Return whether a registry lists the server: in an envelope or, until August 2025, with `is_latest`."""
    detail = document.get("version_detail")
    return is_wrapped(document) or (isinstance(detail, dict) and "is_latest" in detail)


def _find_release(server: JsonObject) -> Release | None:
    """Return what a registry says of this version among the others of the server."""
    meta = find_object(server, "_meta") or {}
    official = find_object(meta, OFFICIAL, "$._meta")
    if official is None:
        return None
    published = official.get("publishedAt")
    return Release(
        version=server["version"],
        is_latest=official.get("isLatest") is True,
        published_at=find_instant(published) if isinstance(published, str) else None,
    )


def _with_residue(record: AgentRecord, server: JsonObject) -> AgentRecord:
    residue = residue_members(server, _write(record, "localhost"))
    residue.pop("$schema", None)  # names the format, not the server
    return attach_residue(record, "mcp", residue)


def _split_carried(server: JsonObject) -> tuple[JsonObject, Any]:
    meta = find_object(server, "_meta")
    if not meta:
        return unknown_members(server, ("_meta",)), None
    if CARRY not in meta:
        return server, None
    rest = unknown_members(meta, (CARRY,))
    return unknown_members(server, ("_meta",)) | ({"_meta": rest} if rest else {}), meta[CARRY]


def _with_source_url(
    record: AgentRecord, document: JsonObject, source_url: str | None
) -> tuple[AgentRecord, tuple[str, ...]]:
    """Use the URL in a registry as the id of a server from there; its own name stays as an alias."""
    base, found, _ = (source_url or "").partition("/servers")
    if not found or not is_wrapped(document):
        return record, ()
    name = record.id
    return replace(record, id=check_id(f"{base}/servers/{quote(name, safe='')}", "$.name")), (name,)


def _warnings(document: JsonObject) -> list[str]:
    server = document["server"] if is_wrapped(document) else document
    old = [name for name in ("version_detail", "status") if name in server]
    old += [name for name in ("packages", "remotes") for item in server.get(name) or () if _is_old(item)]
    warnings = [f"$.{old[0]}: a form of 2025; it is written in the current form."] if old else []
    if len(server["description"]) > _DESCRIPTION_CHARS:
        warnings.append(f"$.description: MCP registries accept at most {_DESCRIPTION_CHARS} characters.")
    return warnings


def _is_old(item: Any) -> bool:
    return isinstance(item, dict) and any("_" in name for name in item)


def _read_written(server: JsonObject) -> AgentRecord:
    """Read a server that is about to be written. A residue edited by hand may have older names, read differently."""
    if upgrade_server(server) != server:
        raise InvalidDocument("The server has member names of 2025.", path="$")
    return read_server(server)


# --- Server -> record -----------------------------------------------------------------------------


def read_mcp_document(document: JsonObject) -> AgentRecord:
    """Read the native members of a server.json of any version, or of a server card, that another document embeds."""
    return read_server(upgrade_server(_from_server_card(document) if "serverInfo" in document else document))


def _from_server_card(card: JsonObject) -> JsonObject:
    """Return a server card (SEP-1649: what `initialize` answers, and an endpoint) as a server.json. Its name need not be a
    server name, and it may give only a path, which leads nowhere from inside another document."""
    info = need_object(card["serverInfo"], "$.serverInfo")
    own = find_text(info, "name", "$.serverInfo", most=limits.DOCUMENT_BYTES) or ""
    server: JsonObject = {
        "name": own if _NAME.match(own) and len(own) <= _NAME_CHARS else _CARD_NAME,
        "description": truncate_text(str(card.get("description") or own or _CARD_NAME), limits.DESCRIPTION_CHARS),
        "version": _DEFAULT_VERSION,
    }
    transport = find_object(card, "transport") or {}
    endpoint = find_text(transport, "endpoint", "$.transport", most=limits.ENDPOINT_CHARS)
    if endpoint and "://" in endpoint:
        server["remotes"] = [{"type": transport.get("type") or _REMOTE_TYPES[0], "url": endpoint}]
    return server


def read_server(server: JsonObject) -> AgentRecord:
    """Read the native members of a server.json in the current form."""
    name = _name(server)
    remotes, packages = read_remotes(server), read_packages(server)
    official = find_object(find_object(server, "_meta") or {}, OFFICIAL, "$._meta") or {}
    _check_unmapped(server)
    return AgentRecord(
        id=name,
        name=find_text(server, "title", most=limits.NAME_CHARS) or truncate_text(name, limits.NAME_CHARS),
        description=need_text(server, "description", most=limits.DESCRIPTION_CHARS),
        bindings=read_bindings(remotes, packages),
        tags=collect_tags([_REMOTE, name.partition("/")[2]], [item["registryType"] for item in packages]),
        auth=_auth(remotes),
        constraints=_constraints(remotes, packages),
        status=_STATUSES.get(str(official.get("status"))),
        version=_version(server),
        updated_at=_updated_at(official),
    )


def _name(server: JsonObject) -> str:
    name = need_text(server, "name", most=_NAME_CHARS)
    if not _NAME.match(name):
        raise InvalidDocument(
            f"{name[:60]!r} is not a server name.", path="$.name", hint="Write it like io.github.owner/server."
        )
    return name


def _version(server: JsonObject) -> str:
    version = need_text(server, "version", most=limits.VERSION_CHARS)
    if _RANGE.search(version):
        raise InvalidDocument(
            f"{version[:40]!r} is a range, not a version.", path="$.version", hint="Give one version, such as 1.0.2."
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
    rest = unknown_members(item, ("url",) if item["type"] != _REMOTE_TYPES[0] else ("url", "type"))
    extra = {_RESIDUE: rest} if rest else {}
    return Binding(protocol=_REMOTE, endpoint=item["url"], interaction_model="streaming", extra=extra)


def _package_binding(item: JsonObject) -> Binding:
    endpoint = to_purl(item["registryType"], item["identifier"], item.get("version"))[: limits.ENDPOINT_CHARS]
    package = find_package(endpoint) or {}
    exact = bool(package) and all(package.get(name) == item.get(name) for name in _PACKAGE_IDENTITY)
    rest = unknown_members(item, _PACKAGE_IDENTITY if exact else ())
    if rest.get("transport") == _STDIO:
        del rest["transport"]
    return Binding(protocol=_PACKAGE, endpoint=endpoint, extra={_RESIDUE: rest} if rest else {})


def _auth(remotes: list[JsonObject]) -> JsonObject | None:
    """Secret headers are the credentials that a caller needs."""
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
        server["title"] = truncate_text(record.name, _TITLE_CHARS)
    server["description"] = truncate_text(record.description, _DESCRIPTION_CHARS)
    version = record.version or ""
    server["version"] = version if version.strip() and not _RANGE.search(version) else _DEFAULT_VERSION
    packages = [_write_package(binding) for binding in record.bindings if binding.protocol == _PACKAGE]
    remotes = [
        _write_remote(binding) for binding in record.bindings if binding.protocol == _REMOTE and not binding.is_link
    ]
    return server | ({"packages": packages} if packages else {}) | ({"remotes": remotes} if remotes else {})


def _residue_of(binding: Binding) -> JsonObject:
    rest = binding.extra.get(_RESIDUE)
    return rest if isinstance(rest, dict) else {}


def _write_remote(binding: Binding) -> JsonObject:
    plain = {"type": _REMOTE_TYPES[0], "url": binding.endpoint}
    return _check_or_none(plain | _residue_of(binding) | {"url": binding.endpoint}, check_remote) or plain


def _write_package(binding: Binding) -> JsonObject:
    package = find_package(binding.endpoint) or {"registryType": "mcpb", "identifier": binding.endpoint}
    plain = package | {"transport": _STDIO}
    rest = {"transport": _STDIO} | _residue_of(binding)
    return _check_or_none(rest if "identifier" in rest else package | rest, check_package) or plain


def _check_or_none(part: JsonObject, check: Callable[[JsonObject, str], None]) -> JsonObject | None:
    """Return the part, or None if its residue, which anyone can edit, makes it invalid."""
    try:
        check(part, "$")
    except InvalidDocument:
        return None
    return part


def server_name(agent_id: str, host: str) -> str:
    """Return the server name in an id, or mint one: its reversed domain (else the service's), then the rest of the
    id."""
    if _NAME.match(agent_id) and 3 <= len(agent_id) <= _NAME_CHARS:
        return agent_id
    registered = unquote(agent_id.rpartition("/servers/")[2])
    if "/servers/" in agent_id and _NAME.match(registered) and 3 <= len(registered) <= _NAME_CHARS:
        return registered
    domain = domain_of(agent_id)
    publisher = domain if domain and re.fullmatch(r"[a-z0-9.-]+", domain) else host
    if re.fullmatch(r"[0-9.]+|\[?[0-9a-f.]*:[0-9a-f:.]*\]?", publisher):
        publisher = "localhost"  # an address has no reverse-DNS name
    space = ".".join(reversed(re.sub(r"[^a-zA-Z0-9.-]", "-", publisher).split("."))) or "localhost"
    rest = agent_id.partition(publisher)[2] if domain == publisher else agent_id
    local = re.sub(r"[^a-zA-Z0-9._-]+", "-", rest).strip("-")
    if local == rest.lstrip("/") and len(space) + len(local) < _NAME_CHARS and local:
        return f"{space}/{local}"
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{space[:100]}/" + f"{local[:80]}-{digest}".lstrip("-")


# --- Parts: a client builds requests and command lines from them, so unusable parts are rejected --

_REMOTE_TYPES: Final = ("streamable-http", "sse")
_PACKAGE_TYPES: Final = ("stdio", *_REMOTE_TYPES)


def check_remote(item: JsonObject, path: str) -> None:
    need_endpoint(item, "url", path)
    _check_type(item, path, _REMOTE_TYPES)
    _check_inputs(item, "headers", path, named=True)
    for name, value in (find_object(item, "variables", path) or {}).items():
        where = member(f"{path}.variables", name)
        _check_input(need_object(value, where), where)


def check_package(item: JsonObject, path: str) -> None:
    need_text(item, "registryType", path, most=limits.TAG_CHARS)
    identifier = need_text(item, "identifier", path, most=limits.ENDPOINT_CHARS, what="package name or URL")
    check_endpoint(identifier, f"{path}.identifier")
    find_text(item, "version", path, most=limits.VERSION_CHARS)
    for name in ("registryBaseUrl", "fileSha256", "runtimeHint"):
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in ("runtimeArguments", "packageArguments"):
        _check_inputs(item, name, path)
    _check_inputs(item, "environmentVariables", path, named=True)
    where = f"{path}.transport"
    if "transport" not in item:
        raise InvalidDocument("The package has no transport.", path=where, hint='Add {"type":"stdio"}.')
    transport = need_object(item["transport"], where)
    _check_type(transport, where, _PACKAGE_TYPES)
    find_text(transport, "url", where, most=limits.ENDPOINT_CHARS)
    _check_inputs(transport, "headers", where, named=True)


def _check_type(item: JsonObject, path: str, known: tuple[str, ...]) -> None:
    kind = need_text(item, "type", path, most=limits.TAG_CHARS)
    if kind not in known:
        raise InvalidDocument(f"{kind!r} is not a transport.", path=f"{path}.type", hint=f"Use {' or '.join(known)}.")


def _check_inputs(item: JsonObject, name: str, path: str, *, named: bool = False) -> None:
    """Check arguments, headers or variables; `named` ones need a name to be set by."""
    for entry, where in find_objects(item, name, path, most=limits.JSON_ARRAY_ITEMS):
        if named:
            need_text(entry, "name", where, most=limits.ID_CHARS)
        _check_input(entry, where)


def _check_input(entry: JsonObject, path: str) -> None:
    for name in ("name", "description", "value"):
        find_text(entry, name, path, most=limits.DOCUMENT_BYTES)
    for name in ("isRequired", "isSecret"):
        find_flag(entry, name, path)


# --- Package URLs, e.g. pkg:npm/%40scope/name@1.0.2 -----------------------------------------------


def to_purl(registry_type: str, identifier: str, version: str | None) -> str:
    """Return the package URL; an identifier that is a URL (mcpb) stays as it is."""
    if "://" in identifier:
        return identifier
    name, tag = _image_tag(identifier) if registry_type == "oci" else (identifier, None)
    path = "/".join(quote(part, safe="._-~+") for part in name.split("/"))
    version = version or tag
    return f"pkg:{quote(registry_type, safe='')}/{path}" + (f"@{quote(version, safe='._-~+:')}" if version else "")


def _image_tag(identifier: str) -> tuple[str, str | None]:
    """Split `ghcr.io/org/image:1.0` into name and tag; a digest stays with the name."""
    head, colon, tag = identifier.rpartition(":")
    return (head, tag) if colon and "/" not in tag and "@" not in head else (identifier, None)


def find_package(text: str) -> JsonObject | None:
    """Return `registryType`, `identifier` and `version` of a package URL, or None."""
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


MCP = McpCodec()
