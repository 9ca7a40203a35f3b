"""Parts of the pages: templates, publishers, lists, changes, and registration with preview."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from support.external_server import ExternalServer, external_server
from support.service import Bench, profile, service
from waypost import limits
from waypost.model.names import slug
from waypost.server.web import templating
from waypost.server.web.publishers import find_publisher
from waypost.server.web.recent_changes import RecentChanges
from waypost.server.web.templating import TEMPLATES, code_spans, count_of, json_block


@pytest.fixture
async def site() -> AsyncIterator[ExternalServer]:
    async with external_server() as server:
        yield server


# --- Templates ------------------------------------------------------------------------------------


def test_a_text_is_escaped_wherever_a_template_puts_it() -> None:
    template = TEMPLATES.from_string('<p title="{{ text }}">{{ text }}{{ absent }}{{ 3 }}{{ made }}</p>')
    shown = template.render(text="<b>&\"'\u202e", absent=None, made=Markup("<b>y</b>"))
    escaped = "&lt;b&gt;&amp;&#34;&#39;\\u202e"
    assert shown == f'<p title="{escaped}">{escaped}3<b>y</b></p>'
    assert TEMPLATES.from_string("{{ text|multiline }}").render(text="<b>\n\u202e") == "&lt;b&gt;\n\\u202e"


def test_no_template_switches_escaping_off_or_leaves_a_value_unquoted() -> None:
    """A value in an attribute without quotes could add attributes; `safe` and `autoescape` would insert markup."""
    files = list((Path(templating.__file__).parent / "templates").glob("*.html"))
    assert len(files) >= 15
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), file.name
        assert not re.search(r"=\{\{|=\s*\{%", text), file.name
        assert not re.search(r"\s(?:style|on\w+)=", text), file.name


def test_a_misspelled_name_in_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        TEMPLATES.from_string("{{ no_such_value }}").render()


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "//evil", "ws://x", "https://\u202e"]
)
def test_only_addresses_of_pages_and_letters_become_links(url: str) -> None:
    link = TEMPLATES.get_template("macros.html").module.external_link
    assert "href" not in link(url)
    assert 'href="https://a.example/"' in link("https://a.example/")


def test_text_between_backticks_becomes_code() -> None:
    assert code_spans("`<b>` & `x`.") == "<code>&lt;b&gt;</code> &amp; <code>x</code>."
    assert code_spans("one ` <b>\u202e") == "one ` &lt;b&gt;\\u202e"


def test_a_block_of_json_ends_where_it_should() -> None:
    inside = json_block({"a": "</script><!--&\u2028"})
    assert json.loads(inside) == {"a": "</script><!--&\u2028"}
    assert not set(inside) & set("<>&\u2028\u2029")


@pytest.mark.parametrize(("number", "text"), [(0, "0 agents"), (1, "1 agent"), (2, "2 agents"), (1234, "1,234 agents")])
def test_counts_are_grammatical(number: int, text: str) -> None:
    assert count_of(number, "agent") == text


# --- Publishers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent_id", "publisher"),
    [
        ("https://agents.example.com/id/invoice-translator", "agents.example.com"),
        ("agent:lingua.example", "lingua.example"),
        ("urn:air:ip.example:agent:patent-searcher", "ip.example"),
        ("com.example.weather/marine", "weather.example.com"),
        ("example.com/research/paper-scout@v1.0.0", "example.com"),
        ("urn:uuid:9ae19754-2017-4336-a8c8-3f9e867b371a", None),
        ("csv-cleaner-agent", None),
        ("https://127.0.0.1:8440/x", None),
        ("https://[::1", None),
        ("agent:<script>", None),
    ],
)
def test_the_publisher_is_the_domain_in_the_id(agent_id: str, publisher: str | None) -> None:
    assert find_publisher(agent_id) == publisher


async def test_other_agents_of_a_publisher_are_those_that_one_may_see(tmp_path: Path) -> None:
    """P8."""
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for name in ("a", "b", "c"):
            headers = {"Waypost-Visibility": "private"} if name == "c" else {}
            document = profile(f"https://pub.example/{name}", name=f"Agent {name.upper()}")
            await admin.post("/api/v1/agents", json=document, headers=headers)
        path = f"/a/{slug('https://pub.example/a')}"
        page = (await bench.anonymous().get(path)).text
        assert "More from pub.example" in page
        assert "Agent B" in page
        assert "Agent C" not in page
        await admin.delete(f"/api/v1/agents/{slug('https://pub.example/b')}")
        assert "More from" not in (await bench.anonymous().get(path)).text


# --- The catalog --------------------------------------------------------------------------------


def shown_names(page: str) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'<h3><a href="/a/[^"]*">([^<]*)</a></h3>', page)]


async def fill(bench: Bench, count: int, **members: object) -> None:
    lines = [json.dumps(profile(f"agent-{n:03}", name=f"Agent {n:03}", tags=["many"], **members)) for n in range(count)]
    await bench.admin().post("/api/v1/agents:batch", content="\n".join(lines).encode())


async def test_pages_of_the_list_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench, limits.PAGE_AGENTS * 2 + 3)
        reader, path, seen = bench.anonymous(), "/?tag=many", []
        while path:
            page = (await reader.get(path)).text
            seen += shown_names(page)
            more = re.search(r'<a href="([^"]*)" rel="next"', page)
            path = html.unescape(more[1]) if more else ""
    assert seen == [f"Agent {n:03}" for n in range(limits.PAGE_AGENTS * 2 + 3)]


async def test_a_search_keeps_to_its_filters(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench, 3)
        await bench.admin().post(
            "/api/v1/agents", json=profile("t", name="Agent in trial", tags=["many"], status="testing")
        )
        reader = bench.anonymous()
        assert shown_names((await reader.get("/?q=agent&status=testing")).text) == ["Agent in trial"]
        assert len(shown_names((await reader.get("/?q=agent&status=active")).text)) == 3
        nothing = (await reader.get("/?q=agent&status=testing&protocol=mcp")).text
        assert "No agent matches these filters" in nothing
        assert (await reader.get("/?status=nonsense")).status_code == 400
        assert (await reader.get("/?q=" + "x" * (limits.QUERY_CHARS + 1))).status_code == 400


async def test_the_part_that_changes_is_the_part_of_the_page(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench, 3)
        reader = bench.anonymous()
        part = await reader.get("/?q=agent&part=found")
        assert part.text.startswith('<div id="found"')
        assert part.text in (await reader.get("/?q=agent")).text
        again = await reader.get("/?q=agent&part=found", headers={"If-None-Match": part.headers["etag"]})
        assert again.status_code == 304


async def test_the_etag_of_a_page_changes_with_its_content(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench, 2)
        reader = bench.anonymous()
        first = await reader.get("/")
        same = {"If-None-Match": first.headers["etag"], "If-Modified-Since": first.headers["last-modified"]}
        assert (await reader.get("/", headers=same)).status_code == 304
        bench.clock.advance(5)
        await bench.admin().post("/api/v1/agents", json=profile("agent-000", name="Renamed"))
        changed = await reader.get("/", headers=same)
        assert changed.status_code == 200
        assert "Renamed" in changed.text


async def test_examples_that_are_private_are_quoted_nowhere(tmp_path: Path) -> None:
    """PRO-38: they are in the publisher's own document, and nowhere else."""
    examples = [{"text": "An open example."}, {"text": "A secret example.", "private": True}]
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("x", examples=examples))
        sheet = (await bench.anonymous().get("/a/x")).text.split('id="record"', 1)[0]
        found = (await bench.anonymous().get("/?q=secret+example")).text
    assert "An open example." in sheet
    assert "A secret example." not in sheet + found


# --- Changes --------------------------------------------------------------------------------------


async def test_the_latest_changes_are_those_that_one_may_see(tmp_path: Path) -> None:
    """P8: however many are hidden in between."""
    async with service(tmp_path, anonymous_read=True) as bench:
        admin = bench.admin()
        await fill(bench, 3)
        await admin.delete("/api/v1/agents/agent-001")
        lines = [json.dumps(profile(f"hidden-{n}")) for n in range(limits.PAGE_CHANGE_CACHE + 10)]
        headers = {"Waypost-Visibility": "private"}
        await admin.post("/api/v1/agents:batch", content="\n".join(lines).encode(), headers=headers)
        public = frozenset(("public",))
        seen = RecentChanges(bench.registry).latest(public, 10)
        assert [change.id for change in seen] == ["agent-002", "agent-000"], "made after the fact: what is there"
        page = (await bench.anonymous().get("/changes")).text
        kinds = re.findall(r'class="kind (\w+)"', page)
        assert kinds == ["withdrawn", "registered", "registered"]
        assert "hidden" not in page


async def test_however_many_changes_came_the_newest_of_each_agent_are_shown_in_their_order(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        registry = bench.registry
        seldom, often = RecentChanges(registry), RecentChanges(registry)
        for start in (0, 300, 400):
            lines = [
                json.dumps(profile(f"agent-{number:03}", name=f"A {start}")) for number in range(start, start + 300)
            ]
            await bench.admin().post("/api/v1/agents:batch", content="\n".join(lines).encode())
            often.latest(None, 1)
        expected = [f"agent-{number:03}" for number in range(699, 639, -1)]
        for changes in (seldom, often):
            for audience in (None, frozenset(("public",))):
                assert [change.id for change in changes.latest(audience, limits.PAGE_CHANGE_CACHE)] == expected
            assert changes.latest(frozenset(("internal",)), 5) == []


# --- Registering ----------------------------------------------------------------------------------


async def writer(bench: Bench) -> tuple[httpx2.AsyncClient, str]:
    client = bench.anonymous()
    await client.post("/sign-in", data={"token": bench.token("alice")})
    return client, (await client.get("/register")).text.split('name="form" value="', 1)[1].split('"', 1)[0]


async def test_the_register_page_saves_the_document_that_it_showed(tmp_path: Path) -> None:
    document = json.dumps(profile("urn:x:a", name="Pasted"), indent=1)
    digest = hashlib.sha256(document.encode()).hexdigest()
    async with service(tmp_path) as bench:
        client, form = await writer(bench)
        fields = {"form": form, "document": document.replace("\n", "\r\n"), "visibility": "internal"}
        looked = await client.post("/register", data={**fields, "do": "look"})
        assert looked.status_code == 200
        assert f'name="digest" value="{digest}"' in looked.text
        assert bench.registry.entries.find_named("urn:x:a") is None
        for wrong in ({"do": "save"}, {"do": "save", "digest": "0" * 64}):
            assert (await client.post("/register", data={**fields, **wrong})).status_code == 412
        saved = await client.post("/register", data={**fields, "do": "save", "digest": digest})
        assert (saved.status_code, saved.headers["location"]) == (303, f"/a/{slug('urn:x:a')}?saved=created")
        assert "Registered." in (await client.get(saved.headers["location"])).text
        own = await bench.as_("alice").get("/api/v1/agents/urn:x:a")
        assert own.text == document, "a browser's line ends are not the document's"
        assert (await bench.anonymous().get("/a/urn:x:a")).status_code == 404
        other = bench.anonymous()
        await other.post("/sign-in", data={"token": bench.token("bob")})
        assert "Owner" not in (await other.get("/a/urn:x:a")).text
        assert "Owner" in (await client.get("/a/urn:x:a")).text


async def test_an_address_is_looked_at_before_it_is_saved(tmp_path: Path, site: ExternalServer) -> None:
    site.json("/card.json", profile("urn:x:fetched", name="Fetched"))
    url = f"http://127.0.0.1:{site.port}/card.json"
    async with service(tmp_path, allow_cidrs=("127.0.0.1/32",)) as bench:
        client, form = await writer(bench)
        fields = {"form": form, "address": url}
        looked = (await client.post("/register", data={**fields, "do": "look"})).text
        digest = looked.split('name="digest" value="', 1)[1].split('"', 1)[0]
        site.json("/card.json", profile("urn:x:fetched", name="Another"))
        assert (await client.post("/register", data={**fields, "do": "save", "digest": digest})).status_code == 412
        site.json("/card.json", profile("urn:x:fetched", name="Fetched"))
        assert (await client.post("/register", data={**fields, "do": "save", "digest": digest})).status_code == 303
        loop = {"X-Discovery-Hop": "1"}
        assert (await client.post("/register", data={**fields, "do": "look"}, headers=loop)).status_code == 508


async def test_document_errors_are_shown_beside_the_form(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client, form = await writer(bench)
        for document, told in (("{", "JSON"), ('{"a": 1}', "dialect"), ("", "document or an address")):
            answer = await client.post("/register", data={"form": form, "document": document, "do": "look"})
            assert 400 <= answer.status_code < 500
            note = answer.text.split('role="alert"', 1)[1][:600]
            assert told in note
            assert "At <code>" not in note, "it names no place inside the document"
        answer = await client.post(
            "/register", data={"form": form, "document": '{"name": "x", "skills": []}', "do": "look"}
        )
        assert "<code>supportedInterfaces</code>" in answer.text.split('role="alert"', 1)[1][:600]
        both = {"form": form, "document": "{}", "address": "https://agents.example.net", "do": "look"}
        assert "not both" in (await client.post("/register", data=both)).text
        foreign = profile("urn:x:taken")
        await bench.as_("bob").post("/api/v1/agents", json=foreign)
        answer = await client.post("/register", data={"form": form, "document": json.dumps(foreign), "do": "look"})
        assert "Another subject owns this id" in answer.text
