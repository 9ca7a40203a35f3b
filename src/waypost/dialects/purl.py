"""Package URLs for the packages of an MCP server: `pkg:npm/%40scope/name@1.0.2`. Only what the mapping needs."""

from __future__ import annotations

from urllib.parse import quote, unquote

from waypost.model.json import JsonObject


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
