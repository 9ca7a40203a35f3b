"""The page of a domain (adp.md §5): for people, and for programs that read it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, service

DOMAIN = "alice.example.com"
DOCUMENT: dict[str, Any] = {
    "protocol": "ADP/1.1",
    "identity": {
        "id": f"agent:{DOMAIN}",
        "domain": DOMAIN,
        "name": "Alice's </script><script>alert(1)</script> Agent",
        "publicKey": {
            "algorithm": "ed25519",
            "fingerprint": "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw",
            "full": (
                "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
                "-----END PUBLIC KEY-----\n"
            ),
        },
    },
    "endpoints": {
        "wellKnown": f"https://{DOMAIN}/.well-known/agent.json",
        "chat": f"wss://{DOMAIN}/agent/chat",
    },
    "capabilities": [
        {"id": "chat", "name": "Chat & more", "description": "Talks about <b>weather</b>\u2028and tides."},
        {"id": "tides", "name": "Tides", "input": ["text"], "output": ["text"]},
    ],
    "com.example.extra": [1, 2.5, None, {"deep": "<!--"}],
}


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.found: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.data: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), tuple(name for name, _ in self.open)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][1].get("type") == "application/ld+json":
            self.data.setdefault("json", data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], tuple[str, ...]]]:
        return [(attrs, inside) for name, attrs, inside in self.found if name == tag]

    def meta(self, name: str) -> str | None:
        return next((attrs.get("content") for attrs, _ in self.of("meta") if attrs.get("name") == name), None)


def outline(answer: httpx2.Response) -> Outline:
    read = Outline()
    read.feed(answer.text)
    return read


async def hosted(bench: Bench, path: str = "/") -> httpx2.Response:
    await bench.admin().post("/api/v1/agents", json=DOCUMENT)
    return await bench.anonymous().get(path, headers={"Host": DOMAIN})


HOSTS = pytest.mark.parametrize("host", [DOMAIN, None])


async def both(bench: Bench, host: str | None) -> tuple[httpx2.Response, dict[str, Any]]:
    """The page and the document of a hosted domain, or of the service itself."""
    await bench.admin().post("/api/v1/agents", json=DOCUMENT)
    headers = {"Host": host} if host else {}
    client = bench.anonymous()
    return await client.get("/", headers=headers), (await client.get("/.well-known/agent.json", headers=headers)).json()


@HOSTS
@pytest.mark.req("ADP-32")
async def test_the_domain_answers_with_a_page(tmp_path: Path, host: str | None) -> None:
    async with service(tmp_path) as bench:
        page, document = await both(bench, host)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    if host:
        assert "Alice&#39;s &lt;/script&gt;" in page.text
        assert document == DOCUMENT


@HOSTS
@pytest.mark.req("ADP-33")
async def test_the_page_contains_the_whole_document(tmp_path: Path, host: str | None) -> None:
    async with service(tmp_path) as bench:
        page, document = await both(bench, host)
    linked = json.loads(outline(page).data["json"])
    assert (linked.pop("@context"), linked.pop("@type")) == ("https://schema.org", "SoftwareApplication")
    assert {name: linked[name] for name in document} == document
    # What search engines read: properties of schema.org, beside the members of ADP.
    assert (linked["name"], linked["identifier"]) == (document["identity"]["name"], document["identity"]["id"])
    assert linked["applicationCategory"] == "AI agent"
    assert len(linked["featureList"]) == len(document["capabilities"])
    known = {"name", "identifier", "url", "description", "applicationCategory", "featureList"}
    assert set(linked) - set(document) <= known | {"softwareVersion", "dateModified"}


@pytest.mark.req("ADP-33")
async def test_no_text_of_the_document_ends_the_block_that_it_is_in(tmp_path: Path) -> None:
    """P-1."""
    async with service(tmp_path) as bench:
        page = await hosted(bench)
    block = page.text.split('<script type="application/ld+json">', 1)[1].split("</script>", 1)[0]
    assert json.loads(block)["identity"]["name"] == DOCUMENT["identity"]["name"]
    assert not set(block) & set("<>&\u2028\u2029")
    assert page.text.count("<script") == 1


@HOSTS
@pytest.mark.req("ADP-34")
async def test_meta_tags_name_the_agent_and_the_protocol(tmp_path: Path, host: str | None) -> None:
    async with service(tmp_path) as bench:
        page, document = await both(bench, host)
    read = outline(page)
    assert read.meta("agent-id") == document["identity"]["id"]
    assert read.meta("agent-protocol") == "ADP/1.1"
    assert read.meta("agent-fingerprint") == document["identity"]["publicKey"]["fingerprint"]


@HOSTS
@pytest.mark.req("ADP-35")
async def test_the_elements_of_the_page_carry_their_roles(tmp_path: Path, host: str | None) -> None:
    async with service(tmp_path) as bench:
        page, document = await both(bench, host)
    read = outline(page)
    assert len(read.of("agent-card")) == 1
    shown = [
        attrs["name"]
        for attrs, inside in read.of("capability")
        if inside[-2:] == ("capability-list",) or "capability-list" in inside
    ]
    assert shown == [each["name"] for each in document["capabilities"]]
    assert {attrs["status"] for attrs, _ in read.of("capability")} == {"active"}
    ((form, inside),) = read.of("connect-form")
    assert form["action"] == "/agent/connect"
    assert "agent-card" in inside
    ((field, around),) = [(attrs, inside) for attrs, inside in read.of("input") if attrs.get("name") == "from"]
    assert "connect-form" in around
    assert field["type"] == "text"
    assert any("connect-form" in inside for _, inside in read.of("button"))


@pytest.mark.req("ADP-35")
async def test_a_connect_request_returns_the_endpoint_and_calls_no_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await hosted(bench)
        client = bench.anonymous()
        told = await client.post("/agent/connect", data={"from": "agent:bob.example.org"}, headers={"Host": DOMAIN})
        assert told.status_code == 200
        assert f"wss://{DOMAIN}/agent/chat" in told.text
        assert "agent:bob.example.org" in told.text
        asked = {"Host": DOMAIN, "Accept": "application/json"}
        answer = (await client.post("/agent/connect", data={"from": "bob.example.org"}, headers=asked)).json()
        assert (answer["from"], answer["to"]) == ("agent:bob.example.org", f"agent:{DOMAIN}")
        assert answer["endpoints"] == DOCUMENT["endpoints"]
        for wrong in ("", "http://169.254.169.254/", "agent:a b", "<script>"):
            refused = await client.post("/agent/connect", data={"from": wrong}, headers={"Host": DOMAIN})
            assert refused.status_code == 400, wrong
            assert "<script>" not in refused.text
