"""A jump of the wall clock, as after a suspend: tokens end by the wall clock, leases by the monotonic one (THREATS E13, T2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.announce import announce, announcement, error_of, key
from support.service import profile, service
from waypost.app import sign_in_link

DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_no_lease_ends_because_the_wall_clock_jumped(tmp_path: Path, jump: float) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for number in range(20):
            made = await admin.post(f"/api/v1/agents?ttl_seconds={120 + number}", json=profile(f"agent-{number}"))
            assert made.status_code == 201
        bench.clock.jump(jump)
        for _ in range(60):
            bench.clock.advance(1)
            assert len((await admin.get("/api/v1/agents?limit=50")).json()["agents"]) == 20
        assert (await admin.post("/api/v1/agents/agent-0:renew")).status_code == 200
        bench.clock.advance(90)  # and no lease became immortal
        assert [each["id"] for each in (await admin.get("/api/v1/agents?limit=50")).json()["agents"]] == ["agent-0"]


async def test_a_token_that_expired_during_a_suspend_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.client(bench.token("bob", ttl_seconds=3600))
        assert (await client.get("/api/v1/agents")).status_code == 200  # now it is in the cache of verified tokens
        bench.clock.jump(3601)
        answer = await client.get("/api/v1/agents")
        assert answer.status_code == 401
        assert "it has expired: it was valid until 2026-05-28T" in answer.json()["message"]
        assert "the clock here says 2026-05-28T" in answer.json()["message"]


async def test_a_token_of_the_future_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The clock was set back: what was valid a moment ago fails closed."""
    async with service(tmp_path) as bench:
        client = bench.client(bench.token("bob", ttl_seconds=3600))
        assert (await client.get("/api/v1/agents")).status_code == 200
        bench.clock.jump(-DAY)
        answer = await client.get("/api/v1/agents")
        assert answer.status_code == 401
        assert "it is not valid yet: it is from" in answer.json()["message"]
        fresh = bench.client(bench.token("bob", ttl_seconds=3600))
        assert (await fresh.get("/api/v1/agents")).status_code == 200, "a new token has the times of the new clock"
        bench.clock.jump(DAY)
        assert (await client.get("/api/v1/agents")).status_code == 200


async def test_a_token_minted_after_a_jump_lives_as_long_as_it_says(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        bench.clock.jump(DAY)
        answer = await bench.admin().post(
            "/api/v1/tokens", json={"sub": "bob", "scopes": ["discover:read"], "ttl_seconds": 60}
        )
        assert answer.json()["expires_at"].startswith("2026-05-29T")
        client = bench.client(answer.json()["token"])
        assert (await client.get("/api/v1/agents")).status_code == 200
        bench.clock.advance(61)
        assert (await client.get("/api/v1/agents")).status_code == 401


async def test_a_page_session_and_a_sign_in_link_end_by_the_wall_clock(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        late = str(sign_in_link(bench.application.settings, "", clock=bench.clock))
        visitor = bench.anonymous()
        assert (await visitor.post("/sign-in", data={"token": bench.admin_token})).status_code == 303
        assert "admin" in (await visitor.get("/register")).text
        bench.clock.jump(8 * DAY)
        assert (await bench.anonymous().get(late)).status_code == 401
        assert "sign-in" in (await visitor.get("/register")).text.lower()
        assert ">admin<" not in (await visitor.get("/register")).text


async def test_a_document_is_dated_by_the_wall_clock_after_a_suspend(tmp_path: Path) -> None:
    """Its publisher's clock went on meanwhile: it must not count as a document of the future."""
    async with service(tmp_path) as bench:
        bench.clock.jump(DAY)
        admin = bench.admin()
        today = profile("today", updated_at="2026-05-29T20:00:00Z")
        assert (await admin.post("/api/v1/agents", json=today)).status_code == 201
        tomorrow = profile("tomorrow", updated_at="2026-05-31T20:00:00Z")
        assert (await admin.post("/api/v1/agents", json=tomorrow)).status_code == 400


async def test_a_clock_that_is_set_back_refuses_no_document(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        bench.clock.jump(-DAY)
        today = profile("today", updated_at="2026-05-28T20:00:00Z")
        assert (await bench.admin().post("/api/v1/agents", json=today)).status_code == 201


@pytest.mark.parametrize(("jump", "signed"), [(DAY, DAY), (-DAY, 0.0)])
async def test_an_announcement_is_as_old_as_the_later_clock_says(tmp_path: Path, jump: float, signed: float) -> None:
    """After a suspend a fresh one is accepted; after a clock was set back, an old one does not become fresh again."""
    async with service(tmp_path) as bench:
        bench.clock.jump(jump)
        admin = bench.admin()
        fresh, old = (
            announcement(key("publisher"), seq=number, at=bench.clock.now() + signed - age)
            for number, age in ((1, 0.0), (2, DAY / 2))
        )
        assert (await announce(admin, fresh)).status_code == 200
        assert error_of(await announce(admin, old))[2] == "too_old"
