"""Page sessions: the scope of the cookie, its end, and protection against other sites."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.app import sign_in_link
from waypost.net.clock import ManualClock

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def visitor(bench: Bench) -> httpx2.AsyncClient:
    """A browser: it keeps cookies."""
    return bench.anonymous()


def new_link(bench: Bench, clock: ManualClock | None = None) -> str:
    return str(sign_in_link(bench.application.settings, "", clock=clock or bench.clock))


async def signed_in(bench: Bench, token: str | None = None) -> httpx2.AsyncClient:
    client = visitor(bench)
    answer = await client.post("/sign-in", data={"token": token or bench.admin_token})
    assert answer.status_code == 303
    return client


def form_token(page: str) -> str:
    return page.split('name="form" value="', 1)[1].split('"', 1)[0]


async def form_of(client: httpx2.AsyncClient) -> str:
    return form_token((await client.get("/register")).text)


async def test_the_cookie_is_for_pages_of_this_host_and_for_no_script(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        answer = await visitor(bench).post("/sign-in", data={"token": bench.admin_token})
    cookie = answer.headers["set-cookie"]
    assert answer.headers["location"] == "/"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert cookie.startswith(f"waypost-{urlsplit(bench.application.base_url).port}=")
    assert bench.admin_token not in cookie


async def test_with_https_the_cookie_is_secure_and_host_bound(tmp_path: Path) -> None:
    async with service(tmp_path, base_url="https://agents.example.net") as bench:
        answer = await visitor(bench).post("/sign-in", data={"token": bench.admin_token})
    assert answer.headers["set-cookie"].startswith("__Host-waypost-443=")
    assert "; Secure" in answer.headers["set-cookie"]


async def test_a_link_signs_in_once_and_not_for_long(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        link = new_link(bench)
        first, second = visitor(bench), visitor(bench)
        answer = await first.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert answer.headers["cache-control"] == "no-store"
        assert "Sign out" in (await first.get("/")).text
        assert (await second.get(link)).status_code == 401
        late = new_link(bench)
        bench.clock.advance(limits.SIGN_IN_CODE_SECONDS)
        assert (await second.get(late)).status_code == 401
        assert (await second.get("/?token=nonsense")).status_code == 401


@pytest.mark.own_store  # a link is valid on every node of a cluster, also on one that starts later
async def test_a_link_from_before_the_start_is_not_taken(tmp_path: Path) -> None:
    """Redeemed codes are not remembered."""
    async with service(tmp_path) as bench:
        older = new_link(bench, ManualClock(bench.clock.now() - 60))
        assert (await visitor(bench).get(older)).status_code == 401


async def test_neither_cookie_nor_code_is_a_credential_of_the_api(tmp_path: Path) -> None:
    """J14, and the cookie never weakens the API."""
    async with service(tmp_path) as bench:
        client = await signed_in(bench)
        (value,) = client.cookies.values()
        for path in ("/api/v1/agents", "/api/v1/watch", "/profile/v1/agents", "/metrics", "/docs"):
            assert (await client.get(path)).status_code == 401, path
        assert (await client.post("/api/v1/agents", json=profile())).status_code == 401
        code = new_link(bench).split("=", 1)[1]
        for secret in (value, code):
            assert (await bench.client(secret).get("/api/v1/agents")).status_code == 401


async def test_a_session_ends_by_signing_out_by_time_and_with_its_token(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        left = visitor(bench)
        await left.get(new_link(bench))
        kept = dict(left.cookies)
        answer = await left.post("/sign-out", data={"form": form_token((await left.get("/")).text)})
        assert "Max-Age=0" in answer.headers["set-cookie"]
        stolen = visitor(bench)
        stolen.cookies.update(kept)
        assert "Sign in" in (await stolen.get("/")).text, "a cookie that was copied before is good for nothing"
        brief = await signed_in(bench, bench.token("alice", "discover:read", ttl_seconds=60))
        assert "alice" in (await brief.get("/")).text
        bench.clock.advance(61)
        assert "alice" not in (await brief.get("/")).text
        admin = await signed_in(bench)
        bench.clock.advance(limits.PAGE_SESSION_SECONDS)
        assert "Sign out" not in (await admin.get("/")).text


async def test_an_invalid_token_does_not_sign_in(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for token in ("", "nonsense", "x" * 5000):
            answer = await visitor(bench).post("/sign-in", data={"token": token})
            assert answer.status_code in (401, 413)
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/register", "/register"),
        ("/a/urn%3Ax", "/a/urn%3Ax"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/register\r\nSet-Cookie: x=1", "/"),
        ("/sign-out", "/"),
    ],
)
async def test_after_signing_in_one_stays_here(tmp_path: Path, wanted: str, place: str) -> None:
    async with service(tmp_path) as bench:
        answer = await visitor(bench).post("/sign-in", data={"token": bench.admin_token, "next": wanted})
        assert answer.headers["location"] == place
        shown = await visitor(bench).get("/sign-in", params={"next": wanted.partition("\r")[0]})
        assert 'name="next" value="/' in shown.text
        assert "evil" not in shown.text


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("is_open", [False, True])
async def test_no_page_of_another_site_writes_with_the_session(
    tmp_path: Path, headers: dict[str, str], is_open: bool
) -> None:
    async with service(tmp_path, open=is_open) as bench:
        client = visitor(bench) if is_open else await signed_in(bench)
        fields = {"form": await form_of(client), "document": "{}", "do": "look"}
        assert (await client.post("/register", data=fields)).status_code != 403
        assert (await client.post("/register", data=fields, headers=headers)).status_code == 403
        assert (await client.post("/sign-out", data=fields, headers=headers)).status_code == 403
        assert (await client.post("/sign-in", data={"token": bench.admin_token}, headers=headers)).status_code == 403


async def test_a_form_of_another_session_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = [await signed_in(bench, bench.token(name)) for name in ("alice", "bob")]
        fields = {"document": "{}", "do": "look"}
        for wrong in ("", "x", await form_of(bob)):
            assert (await alice.post("/register", data={**fields, "form": wrong})).status_code == 403
        answer = await alice.post("/register", json={**fields, "form": await form_of(alice)})
        assert answer.status_code == 400, "a form, and nothing that a script of another site could send as easily"


async def test_a_caller_without_write_scope_registers_nothing(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        reader = await signed_in(bench, bench.token("bob", "discover:read"))
        assert "needs a token" in (await reader.get("/register")).text
        form = form_token((await reader.get("/")).text)
        answer = await reader.post("/register", data={"form": form, "document": "{}", "do": "look"})
        assert answer.status_code == 403
        assert (await visitor(bench).post("/register", data={"document": "{}"})).status_code == 403


async def test_pages_of_signed_in_users_are_not_cached_for_others(tmp_path: Path) -> None:
    """H9, P8."""
    async with service(tmp_path) as bench:
        hidden = profile("hidden", name="Hidden Falcon", tags=["falcon"])
        await bench.as_("alice").post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "private"})
        alice, bob = [await signed_in(bench, bench.token(name)) for name in ("alice", "bob")]
        for path in ("/", "/?q=falcon", "/?tag=falcon", "/changes"):
            seen, unseen = await alice.get(path), await bob.get(path)
            assert "Hidden Falcon" in seen.text, path
            assert "Hidden Falcon" not in unseen.text, path
            assert "Hidden Falcon" not in (await visitor(bench).get(path)).text, path
            assert seen.headers["cache-control"] == "private, no-cache"
            assert "Cookie" in seen.headers["vary"]
            assert seen.headers["etag"] != unseen.headers["etag"]
            assert (await alice.get(path, headers={"If-None-Match": seen.headers["etag"]})).status_code == 304
        assert (await alice.get("/a/hidden")).status_code == 200
        same_id = {"X-Request-Id": "r"}
        missing = (await bob.get("/a/absent", headers=same_id)).text.replace("absent", "hidden")
        assert (await bob.get("/a/hidden", headers=same_id)).text == missing, "hidden and absent look alike"


async def test_history_and_changes_are_for_readers(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for name in ("Seen before", "Seen"):
            await bench.admin().post("/api/v1/agents", json=profile("seen", name=name))
        stranger, reader = visitor(bench), await signed_in(bench, bench.token("bob", "discover:read"))
        assert "Seen" in (await stranger.get("/a/seen")).text
        for path in ("/changes", "/a/seen", "/"):
            told = (await stranger.get(path)).text
            assert 'id="history"' not in told
            assert 'class="feed"' not in told
        assert (await stranger.get("/changes/stream")).status_code == 401
        assert (await stranger.get("/reference")).status_code == 401
        assert 'id="history"' in (await reader.get("/a/seen")).text
        assert 'class="feed"' in (await reader.get("/changes")).text
        assert "/profile/v1/discover" in (await reader.get("/reference")).text


async def test_a_bearer_token_changes_nothing_on_the_pages(tmp_path: Path) -> None:
    """SURFACE: the open paths show public agents only."""
    async with service(tmp_path) as bench:
        await bench.admin().post(
            "/api/v1/agents", json=profile("in", name="Inner"), headers={"Waypost-Visibility": "internal"}
        )
        assert (await bench.admin().get("/")).text == (await visitor(bench).get("/")).text
        assert (await bench.admin().get("/a/in")).status_code == 404
        for path in ("/peers", "/reference", "/changes/stream"):
            assert (await bench.admin().get(path)).status_code == 401, path


async def test_under_the_domain_of_an_agent_there_is_nothing_of_the_service(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a", name="Alice"))
        await bench.admin().post("/api/v1/agents/a:host", json={"domain": "alice.example.com"})
        there = {"Host": "alice.example.com"}
        client = await signed_in(bench)
        for path in ("/register", "/changes", "/sign-in", "/a/a"):
            assert (await client.get(path, headers=there)).status_code == 404, path
        landing = (await client.get("/", headers=there)).text
        assert landing == (await visitor(bench).get("/", headers=there)).text
        assert "Sign in" not in landing
        assert "Sign out" not in landing
