"""The pages in Chromium: search, open, copy, sign in, register, watch; on a phone, in dark mode and without script."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from support.browser import IMAGES, PATIENCE_MS, PHONE, Window, chromium, window
from support.server import RunningServer, running_server
from support.vectors import load_own_vectors, naughty_strings
from waypost.model.names import slug
from waypost.server.web.templating import since_element

BREAKOUT: list[str] = load_own_vectors("html_breakout")["strings"]
TRANSLATOR = "https://agents.example.com/id/invoice-translator"
CARD: dict[str, Any] = {
    "name": "Art Museum Guide",
    "description": "Leads visitors through a museum and answers questions about what they see.",
    "version": "1.2.0",
    "supportedInterfaces": [
        {"url": "https://guide.example.org/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "tour",
            "name": "Tour",
            "description": "Plans a tour of an hour.",
            "tags": ["museum", "tour"],
            "examples": ["Show me the best of Dutch painting in an hour."],
        }
    ],
}

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory", "--samples", "--anonymous-read") as running:
        yield running


@pytest.fixture(scope="module")
def link(server: RunningServer) -> str:
    """The address that `serve` prints after the ready line."""
    assert server.process.stdout is not None
    return server.process.stdout.readline().split()[-1]


@pytest.fixture
def reader(browser: Browser, server: RunningServer) -> Iterator[Window]:
    with window(browser, server.url) as opened:
        yield opened
        assert opened.complaints == []


def sign_in(opened: Window, server: RunningServer) -> None:
    page = opened.open("/sign-in")
    page.get_by_label("Token").fill(server.admin_token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who")).to_contain_text("admin")


def names(page: Page) -> list[str]:
    return page.locator("#found .agent h3").all_text_contents()


# --- Reading --------------------------------------------------------------------------------------


def test_results_appear_while_typing_with_their_evidence(reader: Window) -> None:
    page = reader.open("/")
    page.keyboard.press("/")
    page.keyboard.type("translate documents", delay=5)
    first = page.locator("#found .hit").first
    expect(first.locator("h3")).to_have_text("Invoice Translator")
    expect(page.locator("#search-status")).to_contain_text("found")
    expect(page).to_have_url(re.compile(r"q=translate\+documents"))
    expect(first.locator(".bars meter")).not_to_have_count(0)
    first.get_by_text("Why").click()
    expect(first.locator("blockquote").first).to_be_visible()
    expect(first.locator(".card-foot")).to_contain_text("self-asserted")
    page.reload()
    expect(page.locator("#found .hit h3").first).to_have_text("Invoice Translator")


def test_filters_narrow_and_count_and_the_back_button_undoes_them(reader: Window) -> None:
    page = reader.open("/")
    everything = names(page)
    option = page.locator(".filters a", has_text="finance").first
    count = int(option.locator(".count").inner_text())
    option.click()
    expect(page.locator(".result-count")).to_have_text(f"{count} agents" if count != 1 else "1 agent")
    expect(page.locator(".filters a.on")).to_contain_text("finance")
    assert "tag=finance" in page.url
    page.locator("#q").fill("invoice")
    expect(page.locator("#found .hit h3").first).to_have_text("Invoice Translator")
    assert "tag=finance" in page.url, "words are asked for among what is filtered"
    page.go_back()
    expect(page.locator(".filters a.on")).to_have_count(0)
    expect(page.locator("#found .agent h3")).to_have_text(everything)


def test_an_empty_page_shows_the_reason_and_alternatives(reader: Window) -> None:
    page = reader.open("/?q=xylophon+zeppelin")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    page = reader.open("/?q=xylophon+transaltion")
    expect(page.locator(".remark").first).to_contain_text("was searched for instead")
    page.locator("#q").fill("")
    page = reader.open("/?tag=finanse")
    expect(page.get_by_role("heading", name="No agent matches these filters")).to_be_visible()
    expect(page.locator(".state")).to_contain_text("Did you mean finance")


def test_an_agent_has_a_sheet_and_its_snippets_can_be_copied(reader: Window, server: RunningServer) -> None:
    reader.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page = reader.open("/?q=invoice")
    page.get_by_role("link", name="Invoice Translator").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoice Translator")
    assert urlsplit(page.url).path == f"/a/{slug(TRANSLATOR)}"
    page.get_by_text("Waypost", exact=True).last.click()
    block = page.locator(".pane .code-block", has_text="from waypost import SyncClient")
    page.evaluate("window.setTimeout = () => 0")  # keep the short-lived text, so that a slow test still sees it
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == block.locator("pre").inner_text().strip()
    compile(copied, "snippet", "exec")
    page.get_by_role("link", name="a2a", exact=True).click()
    expect(page.locator("#record pre")).to_contain_text("supportedInterfaces")


def test_a_remote_mcp_server_has_links_that_add_it_to_three_hosts(reader: Window, server: RunningServer) -> None:
    agent = "org.example.maps/wayfinder"
    page = reader.open(f"/a/{slug(agent)}")
    links = page.locator(".pane:visible .deep-links a")
    expect(links).to_have_text(["Add to Claude", "Add to Cursor", "Add to VS Code"])
    filled = parse_qs(urlsplit(links.first.get_attribute("href") or "").query)
    record = httpx2.get(f"{server.url}/api/v1/agents/{slug(agent)}", timeout=60).json()
    assert filled["connectorName"] == [record["name"]]
    assert filled["connectorUrl"] == [record["bindings"][0]["endpoint"]]
    page.locator(".tabs label", has_text="npx").click()
    expect(links).to_have_text(["Add to Cursor", "Add to VS Code"])


def test_the_page_says_for_how_long_something_has_lasted(reader: Window) -> None:
    """The element that health has, as the template makes it, in a page of the service."""
    began = f'</h1><p id="lasting">healthy {since_element(time.time() - 7300)}</p>'

    def with_health(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=response.text().replace("</h1>", began, 1))

    reader.page.route("**/a/**", with_health)
    page = reader.open(f"/a/{quote(TRANSLATOR, safe='')}")
    expect(page.locator("#lasting")).to_have_text("healthy for 2 hours")
    expect(page.locator("#lasting time")).to_have_attribute("title", re.compile("^since .* UTC$"))


def test_everything_can_be_read_without_a_script(browser: Browser, server: RunningServer) -> None:
    with window(browser, server.url, java_script_enabled=False) as opened:
        page = opened.open("/")
        expect(page.locator(".feed li").first).to_be_visible()
        page.locator("#q").fill("translate an invoice")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#found .hit h3").first).to_have_text("Invoice Translator")
        expect(page.locator(".feed")).to_be_hidden()  # the results of a search stand alone
        page.locator("#found .hit .reasons summary").first.click()
        expect(page.locator("#found .hit blockquote").first).to_be_visible()
        page.locator("#found .hit h3 a").first.click()
        expect(page.locator(".copy").first).to_be_hidden()
        page.get_by_text("Waypost", exact=True).last.click()
        expect(page.get_by_text("from waypost import SyncClient")).to_be_visible()
        page.get_by_role("link", name="rtfs", exact=True).click()
        expect(page.locator("#record")).to_contain_text("agent_id")


def test_the_page_is_used_by_keyboard(reader: Window) -> None:
    page = reader.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#q")).to_be_focused()
    page.locator(".filters a", has_text="finance").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".filters a.on")).to_be_focused()


# Every page, with the name of its picture in the documents.
PAGES = {
    "/": "catalog",
    "/?q=translate+documents": "search",
    "/?q=xylophone+zeppelin": "",
    "/?tag=finanse": "",
    f"/a/{slug(TRANSLATOR)}": "agent",
    f"/a/{slug('org.example.maps/wayfinder')}": "use",
    "/changes": "",
    "/stats": "stats",
    "/register": "",
    "/peers": "",
    "/reference": "reference",
    "/sign-in": "",
    "/a/none": "",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": PHONE, "is_mobile": True, "has_touch": True},
}
# Buttons to copy that are on top of the first line of their code.
COVERED_CODE = """[...document.querySelectorAll(".code-block")].filter(block => {
    const button = block.querySelector(".copy").getBoundingClientRect();
    const line = block.querySelector("code").getClientRects()[0];
    return button.height && line && button.bottom > line.top + 1 && button.left < line.right;
}).map(block => block.innerText.slice(0, 60))"""
PICTURES = ("catalog", "search", "agent", "register", "phone", "dark", "use", "stats", "reference")


@pytest.fixture(scope="module", params=LOOKS)
def look(request: pytest.FixtureRequest, browser: Browser, server: RunningServer) -> Iterator[tuple[str, Window]]:
    """A window of each look, signed in as an admin, who sees every page."""
    with window(browser, server.url, **LOOKS[request.param]) as opened:
        sign_in(opened, server)
        yield request.param, opened


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_accessible_in_every_look_and_makes_no_error(look: tuple[str, Window], path: str) -> None:
    name, opened = look
    opened.complaints.clear()
    page = opened.open(path)
    for details in page.locator("#found details.reasons").all()[:1]:
        details.locator("summary").click()
    opened.picture(picture_of(path, name))
    found = Axe().run(page).response["violations"]
    serious = [
        f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("window.innerWidth")
    lines = page.locator("td .state-word").evaluate_all("words => words.map(word => word.getClientRects().length)")
    assert set(lines) <= {1}, "a word is broken"
    if name == "phone":
        assert page.evaluate(COVERED_CODE) == [], "a button covers code"
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, shade[4:-1].split(","))) < 150) == (name == "dark")
    assert [each for each in opened.complaints if "404" not in each or path != "/a/none"] == []


def picture_of(path: str, look: str) -> str:
    """Light pictures of most pages, and one each of the search in the dark and on a phone."""
    if look == "light":
        return PAGES[path]
    return look if path.startswith("/?q=translate") else ""


def test_nothing_is_loaded_from_elsewhere(browser: Browser, server: RunningServer) -> None:
    with window(browser, server.url) as opened:
        asked: list[str] = []
        opened.page.on("request", lambda request: asked.append(request.url))
        for path in PAGES:
            opened.open(path)
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(server.url).netloc}


def test_an_operation_of_the_reference_can_be_tried(reader: Window) -> None:
    page = reader.open("/reference")
    page.locator("#post_profile_v1_discover .trial summary").click()
    form = page.locator("#post_profile_v1_discover form.try-it")
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".outcome")).to_contain_text("200 OK")
    expect(form.locator(".outcome")).to_contain_text("invoice-translator")


def test_a_dropped_file_and_an_example_fill_the_form(browser: Browser, server: RunningServer) -> None:
    with window(browser, server.url) as opened:
        sign_in(opened, server)
        page = opened.open("/register")
        page.get_by_role("button", name="MCP server.json").click()
        area = page.get_by_label("A document, in any format")
        expect(area).to_have_value(re.compile("Tide Tables"))
        transfer = page.evaluate_handle(
            """text => {
                const data = new DataTransfer();
                data.items.add(new File([text], "card.json", {type: "application/json"}));
                return data;
            }""",
            json.dumps(CARD),
        )
        page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})
        expect(area).to_have_value(re.compile("Art Museum Guide"))
        page.get_by_role("button", name="Preview").click()
        expect(page.locator(".preview").get_by_role("heading", name="Art Museum Guide")).to_be_visible()
        assert opened.complaints == []


def test_agents_are_sorted_by_name_by_change_and_verified_first(reader: Window) -> None:
    page = reader.open("/")
    by_name = names(page)
    assert by_name == sorted(by_name, key=str.casefold)
    page.get_by_role("link", name="New", exact=True).click()
    expect(page.locator(".sorts [aria-current]")).to_have_text("New")
    assert names(page) != by_name
    page.get_by_role("link", name="Verified first").click()
    expect(page).to_have_url(re.compile("sort=verified"))
    page.get_by_role("link", name="Name", exact=True).click()
    expect(page.locator("#found .agent h3")).to_have_text(by_name)


# --- Signing in and writing -----------------------------------------------------------------------


def test_the_printed_link_signs_in_once_and_a_pasted_card_appears_in_another_window(
    browser: Browser, server: RunningServer, link: str, reader: Window
) -> None:
    elsewhere = reader.open("/")
    with window(browser, server.url) as opened:
        page = opened.open(link.removeprefix(server.url))
        assert urlsplit(page.url).query == "", "the address in the bar tells nothing"
        expect(page.locator(".who")).to_contain_text("admin")
        assert page.evaluate("document.cookie") == "", "no script sees the session"
        page.get_by_role("link", name="Register").click()
        page.get_by_label("A document, in any format").fill(json.dumps(CARD, indent=2))
        page.get_by_role("button", name="Preview").click()
        preview = page.locator(".preview")
        expect(preview.get_by_role("heading", name="Art Museum Guide")).to_be_visible()
        expect(preview.locator(".format")).to_have_text("recognised as a2a")
        expect(preview).to_contain_text("the card is not signed")
        opened.picture("register")
        assert httpx2.get(f"{server.url}/api/v1/agents", params={"tag": "museum"}, timeout=60).json()["agents"] == []
        preview.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").first).to_have_text("Registered.")
        expect(elsewhere.locator(".feed li").first).to_contain_text("Art Museum Guide")
        expect(elsewhere.locator("#found .agent h3", has_text="Art Museum Guide")).to_be_visible()
        kept = httpx2.get(f"{server.url}/api/v1/agents", params={"tag": "museum", "as": "a2a"}, timeout=60).json()[
            "agents"
        ]
        assert kept == [CARD]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()
        assert opened.complaints == []
    with window(browser, server.url) as late:
        page = late.open(link.removeprefix(server.url))
        expect(page.locator(".state")).to_contain_text("already used")
        sign_in(late, server)
        page = late.open(link.removeprefix(server.url))
        expect(page.locator(".state")).to_contain_text("this browser is signed in")


def test_an_invalid_document_is_reported_beside_the_form(browser: Browser, server: RunningServer) -> None:
    with window(browser, server.url) as opened:
        sign_in(opened, server)
        page = opened.open("/register")
        page.get_by_label("A document, in any format").fill('{"name": "half a card"')
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("A document, in any format")).to_have_value('{"name": "half a card"')
        page.get_by_label("A document, in any format").fill("")
        page.get_by_label("The address of a document").fill("http://127.0.0.1:8440/agent.json")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_contain_text("allow_cidrs")


def test_the_page_of_a_domain_is_for_people_and_for_programs(browser: Browser, server: RunningServer) -> None:
    domain = "tides.localhost"  # a browser takes every such name for this machine
    document = {
        "protocol": "ADP/1.1",
        "identity": {"id": f"agent:{domain}", "domain": domain, "name": "Keeper of Tides"},
        "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json", "chat": f"wss://{domain}/agent/chat"},
        "capabilities": [{"id": "tides", "name": "Tide tables", "description": "High and low water."}],
    }
    document["identity"]["publicKey"] = {  # type: ignore[index]
        "algorithm": "ed25519",
        "fingerprint": "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw",
    }
    httpx2.post(f"{server.url}/api/v1/agents", json=document, headers=server.headers, timeout=60).raise_for_status()
    with window(browser, f"http://{domain}:{urlsplit(server.url).port}") as opened:
        page = opened.open("/")
        expect(page.locator("agent-card h1")).to_have_text("Keeper of Tides")
        linked = json.loads(page.locator("script[type='application/ld+json']").text_content() or "")
        assert {**document, **linked} == linked
        assert [each for each in Axe().run(page).response["violations"] if each["impact"] != "minor"] == []
        page.locator("connect-form input[name=from]").fill("agent:bob.example.org")
        page.locator("connect-form button").click()
        expect(page.get_by_role("heading", name="How to connect")).to_be_visible()
        expect(page.locator("main")).to_contain_text(f"wss://{domain}/agent/chat")
        assert opened.complaints == []


# --- Hostile text ---------------------------------------------------------------------------------


def hostile_strings(source: str) -> list[str]:
    if source == "breakout":
        return BREAKOUT
    naughty = naughty_strings()
    return ["\n".join(naughty[start : start + 5]) for start in range(0, len(naughty), 5)]


def hostile_lines(source: str) -> list[dict[str, Any]]:
    """Agents that carry a hostile string in every text field."""
    return [
        {
            "id": f"urn:hostile:{source}:{number}",
            "name": text[:120].replace("\n", " ") or "empty",
            "description": text or "empty",
            "tags": ["hostile", text[:60].replace("\n", " ").strip() or "x"],
            "examples": [{"text": text or "empty"}],
            "bindings": [{"protocol": "https", "endpoint": "javascript:alert(1)"}],
            "version": text[:40] or "1",
        }
        for number, text in enumerate(hostile_strings(source))
    ]


@pytest.mark.parametrize(("source", "least"), [("breakout", 30), ("naughty", 80)])
def test_hostile_text_stays_text(reader: Window, server: RunningServer, source: str, least: int) -> None:
    lines = "\n".join(json.dumps(line) for line in hostile_lines(source)).encode()
    answers = httpx2.post(f"{server.url}/api/v1/agents:batch", content=lines, headers=server.headers, timeout=60)
    kept = [answer["id"] for line in answers.text.splitlines() if "id" in (answer := json.loads(line))]
    assert len(kept) >= least
    paths = ["/?tag=hostile", "/?q=alert+script+img+onerror", "/changes"]
    for path in [*paths, *(f"/a/{slug(agent_id)}" for agent_id in kept[::8])]:
        page = reader.open(path)
        assert page.locator("img, iframe, object, embed, svg, base, style").count() == 0
        assert page.locator("script").count() == (2 if path.startswith("/?") else 1)
        acting = "a[href^='javascript' i], [onclick], [onerror], [onload], [onmouseover], [onfocus], [style]"
        assert page.locator(acting).count() == 0
    assert reader.complaints == []


def test_the_pictures_in_the_documents_are_there() -> None:
    """MAKE_IMAGES=1 creates them again."""
    for name in PICTURES:
        assert (IMAGES / f"{name}.png").stat().st_size > 10_000
