"""X1, X2: texts of records are data on every page and in every document; the headers allow a browser to run nothing else."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from support.service import Bench, profile, service
from support.vectors import load_own_vectors

STRINGS: list[str] = load_own_vectors("html_breakout")["strings"]
STRICT = {
    "default-src": "'none'", "style-src": "'self'", "img-src": "'self'", "form-action": "'self'",
    "frame-ancestors": "'none'", "base-uri": "'none'",
}  # fmt: skip
SCRIPTED = {"script-src": "'self'", "connect-src": "'self'"}


class Reader(HTMLParser):
    """Elements, attributes and texts, as a browser would take them apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[dict[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(response: httpx2.Response) -> Reader:
    reader = Reader()
    reader.feed(response.text)
    return reader


LINKED_DATA = {"type": "application/ld+json"}


def is_harmless(page: Reader) -> bool:
    links = [value or "" for name, value in page.attributes if name in ("href", "src")]
    return (
        not {"img", "svg", "iframe", "base", "style", "object"} & set(page.elements)
        and all(str(found.get("src", "")).startswith("/page.js?v=") or found == LINKED_DATA for found in page.scripts)
        and not [name for name, _ in page.attributes if name.startswith("on")]
        and all(link.startswith(("/", "#", "http://", "https://", "mailto:")) for link in links)
    )


async def register(bench: Bench, text: str) -> int:
    """An agent that carries the text wherever a text can be."""
    document = profile("urn:x:broken", name=text, description=text, tags=[text], examples=[{"text": text}])
    return (await bench.admin().post("/api/v1/agents", json=document)).status_code


async def shown_pages(bench: Bench) -> list[httpx2.Response]:
    """Every page that shows the agent: catalog, search, its sheet in every dialect, its landing page."""
    reader = bench.anonymous()
    await bench.admin().post("/api/v1/agents/urn:x:broken:host", json={"domain": "broken.example.com"})
    path = "/a/urn:x:broken"
    return [
        await reader.get("/"),
        await reader.get("/", params={"q": "alert script agent hyperlink"}),
        await reader.get("/", headers={"Host": "broken.example.com"}),
        *[await reader.get(path, params={"as": dialect}) for dialect in ("profile", "a2a", "rtfs", "mcp")],
        await reader.get("/changes"),
    ]


@pytest.mark.parametrize("text", STRINGS)
async def test_no_text_of_a_record_becomes_markup(tmp_path: Path, text: str) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await register(bench, "An agent")  # a version before, so that the pages show a history
        await register(bench, "A plain agent: alert, script, hyperlink")
        clean = [read(answer) for answer in await shown_pages(bench)]
        if await register(bench, text) not in (200, 201):
            return  # refused is harmless too: a name with a line end or a control character
        broken = [read(answer) for answer in await shown_pages(bench)]
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    for page, before in zip(broken, clean, strict=True):
        assert is_harmless(page)
        assert page.elements.count("title") == page.elements.count("body") == 1
        assert len(page.scripts) == len(before.scripts)
        assert set(page.elements) <= {*(tag for each in clean for tag in each.elements), "del", "ins"}
    for page in (broken[0], broken[2], broken[3], broken[-1]):
        assert shown in page.text


@pytest.mark.parametrize("text", STRINGS)
async def test_a_problem_that_names_a_text_is_json_and_nothing_else(tmp_path: Path, text: str) -> None:
    async with service(tmp_path) as bench:
        for answer in (
            await bench.admin().get("/.well-known/agent-card.json", params={"agent": text[:200]}),
            await bench.admin().post("/api/v1/agents", json={"id": text, "name": 1}),
        ):
            assert answer.headers["content-type"].startswith("application/problem+json")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in answer.headers
            assert answer.json()["status"] == answer.status_code


async def pages(bench: Bench) -> list[httpx2.Response]:
    admin = bench.admin()
    return [
        await admin.get("/"),
        await admin.get("/docs"),
        await admin.get("/rtfs", headers={"Accept": "text/html"}),
    ]


async def test_a_page_runs_no_foreign_script_and_cannot_be_framed(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for answer, rules in zip(await pages(bench), (STRICT | SCRIPTED, STRICT | SCRIPTED, STRICT), strict=True):
            policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert policy == rules
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            page = read(answer)
            assert is_harmless(page)
            assert "style" not in {name for name, _ in page.attributes}


async def test_the_style_that_pages_ask_for_is_served_to_everybody(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        (link,) = [value for name, value in read(await bench.anonymous().get("/")).attributes if name == "href"][:1]
        style = await bench.anonymous().get(str(link))
        assert style.headers["content-type"] == "text/css; charset=utf-8"
        assert "body {" in style.text
        again = await bench.anonymous().get(str(link), headers={"If-None-Match": style.headers["etag"]})
    assert again.status_code == 304


async def test_a_page_for_signed_in_readers_is_not_stored_by_shared_caches(tmp_path: Path) -> None:
    """H9."""
    async with service(tmp_path) as bench:
        home, docs, rtfs = await pages(bench)
    assert home.headers["vary"] == "Host, Cookie"
    for answer in (docs, rtfs):
        assert answer.headers["cache-control"] == "private, no-cache"
        assert "Authorization" in answer.headers["vary"]


@pytest.mark.parametrize("text", STRINGS[:6])
async def test_no_text_becomes_markup_in_statistics_and_a_preview(tmp_path: Path, text: str) -> None:
    """Statistics have plots of their own, so they are compared with those of a plain agent."""
    async with service(tmp_path, open=True) as bench:
        client = bench.anonymous()
        form = (await client.get("/register")).text.split('name="form" value="', 1)[1].split('"', 1)[0]
        seen = []
        for each in ("plain", text):
            await register(bench, each)
            document = json.dumps(profile("urn:x:preview", name=each, description=each, tags=[each]))
            looked = await client.post("/register", data={"form": form, "document": document, "do": "look"})
            seen.append([read(await client.get("/stats")), read(looked)])
    for plain, broken in zip(*seen, strict=True):
        assert set(broken.elements) <= {*plain.elements, "div", "p", "strong"}
        assert len(broken.scripts) == len(plain.scripts)
        assert not [name for name, _ in broken.attributes if name.startswith("on")]


DOCUMENTS = ["/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/ai-catalog.json"]


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_document_is_never_sniffed_and_depends_on_its_host(tmp_path: Path, path: str) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.anonymous().get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Host" in answer.headers["vary"]
    assert "json" in answer.headers["content-type"]
