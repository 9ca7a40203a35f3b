"""The change log for watchers: ordered, unique, resumable, and without hidden agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.server_sent_events import open_stream
from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import CursorTooOld, InvalidCursor
from waypost.model.json import parse_object
from waypost.model.principal import ANONYMOUS, Principal
from waypost.registry.change_log import WatchBookmark, WatchCutOff, WatchEvent, WatchItem
from waypost.server.api.rest.changes import sse_event
from waypost.server.auth.authenticator import ADMIN
from waypost.trust.encodings import decode_base64url

ALICE = Principal(subject="alice", scopes=frozenset(("discover:read",)))
BOB = Principal(subject="bob", scopes=frozenset(("discover:read",)))


async def take(items: AsyncIterator[WatchItem], count: int) -> list[WatchEvent]:
    taken: list[WatchEvent] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            item = await anext(items)
            assert isinstance(item, WatchEvent)
            taken.append(item)
    return taken


async def nothing_more(items: AsyncIterator[WatchItem]) -> bool:
    """True when the reader has caught up and waits."""
    waiting = asyncio.ensure_future(anext(items))  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return not done


async def put(bench: Bench, name: str, subject: str = "alice", visibility: str = "public", **members: object) -> None:
    answer = await bench.as_(subject).post(
        "/api/v1/agents", json=profile(name, **members), headers={"Waypost-Visibility": visibility}
    )
    assert answer.status_code < 300, answer.text


async def test_a_watcher_sees_every_change_once_and_in_order(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        items = await bench.registry.watch(ALICE)
        await put(bench, "a")
        await put(bench, "b")
        await put(bench, "a", description="Changed.")
        await bench.as_("alice").delete("/api/v1/agents/b")
        seen = await take(items, 4)
        assert [(item.type, item.event.id) for item in seen] == [
            ("registered", "a"), ("registered", "b"), ("updated", "a"), ("withdrawn", "b"),
        ]  # fmt: skip
        assert len({item.cursor for item in seen}) == 4
        assert await nothing_more(items)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_cursor_resumes_after_the_event_it_came_with(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        for number in range(20):
            await put(bench, f"a{number}")
        whole = await take(await bench.registry.watch(ALICE, "0"), 20)
        again = await take(await bench.registry.watch(ALICE, whole[6].cursor), 13)
        assert [item.cursor for item in again] == [item.cursor for item in whole[7:]]
        assert await nothing_more(await bench.registry.watch(ALICE, whole[-1].cursor))


async def test_a_cursor_outlives_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await put(bench, "a")
        await put(bench, "b")
        first = (await take(await bench.registry.watch(ALICE, "0"), 1))[0]
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        seen = await take(await bench.registry.watch(ALICE, first.cursor), 1)
        assert seen[0].event.id == "b"
        assert (await take(await bench.registry.watch(ALICE, "0"), 1))[0].cursor == first.cursor


async def test_hidden_changes_are_not_sent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        bob = await bench.registry.watch(BOB, "0")
        nobody = await bench.registry.watch(ANONYMOUS, "0")
        await put(bench, "a", visibility="private")
        await put(bench, "b", visibility="internal")
        await put(bench, "c")
        assert [item.event.id for item in await take(bob, 2)] == ["b", "c"]
        assert [item.event.id for item in await take(nobody, 1)] == ["c"]
        assert await nothing_more(nobody)


async def test_a_change_of_visibility_is_a_withdrawal_or_a_registration_for_affected_watchers(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as bench:
        bob, admin = await bench.registry.watch(BOB), await bench.registry.watch(ADMIN)
        await put(bench, "a")
        await put(bench, "a", visibility="private")
        await put(bench, "a", visibility="internal")
        assert [item.type for item in await take(bob, 3)] == ["registered", "withdrawn", "registered"]
        assert [item.type for item in await take(admin, 3)] == ["registered", "updated", "updated"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_record_that_is_hidden_looks_like_one_that_is_withdrawn(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        await put(bench, "a")
        await put(bench, "a", visibility="private")
        bench.registry.changes.forget_recent()
        bob = await take(await bench.registry.watch(BOB, "0"), 2)
        first, gone = (json.loads(sse_event(item, with_agent=True).split(b"data: ")[1]) for item in bob)
        assert gone == {"type": "withdrawn", "id": "a", "at": gone["at"], "etag": first["etag"]}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_event_carries_the_etag_that_the_answer_to_the_write_gave(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        alice = bench.as_("alice")
        given = [
            (await alice.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": "60"})).json()["etag"],
            (await alice.post("/api/v1/agents/a:renew", json={"ttl_seconds": 90})).json()["etag"],
            (await alice.post("/api/v1/agents", json=profile("a", description="Other."))).json()["etag"],
        ]
        bench.registry.changes.forget_recent()
        seen = await take(await bench.registry.watch(ALICE, "0", renewals=True), 3)
        assert [json.loads(sse_event(item, with_agent=False).split(b"data: ")[1])["etag"] for item in seen] == given


async def test_every_item_of_a_stream_names_its_type_in_its_data() -> None:
    for item, kind in ((WatchBookmark("c"), "bookmark"), (WatchCutOff("c"), "cut_off")):
        written = sse_event(item, with_agent=False)
        assert written.startswith(f"id: c\nevent: {kind}\ndata: ".encode())
        assert written.endswith(b"\n\n")
        assert json.loads(written.split(b"data: ")[1])["type"] == kind


async def test_renewals_are_sent_on_request(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        plain, all_ = await bench.registry.watch(ALICE), await bench.registry.watch(ALICE, renewals=True)
        await bench.as_("alice").post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": "60"})
        await bench.as_("alice").post("/api/v1/agents/a:renew")
        await bench.as_("alice").delete("/api/v1/agents/a")
        assert [item.type for item in await take(plain, 2)] == ["registered", "withdrawn"]
        assert [item.type for item in await take(all_, 3)] == ["registered", "renewed", "withdrawn"]


async def test_the_end_of_a_lease_is_sent_once(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        items = await bench.registry.watch(ALICE)
        await bench.as_("alice").post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": "10"})
        bench.clock.advance(10)
        await bench.registry.leader.expire_leases()
        await bench.registry.leader.expire_leases()
        assert [item.type for item in await take(items, 2)] == ["registered", "expired"]
        assert await nothing_more(items)


async def test_a_cursor_that_was_never_given_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await put(bench, "a")
        cursor = (await take(await bench.registry.watch(ALICE, "0"), 1))[0].cursor
        forged = ("1", "x", cursor[:-1], cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor + "AAAA", "A" * 48)
        for text in forged:
            with pytest.raises(InvalidCursor) as refused:
                await bench.registry.watch(ALICE, text)
            assert refused.value.path == "from"


async def test_a_cursor_that_is_too_old_is_refused_with_a_hint(tmp_path: Path) -> None:
    async with service(tmp_path, watch_keep_seconds=60, watch_keep_changes=2) as bench:
        for name in ("a", "b", "c", "d"):
            await put(bench, name)
        cursors = [item.cursor for item in await take(await bench.registry.watch(ALICE, "0"), 4)]
        bench.clock.advance(61)
        await bench.registry.leader.prune()
        with pytest.raises(CursorTooOld) as caught:
            await bench.registry.watch(ALICE, cursors[0])
        assert "list" in str(caught.value).lower()
        kept = await take(await bench.registry.watch(ALICE, "0"), 2)
        assert [item.event.id for item in kept] == ["c", "d"]
        assert [item.event.id for item in await take(await bench.registry.watch(ALICE, cursors[1]), 2)] == ["c", "d"]
        gone = await bench.as_("alice").get("/api/v1/watch", params={"from": cursors[0]})
        assert (gone.status_code, gone.json()["code"]) == (410, "stale_metadata")
        assert gone.json()["links"]["list"] == "/api/v1/agents"


async def test_bookmarks_of_one_moment_differ_so_that_they_reveal_nothing(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        changes = bench.registry.changes
        assert changes.bookmark(3) != changes.bookmark(3)
        assert changes.cursor(3) == changes.cursor(3)
        await put(bench, "a")
        assert await bench.registry.changes.parse_cursor(changes.bookmark(1)) == 1


async def test_a_watcher_that_the_log_has_left_behind_is_cut_off_with_its_cursor(tmp_path: Path) -> None:
    async with service(tmp_path, watch_keep_seconds=60, watch_keep_changes=1) as bench:
        after = bench.registry.changes.revision
        items = bench.registry.changes.follow(after, None)
        for name in ("a", "b", "c"):
            await put(bench, name)
        bench.clock.advance(61)
        await bench.registry.leader.prune()
        bench.registry.changes.forget_recent()
        item = await anext(items)
        assert isinstance(item, WatchCutOff)
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        with pytest.raises(CursorTooOld):
            await bench.registry.watch(ALICE, item.cursor)


async def test_a_watcher_may_begin_far_behind_and_read_the_whole_log(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        lines = "\n".join(json.dumps(profile(f"a{number}")) for number in range(600))
        await bench.as_("alice").post("/api/v1/agents:batch", content=lines.encode())
        bench.registry.changes.forget_recent()
        seen = await take(await bench.registry.watch(ALICE, "0"), 600)
        assert [item.event.revision for item in seen] == list(range(1, 601))


# --- Credentials ----------------------------------------------------------------------------------


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {token}".encode())]


async def assert_ends(bench: Bench, path: str, ending: list[tuple[bytes, bytes]], end: Callable[[], Any]) -> None:
    """A stream ends with its credential, before anything else is sent, while that of another caller goes on."""
    app = bench.application.http_app
    async with open_stream(app, path, ending) as stream, open_stream(app, path, bearer(bench.admin_token)) as other:
        await put(bench, "before")
        for each in (stream, other):
            event = await each.next()
            assert event is not None
            assert event.data["id"] == "before"
        await end()
        await put(bench, "after")
        assert await stream.next() is None
        event = await other.next()
        assert event is not None
        assert event.data["id"] == "after"


async def test_a_stream_ends_when_its_api_key_is_revoked(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        made = (await admin.post("/api/v1/apikeys", json={"sub": "ci", "scopes": ["discover:read"]})).json()
        await assert_ends(
            bench, "/api/v1/watch", bearer(made["key"]), lambda: admin.delete(f"/api/v1/apikeys/{made['id']}")
        )


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        token = bench.token("bob")
        token_id = parse_object(decode_base64url(token.split(".")[1]))["jti"]
        await assert_ends(
            bench,
            "/api/v1/watch",
            bearer(token),
            lambda: bench.admin().post("/api/v1/keys:revoke", json={"token_id": token_id}),
        )


async def test_a_stream_ends_when_its_token_expires(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:

        async def wait() -> None:
            bench.clock.advance(61)

        await assert_ends(bench, "/api/v1/watch", bearer(bench.token("bob", ttl_seconds=60)), wait)


async def test_a_stream_goes_on_until_its_token_expires(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        token = bearer(bench.token("bob", ttl_seconds=3600))
        async with open_stream(bench.application.http_app, "/api/v1/watch", token) as stream:
            for number in range(3):  # beyond the time for which a verified token is cached
                bench.clock.advance(limits.TOKEN_RECHECK_SECONDS + 1)
                await put(bench, f"a{number}")
                event = await stream.next()
                assert event is not None
                assert event.data["id"] == f"a{number}"


async def test_the_stream_of_an_anonymous_caller_goes_on(tmp_path: Path) -> None:
    async with (
        service(tmp_path, anonymous_read=True) as bench,
        open_stream(bench.application.http_app, "/api/v1/watch", []) as stream,
    ):
        await put(bench, "a")
        assert await stream.next() is not None


async def test_failed_credentials_of_its_address_do_not_keep_a_revoked_stream_open(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        made = (await admin.post("/api/v1/apikeys", json={"sub": "ci", "scopes": ["discover:read"]})).json()
        app, address = bench.application.http_app, ("203.0.113.7", 50000)
        async with open_stream(app, "/api/v1/watch", bearer(made["key"]), client=address) as stream:
            async with httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app, client=address), base_url=bench.application.base_url
            ) as mallory:
                refused = 0
                for number in range(limits.AUTH_FAILURES_PER_MINUTE + 1):
                    headers = {"Authorization": f"Bearer wp_{number}_x"}
                    refused = (await mallory.get("/api/v1/agents", headers=headers)).status_code
                assert refused == 429
            await admin.delete(f"/api/v1/apikeys/{made['id']}")
            await put(bench, "after")
            assert await stream.next() is None


async def test_the_stream_of_a_page_ends_with_its_session(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        visitor = bench.anonymous()
        await visitor.post("/sign-in", data={"token": bench.token("bob", ttl_seconds=60)})
        cookie = [(b"cookie", "; ".join(f"{name}={value}" for name, value in visitor.cookies.items()).encode())]
        async with open_stream(bench.application.http_app, "/changes/stream", cookie) as stream:
            await put(bench, "before")
            assert await stream.next() is not None
            bench.clock.advance(61)
            await put(bench, "after")
            assert await stream.next() is None
