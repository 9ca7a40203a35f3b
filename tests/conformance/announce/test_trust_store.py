"""Keys of announced agents over time: rotation, revocation, replay, goodbye (announce.md §4, §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, announce, announcement, error_of, key
from support.problems import complete
from support.service import NOW, Bench, service

ONE, TWO, THREE, OTHER = key("one"), key("two"), key("three"), key("other")
DAY = 86_400


async def admit(bench: Bench, rule: str = "*") -> None:
    assert (await bench.admin().post("/api/v1/allow", json={"rule": rule})).status_code == 201


def make_announcement(bench: Bench, signer: Any = ONE, **more: Any) -> dict[str, Any]:
    """An announcement that is signed now; its sequence number is the time in milliseconds."""
    now = bench.clock.now()
    return announcement(signer, seq=more.pop("seq", int(now * 1000)), at=now, **more)


async def keys(bench: Bench) -> list[tuple[str, str]]:
    rows = (await bench.admin().get("/api/v1/keys", params={"agent_id": AGENT_ID})).json()["keys"]
    return [(row["key_id"], row["state"]) for row in rows]


async def audited(bench: Bench) -> list[tuple[str, str, str]]:
    entries = (await bench.admin().get("/api/v1/audit")).json()["entries"]
    return [(entry["action"], entry["object"], entry.get("outcome", "")) for entry in entries]


# --- Rotation -------------------------------------------------------------------------------------


@pytest.mark.req("ANN-22")
async def test_a_new_key_needs_the_proof_of_the_old_one(tmp_path: Path) -> None:
    """C4, C6."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, make_announcement(bench))
        before = (await alice.get(f"/agents/{AGENT_ID}")).content
        bench.clock.advance(10)
        assert error_of(await announce(alice, make_announcement(bench, TWO))) == (409, "ErrDuplicateID", "other_key")
        forged = await announce(alice, make_announcement(bench, TWO, previous=OTHER))
        assert error_of(forged) == (409, "ErrDuplicateID", "bad_previous_signature")
        assert (await alice.get(f"/agents/{AGENT_ID}")).content == before
        assert ("refuse", f"urn:uuid:{AGENT_ID}", "other_key") in await audited(bench)
        rotation = make_announcement(bench, TWO, previous=ONE)
        assert (await announce(alice, rotation)).status_code == 200
        assert await keys(bench) == [(TWO.public.key_id, "active"), (ONE.public.key_id, "retiring")]
        shown = (await alice.get(f"/agents/{AGENT_ID}")).json()
        assert shown["previous_signature"] == rotation["previous_signature"]
        assert ("rotate", f"urn:uuid:{AGENT_ID}", "done") in await audited(bench)


@pytest.mark.req("ANN-22")
async def test_the_old_key_counts_one_minute_before_24_hours_and_not_one_after(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice", "discover:read", "discover:write")
        await announce(alice, make_announcement(bench))
        bench.clock.advance(1)
        await announce(alice, make_announcement(bench, TWO, previous=ONE))
        bench.clock.advance(DAY - 60)
        alice = bench.as_("alice")
        assert (await announce(alice, make_announcement(bench, ONE))).status_code == 200
        bench.clock.advance(120)
        assert error_of(await announce(alice, make_announcement(bench, ONE))) == (409, "ErrDuplicateID", "retired_key")
        assert (await announce(alice, make_announcement(bench, TWO))).status_code == 200
        assert await keys(bench) == [(TWO.public.key_id, "active"), (ONE.public.key_id, "retired")]


@pytest.mark.req("ANN-22")
async def test_one_rotation_an_hour_and_none_by_a_retiring_key(tmp_path: Path) -> None:
    """C6."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, make_announcement(bench))
        bench.clock.advance(1)
        await announce(alice, make_announcement(bench, TWO, previous=ONE))
        bench.clock.advance(60)
        soon = await announce(alice, make_announcement(bench, THREE, previous=TWO))
        assert error_of(soon)[:2] == (429, "ErrRateLimited")
        assert int(soon.headers["retry-after"]) == 3540
        bench.clock.advance(3540)
        alice = bench.as_("alice")
        by_the_old_one = await announce(alice, make_announcement(bench, OTHER, previous=ONE))
        assert error_of(by_the_old_one) == (409, "ErrDuplicateID", "bad_previous_signature")
        assert (await announce(alice, make_announcement(bench, THREE, previous=TWO))).status_code == 200


# --- Revocation -----------------------------------------------------------------------------------


@pytest.mark.req("ANN-23")
async def test_a_revoked_key_takes_its_record_along_and_never_comes_back(tmp_path: Path) -> None:
    async with service(tmp_path, trust_mode="tofu") as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        await announce(alice, make_announcement(bench))
        revision = (await admin.get("/api/v1/stats")).json()["revision"]
        done = await admin.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id, "reason": "lost"})
        assert (done.json()["outcome"], done.json()["withdrawn"]) == ("revoked", [f"urn:uuid:{AGENT_ID}"])
        events = await bench.application.store.events(revision, 10)
        assert [event.type for event in events] == ["withdrawn"]
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404
        assert (await alice.post("/profile/v1/discover", json={"query": "metrics"})).json()["candidates"] == []
        bench.clock.advance(5)
        for sent in (
            make_announcement(bench),
            make_announcement(bench, OTHER),
            make_announcement(bench, OTHER, previous=ONE),
        ):
            assert error_of(await announce(alice, sent)) == (403, "ErrForbidden", "revoked")
            assert (await alice.post("/api/v1/agents", json=sent)).status_code == 403
        complete((await announce(alice, make_announcement(bench))).json())
        elsewhere = announcement(ONE, seq=1, at=bench.clock.now(), agent_id="0a1f3b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d")
        assert error_of(await announce(alice, elsewhere))[2] == "revoked", "a revoked key is revoked for every agent"
        assert (await admin.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id})).json()[
            "outcome"
        ] == "already"


@pytest.mark.req("ANN-23")
async def test_the_revoked_are_listed_for_every_reader(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id, "reason": "lost"})
        await admin.post("/api/v1/keys:revoke", json={"agent_id": AGENT_ID.upper()})
        await admin.post("/api/v1/keys:revoke", json={"serial": "1F:00:A3"})
        answer = await bench.as_("reader", "discover:read").get("/agents/revocations")
        assert answer.json()["revoked"] == [
            {"agent_id": AGENT_ID, "revoked_at": "2026-05-28T20:26:40Z", "reason": "unspecified"},
            {"key_id": ONE.public.key_id, "revoked_at": "2026-05-28T20:26:40Z", "reason": "lost"},
        ]
        again = await bench.as_("reader", "discover:read").get(
            "/agents/revocations", headers={"If-None-Match": answer.headers["etag"]}
        )
        assert again.status_code == 304
        assert (await bench.anonymous().get("/agents/revocations")).status_code == 401


@pytest.mark.req("ANN-23")
async def test_a_revoked_agent_registers_through_no_api_and_with_no_key(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice, admin = bench.as_("alice"), bench.admin()
        await announce(alice, make_announcement(bench))
        done = await admin.post("/api/v1/keys:revoke", json={"agent_id": AGENT_ID})
        assert done.json()["withdrawn"] == [f"urn:uuid:{AGENT_ID}"]
        bench.clock.advance(5)
        assert error_of(await announce(alice, make_announcement(bench, OTHER))) == (403, "ErrForbidden", "revoked")
        assert error_of(await announce(admin, make_announcement(bench, OTHER))) == (403, "ErrForbidden", "revoked")
        profile = {
            "id": f"urn:uuid:{AGENT_ID}",
            "name": "n",
            "description": "d",
            "bindings": [{"protocol": "https", "endpoint": "https://a.example/"}],
        }
        assert (await alice.post("/api/v1/agents", json=profile)).status_code == 403
        assert (await admin.post("/api/v1/agents", json=profile)).status_code == 403


@pytest.mark.req("ANN-23")
async def test_revoking_an_unbound_key_withdraws_the_agents_it_signed(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        assert (await alice.post("/api/v1/agents", json=make_announcement(bench))).status_code == 201
        done = await admin.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id})
        assert done.json()["withdrawn"] == [f"urn:uuid:{AGENT_ID}"]
        assert (await alice.post("/api/v1/agents", json=make_announcement(bench))).status_code == 403


@pytest.mark.req("ANN-20")
async def test_a_key_that_an_admin_trusts_needs_no_rule_and_ends_those_before_it(tmp_path: Path) -> None:
    async with service(tmp_path, trust_mode="pinned") as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        assert error_of(await announce(alice, make_announcement(bench)))[:2] == (403, "ErrForbidden")
        trusted = await admin.post("/api/v1/keys", json={"agent_id": AGENT_ID, "public_key": ONE.public.pem()})
        assert (trusted.status_code, trusted.json()["outcome"]) == (201, "trusted")
        again = await admin.post("/api/v1/keys", json={"agent_id": AGENT_ID, "public_key": ONE.public.pem()})
        assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
        assert (await announce(alice, make_announcement(bench))).status_code == 200
        await admin.post("/api/v1/keys", json={"agent_id": AGENT_ID, "public_key": TWO.public.pem()})
        bench.clock.advance(1)
        assert error_of(await announce(alice, make_announcement(bench)))[2] == "retired_key"
        assert (await announce(alice, make_announcement(bench, TWO))).status_code == 200


@pytest.mark.req("ANN-20", "ANN-23")
async def test_the_trust_store_is_for_admins_and_reports_errors(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        for path in ("/api/v1/allow", "/api/v1/keys"):
            assert (await alice.get(path)).status_code == 403
            assert (await bench.anonymous().get(path)).status_code == 401
        bad: list[tuple[str, dict[str, Any]]] = [
            ("/api/v1/allow", {"rule": "data-processor"}),
            ("/api/v1/allow", {}),
            ("/api/v1/keys", {"agent_id": AGENT_ID, "public_key": "nonsense"}),
            ("/api/v1/keys", {"agent_id": " ", "public_key": ONE.public.pem()}),
            ("/api/v1/keys", {"agent_id": AGENT_ID, "public_key": ONE.pem().decode()}),
            ("/api/v1/keys:revoke", {}),
            ("/api/v1/keys:revoke", {"key_id": "sha256:12"}),
            ("/api/v1/keys:revoke", {"key_id": ONE.public.key_id, "agent_id": AGENT_ID}),
            ("/api/v1/keys:revoke", {"serial": "xyz"}),
            ("/api/v1/keys:revoke", {"agent_id": "a-slip-of-the-pen"}),
            ("/api/v1/keys:revoke", {"agent_id": "sha256:12"}),
            ("/api/v1/keys:revoke", {"agent_id": AGENT_ID, "reason": "x" * 300}),
        ]
        for path, asked in bad:
            answer = await admin.post(path, json=asked)
            assert answer.status_code == 400, (path, asked)
        assert (await admin.delete("/api/v1/allow/*")).status_code == 404


@pytest.mark.req("ANN-23")
async def test_a_revoked_key_is_never_trusted_again(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id})
        answer = await admin.post("/api/v1/keys", json={"agent_id": AGENT_ID, "public_key": ONE.public.pem()})
        assert answer.status_code == 403


# --- Replay and goodbye ---------------------------------------------------------------------------


@pytest.mark.req("ANN-20")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_marks_survive_withdrawal_and_restart(tmp_path: Path, store: str) -> None:
    """C10: a replayed announcement does not restore a withdrawn agent."""
    async with service(tmp_path, store=store) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        first, second = make_announcement(bench, seq=1), make_announcement(bench, seq=2)
        await announce(alice, first)
        await announce(alice, second)
        assert (await alice.delete(f"/agents/{AGENT_ID}")).status_code == 204
        for replayed in (first, second):
            assert error_of(await announce(alice, replayed)) == (401, "ErrAuth", "replay")
    if store == "sqlite":
        async with service(tmp_path, store=store) as bench:
            alice = bench.as_("alice")
            for replayed in (first, second):
                assert error_of(await announce(alice, replayed)) == (401, "ErrAuth", "replay")
            assert error_of(await announce(alice, make_announcement(bench, OTHER, seq=9)))[:2] == (
                409,
                "ErrDuplicateID",
            )
            assert (await announce(alice, make_announcement(bench, seq=3))).status_code == 200


@pytest.mark.req("ANN-20")
async def test_two_contents_under_one_sequence_raise_an_alarm(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, make_announcement(bench, seq=7))
        forked = await announce(alice, make_announcement(bench, seq=7, capabilities={"payments": "1"}))
        assert error_of(forked) == (401, "ErrAuth", "fork")
        assert ("refuse", f"urn:uuid:{AGENT_ID}", "fork") in await audited(bench)


@pytest.mark.req("ANN-20")
async def test_a_replay_through_another_api_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        old = make_announcement(bench, seq=1)
        await announce(alice, old)
        await announce(alice, make_announcement(bench, seq=2, capabilities={"metrics": "3.0"}))
        answer = await alice.post("/api/v1/agents", json=old)
        assert (answer.status_code, answer.json()["code"]) == (401, "stale_metadata")


@pytest.mark.req("ANN-20")
@pytest.mark.parametrize("which", [0, 1], ids=["the one before", "the last one"])
async def test_nobody_else_sends_an_announcement_without_a_sequence_again(tmp_path: Path, which: int) -> None:
    """C12, P-18: nothing in it tells its age, so what counts over HTTP is whose session it is."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        sent = [announcement(ONE, seq=None, at=None, capabilities={"metrics": text}) for text in ("1.0", "2.0")]
        for each in sent:
            assert (await announce(alice, {**each, "ttl": 60})).status_code == 200
        bench.clock.advance(50)
        for stranger in (bench.as_("mallory"), bench.admin()):
            assert error_of(await announce(stranger, {**sent[which], "ttl": 60}))[0] == 409
        shown = (await alice.get(f"/agents/{AGENT_ID}")).json()
        assert shown["agent"]["capabilities"] == {"metrics": "2.0"}
        bench.clock.advance(11)
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404


@pytest.mark.req("ANN-8")
async def test_a_captured_announcement_cannot_be_turned_into_a_goodbye(tmp_path: Path) -> None:
    """P-19."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        sent = make_announcement(bench)
        await announce(alice, sent)
        forged = await announce(mallory, {**sent, "action": "shutdown"})
        assert error_of(forged)[:2] == (403, "ErrForbidden")
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 200
        own = await announce(alice, {**sent, "action": "shutdown"})
        assert (own.status_code, own.json()["ttl"]) == (200, 0)
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404


@pytest.mark.req("ANN-20")
async def test_a_goodbye_that_is_signed_under_a_new_sequence_withdraws(tmp_path: Path) -> None:
    """P-19."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, make_announcement(bench, seq=1))
        unsure = announcement(ONE, metadata={"__state": "shutdown"})
        assert error_of(await announce(alice, unsure))[:2] == (401, "ErrAuth")
        forged = make_announcement(bench, OTHER, seq=2, metadata={"__state": "shutdown"})
        assert error_of(await announce(alice, forged))[:2] == (409, "ErrDuplicateID")
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 200
        goodbye = await announce(alice, make_announcement(bench, seq=2, metadata={"__state": "shutdown"}))
        assert (goodbye.status_code, goodbye.json()["ttl"]) == (200, 0)
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404
        assert error_of(await announce(alice, make_announcement(bench, seq=2)))[1] == "ErrAuth"


@pytest.mark.req("ANN-41")
async def test_an_agent_that_is_not_announced_again_is_gone_after_its_ttl(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, {**make_announcement(bench), "ttl": 60})
        revision = (await bench.admin().get("/api/v1/stats")).json()["revision"]
        bench.clock.advance(59)
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 200
        bench.clock.advance(2)
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404
        assert (await alice.get("/agents")).json()["agents"] == []
        await bench.registry.leader.expire_leases()
        await bench.registry.leader.expire_leases()
        events = await bench.application.store.events(revision, 10)
        assert [event.type for event in events] == ["expired"]
        assert bench.clock.now() == NOW + 61
