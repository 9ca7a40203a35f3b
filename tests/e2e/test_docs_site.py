"""`scripts/docs` builds the documentation as static pages that load nothing from another host."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.browser import PATIENCE_MS, chromium

ROOT = Path(__file__).resolve().parents[2]
RESOURCE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["'](?P<target>[^"']+)""")
STYLE_URL = re.compile(r"""url\(["']?(?P<target>[^"')]+)|@import\s+["'](?P<other>[^"']+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([ROOT / "scripts" / "docs", folder], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == f"{folder}/index.html"
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    missing = [page for page in pages if page.name != "README.html" and not (site / page).is_file()]
    assert missing == []
    assert "Waypost" in (site / "index.html").read_text(encoding="utf-8")


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        targets = [found["target"] for found in RESOURCE.finditer(text)]
        assert [target for target in targets if re.match(r"(?:https?:)?//", target)] == [], page
    for sheet in site.rglob("*.css"):
        found = STYLE_URL.finditer(sheet.read_text(encoding="utf-8", errors="replace"))
        targets = [each["target"] or each["other"] for each in found]
        assert [target for target in targets if re.match(r"(?:https?:)?//", target)] == [], sheet


def test_the_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"tutorial/first-agent.html", "how-to/call-what-you-found.html", "reference/settings.html"} <= places
    assert any("standing quer" in entry["text"].lower() for entry in index["docs"])


def test_the_search_works_in_pages_opened_from_a_folder(site: Path) -> None:
    errors: list[str] = []
    with chromium() as browser:
        page = browser.new_page(color_scheme="dark")
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "tutorial" / "first-agent.html").as_uri())
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")
        page.locator('[data-bs-target="#mkdocs_search_modal"]').first.click()
        # Typed at once, before the index is ready; the last word is not finished.
        page.locator("#mkdocs-search-query").fill("waypost ren")
        first = page.locator("#mkdocs-search-results h3 a").first
        expect(first).to_have_text("waypost renew", timeout=PATIENCE_MS)
        first.click()
        expect(page).to_have_url(re.compile(r"/reference/commands\.html#waypost-renew$"))
    assert errors == []


def test_lists_are_lists(site: Path) -> None:
    """A list right after a paragraph is one for readers of the file only."""
    index = (site / "index.html").read_text(encoding="utf-8")
    assert '<li><a href="how-to/load-many-agents.html">' in index
    inline = [page.name for page in site.rglob("*.html") if re.search(r"<p>[^<>]+\n- ", page.read_text("utf-8"))]
    assert inline == []


def test_readers_do_not_see_the_marks_of_the_tests(site: Path) -> None:
    shown = re.sub(r"<!--.*?-->", "", (site / "tutorial" / "announce-on-the-lan.html").read_text(), flags=re.DOTALL)
    assert "test: " not in shown
