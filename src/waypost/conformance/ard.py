"""Checks of AI Catalog and Agentic Resource Discovery, ARD-1 to ARD-38."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import quote, urlsplit

from waypost import limits
from waypost.conformance.answer import ProbeAnswer, expect_object, expect_text, expect_texts, objects_in, shorten
from waypost.conformance.prober import Prober
from waypost.conformance.suite import Suite, Untestable, Violation, expect, no_data, not_offered

_CATALOG = "/.well-known/ai-catalog.json"
_CATALOG_TYPE = "application/ai-catalog+json"
_REGISTRY_TYPES = ("application/ai-registry+json", "application/ai-registry")
_PLACE = "ard.base"
_IDENTIFIER = re.compile(r"urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)(?!-)[a-zA-Z0-9-]{1,63}(?<!-)(\.(?!-)[a-zA-Z0-9-]{1,63}(?<!-))+")
_TOP_MEMBERS = frozenset(("specVersion", "host", "entries"))
_MANIFEST_MEMBERS = frozenset(("identity", "identityType", "attestations", "provenance", "trustSchema", "signature"))
_DETACHED_JWS = re.compile(r"[A-Za-z0-9_-]+\.\.[A-Za-z0-9_-]+")
_ALGORITHMS = ("EdDSA", "ES256", "PS256", "RS256")
_IDENTITY_TYPES = ("spiffe", "did", "https", "other")
_ERROR_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
}
_ABSENT = (404, 405, 501)
_TEXT = "weather forecast tools"
_BROAD_TEXT = (
    "data or code search, translate a document, report, agent, server, tools"  # finds several in most registries
)
_RESULT_MEMBERS = frozenset(("results", "referrals", "pageToken"))


async def recognise(probe: Prober) -> str:
    """A catalog at the well-known path, a registry that it names, or a search endpoint at a usual place."""
    answer = await probe.get(probe.target.path + _CATALOG)
    has_catalog = bool(answer.error) or (answer.status == 200 and answer.media_type.endswith("json"))
    base = await _find_registry(probe, answer if has_catalog else None)
    probe.places[_PLACE] = base
    if not has_catalog and base is None:
        raise not_offered(f"There is neither a catalog at {_CATALOG} nor a search endpoint.")
    return " ".join(
        [*([f"{_CATALOG} answers."] if has_catalog else []), *([f"{base}/search answers."] if base is not None else [])]
    )


suite = Suite("ard", (), recognise)


async def _find_registry(probe: Prober, catalog: ProbeAnswer | None) -> str | None:
    """The path of the registry's API at this origin."""
    paths = [f"{probe.target.path}/ard", probe.target.path, f"{probe.target.path}/api/v1"]
    if catalog is not None and catalog.status == 200 and b"ai-registry" in catalog.body[: limits.MIB]:
        paths = [*_named_registries(probe, catalog), *paths]
    for path in dict.fromkeys(paths):
        answer = await probe.post(f"{path}/search", {"query": {"text": _TEXT}, "federation": "none"})
        is_error = answer.status in (400, 401, 403, 500) and b'"errorCode"' in answer.body
        if is_error or (answer.status == 200 and b'"results"' in answer.body):
            return path
    return None


def _named_registries(probe: Prober, catalog: ProbeAnswer) -> list[str]:
    try:
        entries = catalog.objects("entries")
    except Violation:  # the checks judge a broken catalog; here it only names no registry
        return []
    urls = [str(entry.get("url")) for entry in entries if entry.get("type") in _REGISTRY_TYPES]
    return [path.rstrip("/") for url in urls if (path := probe.target.find_path(url)) is not None]


async def _catalog(probe: Prober) -> ProbeAnswer:
    answer = await probe.get(probe.target.path + _CATALOG)
    if answer.status in _ABSENT:
        raise not_offered("No catalog is served.")
    answer.expect_status(200)
    return answer


async def _entries(probe: Prober) -> list[dict[str, Any]]:
    return (await _catalog(probe)).objects("entries")


def _base(probe: Prober) -> str:
    base = probe.places.get(_PLACE)
    if base is None:
        raise not_offered("No search endpoint was found: this is a catalog without a registry.")
    return str(base)


async def _post(probe: Prober, path: str, body: Any) -> ProbeAnswer:
    return await probe.post(f"{_base(probe)}/{path}", body)


async def _search(probe: Prober, text: str = _TEXT, *, filters: Any = None, **members: Any) -> dict[str, Any]:
    query = {"text": text} | ({} if filters is None else {"filter": filters})
    answer = await _post(probe, "search", {"query": query, **members})
    answer.expect_status(200)
    return answer.object()


async def _results(probe: Prober, text: str = _TEXT, **members: Any) -> list[dict[str, Any]]:
    return objects_in(await _search(probe, text, federation="none", **members), "results", "the search")


async def _some_results(probe: Prober) -> list[dict[str, Any]]:
    for text in (_TEXT, _BROAD_TEXT):
        found = await _results(probe, text, pageSize=20)
        if found:
            return found
    raise no_data("No search finds anything.")


async def _refused(probe: Prober, path: str, body: Any) -> ProbeAnswer:
    answer = await _post(probe, path, body)
    if answer.status in _ABSENT:
        raise not_offered(f"{path} is not offered.")
    answer.expect_status(400)
    return answer


# --- The catalog -----------------------------------------------------------------------------------


@suite.check("ARD-1")
async def catalog_members(probe: Prober) -> None:
    document = (await _catalog(probe)).object()
    version = document.get("specVersion")
    expect(isinstance(version, str) and version.split(".")[0] == "1", f"specVersion is {shorten(str(version))!r}.")
    objects_in(document, "entries", "the catalog")
    extra = set(document) - _TOP_MEMBERS - {"metadata"}
    expect(not extra, f"The catalog has the member {shorten(', '.join(sorted(extra)))}.")


@suite.check("ARD-2")
async def empty_arrays(probe: Prober) -> None:
    found = await _search(probe, filters={"identifier": "urn:air:conformance.invalid:none"}, federation="none")
    expect(found.get("results") == [], "A search without a result does not answer with an empty array.")


@suite.check("ARD-3")
async def host(probe: Prober) -> None:
    document = (await _catalog(probe)).object()
    if "host" not in document:
        raise not_offered("The catalog names no host.")
    expect_text(expect_object(document, "host", "the catalog"), "displayName", where="host")


def _check_entry(entry: dict[str, Any]) -> None:
    where = f"the entry {shorten(str(entry.get('identifier')))}"
    expect_text(entry, "identifier", "displayName", "type", where=where)
    expect(("url" in entry) != ("data" in entry), f"{where} has not exactly one of url and data.")
    if "representativeQueries" in entry:
        queries = expect_texts(entry, "representativeQueries", where)
        expect(2 <= len(queries) <= 5, f"{where} has {len(queries)} representativeQueries, expected 2 to 5.")


@suite.check("ARD-4")
async def entries(probe: Prober) -> None:
    for entry in await _entries(probe):
        _check_entry(entry)


@suite.check("ARD-5")
async def scalars(probe: Prober) -> None:
    for entry in await _entries(probe):
        for name, value in (entry.get("metadata") or {}).items():
            expect(
                not isinstance(value, (dict, list)),
                f"metadata.{shorten(name)} of {entry.get('identifier')} is no scalar.",
            )
        expect(
            "data" not in entry or isinstance(entry["data"], dict), f"data of {entry.get('identifier')} is no object."
        )


@suite.check("ARD-6")
async def member_type(probe: Prober) -> None:
    for entry in await _entries(probe):
        expect("type" in entry, f"{entry.get('identifier')} has no `type`.")


@suite.check("ARD-7")
async def unique_entries(probe: Prober) -> None:
    keys = [(str(entry.get("identifier")), entry.get("version")) for entry in await _entries(probe)]
    seen: set[tuple[str, Any]] = set()
    for key in keys:
        expect(key not in seen, f"{shorten(key[0])} is listed twice in the version {key[1]}.")
        seen.add(key)


@suite.check("ARD-9")
async def catalog_headers(probe: Prober) -> None:
    answer = await _catalog(probe)
    expect(answer.media_type == _CATALOG_TYPE, f"The catalog is served as {answer.media_type}.")
    tag = answer.header("etag")
    expect(tag or answer.header("cache-control"), "The catalog has neither an ETag nor Cache-Control.")
    if tag is not None:
        (await probe.get(probe.target.path + _CATALOG, if_none_match=tag)).expect_status(304)


async def _identifiers(probe: Prober) -> list[str]:
    found = [str(entry.get("identifier")) for entry in await _entries(probe)]
    if not found:
        raise no_data("The catalog is empty.")
    return found


@suite.check("ARD-13")
async def identifier_form(probe: Prober) -> None:
    for identifier in await _identifiers(probe):
        expect(_IDENTIFIER.fullmatch(identifier), f"{shorten(identifier)!r} is no urn:air identifier.")


@suite.check("ARD-14")
async def publishers(probe: Prober) -> None:
    for identifier in await _identifiers(probe):
        publisher = _publisher(identifier)
        expect(_DOMAIN.fullmatch(publisher), f"The publisher {shorten(publisher)!r} is no domain name.")


def _publisher(identifier: str) -> str:
    return identifier.removeprefix("urn:air:").partition(":")[0]


@suite.check("ARD-15")
async def strict_identifiers(probe: Prober) -> None:
    for identifier in await _identifiers(probe):
        well_formed = _IDENTIFIER.fullmatch(identifier) and _DOMAIN.fullmatch(_publisher(identifier))
        expect(well_formed and len(identifier) <= 255, f"{shorten(identifier)!r} fails the strict check.")


async def _manifests(probe: Prober) -> list[tuple[str, dict[str, Any]]]:
    found = [
        (str(entry.get("identifier")), expect_object(entry, "trustManifest", "an entry"))
        for entry in await _entries(probe)
        if "trustManifest" in entry
    ]
    if not found:
        raise no_data("No entry has a trust manifest.")
    return found


@suite.check("ARD-17")
async def manifests(probe: Prober) -> None:
    for identifier, manifest in await _manifests(probe):
        expect_text(manifest, "identity", where=f"the trust manifest of {shorten(identifier)}")
        kind = manifest.get("identityType", "other")
        expect(kind in _IDENTITY_TYPES, f"identityType of {shorten(identifier)} is {shorten(str(kind))!r}.")
        extra = set(manifest) - _MANIFEST_MEMBERS
        expect(not extra, f"The trust manifest of {shorten(identifier)} has {shorten(', '.join(sorted(extra)))}.")


@suite.check("ARD-18")
async def manifest_identities(probe: Prober) -> None:
    for identifier, manifest in await _manifests(probe):
        if not _IDENTIFIER.fullmatch(identifier):
            continue
        identity, publisher = str(manifest.get("identity")), _publisher(identifier).lower()
        domain = _identity_domain(identity)
        fits = identity == identifier or domain == publisher or domain.endswith(f".{publisher}")
        expect(fits, f"{shorten(identity)} is no identity of the publisher {publisher}.")


@suite.check("ARD-19")
async def manifest_signatures(probe: Prober) -> None:
    """The form of a detached JWS and its algorithm. The keys of the publishers are not fetched."""
    signed = [(name, manifest["signature"]) for name, manifest in await _manifests(probe) if "signature" in manifest]
    if not signed:
        raise no_data("No trust manifest is signed.")
    for identifier, signature in signed:
        where = f"The signature of {shorten(identifier)}"
        found = _DETACHED_JWS.fullmatch(signature) if isinstance(signature, str) else None
        expect(found is not None, f"{where} is no detached JWS (header..signature).")
        algorithm = _algorithm_of(signature.partition(".")[0])
        expect(algorithm in _ALGORITHMS, f"{where} has the algorithm {shorten(str(algorithm))!r}.")


def _algorithm_of(header: str) -> object:
    try:
        value = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except ValueError:
        raise Violation("The header of a signature is no JSON in base64url.") from None
    return value.get("alg") if isinstance(value, dict) else None


def _identity_domain(identity: str) -> str:
    if identity.startswith("did:web:"):
        return identity.removeprefix("did:web:").partition(":")[0].partition("%3A")[0].lower()
    try:
        return (urlsplit(identity).hostname or "").lower() if "://" in identity else ""
    except ValueError:
        return ""


@suite.check("ARD-37")
async def tool_checks_of_a_catalog(probe: Prober) -> None:
    document = (await _catalog(probe)).object()
    expect(document.get("specVersion") == "1.0", f"specVersion is {shorten(str(document.get('specVersion')))!r}.")
    expect("collections" not in document, "The catalog has the removed member collections.")
    for entry in objects_in(document, "entries", "the catalog"):
        _check_entry(entry)
        expect(_IDENTIFIER.fullmatch(entry["identifier"]), f"{shorten(entry['identifier'])!r} is no identifier.")
        if "trustManifest" in entry:
            expect_text(expect_object(entry, "trustManifest", "an entry"), "identity", where="a trust manifest")


# --- The registry ----------------------------------------------------------------------------------


@suite.check("ARD-21")
async def query_members(probe: Prober) -> None:
    await _refused(probe, "search", {"query": {"text": "x", "conformance": 1}})
    await _refused(probe, "search", {"query": "x"})
    await _search(probe, filters={"type": "application/mcp-server-card+json"})


@suite.check("ARD-22")
async def filters(probe: Prober) -> None:
    entry = (await _some_results(probe))[0]
    kind, publisher = entry.get("type"), _publisher(str(entry.get("identifier")))
    for row in await _results(probe, filters={"type": [kind, "application/conformance"]}):
        expect(row.get("type") == kind, f"The filter type={kind} finds {shorten(str(row.get('type')))}.")
    for row in await _results(probe, filters={"publisher": publisher}):
        found = _publisher(str(row.get("identifier"))).lower()
        expect(found == publisher.lower(), f"The filter publisher={publisher} finds {shorten(found)}.")
    expect(await _results(probe, filters={"type": []}) == [], "An empty array of values matches something.")
    both = {"type": kind, "identifier": "urn:air:conformance.invalid:none"}
    expect(await _results(probe, filters=both) == [], "Filter keys are not combined by AND.")


@suite.check("ARD-16")
async def spelling_of_publishers(probe: Prober) -> None:
    """Publishers compare without case: they are domain names."""
    entry = (await _some_results(probe))[0]
    publisher = _publisher(str(entry.get("identifier")))
    found = [
        {str(row.get("identifier")) for row in await _results(probe, filters={"publisher": spelling}, pageSize=20)}
        for spelling in (publisher.lower(), publisher.upper())
    ]
    expect(found[0] == found[1], f"The filter publisher={publisher.upper()} finds other entries than in lower case.")


@suite.check("ARD-23")
async def search_body(probe: Prober) -> None:
    broken: tuple[Any, ...] = ({}, {"query": {}}, {"query": {"text": " "}}, {"query": {"text": 5}}, b"{")
    for body in broken:
        await _refused(probe, "search", body)
    for extra in ({"conformance": 1}, {"pageSize": 0}, {"pageSize": "5"}, {"federation": "conformance"}):
        await _refused(probe, "search", {"query": {"text": _TEXT}, **extra})
    expect(len(await _results(probe, "agent", pageSize=1)) <= 1, "pageSize is not obeyed.")
    expect(len(await _results(probe, "agent", pageSize=1000)) <= 100, "A page has more than 100 results.")


@suite.check("ARD-24")
async def search_answer(probe: Prober) -> None:
    body = await _search(probe, federation="none")
    extra = set(body) - _RESULT_MEMBERS
    expect(not extra, f"The answer has the member {shorten(', '.join(sorted(extra)))}.")
    found = await _some_results(probe)
    scores: list[Any] = []
    for row in found:
        _check_entry(row)
        score = row.get("score")
        expect(type(score) is int and 0 <= score <= 100, f"The score {shorten(str(score))} is no integer of 0 to 100.")
        expect_text(row, "source", where=f"the result {row['identifier']}")
        scores.append(score)
    expect(scores == sorted(scores, reverse=True), "The results are not ordered by score.")


@suite.check("ARD-25")
async def page_tokens(probe: Prober) -> None:
    await _refused(probe, "search", {"query": {"text": _TEXT}, "pageToken": "conformance"})
    if len(await _results(probe, _BROAD_TEXT, pageSize=20)) < 2:
        raise no_data("No search finds two entries.")
    seen: list[str] = []
    token: dict[str, Any] = {}
    for _ in range(limits.CONFORMANCE_PAGES):
        body = await _search(probe, _BROAD_TEXT, federation="none", pageSize=1, **token)
        seen += [str(row.get("identifier")) for row in objects_in(body, "results", "the search")]
        if not body.get("pageToken"):
            break
        expect(body["pageToken"] != token.get("pageToken"), "The page token leads back to itself.")
        token = {"pageToken": body["pageToken"]}
        other = await _post(probe, "search", {"query": {"text": "conformance other"}, "federation": "none", **token})
        expect(other.status == 400, f"The token of another query was answered {other.status}.")
    expect(len(seen) == len(set(seen)), "Pages repeat a result.")
    expect("pageToken" not in body or isinstance(body["pageToken"], str), "pageToken is no string.")


@suite.check("ARD-26")
async def one_cutoff(probe: Prober) -> None:
    await _some_results(probe)
    facets = await _facets(probe, "type", query={"text": "translation"})
    counted = sum(int(bucket.get("count", 0)) for bucket in objects_in(facets, "buckets", "the facet"))
    counted += int(facets.get("otherCount") or 0)
    found = 0
    token: dict[str, Any] = {}
    for _ in range(limits.CONFORMANCE_PAGES):
        body = await _search(probe, "translation", federation="none", pageSize=100, **token)
        found += len(objects_in(body, "results", "the search"))
        if not body.get("pageToken"):
            expect(found == counted, f"A search finds {found} entries, explore counts {counted}.")
            return
        token = {"pageToken": body["pageToken"]}
    raise Untestable("bound", f"The search has more than {limits.CONFORMANCE_PAGES} pages.")


@suite.check("ARD-27")
async def referrals(probe: Prober) -> None:
    for mode in ("none", "auto"):
        expect("referrals" not in await _search(probe, federation=mode), f"Mode {mode} gives referrals.")
    for row in (await _search(probe, federation="referrals")).get("referrals") or ():
        expect_text(row, "identifier", "displayName", "type", "url", where="a referral")


async def _facets(probe: Prober, field: str, **body: Any) -> dict[str, Any]:
    answer = await _post(probe, "explore", {**body, "resultType": {"facets": [{"field": field}]}})
    if answer.status in _ABSENT:
        raise not_offered("explore is not offered.")
    answer.expect_status(200)
    document = answer.object()
    expect(document.get("resultType") == "facets", f"resultType is {shorten(str(document.get('resultType')))!r}.")
    return expect_object(expect_object(document, "facets", "the answer"), field, "facets")


@suite.check("ARD-28")
async def explore_body(probe: Prober) -> None:
    await _facets(probe, "type")
    await _facets(probe, "type", query={"text": "weather"})
    broken: tuple[Any, ...] = ({}, {"resultType": {"facets": []}}, {"resultType": {"facets": [{"limit": 5}]}})
    for body in broken:
        await _refused(probe, "explore", body)


@suite.check("ARD-29")
async def facets(probe: Prober) -> None:
    buckets = objects_in(await _facets(probe, "type"), "buckets", "the facet type")
    counts: list[Any] = []
    for bucket in buckets:
        expect_text(bucket, "value", where="a bucket")
        count = bucket.get("count")
        expect(type(count) is int and count > 0, f"The count of {bucket['value']} is {shorten(str(count))}.")
        counts.append(count)
    expect(counts == sorted(counts, reverse=True), "The buckets are not ordered by count.")


@suite.check("ARD-30")
async def explore_alone(probe: Prober) -> None:
    answer = await _post(probe, "explore", {"resultType": {"facets": [{"field": "type"}]}, "federation": "auto"})
    if answer.status == 501:
        expect_text(answer.object(), "errorCode", where="the 501")
        return
    if answer.status in _ABSENT:
        raise not_offered("explore is not offered.")
    answer.expect_status(400)


async def _list(probe: Prober, query: str = "") -> ProbeAnswer:
    answer = await probe.get(f"{_base(probe)}/agents{query}")
    if answer.status in _ABSENT:
        raise not_offered("The list is not offered.")
    return answer


async def _items(probe: Prober, query: str = "") -> list[dict[str, Any]]:
    answer = await _list(probe, query)
    answer.expect_status(200)
    return answer.objects("items")


@suite.check("ARD-31")
async def listing(probe: Prober) -> None:
    answer = await _list(probe)
    answer.expect_status(200)
    for item in answer.objects("items"):
        _check_entry(item)
        expect("score" not in item, f"{item['identifier']} has a score in the list.")
    seen: list[str] = []
    query = "?pageSize=2"
    for _ in range(limits.CONFORMANCE_PAGES):
        items = await _items(probe, query)
        expect(len(items) <= 2, "pageSize is not obeyed.")
        seen += [str(item.get("identifier")) for item in items]
        token = (await _list(probe, query)).object().get("pageToken")
        if not token:
            break
        following = f"?pageSize=2&pageToken={quote(str(token), safe='')}"
        expect(following != query, "The page token leads back to itself.")
        query = following
    expect(len(seen) == len(set(seen)), "Pages repeat an entry.")


@suite.check("ARD-32")
async def list_filters(probe: Prober) -> None:
    for query in ("?filter=conformance", "?orderBy=conformance", "?pageSize=0", "?pageToken=conformance"):
        (await _list(probe, query)).expect_status(400)
    items = await _items(probe)
    if not items:
        raise no_data("The list is empty.")
    kind = str(items[0].get("type"))
    clause = quote(f"type = '{kind}'", safe="")
    for item in await _items(probe, f"?filter={clause}"):
        expect(item.get("type") == kind, f"The filter type = '{kind}' lists {shorten(str(item.get('type')))}.")
    ordered = [str(item.get("identifier")) for item in await _items(probe, "?orderBy=identifier%20DESC&pageSize=50")]
    expect(ordered == sorted(ordered, reverse=True), "orderBy=identifier DESC is not obeyed.")


@suite.check("ARD-33")
async def federation_modes(probe: Prober) -> None:
    for mode in ("auto", "referrals", "none"):
        objects_in(await _search(probe, federation=mode), "results", f"the search with federation {mode}")
    await _refused(probe, "search", {"query": {"text": _TEXT}, "federation": "conformance"})
    sources = {str(row.get("source")) for row in await _results(probe)}
    expect(len(sources) <= 1, f"federation none gives results of {len(sources)} registries.")


@suite.check("ARD-34")
async def errors(probe: Prober) -> None:
    for answer in (
        await _post(probe, "search", {}),
        await _post(probe, "search", {"query": {"text": _TEXT}, "pageToken": "conformance"}),
        await probe.post(f"{_base(probe)}/search", {"query": {"text": _TEXT}}, anonymous=True),
    ):
        answer.expect_answer()
        if (answer.status or 0) < 400:
            continue
        expect(answer.media_type == "application/json", f"An error is served as {answer.media_type}.")
        body = answer.object()
        expect_text(body, "errorCode", "message", where=f"the error of {answer.name}")
        wanted = _ERROR_CODES.get(answer.status or 0, body["errorCode"])
        expect(
            body["errorCode"] == wanted, f"{answer.status} comes with {shorten(body['errorCode'])}, expected {wanted}."
        )


@suite.check("ARD-36")
async def search_as_a_tool(probe: Prober) -> None:
    listing_call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    both = "application/json, text/event-stream"
    answer = await probe.post(f"{probe.target.path}/mcp", listing_call, accept=both)
    if answer.status != 200 or answer.media_type != "application/json" or b'"ard_search"' not in answer.body:
        raise not_offered("No MCP tool ard_search was found at /mcp.")
    arguments = {"query": {"text": _TEXT}, "federation": "none", "pageSize": 3}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ard_search", "arguments": arguments}}
    called = await probe.post(f"{probe.target.path}/mcp", call, accept=both)
    called.expect_status(200)
    result = expect_object(called.object(), "result", "the answer of the tool")
    for row in objects_in(expect_object(result, "structuredContent", "the result"), "results", "the tool's answer"):
        _check_entry(row)


@suite.check("ARD-38")
async def tool_checks_of_a_registry(probe: Prober) -> None:
    listed = await probe.get(f"{_base(probe)}/agents")
    if listed.status not in (404, 501):
        listed.expect_status(200)
        listed.objects("items")
    body = {
        "query": {"text": _TEXT, "filter": {"type": ["application/mcp-server-card+json"]}},
        "federation": "none",
        "pageSize": 2,
    }
    answer = await _post(probe, "search", body)
    answer.expect_status(200)
    for row in answer.objects("results"):
        expect(type(row.get("score")) is int and 0 <= row["score"] <= 100, "A score is no integer of 0 to 100.")
        expect_text(row, "source", "identifier", "displayName", "type", where="a result")
        expect("url" in row or "data" in row, f"{row['identifier']} has neither url nor data.")
    explored = await _post(
        probe, "explore", {"query": {"text": "weather"}, "resultType": {"facets": [{"field": "type"}]}}
    )
    if explored.status not in (404, 501):
        explored.expect_status(200)
        expect(explored.object().get("resultType") == "facets", "resultType is not facets.")
        expect_object(explored.object(), "facets", "the answer of explore")


_CRAWLER = "About how a registry or client reads catalogs of others."

suite.cannot_observe(
    {
        "ARD-8": _CRAWLER,
        "ARD-10": _CRAWLER,
        "ARD-11": _CRAWLER,
        "ARD-12": "Names levels; each is judged by its parts.",
        "ARD-20": "About what readers make of a score.",
        "ARD-35": "Leaves authentication to the deployment.",
    }
)
