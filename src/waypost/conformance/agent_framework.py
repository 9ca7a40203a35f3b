"""Checks of app-scoped agent discovery (Agent Framework), AF-1 to AF-74."""

from __future__ import annotations

import base64
import hashlib
import re
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from waypost import limits
from waypost.conformance.answer import (
    ProbeAnswer,
    expect_object,
    expect_text,
    expect_texts,
    objects_in,
    shorten,
)
from waypost.conformance.prober import Prober
from waypost.conformance.suite import Suite, Untestable, expect, no_data, not_offered

_PREFIX = "/.well-known/agentframework"
_PATH_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
_METHOD = re.compile(r"[A-Z]+")
_PATH = re.compile(r"/(?!/)[^\s?#\x00-\x1f\x7f]*")
_ORDER = (
    "id",
    "name",
    "version",
    "summary",
    "description",
    "tags",
    "owner",
    "endpoints",
    "capabilities",
    "created_at",
    "updated_at",
    "metadata",
)
_SUMMARY_MEMBERS = frozenset(("id", "name", "version", "summary", "tags"))
_SIZES = {"name": 256, "summary": 512, "description": 16 * 1024}
_UNKNOWN_ID = "conformance-check-unknown-agent"
_CUSTOM_TYPE = "application/agent-metadata+json"
_PROBLEM_TYPE = "application/problem+json"
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


async def recognise(probe: Prober) -> str:
    """The list, or the index document, answers at the well-known path."""
    for path in (_base(probe) + "/agents", probe.target.path + _PREFIX):
        answer = await probe.get(path)
        if answer.error or (answer.status == 200 and _is_json(answer)) or answer.status in (401, 403):
            return f"{path} answers."
    raise not_offered(f"Nothing answers at {_base(probe)}/agents.")


suite = Suite("agentframework", ("af", "agent-framework"), recognise)


def _is_json(answer: ProbeAnswer) -> bool:
    return answer.media_type.endswith("json")


def _base(probe: Prober) -> str:
    return f"{probe.target.path}{_PREFIX}/v1"


async def _list(probe: Prober, query: str = "", **headers: str) -> ProbeAnswer:
    return await probe.request("GET", f"{_base(probe)}/agents{query}", headers=headers)


async def _agents(probe: Prober, query: str = "") -> list[dict[str, Any]]:
    answer = await _list(probe, query)
    answer.expect_status(200)
    return answer.objects("agents")


async def _some_agents(probe: Prober) -> list[dict[str, Any]]:
    agents = [agent for agent in await _agents(probe) if isinstance(agent.get("id"), str)]
    if not agents:
        raise no_data("The list shows no agent.")
    return agents


async def _item(probe: Prober, agent_id: str, query: str = "", **headers: str) -> ProbeAnswer:
    return await probe.request("GET", f"{_base(probe)}/agents/{quote(agent_id, safe='~')}{query}", headers=headers)


async def _items(probe: Prober) -> list[dict[str, Any]]:
    """Full metadata of some agents of the list."""
    items = []
    for agent in (await _some_agents(probe))[: limits.CONFORMANCE_SAMPLE]:
        answer = await _item(probe, agent["id"])
        answer.expect_status(200)
        items.append(answer.object())
    return items


async def _require_full_view(probe: Prober) -> None:
    """A policy may show summaries only to callers without a token (AF-51); then nothing else can be judged."""
    item = (await _items(probe))[0]
    if (item.get("metadata") or {}).get("redacted") is True:
        raise Untestable("needs_token", "This caller sees summaries only (metadata.redacted).")


def _problem(answer: ProbeAnswer) -> dict[str, Any]:
    expect(answer.media_type == _PROBLEM_TYPE, f"{answer.name} answered as {answer.media_type}, not {_PROBLEM_TYPE}.")
    return answer.object()


@suite.check("AF-1")
async def only_reads(probe: Prober) -> None:
    answer = await probe.request("OPTIONS", f"{_base(probe)}/agents")
    answer.expect_status(200, 204)
    allowed = {method.strip().upper() for method in answer.get_header("allow").split(",")}
    expect(allowed <= _SAFE_METHODS, f"Allow names {', '.join(sorted(allowed - _SAFE_METHODS))}.")
    (await _list(probe)).expect_status(200)


@suite.check("AF-1", write=True)
async def registers_nothing(probe: Prober) -> None:
    document = {"id": "conformance-check", "name": "Conformance check", "endpoints": []}
    answer = await probe.write("POST", f"{_base(probe)}/agents", document)
    answer.expect_answer()
    expect((answer.status or 0) >= 400, f"{answer.name} answered {answer.status}: it took a registration.")


@suite.check("AF-2")
async def version_in_path(probe: Prober) -> None:
    (await _list(probe)).expect_status(200)
    answer = await probe.get(f"{probe.target.path}{_PREFIX}/agents")
    answer.expect_answer()
    expect(answer.status != 200, f"{answer.name} answers without a version in its path.")


@suite.check("AF-3")
async def unknown_version(probe: Prober) -> None:
    answer = await probe.get(f"{probe.target.path}{_PREFIX}/v999/agents")
    answer.expect_status(404)
    expect("v1" in expect_texts(_problem(answer), "supported_versions", "the problem"), "supported_versions lacks v1.")
    index = await probe.get(probe.target.path + _PREFIX)
    index.expect_status(200)
    expect("v1" in expect_texts(index.object(), "versions", "the index"), "The index of versions lacks v1.")
    version = await probe.get(_base(probe))
    version.expect_status(200)
    expect_text(expect_object(version.object(), "links", "the index of v1"), "agents", where="its links")


@suite.check("AF-5")
async def list_shape(probe: Prober) -> None:
    answer = await _list(probe)
    answer.expect_status(200)
    expect(_is_json(answer), f"{answer.name} answered as {answer.media_type}.")
    for agent in answer.objects("agents"):
        where = f"the agent {shorten(str(agent.get('id')))} in the list"
        expect_text(agent, "id", "name", where=where)
        expect_texts(agent, "tags", where)


@suite.check("AF-6")
async def item_or_404(probe: Prober) -> None:
    (await _item(probe, _UNKNOWN_ID)).expect_status(404)
    for item in await _items(probe):
        expect_text(item, "id", "name", where="an agent")


@suite.check("AF-7")
async def alias(probe: Prober) -> None:
    path = f"{probe.target.path}/.agent-framework/v1/agents"
    other = await probe.get(path)
    if other.status == 404:
        raise not_offered("The alias is not served.")
    other.expect_status(200)
    answer = await _list(probe)
    expect(other.body == answer.body, "The alias serves other bytes than the canonical path.")
    expect(other.header("etag") == answer.header("etag"), "The alias has another ETag.")
    expect('rel="canonical"' in (other.header("link") or ""), "The alias has no Link with rel=canonical.")


@suite.check("AF-8")
async def legacy_redirect(probe: Prober) -> None:
    query = "?tag=a%2Fb&q=x+y"
    answer = await probe.get(f"{probe.target.path}/v1/agents{query}")
    if answer.status != 308:
        raise not_offered(f"The legacy path answers {answer.status}; it may belong to the application.")
    place = answer.get_header("location")
    expect(
        place.endswith(f"{_base(probe)}/agents{query}"),
        f"Location is {shorten(place)}: not the canonical path and query.",
    )


@suite.check("AF-9")
async def methods(probe: Prober) -> None:
    path = f"{_base(probe)}/agents"
    answer, head = await _list(probe), await probe.request("HEAD", path)
    head.expect_status(200)
    expect(not head.body, "HEAD was answered with a body.")
    expect(head.header("etag") == answer.header("etag"), "HEAD has another ETag than GET.")
    (await probe.request("OPTIONS", path)).get_header("allow")
    other = await probe.request("PROPFIND", path)
    other.expect_status(405)
    expect("GET" in other.get_header("allow"), "Allow of the 405 lacks GET.")
    slash = await probe.get(path + "/")
    slash.expect_status(308)
    expect(slash.get_header("location").endswith(path), "The trailing slash redirects elsewhere.")


@suite.check("AF-10")
async def cross_origin(probe: Prober) -> None:
    answer = await probe.get(f"{_base(probe)}/agents", anonymous=True, origin="https://conformance.example")
    answer.expect_status(200)
    allowed = answer.header("access-control-allow-origin")
    if allowed is None:
        raise not_offered("No other origin may read the list.")
    if allowed == "*":
        expect(answer.header("access-control-allow-credentials") != "true", "Any origin may send credentials.")
    else:
        expect("origin" in (answer.header("vary") or "").lower(), "The origin is echoed without Vary: Origin.")
    exposed = (answer.header("access-control-expose-headers") or "").lower()
    expect(
        all(name in exposed for name in ("etag", "link", "x-total-count")), "ETag, Link, X-Total-Count are not exposed."
    )


@suite.check("AF-11")
async def stable_ids(probe: Prober) -> None:
    for agent in await _some_agents(probe):
        expect(_PATH_SAFE.fullmatch(agent["id"]), f"The id {shorten(agent['id'])!r} is not path-safe.")
    for agent, item in zip(await _some_agents(probe), await _items(probe), strict=False):
        expect(item.get("id") == agent["id"], f"{shorten(agent['id'])!r} has another id when it is read alone.")


@suite.check("AF-12")
async def path_safe_ids(probe: Prober) -> None:
    agents = await _some_agents(probe)
    for agent in agents:
        expect(_PATH_SAFE.fullmatch(agent["id"]), f"The id {shorten(agent['id'])!r} is not path-safe.")
    ids = {agent["id"] for agent in agents}
    agent_id = agents[0]["id"]
    if (other := agent_id.swapcase()) not in ids and other != agent_id:
        (await _item(probe, other)).expect_status(404)


@suite.check("AF-13")
async def slugs(probe: Prober) -> None:
    await _require_full_view(probe)
    found = False
    for item in await _items(probe):
        slug, canonical = item.get("id"), (item.get("metadata") or {}).get("canonical_id")
        if not isinstance(slug, str) or slug[:2] not in ("u-", "h-"):
            continue
        found = True
        expect(isinstance(canonical, str), f"{slug} has no metadata.canonical_id.")
        expect(slug == _slug(str(canonical)), f"{slug} is not the slug of {shorten(str(canonical))!r}.")
    if not found:
        raise no_data("No agent in the sample has a slug as its id.")


def _slug(canonical: str) -> str:
    data = canonical.encode()
    slug = "u-" + base64.urlsafe_b64encode(data).decode().rstrip("=")
    if len(slug) <= 128:
        return slug
    return "h-" + base64.b32encode(hashlib.sha256(data).digest()).decode().rstrip("=").lower()


@suite.check("AF-14")
async def lookups(probe: Prober) -> None:
    unknown = await _agents(probe, "?id=conformance%3Aunknown")
    expect(unknown == [], "?id= of an unknown agent lists agents.")
    for item in await _items(probe):
        canonical = (item.get("metadata") or {}).get("canonical_id")
        if not isinstance(canonical, str) or not canonical.isprintable() or canonical == item.get("id"):
            continue
        encoded = quote(canonical, safe="")
        listed = await _agents(probe, f"?id={encoded}")
        expect([agent.get("id") for agent in listed] == [item.get("id")], f"?id={encoded} does not list one agent.")
        answer = await probe.get(f"{_base(probe)}/agents/{encoded}")
        answer.expect_status(200)
        place = answer.get_header("content-location")
        expect(place.endswith(f"/agents/{item.get('id')}"), f"Content-Location is {shorten(place)}.")
        return
    raise no_data("No agent in the sample has a canonical id of its own.")


@suite.check("AF-15")
async def malformed_segments(probe: Prober) -> None:
    for segment in ("%zz", "%ff%fe", "a%00b", "a" * 1100):
        (await probe.get(f"{_base(probe)}/agents/{segment}")).expect_status(400)


@suite.check("AF-16")
async def endpoints(probe: Prober) -> None:
    for item in await _items(probe):
        for endpoint in objects_in(item, "endpoints", f"the agent {item.get('id')}") if "endpoints" in item else ():
            expect_text(endpoint, "method", "path", where=f"an endpoint of {item.get('id')}")


@suite.check("AF-17")
async def endpoint_forms(probe: Prober) -> None:
    for item in await _items(probe):
        for endpoint in item.get("endpoints") or ():
            method, path = str(endpoint.get("method")), str(endpoint.get("path"))
            expect(_METHOD.fullmatch(method), f"The method {shorten(method)!r} is not an upper-case token.")
            expect(_PATH.fullmatch(path) and ".." not in path.split("/"), f"{shorten(path)!r} is no path on this host.")


@suite.check("AF-18")
async def nothing_of_access(probe: Prober) -> None:
    for item in await _items(probe):
        extra = {"auth", "security", "visibility"} & set(item)
        expect(not extra, f"{item.get('id')} has the member {', '.join(sorted(extra))}.")


@suite.check("AF-19")
async def member_order(probe: Prober) -> None:
    for item in await _items(probe):
        known = [name for name in item if name in _ORDER]
        expect(known == sorted(known, key=_ORDER.index), f"The members of {item.get('id')} are out of order.")
        empty = [name for name, value in item.items() if value is None]
        expect(not empty, f"{', '.join(empty)} of {item.get('id')} is null, not absent.")


@suite.check("AF-20")
async def output_sizes(probe: Prober) -> None:
    for item in await _items(probe):
        for member, most in _SIZES.items():
            expect(len(str(item.get(member, ""))) <= most, f"{member} of {item.get('id')} is longer than {most}.")
        tags = item.get("tags") or []
        expect(
            len(tags) <= 64 and all(len(str(tag)) <= 64 for tag in tags), f"{item.get('id')} has too many or long tags."
        )
        expect(len(item.get("endpoints") or ()) <= 128, f"{item.get('id')} has more than 128 endpoints.")


@suite.check("AF-21")
async def free_text(probe: Prober) -> None:
    (await _list(probe, "?q=" + "x" * 257)).expect_status(400)
    expect(await _agents(probe, "?q=zqxjkvconformance") == [], "A term that no agent has finds agents.")
    words = [(row, word) for row in await _some_agents(probe) for word in str(row.get("name")).split()]
    agent, term = next(((row, word) for row, word in words if word.isalnum() and word.isascii()), (None, ""))
    if agent is None:
        raise no_data("No agent has a plain word in its name.")
    found = await _agents(probe, f"?view=full&q={term.upper()}")
    expect(agent["id"] in [row.get("id") for row in found], f"q={term.upper()} does not find {agent['id']}.")
    for row in found:
        texts = [str(row.get(member, "")) for member in ("name", "summary", "description")]
        texts += map(str, row.get("tags") or ())
        expect(any(term.casefold() in text.casefold() for text in texts), f"q={term} finds {row.get('id')} without it.")


@suite.check("AF-22")
async def tags(probe: Prober) -> None:
    (await _list(probe, "?tag=")).expect_status(400)
    agent = next((row for row in await _some_agents(probe) if len(row.get("tags") or ()) > 1), None)
    if agent is None:
        raise no_data("No agent in the list has two tags.")
    first, second = agent["tags"][:2]
    query = f"?tag={quote(first.upper(), safe='')}&tag={quote(second, safe='')}"
    found = await _agents(probe, query)
    expect(agent["id"] in [row.get("id") for row in found], f"{query} does not find {agent['id']}.")
    for row in found:
        carried = {str(tag).casefold() for tag in row.get("tags") or ()}
        expect({first.casefold(), second.casefold()} <= carried, f"{query} finds {row.get('id')}, which lacks a tag.")


@suite.check("AF-23")
async def include(probe: Prober) -> None:
    refused = await _list(probe, "?include=conformance")
    refused.expect_status(400)
    expect("endpoints" in refused.body.decode("utf-8", "replace"), "The 400 does not list the valid groups.")
    await _require_full_view(probe)
    for agent in await _agents(probe, "?include=endpoints,capabilities"):
        expect("endpoints" in agent and "capabilities" in agent, f"{agent.get('id')} lacks the groups asked for.")
        expect("description" not in agent, f"{agent.get('id')} has a group that was not asked for.")


@suite.check("AF-24")
async def views(probe: Prober) -> None:
    (await _list(probe, "?view=conformance")).expect_status(400)
    agent = (await _some_agents(probe))[0]
    answer = await _item(probe, agent["id"], "?view=summary")
    answer.expect_status(200)
    extra = set(answer.object()) - _SUMMARY_MEMBERS - {"metadata"}  # a policy marks what it leaves out in `metadata`
    expect(not extra, f"view=summary has the member {', '.join(sorted(extra))}.")
    await _require_full_view(probe)
    expect("endpoints" in (await _agents(probe, "?view=full"))[0], "view=full of the list has no endpoints.")


@suite.check("AF-25")
async def page_bounds(probe: Prober) -> None:
    for query in ("?page=0", "?per_page=0", "?page=x", "?page=1000001", "?per_page=-1"):
        (await _list(probe, query)).expect_status(400)
    answer = await _list(probe, "?per_page=100000")
    answer.expect_status(200)
    expect(answer.object().get("per_page") == 200, "per_page above 200 is not clamped to 200.")


@suite.check("AF-26")
async def pages(probe: Prober) -> None:
    answer = await _list(probe, "?page=1&per_page=1")
    answer.expect_status(200)
    body = answer.object()
    expect(body.get("page") == 1 and body.get("per_page") == 1, "page and per_page are not reported.")
    expect(answer.header("x-total-count") == str(body.get("total")), "X-Total-Count differs from total.")
    expect('rel="first"' in answer.get_header("link"), "Link has no rel=first.")
    expect(len(answer.objects("agents")) <= 1, "per_page=1 gives more than one agent.")
    beyond = await _list(probe, "?page=900000&per_page=1")
    beyond.expect_status(200)
    expect(beyond.objects("agents") == [], "A page beyond the end has agents.")
    expect(set((await _list(probe)).object()) in ({"agents"}, {"agents", "page", "per_page", "total"}), "Odd members.")


@suite.check("AF-27")
async def order(probe: Prober) -> None:
    agents = await _agents(probe)
    keys = [(str(agent.get("name")).casefold(), str(agent.get("id"))) for agent in agents]
    expect(keys == sorted(keys), "The list is not ordered by name, then id.")
    (await _list(probe)).get_header("af-generation")


@suite.check("AF-28")
async def unknown_on_item(probe: Prober) -> None:
    agent_id = (await _some_agents(probe))[0]["id"]
    (await _item(probe, agent_id, "?page=0&q=x&tag=")).expect_status(200)
    (await _item(probe, agent_id, "?page=1&strict=1")).expect_status(400)


@suite.check("AF-29")
async def negotiation(probe: Prober) -> None:
    (await _list(probe, accept="application/json")).expect_status(200)
    (await _list(probe, accept="image/png")).expect_status(406)


@suite.check("AF-30")
async def selected_type(probe: Prober) -> None:
    for accept in ("*/*", "application/*", f"application/json;q=0.9, {_CUSTOM_TYPE};q=0.1", "!!"):
        answer = await _list(probe, accept=accept)
        answer.expect_status(200)
        expect(answer.media_type == "application/json", f"Accept: {accept} selects {answer.media_type}.")
    custom = await _list(probe, accept=_CUSTOM_TYPE)
    custom.expect_status(200)
    expect(custom.media_type == _CUSTOM_TYPE, f"Accept: {_CUSTOM_TYPE} selects {custom.media_type}.")
    expect(custom.body == (await _list(probe)).body, "The two media types carry different bytes.")
    (await _list(probe, accept=f"{_CUSTOM_TYPE};version=2")).expect_status(406)


@suite.check("AF-31")
async def negotiated_headers(probe: Prober) -> None:
    refused = await _list(probe, accept="image/png")
    refused.expect_status(406)
    expect("application/json" in expect_texts(_problem(refused), "available", "the 406"), "available lacks JSON.")
    answer = await _list(probe)
    varies = answer.get_header("vary").lower()
    expect("accept" in varies and "authorization" in varies, "Vary lacks Accept or Authorization.")
    expect("charset" not in (answer.header("content-type") or "").lower(), "Content-Type has a charset.")
    expect(not answer.body.startswith(b"\xef\xbb\xbf"), "The body starts with a byte order mark.")


@suite.check("AF-32")
async def schema(probe: Prober) -> None:
    answer = await probe.get(f"{_base(probe)}/schema.json")
    if answer.status == 404:
        raise not_offered("No schema is served.")
    answer.expect_status(200)
    expect(answer.media_type == "application/schema+json", f"The schema is served as {answer.media_type}.")
    defined = expect_object(answer.object(), "$defs", "the schema")
    for name in ("AgentSummary", "AgentMetadata", "Endpoint", "AgentList"):
        expect(name in defined, f"The schema does not define {name}.")
    (await _list(probe)).expect_status(200)
    expect('rel="describedby"' in ((await _list(probe)).header("link") or ""), "The list has no Link to the schema.")


@suite.check("AF-33")
async def validators(probe: Prober) -> None:
    agents = await _some_agents(probe)
    for answer in (await _list(probe), await _item(probe, agents[0]["id"])):
        answer.get_header("etag")
        answer.get_header("last-modified")


@suite.check("AF-34")
async def entity_tags(probe: Prober) -> None:
    first, again = await _list(probe), await probe.get(f"{_base(probe)}/agents", fresh=True)
    tag = first.get_header("etag")
    expect(tag.startswith('"') and tag.endswith('"') and len(tag) > 2, f"The ETag {shorten(tag)} is not strong.")
    if first.body == again.body:
        expect(again.header("etag") == tag, "The same bytes have two ETags.")
    await _some_agents(probe)
    expect((await _list(probe, "?view=full")).header("etag") != tag, "Two views have one ETag.")


@suite.check("AF-35")
async def last_modified(probe: Prober) -> None:
    answer = await _list(probe)
    stated, now = answer.header("last-modified"), answer.header("date")
    if stated is None or now is None:
        raise no_data("The list has no Last-Modified, or no Date to compare it with.")
    try:
        ahead = (parsedate_to_datetime(stated) - parsedate_to_datetime(now)).total_seconds()
    except ValueError:
        ahead = float("inf")
    expect(ahead <= 0, f"Last-Modified is {shorten(stated)}: no date, or in the future.")


@suite.check("AF-36")
async def if_none_match(probe: Prober) -> None:
    tag = (await _list(probe)).get_header("etag")
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = await _list(probe, if_none_match=condition)
        answer.expect_status(304)
        expect(not answer.body, "A 304 has a body.")
        expect(answer.header("etag") == tag, "The 304 has another ETag, or none.")
    (await _list(probe, if_none_match='"conformance"')).expect_status(200)


@suite.check("AF-37")
async def if_modified_since(probe: Prober) -> None:
    stated = (await _list(probe)).header("last-modified")
    if stated is None:
        raise no_data("The list has no Last-Modified.")
    (await _list(probe, if_modified_since=stated)).expect_status(304)
    (await _list(probe, if_modified_since="yesterday")).expect_status(200)
    (await _list(probe, if_modified_since="Fri, 01 Jan 2100 00:00:00 GMT")).expect_status(200)
    (await _list(probe, if_modified_since=stated, if_none_match='"conformance"')).expect_status(200)
    try:
        earlier = format_datetime(parsedate_to_datetime(stated).replace(year=2001, day=1), usegmt=True)
    except ValueError:
        return
    (await _list(probe, if_modified_since=earlier)).expect_status(200)


@suite.check("AF-38")
async def preconditions_last(probe: Prober) -> None:
    (await _item(probe, _UNKNOWN_ID, if_none_match="*")).expect_status(404)
    (await _list(probe, "?view=conformance", if_none_match="*")).expect_status(400)
    (await _list(probe, accept="image/png", if_none_match="*")).expect_status(406)


@suite.check("AF-39")
async def cache_control(probe: Prober) -> None:
    answer = await _list(probe)
    answer.expect_status(200)
    stated = answer.get_header("cache-control").lower()
    expect("no-cache" in stated or "max-age" in stated, f"Cache-Control is {shorten(stated)}.")
    if probe.has_token:
        expect("public" not in stated, "An answer to an authenticated caller may be stored by shared caches.")
    refused = await _item(probe, _UNKNOWN_ID)
    expect("no-store" in refused.get_header("cache-control").lower(), "An error may be stored.")


@suite.check("AF-40")
async def problems(probe: Prober) -> None:
    for answer in (await _item(probe, _UNKNOWN_ID), await _list(probe, accept="image/png")):
        answer.expect_status(404, 406)
        problem = _problem(answer)
        expect(problem.get("status") == answer.status, "`status` of the problem differs from the response.")
        expect_text(problem, "title", "code", "correlation_id", where=f"the problem of {answer.name}")
    anonymous = await probe.get(f"{_base(probe)}/agents", anonymous=True)
    if anonymous.status == 401:
        _problem(anonymous)


@suite.check("AF-41")
async def problem_types(probe: Prober) -> None:
    refused = await _item(probe, _UNKNOWN_ID)
    refused.expect_status(404)
    kind = str(_problem(refused).get("type", "about:blank"))
    path = probe.target.find_path(kind)
    if kind != "about:blank" and path is not None:
        (await probe.get(path)).expect_status(200)
    (await probe.request("PROPFIND", f"{_base(probe)}/agents")).get_header("allow")
    anonymous = await probe.get(f"{_base(probe)}/agents", anonymous=True)
    if anonymous.status == 401:
        expect(anonymous.header("www-authenticate"), f"{anonymous.name} answered 401 without WWW-Authenticate.")


@suite.check("AF-42")
async def statuses(probe: Prober) -> None:
    (await _list(probe, "?page=x")).expect_status(400)
    (await _item(probe, _UNKNOWN_ID)).expect_status(404)
    (await probe.request("PROPFIND", f"{_base(probe)}/agents")).expect_status(405)
    (await _list(probe, accept="image/png")).expect_status(406)
    (await _list(probe, "?q=" + "x" * 9000)).expect_status(414)


@suite.check("AF-50")
async def policy(probe: Prober) -> None:
    if not probe.has_token:
        raise Untestable("needs_token", "Give a token, to compare what it shows with what everybody sees.")
    anonymous = await probe.get(f"{_base(probe)}/agents", anonymous=True)
    anonymous.expect_answer()
    if anonymous.status in (401, 403):
        return
    anonymous.expect_status(200)
    shown = {str(agent.get("id")) for agent in anonymous.objects("agents")}
    known = {str(agent.get("id")) for agent in await _agents(probe)}
    expect(shown <= known, "Callers without a token see agents that the token does not show.")


@suite.check("AF-53")
async def plain_text(probe: Prober) -> None:
    for item in await _items(probe):
        for member in ("name", "summary", "description"):
            text = str(item.get(member, ""))
            bad = [char for char in text if (char < " " and char not in "\n\t\r") or "\x7f" <= char <= "\x9f"]
            expect(not bad, f"{member} of {item.get('id')} has control characters.")
        private = [name for name in item.get("metadata") or () if name.startswith("_")]
        expect(not private, f"{item.get('id')} shows internal metadata: {', '.join(private[:3])}.")
        if not probe.has_token and not probe.target.is_loopback:
            expect("email" not in (item.get("owner") or {}), f"{item.get('id')} shows its owner's e-mail to everybody.")


@suite.check("AF-60")
async def card(probe: Prober) -> None:
    for path in ("/.well-known/agent-card", "/v1/card"):
        answer = await probe.get(probe.target.path + path)
        if answer.status == 200:
            expect_text(answer.object(), "id", "name", where="the card")
            return
    raise not_offered("No card is served.")


@suite.check("AF-61")
async def one_card(probe: Prober) -> None:
    answer = await probe.get(probe.target.path + "/.well-known/agent-card")
    if answer.status == 404 and answer.media_type == _PROBLEM_TYPE:
        expect_text(expect_object(_problem(answer), "links", "the 404"), "agents", where="its links")
        return
    if answer.status == 404:
        raise not_offered("No card is served.")
    answer.expect_status(200)
    other = await probe.get(probe.target.path + "/v1/card")
    if other.status == 404:
        raise not_offered("Only one of the two paths is served.")
    expect(other.body == answer.body, "The two paths of the card serve different bytes.")
    place = other.get_header("content-location")
    expect(place.endswith("/.well-known/agent-card"), f"Content-Location of /v1/card is {shorten(place)}.")


@suite.check("AF-62")
async def another_card(probe: Prober) -> None:
    answer = await probe.get(probe.target.path + "/.well-known/agent-card")
    if answer.status != 200:
        raise not_offered("No card is served.")
    expect("supportedInterfaces" not in answer.object(), "/.well-known/agent-card serves an A2A card.")
    a2a = await probe.get(probe.target.path + "/.well-known/agent-card.json")
    if a2a.status == 200:
        expect('rel="alternate"' in (answer.header("link") or ""), "The card does not link to the A2A card.")


suite.cannot_observe(
    {
        "AF-4": "States a convention.",
        "AF-51": "A hook inside the application; its effect depends on the policy.",
        "AF-52": "Needs an agent that this caller may not see, and its id.",
        "AF-54": "Would need a flood of requests.",
        "AF-70": "About how the library is mounted.",
        "AF-71": "About how the library is mounted.",
        "AF-72": "About how the library is mounted.",
        "AF-73": "About how the library is mounted.",
        "AF-74": "About how the library is mounted.",
    }
)
