"""Checks of the neighbour formats: the A2A card, the MCP registry API, and the well-known fallback of AID."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from waypost import limits
from waypost.conformance.answer import ProbeAnswer, expect_object, expect_text, expect_texts, objects_in, shorten
from waypost.conformance.prober import Prober
from waypost.conformance.suite import Suite, Untestable, expect, no_data, not_offered

_CARD = "/.well-known/agent-card.json"
_FALLBACK = "/.well-known/agent"
_PLACE = "mcp.base"
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_NAME = re.compile(r"(?=.{3,200}\Z)[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_SCHEMES = {  # the one key of a scheme -> its `type` before 1.0
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
_REMOTES = ("streamable-http", "sse")
_TRANSPORTS = ("stdio", *_REMOTES)
_STATUSES = ("active", "deprecated", "deleted")
_AID_PROTOCOLS = ("mcp", "a2a", "openapi", "grpc", "graphql", "ucp", "websocket", "local", "zeroconf")


async def recognise(probe: Prober) -> str:
    """An A2A card at its well-known path, or a list of MCP servers."""
    found = []
    card = await probe.get(probe.target.path + _CARD)
    if card.error or (card.status == 200 and card.media_type.endswith("json")):
        found.append(f"{_CARD} answers.")
    for version in ("/v0.1", "/v0"):
        answer = await probe.get(f"{probe.target.path}{version}/servers?limit=2")
        if answer.status == 200 and b'"servers"' in answer.body:
            probe.places[_PLACE] = probe.target.path + version
            found.append(f"{version}/servers lists MCP servers.")
            break
    if not found:
        raise not_offered("There is neither an A2A card nor a list of MCP servers.")
    return " ".join(found)


suite = Suite("neighbours", ("a2a", "mcp"), recognise)


# --- The A2A card ----------------------------------------------------------------------------------


async def _card_answer(probe: Prober) -> ProbeAnswer:
    answer = await probe.get(probe.target.path + _CARD)
    if answer.status == 404:
        raise not_offered("No A2A card is served.")
    answer.expect_status(200)
    return answer


async def _card(probe: Prober) -> dict[str, Any]:
    """A card of version 1.0. Earlier ones have another form."""
    card = (await _card_answer(probe)).object()
    if "supportedInterfaces" not in card and "url" in card:
        raise Untestable("not_offered", "The card has the form of A2A before 1.0.")
    return card


@suite.check("A2A-1")
async def card_is_served(probe: Prober) -> None:
    answer = await _card_answer(probe)
    expect(answer.media_type.endswith("json"), f"The card is served as {answer.media_type}.")
    expect_text(answer.object(), "name", where="the card")


@suite.check("A2A-2")
async def card_members(probe: Prober) -> None:
    card = await _card(probe)
    expect_text(card, "name", "description", "version", where="the card")
    expect(objects_in(card, "supportedInterfaces", "the card"), "The card has no interface.")
    expect_object(card, "capabilities", "the card")
    for member in ("defaultInputModes", "defaultOutputModes"):
        expect_texts(card, member, "the card")
    objects_in(card, "skills", "the card")


@suite.check("A2A-3")
async def interfaces(probe: Prober) -> None:
    for row in objects_in(await _card(probe), "supportedInterfaces", "the card"):
        expect_text(row, "url", "protocolBinding", "protocolVersion", where="an interface")
        expect(
            re.match(r"[a-z][a-z0-9+.-]*:", row["url"], re.IGNORECASE), f"{shorten(row['url'])!r} is no absolute URL."
        )


@suite.check("A2A-4")
async def capabilities(probe: Prober) -> None:
    found = expect_object(await _card(probe), "capabilities", "the card")
    for member in ("streaming", "pushNotifications", "extendedAgentCard"):
        expect(isinstance(found.get(member, False), bool), f"capabilities.{member} is no boolean.")
    for extension in objects_in(found, "extensions", "capabilities") if "extensions" in found else ():
        expect_text(extension, "uri", where="an extension")


@suite.check("A2A-5")
async def skills(probe: Prober) -> None:
    for skill in objects_in(await _card(probe), "skills", "the card"):
        expect_text(skill, "id", "name", "description", where="a skill")
        expect_texts(skill, "tags", f"the skill {skill['id']}")


@suite.check("A2A-6")
async def security_schemes(probe: Prober) -> None:
    card = await _card(probe)
    if "securitySchemes" not in card:
        raise not_offered("The card names no security scheme.")
    for name, value in expect_object(card, "securitySchemes", "the card").items():
        scheme = value if isinstance(value, dict) else {}
        kinds = [kind for kind in scheme if kind in _SCHEMES]
        expect(len(kinds) == 1, f"The scheme {shorten(name)} has not one known key.")
        # The SDKs add the members of 0.3 for clients of that version: these are no keys of 1.0.
        is_alone = len(scheme) == 1 or ("url" in card and scheme.get("type") == _SCHEMES[kinds[0]])
        expect(is_alone, f"The scheme {shorten(name)} has other keys than {kinds[0]}.")


@suite.check("A2A-8")
async def signatures(probe: Prober) -> None:
    card = await _card(probe)
    if not card.get("signatures"):
        raise not_offered("The card is not signed.")
    for row in objects_in(card, "signatures", "the card"):
        expect_text(row, "protected", "signature", where="a signature")
    raise Untestable("not_observable", "The signatures are well-formed; which key to trust is the reader's decision.")


@suite.check("A2A-9")
async def card_is_cacheable(probe: Prober) -> None:
    answer = await _card_answer(probe)
    tag = answer.header("etag")
    expect(tag or answer.header("last-modified"), "The card has neither an ETag nor Last-Modified.")
    answer.get_header("cache-control")
    if tag is not None:
        (await probe.get(probe.target.path + _CARD, if_none_match=tag)).expect_status(304)


# --- The MCP registry API --------------------------------------------------------------------------


def _base(probe: Prober) -> str:
    base = probe.places.get(_PLACE)
    if base is None:
        raise not_offered("No list of MCP servers is served.")
    return str(base)


async def _rows(probe: Prober, query: str = "?limit=100") -> list[dict[str, Any]]:
    answer = await probe.get(f"{_base(probe)}/servers{query}")
    answer.expect_status(200)
    return answer.objects("servers")


async def _servers(probe: Prober) -> list[dict[str, Any]]:
    found = [expect_object(row, "server", "an entry of the list") for row in await _rows(probe)]
    if not found:
        raise no_data("The registry lists no MCP server.")
    return found


@suite.check("MCP-1")
async def server_members(probe: Prober) -> None:
    for server in await _servers(probe):
        expect_text(server, "name", "description", "version", where="a server")
        expect(_NAME.fullmatch(server["name"]), f"{shorten(server['name'])!r} is no reverse-DNS name.")
        length = len(server["description"])
        expect(length <= 100, f"The description of {server['name']} has {length} characters; at most 100 are allowed.")


@suite.check("MCP-2")
async def remotes(probe: Prober) -> None:
    shown = False
    for server in await _servers(probe):
        for remote in objects_in(server, "remotes", "a server") if "remotes" in server else ():
            shown = True
            expect_text(remote, "type", "url", where=f"a remote of {server.get('name')}")
            expect(remote["type"] in _REMOTES, f"{shorten(remote['type'])!r} is no type of a remote.")
    if not shown:
        raise no_data("No server has a remote.")


@suite.check("MCP-3")
async def packages(probe: Prober) -> None:
    shown = False
    for server in await _servers(probe):
        for package in objects_in(server, "packages", "a server") if "packages" in server else ():
            shown = True
            expect_text(package, "registryType", "identifier", where=f"a package of {server.get('name')}")
            kind = expect_object(package, "transport", "a package").get("type")
            expect(kind in _TRANSPORTS, f"{shorten(str(kind))!r} is no transport.")
    if not shown:
        raise no_data("No server has a package.")


@suite.check("MCP-5")
async def envelope(probe: Prober) -> None:
    rows = await _rows(probe)
    if not rows:
        raise no_data("The registry lists no MCP server.")
    for row in rows:
        official = expect_object(expect_object(row, "_meta", "an entry"), _OFFICIAL, "_meta")
        status = official.get("status", "active")
        expect(status in _STATUSES, f"The status {shorten(str(status))!r} is unknown.")
        expect(isinstance(official.get("isLatest"), bool), "isLatest is no boolean.")


@suite.check("MCP-6")
async def registry_pages(probe: Prober) -> None:
    seen: list[tuple[str, str]] = []
    query = "?limit=2"
    for _ in range(limits.CONFORMANCE_PAGES):
        answer = await probe.get(f"{_base(probe)}/servers{query}")
        answer.expect_status(200)
        servers = [expect_object(row, "server", "an entry") for row in answer.objects("servers")]
        expect(len(servers) <= 2, "`limit` is not obeyed.")
        seen += [(str(server.get("name")), str(server.get("version"))) for server in servers]
        metadata = answer.object().get("metadata")
        cursor = metadata.get("nextCursor") if isinstance(metadata, dict) else None
        if not cursor:
            break
        following = f"?limit=2&cursor={quote(str(cursor), safe='')}"
        expect(following != query, "The cursor leads back to itself.")
        query = following
    expect(len(seen) == len(set(seen)), "Pages repeat a server.")
    if seen:
        name, version = seen[0]
        one = await probe.get(f"{_base(probe)}/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}")
        one.expect_status(200)
        expect(one.object().get("server", {}).get("name") == name, "A server has another name when it is read alone.")
    missing = await probe.get(f"{_base(probe)}/servers/conformance%2Fnone/versions/latest")
    missing.expect_status(404)
    expect_text(missing.object(), "error", where="the 404")


# --- AID -------------------------------------------------------------------------------------------


@suite.check("AIDTXT-4")
async def fallback(probe: Prober) -> None:
    answer = await probe.get(probe.target.path + _FALLBACK)
    if answer.status != 200 or not answer.media_type.endswith("json"):
        raise not_offered(f"{_FALLBACK} is not served.")
    expect(len(answer.body) <= 64 * limits.KIB, f"{_FALLBACK} has more than 64 KiB.")
    document = answer.object()
    version = document.get("version") or document.get("v")
    expect(version in ("aid1", "aid2"), f"The version is {shorten(str(version))!r}.")
    protocol = document.get("proto") or document.get("p")
    expect(protocol in _AID_PROTOCOLS, f"The protocol is {shorten(str(protocol))!r}.")


_DNS = "In the DNS: `waypost resolve` judges it."
_READERS = "About readers of documents."
_MAPPING = "Inside the registry; `waypost get ID --as DIALECT` shows it for Waypost."

suite.cannot_observe(
    {
        "A2A-7": _READERS,
        "MCP-4": _READERS,
        **{f"AIDTXT-{number}": _DNS for number in (1, 2, 3, 5)},
        **{f"OASF-{number}": _READERS for number in (1, 2, 3)},
        **{f"MAP-{number}": _MAPPING for number in range(1, 10)},
    }
)
