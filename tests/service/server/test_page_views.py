"""What the pages add to the registry: sorting, publishers and relatives, health history, previews, statistics, peers."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import msgspec
import pytest

from support.external_server import external_server
from support.service import Bench, profile, service
from support.signing import key_of
from waypost import limits
from waypost.app import sign_in_link
from waypost.federation.peers import PeerRequest
from waypost.model.health import Health
from waypost.model.verdict import CheckResult, TrustSummary
from waypost.server.auth.authenticator import ADMIN
from waypost.server.web.agent_cards import agent_path
from waypost.server.web.health_history import HealthHistory
from waypost.server.web.trust_ladder import make_trust_ladder
from waypost.trust.document_signatures import sign_profile

KEY = key_of(number=1)


def shown_names(page: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'<h3><a href="/a/[^"]*">([^<]*)</a></h3>', page)]


async def register_verified(bench: Bench, agent_id: str, name: str) -> None:
    await bench.admin().post("/api/v1/keys", json={"agent_id": agent_id, "public_key": KEY.public.pem()})
    answer = await bench.admin().post("/api/v1/agents", json=sign_profile(profile(agent_id, name=name), KEY))
    assert answer.json()["trust"]["level"] == "verified"


# --- Sorting --------------------------------------------------------------------------------------


async def test_verified_agents_come_first_and_no_page_leaves_a_gap(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number in range(limits.PAGE_AGENTS + 3):
            await bench.admin().post("/api/v1/agents", json=profile(f"urn:x:{number:02}", name=f"Agent {number:02}"))
        for name in ("Yara", "Zoe"):
            await register_verified(bench, f"urn:v:{name}", name)
        reader, path, seen = bench.anonymous(), "/?sort=verified", []
        while path:
            page = (await reader.get(path)).text
            seen += shown_names(page)
            more = re.search(r'<a href="([^"]*)" rel="next"', page)
            path = unescape(more[1]) if more else ""
        assert seen == ["Yara", "Zoe", *(f"Agent {number:02}" for number in range(limits.PAGE_AGENTS + 3))]
        assert (await reader.get("/?sort=nonsense")).status_code == 400


async def test_the_newest_agents_are_those_that_one_may_see(tmp_path: Path) -> None:
    """P8: also an agent that was hidden later."""
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for name in ("first", "second", "third"):
            bench.clock.advance(1)
            await admin.post("/api/v1/agents", json=profile(name, name=name, tags=["t"]))
        bench.clock.advance(1)
        hidden = profile("second", name="second", description="Now hidden.", tags=["t"])
        await admin.post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "private"})
        assert shown_names((await bench.anonymous().get("/?sort=new")).text) == ["third", "first"]
        assert shown_names((await bench.anonymous().get("/?sort=new&tag=none")).text) == []


async def test_the_filters_of_a_search_count_its_results(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("a", name="Tide Teller", tags=["sea", "tides"]))
        await admin.post("/api/v1/agents", json=profile("b", name="Chess Coach", tags=["games"]))
        reader = bench.anonymous()
        assert {"sea", "tides", "games"} <= set(filter_values((await reader.get("/")).text))
        found = filter_values((await reader.get("/?q=Tide+Teller")).text)
        assert {"sea", "tides"} <= set(found)
        assert "games" not in found


def filter_values(page: str) -> list[str]:
    return re.findall(r'<span class="value">([^<]*)</span>', page)


# --- One agent ------------------------------------------------------------------------------------


async def test_a_link_has_a_preview_only_if_everybody_may_read_the_page(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("open", name='Open "one"', description="Does <it>."))
        await admin.post("/api/v1/agents", json=profile("inner"), headers={"Waypost-Visibility": "internal"})
        page = (await bench.anonymous().get("/a/open")).text
        tags = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', page))
        assert unescape(tags["title"]) == 'Open "one"'
        assert unescape(tags["description"]) == "Does <it>."
        assert tags["url"] == f"{bench.application.base_url}/a/open"
        image = await bench.anonymous().get(tags["image"].removeprefix(bench.application.base_url))
        assert image.headers["content-type"] == "image/png"
        member = bench.anonymous()
        await member.post("/sign-in", data={"token": bench.token("bob")})
        assert 'property="og:' not in (await member.get("/a/inner")).text


async def test_similar_agents_are_shown_on_the_page_of_one(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for name in ("Tide Teller", "Tide Prophet"):
            document = profile(name.replace(" ", "-"), name=name, description="Tells the tides of every harbour.")
            await bench.admin().post("/api/v1/agents", json=document)
        await bench.admin().post(
            "/api/v1/agents",
            json=profile("hidden", name="Tide Secret", description="Tells the tides of every harbour."),
            headers={"Waypost-Visibility": "private"},
        )
        section = (
            (await bench.anonymous().get("/a/Tide-Teller")).text.split('id="similar"', 1)[1].split("</section>")[0]
        )
        assert "Tide Prophet" in section
        assert "Tide Teller" not in section
        assert "Tide Secret" not in section


async def test_the_health_history_has_a_line_for_each_change(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a"))
        registration = await bench.registry.get(ADMIN, "a")
        history = HealthHistory(bench.registry)
        assert history.of(registration) == []
        for state, since in (("healthy", 10.0), ("healthy", 10.0), ("suspect", 20.0), ("dead", 30.0)):
            health = Health(state, since)  # type: ignore[arg-type]
            periods = history.of(msgspec.structs.replace(registration, health=health))
        assert [(each.state, each.since, each.until) for each in periods] == [
            ("dead", 30.0, None),
            ("suspect", 20.0, 30.0),
            ("healthy", 10.0, 20.0),
        ]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, ["not_checked"] * 4),
        ({"a2a-signature": "not_checked"}, ["not_checked"] * 4),
        ({"a2a-signature": "passed", "key-pinned": "passed"}, ["passed", "passed", "not_checked", "not_checked"]),
        ({"adp-key": "passed", "adp-proof": "failed"}, ["failed", "not_checked", "not_checked", "not_checked"]),
        ({"dns-verified": "unknown", "peer-verified": "passed"}, ["not_checked", "not_checked", "unknown", "passed"]),
    ],
)
def test_a_rung_of_the_ladder_shows_its_strongest_check(states: dict[str, str], expected: list[str]) -> None:
    checks = tuple(CheckResult(check=name, state=state) for name, state in states.items())  # type: ignore[arg-type]
    ladder = make_trust_ladder(TrustSummary(level="self_asserted", checks=checks))
    assert [rung.state for rung in ladder.rungs] == expected
    assert ladder.is_bare == (set(expected) == {"not_checked"})


def test_a_check_that_belongs_to_no_rung_is_shown_too() -> None:
    checks = (CheckResult(check="of-tomorrow", state="passed"),)
    ladder = make_trust_ladder(TrustSummary(level="level-of-tomorrow", checks=checks))
    assert [each.title for each in ladder.others] == ["of-tomorrow"]
    assert (ladder.level, ladder.is_bare) == ("self_asserted", False)


# --- Statistics and peers -------------------------------------------------------------------------


async def test_statistics_count_what_one_may_see(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("a", tags=["seen"]))
        await admin.post("/api/v1/agents", json=profile("b", tags=["seen"], status="inactive"))
        await admin.post(
            "/api/v1/agents", json=profile("c", tags=["unseen"]), headers={"Waypost-Visibility": "private"}
        )
        page = (await bench.anonymous().get("/stats")).text
        assert "2 public agents." in page
        assert "leave out 1 that is suspended or inactive" in page
        assert "unseen" not in page
        assert 'href="/?tag=seen"' in page
        member = bench.anonymous()
        await member.post("/sign-in", data={"token": bench.admin_token})
        page = (await member.get("/stats")).text
        assert "unseen" in page
        assert "3 agents: 2 public, 1 private." in page


async def test_the_statistics_show_as_many_protocols_as_the_home_page_says(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:

        async def register_protocols(numbers: range) -> None:
            for number in numbers:
                binding = {"protocol": f"p{number:02}", "endpoint": "https://a.example/"}
                await bench.admin().post("/api/v1/agents", json=profile(f"urn:x:{number:02}", bindings=[binding]))

        await register_protocols(range(15))
        reader = bench.anonymous()
        assert "<b>15</b> protocols" in (await reader.get("/")).text
        assert len(re.findall(r'href="/\?protocol=p\d\d"', (await reader.get("/stats")).text)) == 15
        await register_protocols(range(15, limits.FACET_VALUES + 5))
        assert f"<b>{limits.FACET_VALUES}+</b> protocols" in (await reader.get("/")).text


async def test_the_page_of_peers_is_for_admins_and_shows_their_state(tmp_path: Path) -> None:
    async with external_server() as site, service(tmp_path, allow_cidrs=("127.0.0.1/32",)) as bench:
        site.json("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": []})
        url = f"http://127.0.0.1:{site.port}"
        await bench.application.peers.add(ADMIN, PeerRequest(url=url, name="other", kind="catalog", pull=False))
        member, admin = bench.anonymous(), bench.anonymous()
        await member.post("/sign-in", data={"token": bench.token("bob")})
        await admin.post("/sign-in", data={"token": bench.admin_token})
        assert (await bench.anonymous().get("/peers")).status_code == 401
        refused = await member.get("/peers")
        assert refused.status_code == 403
        assert url not in refused.text
        assert 'href="/peers"' not in (await member.get("/")).text
        page = await admin.get("/peers")
        assert page.headers["cache-control"] == "no-store"
        assert url in page.text
        assert '<span class="state-word' in page.text


# --- Signing in -----------------------------------------------------------------------------------


async def test_a_used_link_says_that_this_browser_is_signed_in(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        link = str(sign_in_link(bench.application.settings, "", clock=bench.clock))
        browser = bench.anonymous()
        assert (await browser.get(link)).status_code == 303
        again = await browser.get(link)
        assert again.status_code == 200
        assert "this browser is signed in" in again.text
        assert (await bench.anonymous().get(link)).status_code == 401


# --- Errors and the reference ---------------------------------------------------------------------


async def test_the_page_of_an_unknown_agent_links_to_those_with_similar_names(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("urn:x:translator", name="Translator"))
        answer = await bench.anonymous().get("/a/translater", headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert f'<a href="{agent_path("urn:x:translator")}">urn:x:translator</a>' in answer.text
        answer = await bench.anonymous().get("/a/quuxly", headers={"Accept": "text/html"})
        assert "Did you mean" not in answer.text
        assert "waypost list" not in answer.text, "a hint for the terminal"


async def test_every_parameter_of_the_api_is_described(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        described = (await bench.admin().get("/openapi.json")).json()
        page = (await bench.anonymous().get("/reference")).text
    missing = {
        (method, path, parameter["name"])
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        for parameter in operation["parameters"]
        if not parameter["description"]
    }
    assert missing == set()
    assert "<code>next_cursor</code> of the page before" in page


async def test_the_first_page_offers_requests_in_its_own_language_to_try(tmp_path: Path) -> None:
    texts = [
        {"text": "Übersetze die Rechnung.", "language": "de"},
        {"text": "repair a CSV file."},
        {"text": "Why did it rain?", "language": "en-GB"},
    ]
    async with service(tmp_path, anonymous_read=True) as bench:
        for number, example in enumerate(texts):
            await bench.admin().post("/api/v1/agents", json=profile(f"urn:x:{number}", examples=[example]))
        page = (await bench.anonymous().get("/")).text
    offered = re.findall(r'<a class="chip" href="[^"]*">([^<]*)</a>', page)
    assert offered == ["Repair a CSV file", "Why did it rain?"]


async def test_every_signal_of_a_result_says_what_it_means(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        document = profile(
            "urn:x:a", name="Invoice Translator", tags=["finance"], examples=[{"text": "Translate a bill"}]
        )
        await bench.admin().post("/api/v1/agents", json=document)
        page = (await bench.anonymous().get("/", params={"q": "translate an invoice", "tag": "finance"})).text
    rows = re.findall(r'<dt>(\w+)</dt>.*?<dd class="number">(-?[\d.]+)</dd><dd class="means soft">([^<]*)</dd>', page)
    assert {"words", "coverage", "name"} <= {name for name, _, _ in rows}
    assert [name for name, _, meaning in rows if not meaning] == []
    shares = [float(share) for _, share, _ in rows]
    assert shares == sorted(shares, reverse=True)
