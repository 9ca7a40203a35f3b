"""The contract of every kind of peer (federation/kinds/port.py), each with a site that behaves and one that does not."""

from __future__ import annotations

import hashlib

import pytest

from support.peer_sites import AT, SITES, A2aSite, ArdSite, CatalogSite, DomainSite, PeerSite, card, catalog_entry
from waypost.federation.kinds.port import PeerPage, PeerProblem
from waypost.federation.kinds.table import DomainLookup, PeerKinds, make_kinds
from waypost.federation.peers import Peer
from waypost.net.clock import ManualClock
from waypost.responses.federation import PEER_KINDS

NAMES = ["one", "two", "three"]


def kinds_of(site: PeerSite) -> PeerKinds:
    return make_kinds(site, ManualClock(AT), DomainLookup(read_organisation=site.read_organisation))


def peer_of(site: PeerSite, **members: object) -> Peer:
    return Peer(name="peer", url=site.url, kind=site.kind, added_at=AT, added_by="admin", **members)  # type: ignore[arg-type]


async def read(site: PeerSite, cursor: str | None = None, **members: object) -> PeerPage:
    page = await kinds_of(site).sources[site.kind].read(peer_of(site, **members), cursor, wait_seconds=0, limit=100)
    assert page is not None
    return page


@pytest.fixture(params=SITES, ids=lambda site: site.kind)
def site(request: pytest.FixtureRequest) -> PeerSite:
    made: PeerSite = request.param()
    made.names = [*NAMES]
    return made


def test_every_kind_has_a_fake() -> None:
    assert sorted(each.kind for each in SITES) == sorted(PEER_KINDS)


async def test_every_agent_is_a_change_with_an_origin_and_exact_bytes(site: PeerSite) -> None:
    page = await read(site)
    assert len({entry.id for entry in page.entries}) == len(NAMES)
    assert page.starts_over
    assert page.ends_snapshot
    assert page.is_last
    assert page.service_id
    for entry in page.entries:
        assert entry.origin is not None
        assert (entry.origin.id, entry.type in ("registered", "updated")) == (entry.id, True)
        for each in entry.documents:
            assert hashlib.sha256(each.document.encode()).hexdigest() == each.digest


async def test_an_unchanged_agent_keeps_its_entity_tag(site: PeerSite) -> None:
    first = await read(site)
    again = await read(site)
    assert {each.id: each.etag for each in first.entries} == {each.id: each.etag for each in again.entries}


async def test_reading_goes_on_at_the_cursor(site: PeerSite) -> None:
    first = await read(site)
    later = await read(site, first.cursor)
    known = {each.id: each.etag for each in first.entries}
    assert all(known[each.id] == each.etag for each in later.entries)
    assert not later.starts_over or {each.id for each in later.entries} == set(known)


async def test_an_agent_that_is_gone_is_missing_or_withdrawn(site: PeerSite) -> None:
    first = await read(site)
    site.names = NAMES[1:]
    later = await read(site)
    present = {each.id for each in later.entries if each.type not in ("withdrawn", "expired")}
    assert len({each.id for each in first.entries} - present) == 1


@pytest.mark.parametrize(
    "answer",
    [500, 503, 404, 403, 0, b"", b"null", b"[1, 2]", b"<html><body>Hello</body></html>", b"\xff\xfe", b'{"a": 1}'],
    ids=str,
)
async def test_a_peer_that_misbehaves_is_a_problem_and_never_an_empty_one(site: PeerSite, answer: bytes | int) -> None:
    """FED-12: an error must not look like a peer without agents."""
    first = await read(site)
    site.broken = answer
    for cursor in (None, first.cursor):
        with pytest.raises(PeerProblem):
            await read(site, cursor)


async def test_more_agents_than_allowed_are_a_problem_or_left_to_the_reader(site: PeerSite) -> None:
    """FED-19: no kind holds more than the quota in memory."""
    if site.kind in ("waypost", "mcp", "domain"):
        assert len((await read(site, max_records=2)).entries) == 3  # pages are bounded; the reader counts
        return
    with pytest.raises(PeerProblem, match=r"more than|lists"):
        await read(site, max_records=2)


@pytest.mark.parametrize("kind", PEER_KINDS)
async def test_a_peer_is_recognised_by_probing(kind: str) -> None:
    """Exactly one kind reads it, or the first that does is the right one."""
    site = next(each for each in SITES if each.kind == kind)()
    site.names = [*NAMES]
    kinds = kinds_of(site)
    for candidate in kinds.probed(site.url):
        try:
            page = await kinds.sources[candidate].read(peer_of(site), None, wait_seconds=0, limit=1)
        except PeerProblem:
            continue
        assert page is not None
        assert candidate == kind
        return
    raise AssertionError("not recognised")


# --- Incomplete readings (FED-12) -----------------------------------------------------------------


async def test_a_catalog_that_cannot_be_reached_ends_no_snapshot() -> None:
    site = CatalogSite()
    site.names, site.nested = ["a"], {"/b.json": [catalog_entry("b")]}
    assert (await read(site)).ends_snapshot
    site.failing = {"/b.json"}
    page = await read(site)
    assert [each.id for each in page.entries] == ["urn:air:example.com:agent:a"]
    assert not page.ends_snapshot
    assert page.bad == 1


async def test_a_card_that_cannot_be_reached_ends_no_snapshot() -> None:
    site = A2aSite()
    site.names, site.failing = [*NAMES], {"/cards/two.json"}
    page = await read(site)
    assert (len(page.entries), page.ends_snapshot) == (2, False)


async def test_an_agent_that_cannot_be_resolved_ends_no_snapshot() -> None:
    site = DomainSite()
    site.names, site.failing = ["one"], {"two"}
    assert not (await read(site)).ends_snapshot


# --- Catalogs -------------------------------------------------------------------------------------


def nested(url: str, **members: object) -> dict[str, object]:
    return catalog_entry("nested", type="application/ai-catalog+json", url=url, **members)


@pytest.mark.req("ARD-8")
async def test_nested_catalogs_are_followed_to_a_bounded_depth_and_once() -> None:
    site = CatalogSite()
    site.nested = {
        "/1.json": [catalog_entry("b"), nested("/2.json")],
        "/2.json": [catalog_entry("c"), nested("/3.json"), nested("/1.json"), nested("/catalog.json")],
        "/3.json": [catalog_entry("d"), nested("/4.json")],
        "/4.json": [catalog_entry("too-deep")],
    }
    inline = {"specVersion": "1.0", "entries": [catalog_entry("inline")]}
    del site.nested["/4.json"]
    site.nested["/1.json"].append(catalog_entry("x", type="application/ai-catalog+json", url=None, data=inline))  # type: ignore[arg-type]
    page = await read(site)
    found = {each.id.rsplit(":", 1)[1] for each in page.entries}
    assert {"b", "c", "d", "inline"} <= found
    assert "too-deep" not in found
    fetched = [url for url in site.requests if url.endswith("/1.json")]
    assert len(fetched) == 1


@pytest.mark.req("ARD-8")
async def test_the_depth_is_four() -> None:
    site = CatalogSite()
    chain = {f"/{n}.json": [catalog_entry(f"level-{n}"), nested(f"/{n + 1}.json")] for n in range(1, 9)}

    class Chain(CatalogSite):
        def answer(self, path: str, query: dict[str, str], headers: dict[str, str]):  # type: ignore[no-untyped-def]
            if path == "/catalog.json":
                return 200, {}, {"specVersion": "1.0", "entries": [nested("/1.json")]}
            return (200, {}, {"specVersion": "1.0", "entries": chain[path]}) if path in chain else (404, {}, b"")

    site = Chain()
    page = await read(site)
    assert [each.id.rsplit(":", 1)[1] for each in page.entries] == ["level-1", "level-2", "level-3"]
    assert len(site.requests) == 4


@pytest.mark.req("ARD-11")
async def test_catalogs_are_crawled_with_conditional_requests() -> None:
    """One request for each catalog while nothing changes; everything again when one does."""
    site = CatalogSite()
    site.names, site.nested = ["a"], {"/b.json": [catalog_entry("b")]}
    first = await read(site)
    site.requests.clear()
    again = await read(site, first.cursor)
    assert (len(site.requests), again.entries, again.starts_over) == (2, (), False)
    site.nested["/b.json"] = [catalog_entry("b", description="Changed."), catalog_entry("c")]
    later = await read(site, first.cursor)
    assert sorted(each.id.rsplit(":", 1)[1] for each in later.entries) == ["a", "b", "c"]
    assert later.ends_snapshot


@pytest.mark.req("ARD-11")
async def test_of_several_versions_the_highest_is_taken() -> None:
    site = CatalogSite()
    site.nested = {
        "/v.json": [
            catalog_entry("a", version="1.9.0"),
            catalog_entry("a", version="1.10.0"),
            catalog_entry("a", version="1.2.0"),
        ]
    }
    (entry,) = (await read(site)).entries
    assert '"1.10.0"' in entry.documents[0].document


class _Site(ArdSite):
    """A site whose catalog is found in one of the ways of ARD-10; each names a catalog of its own."""

    def __init__(self, *ways: str) -> None:
        super().__init__()
        self.ways = ways

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]):  # type: ignore[no-untyped-def]
        if path in ("", "/"):
            given = {"content-type": "text/html; charset=utf-8"}
            if "link" in self.ways:
                given["link"] = '</style.css>; rel=stylesheet, </link.json>; rel="ai-catalog", </x>; rel=next'
            page = '<html><head><link rel="AI-Catalog" href="/html.json"></head>' if "html" in self.ways else "<html>"
            return 200, given, page.encode()
        if path == "/robots.txt" and "robots" in self.ways:
            return 200, {}, b"User-agent: *\nDisallow:\nagentmap: https://peer.example/robots.json\n"
        way = "well-known" if path == "/.well-known/ai-catalog.json" else path.strip("/").removesuffix(".json")
        if way in self.ways or way == "dns":
            return 200, {}, {"specVersion": "1.0", "entries": [catalog_entry(way)]}
        return 404, {}, b""


@pytest.mark.req("ARD-10")
@pytest.mark.parametrize("missing", range(6))
async def test_catalogs_are_found_in_the_order_of_the_specification(missing: int) -> None:
    """Link header, HTML link, robots.txt, well-known path, DNS: the first that is there."""
    order = ["link", "html", "robots", "well-known", "dns"]
    ways = order[missing:]
    site = _Site(*ways)

    async def find_catalogs(domain: str) -> list[str]:
        assert domain == "peer.example"
        return ["https://peer.example/dns.json"] if "dns" in ways else []

    kinds = make_kinds(site, ManualClock(AT), DomainLookup(find_catalogs=find_catalogs))
    if not ways:
        with pytest.raises(PeerProblem, match="no AI Catalog"):
            await kinds.sources["ard"].read(peer_of(site), None, wait_seconds=0, limit=10)
        return
    page = await kinds.sources["ard"].read(peer_of(site), None, wait_seconds=0, limit=10)
    assert page is not None
    assert [each.id for each in page.entries] == [f"urn:air:example.com:agent:{ways[0]}"]


class _Registry(ArdSite):
    """An ARD registry that lists its agents in pages of two."""

    def __init__(self, names: list[str], *, has_catalog: bool = True) -> None:
        super().__init__()
        self.names = names
        self.has_catalog = has_catalog
        self.broken_pages: dict[str, int] = {}  # token -> status
        self.next_token: dict[str, str] = {}

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]):  # type: ignore[no-untyped-def]
        if path == "/.well-known/ai-catalog.json" and self.has_catalog:
            registry = catalog_entry("registry", type="application/ai-registry+json", url="/ard/")
            status = 304 if headers.get("If-None-Match") == '"c"' else 200
            return status, {"etag": '"c"'}, {"specVersion": "1.0", "entries": [catalog_entry("one"), registry]}
        if path == "/ard/search":
            return 200, {}, {"results": []}
        if path != "/ard/agents":
            return 404, {}, b""
        token = query.get("pageToken", "")
        if token in self.broken_pages:
            return self.broken_pages[token], {}, b""
        start = int(token or 0)
        items = [catalog_entry(name) for name in self.names[start : start + 2]]
        page = {"items": items, "total": len(self.names)}
        if start + 2 < len(self.names):
            page["pageToken"] = self.next_token.get(token, str(start + 2))  # type: ignore[assignment]
        etag = f'"{hashlib.sha256(str(page).encode()).hexdigest()[:8]}"'
        return (304 if headers.get("If-None-Match") == etag else 200), {"etag": etag}, page


def names_in(page: PeerPage) -> list[str]:
    return sorted(each.id.rsplit(":", 1)[1] for each in page.entries)


@pytest.mark.req("ARD-11")
async def test_the_list_of_a_registry_is_read_beside_its_catalog() -> None:
    site = _Registry(["one", "two", "three", "four", "five"])
    first = await read(site)
    assert names_in(first) == ["five", "four", "one", "three", "two"]
    assert first.ends_snapshot
    site.requests.clear()
    again = await read(site, first.cursor)
    assert (again.entries, again.starts_over, len(site.requests)) == ((), False, 4)  # the catalog and three pages
    site.names = ["one", "two"]
    later = await read(site, first.cursor)
    assert (names_in(later), later.ends_snapshot) == (["one", "two"], True)


@pytest.mark.parametrize("status", [404, 501, 500, 401])
async def test_a_registry_need_not_have_a_list(status: int) -> None:
    site = _Registry(["two"])
    site.broken_pages = {"": status}
    page = await read(site)
    assert (names_in(page), page.ends_snapshot, page.bad) == (["one"], True, 0)


@pytest.mark.parametrize("token", ["", "2"])
async def test_a_list_that_fails_ends_no_snapshot(token: str) -> None:
    """FED-12: what it lacks is not gone."""
    site = _Registry(["one", "two", "three"])
    first = await read(site)
    site.names.append("four")
    site.broken_pages = {token: 500}
    page = await read(site, first.cursor)
    assert (page.ends_snapshot, page.bad) == (False, 1)


async def test_a_registry_without_a_catalog_is_recognised_by_its_list() -> None:
    site = _Registry(["one", "two", "three"], has_catalog=False)
    site.url = "https://peer.example/ard"
    kinds = kinds_of(site)
    for kind in kinds.probed(site.url):
        try:
            page = await kinds.sources[kind].read(peer_of(site), None, wait_seconds=0, limit=1)
        except PeerProblem:
            continue
        break
    assert (kind, names_in(page), page.search_url) == ("ard", ["one", "three", "two"], site.url)  # type: ignore[arg-type, union-attr]
    site.names.pop()
    later = await read(site, page.cursor)  # type: ignore[union-attr]
    assert (names_in(later), later.ends_snapshot) == (["one", "two"], True)
    site.names, site.next_token = ["one", "two", "three", "four", "five"], {"": "2", "2": "2"}
    with pytest.raises(PeerProblem, match="circle"):
        await read(site, later.cursor)


async def test_a_registry_that_only_searches_can_be_asked_and_not_pulled() -> None:
    site = _Registry([], has_catalog=False)
    site.url, site.broken_pages = "https://peer.example/ard", {"": 501}
    page = await read(site, ask=True, pull=False)
    assert (page.entries, page.search_url) == ((), site.url)
    with pytest.raises(PeerProblem, match="no AI Catalog"):
        await read(site)


async def test_redirects_are_followed_within_a_site_only() -> None:
    class Moved(CatalogSite):
        target = "/new.json"

        def answer(self, path: str, query: dict[str, str], headers: dict[str, str]):  # type: ignore[no-untyped-def]
            if path == "/new.json":
                return 200, {}, {"specVersion": "1.0", "entries": [catalog_entry("moved")]}
            return 301, {"location": self.target}, b""

    site = Moved()
    assert len((await read(site)).entries) == 1
    for target in (
        "https://evil.example/new.json",
        "http://peer.example/new.json",
        "https://example/x.json",
        "/catalog.json",
    ):
        site.target = target
        with pytest.raises(PeerProblem, match="redirects"):
            await read(site)


async def test_cards_of_every_form_are_read() -> None:
    """Cards themselves, addresses of cards and of agents, objects that name one."""

    class Mixed(A2aSite):
        def answer(self, path: str, query: dict[str, str], headers: dict[str, str]):  # type: ignore[no-untyped-def]
            if path == "/cards.json":
                items = [
                    card("inline"),
                    "/cards/two.json",
                    {"name": "three", "cardUrl": f"{self.url[:-11]}/cards/three"},
                ]
                return 200, {}, {"agents": items}
            if path == "/cards/three/.well-known/agent-card.json":
                return 200, {}, card("three")
            return super().answer(path, query, headers)

    site = Mixed()
    site.names = ["two"]
    page = await read(site)
    assert (len(page.entries), page.bad) == (3, 0)
