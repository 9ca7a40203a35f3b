"""Announcing over HTTP: `POST /agents` (announce.md §3, §4, §6.4, §9, §10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, agent, announce, announcement, body, error_of, key
from support.problems import complete
from support.service import NOW, Bench, service
from waypost import limits
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.codec import ANNOUNCE

ONE, TWO, OTHER = key("one"), key("two"), key("other")
OTHER_ID = "9a1f3b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"


async def admit(bench: Bench, rule: str = "*") -> None:
    answer = await bench.admin().post("/api/v1/allow", json={"rule": rule})
    assert answer.status_code in (200, 201), answer.text


def message(seq: int | None = 1, at: float = NOW, **more: Any) -> dict[str, Any]:
    return announcement(more.pop("signer", ONE), seq=seq, at=at if seq is not None else None, **more)


# --- Admission ------------------------------------------------------------------------------------


@pytest.mark.req("ANN-21")
async def test_an_agent_that_no_rule_admits_is_refused_and_a_rule_admits_it_at_once(tmp_path: Path) -> None:
    """J13."""
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        refused = await announce(alice, message())
        assert error_of(refused) == (403, "ErrForbidden", "not_allowed")
        assert refused.headers["retry-after"] == "300"
        complete(refused.json())
        assert (await alice.get(f"/agents/{AGENT_ID}")).status_code == 404
        await admit(bench, AGENT_ID.upper())
        assert (await announce(alice, message())).status_code == 200
        assert (await bench.admin().delete(f"/api/v1/allow/{AGENT_ID}")).status_code == 204
        assert error_of(await announce(alice, message(seq=2)))[:2] == (403, "ErrForbidden")


@pytest.mark.req("ANN-21", "ANN-20")
async def test_an_admin_passes_the_list_and_binds_the_key(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        assert (await announce(bench.admin(), message())).status_code == 200
        held = (await bench.admin().get("/api/v1/keys")).json()["keys"]
        assert [(row["agent_id"], row["key_id"], row["state"]) for row in held] == [
            (AGENT_ID, ONE.public.key_id, "active")
        ]


@pytest.mark.req("ANN-60")
async def test_announcing_needs_a_token_that_may_write_and_listing_one_that_may_read(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        anonymous = await announce(bench.anonymous(), message())
        assert error_of(anonymous)[:2] == (401, "ErrAuth")
        assert anonymous.headers["www-authenticate"].startswith("Bearer")
        reader = bench.as_("reader", "discover:read")
        assert error_of(await announce(reader, message()))[:2] == (403, "ErrForbidden")
        assert (await reader.get("/agents")).status_code == 200
        assert error_of(await bench.anonymous().get("/agents"))[:2] == (401, "ErrAuth")
        writer = bench.as_("writer", "discover:write")
        assert error_of(await writer.get("/agents"))[:2] == (403, "ErrForbidden")
        assert error_of(await reader.delete(f"/agents/{AGENT_ID}"))[:2] == (403, "ErrForbidden")


@pytest.mark.req("ANN-60")
async def test_a_token_is_for_its_own_agent_where_subjects_are_bound(tmp_path: Path) -> None:
    async with service(tmp_path, bind_subject=True) as bench:
        await admit(bench)
        assert error_of(await announce(bench.as_("alice"), message())) == (403, "ErrForbidden", "subject")
        assert (await announce(bench.as_(AGENT_ID), message())).status_code == 200


@pytest.mark.req("ANN-13")
async def test_cheap_refusals_come_first(tmp_path: Path) -> None:
    """The order of checks: size, JSON, version, schema, allow-list, key, signature, replay."""
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        wrong = message()
        wrong["signature"] = "AAAA"
        steps: list[tuple[bytes, tuple[int, str]]] = [
            (b"{" + b" " * limits.ANNOUNCE_BYTES, (413, "ErrTooLarge")),
            (b'{"protocol_version":"v9.0",', (400, "ErrMalformedPayload")),
            (b'{"protocol_version":"v9.0","agent":{}}', (400, "ErrUnsupportedVersion")),
            (b'{"protocol_version":"v1.0","agent":{"agent_id":"x"}}', (400, "ErrMalformedPayload")),
            (body(wrong), (403, "ErrForbidden")),
        ]
        for sent, expected in steps:
            answer = await alice.post("/agents", content=sent, headers={"Content-Type": "application/json"})
            assert error_of(answer)[:2] == expected
        await admit(bench)
        assert error_of(await announce(alice, wrong))[:2] == (401, "ErrAuth")
        assert (await announce(alice, message())).status_code == 200
        stale_and_foreign = message(seq=0, signer=OTHER)
        assert error_of(await announce(alice, stale_and_foreign)) == (409, "ErrDuplicateID", "other_key")


# --- Signatures -----------------------------------------------------------------------------------


@pytest.mark.req("ANN-3", "ANN-10")
@pytest.mark.parametrize("part", ["agent_id", "public_key", "signature", "member", "capability"])
async def test_an_announcement_that_was_changed_on_its_way_is_dropped(tmp_path: Path, part: str) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        sent = message()
        said = sent["agent"]
        match part:
            case "agent_id":
                said["agent_id"] = OTHER_ID
            case "public_key":
                said["public_key"] = OTHER.public.pem()
            case "signature":
                sent["signature"] = "B" + sent["signature"][1:] if sent["signature"][0] != "B" else "C"
            case "member":
                said["extra"] = 1
            case "capability":
                said["capabilities"]["metrics"] = "2.1"
        answer = await announce(bench.as_("alice"), sent)
        assert error_of(answer) == (401, "ErrAuth", "bad_signature")
        assert answer.headers["retry-after"] == "30"
        assert (await bench.admin().get("/agents")).json()["agents"] == []


@pytest.mark.req("ANN-10")
async def test_an_announcement_without_a_signature_is_refused_unless_the_setting_takes_it(tmp_path: Path) -> None:
    bare = {"protocol_version": "v1.1", "agent": agent()}
    async with service(tmp_path / "a") as bench:
        await admit(bench)
        assert error_of(await announce(bench.as_("alice"), bare)) == (401, "ErrAuth", "unsigned")
    async with service(tmp_path / "b", unsigned_announcements="untrusted") as bench:
        await admit(bench)
        alice = bench.as_("alice")
        assert error_of(await announce(alice, {**bare, "protocol_version": "v1.0"}))[:2] == (401, "ErrAuth")
        assert (await announce(alice, bare)).status_code == 200
        assert (await bench.admin().get("/api/v1/keys")).json()["keys"] == []
        shown = (await alice.get("/api/v1/agents", params={"as": "announce"})).json()
        assert len(shown["agents"]) == 1


@pytest.mark.req("ANN-3")
async def test_a_given_signature_must_be_valid_in_every_api(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        forged = message()
        forged["agent"]["agent_name"] = "somebody-else"
        answer = await alice.post("/api/v1/agents", json=forged)
        assert (answer.status_code, answer.json()["code"], answer.json()["reason"]) == (
            401,
            "unauthorized",
            "bad_signature",
        )
        kept = await alice.post("/api/v1/agents", json=message())
        assert kept.status_code == 201
        checks = {check["check"]: check["state"] for check in kept.json()["trust"]["checks"]}
        assert checks["announce-signature"] == "passed"
        assert kept.json()["trust"]["level"] == "self_asserted", "no key is bound to this id"


@pytest.mark.req("ANN-20")
async def test_an_announced_agent_is_verified_in_every_api(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, message())
        found = await alice.post("/profile/v1/discover", json={"query": "metrics"})
        assert found.json()["candidates"][0]["id"] == f"urn:uuid:{AGENT_ID}"
        receipt = await alice.post("/api/v1/agents", json=message(seq=2))
        assert receipt.json()["trust"]["level"] == "verified"


@pytest.mark.req("ANN-20", "ANN-3")
@pytest.mark.parametrize("api", ["own", "batch", "profile-of-announce"])
async def test_an_id_with_a_bound_key_is_changed_through_no_api_without_it(tmp_path: Path, api: str) -> None:
    """C4, C15."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, message())
        before = (await alice.get(f"/agents/{AGENT_ID}")).content
        unsigned = agent(capabilities={"payments": "1"})
        foreign = message(seq=5, signer=OTHER, capabilities={"payments": "1"})
        for sent in (unsigned, foreign):
            if api == "own":
                answer = await alice.post("/api/v1/agents", json=sent)
                assert answer.status_code in (401, 409)
            elif api == "batch":
                line = json.dumps(sent).encode() + b"\n"
                answer = await alice.post("/api/v1/agents:batch", content=line)
                assert answer.json()["error"]["code"] in ("unauthorized", "conflict")
            else:
                answer = await alice.post("/api/v1/agents", params={"dialect": "announce"}, json=sent)
                assert answer.status_code in (401, 409)
        assert (await alice.get(f"/agents/{AGENT_ID}")).content == before


@pytest.mark.req("ANN-20")
async def test_an_announcement_does_not_carry_the_record_of_another_agent(tmp_path: Path) -> None:
    """A record embedded in metadata must not bypass the key of the agent that it names."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, message())
        before = (await alice.get(f"/agents/{AGENT_ID}")).content
        for carried in (f"urn:uuid:{AGENT_ID}", f"urn:uuid:{AGENT_ID.upper()}", AGENT_ID):
            record = {"members": {"id": carried, "name": "x"}}
            rider = announcement(OTHER, seq=1, at=NOW, agent_id=OTHER_ID, metadata={"org.waypost.record": record})
            assert error_of(await announce(alice, rider))[:2] == (400, "ErrMalformedPayload")
        assert (await alice.get(f"/agents/{AGENT_ID}")).content == before


@pytest.mark.req("ANN-8")
async def test_unsigned_members_of_an_announcement_do_not_extend_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        first = await announce(alice, {**message(), "timestamp": 1, "schema_version": 2, "message_type": "announce"})
        assert (first.status_code, first.json()["ttl"]) == (200, 120)
        again = await announce(alice, {**message(), "timestamp": 99999999999.5, "ttl": 7200})
        assert (again.json()["coalesced"], again.json()["ttl"]) == (True, 7200)
        for asked, granted in ((1, 10), (86_400, 86_400), (86_401, 86_400)):
            answer = await announce(alice, {**message(), "ttl": asked})
            assert answer.json()["ttl"] == granted


# --- The answer -----------------------------------------------------------------------------------


@pytest.mark.req("ANN-33")
async def test_the_answer_echoes_the_agent_with_its_lease(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        sent = message()
        answer = await announce(bench.as_("alice"), sent)
        assert answer.status_code == 200
        assert answer.json() == {
            "protocol_version": "v1.0",
            "agent": sent["agent"],
            "signature": sent["signature"],
            "matched": True,
            "ttl": 120,
            "expires_at": to_rfc3339(NOW + 120),
            "coalesced": False,
        }


@pytest.mark.req("ANN-33")
async def test_identical_announcements_coalesce_and_only_the_lease_runs_on(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, message())
        watched = (await bench.admin().get("/api/v1/stats")).json()["revision"]
        bench.clock.advance(60)
        again = await announce(alice, message())
        assert again.json()["coalesced"] is True
        assert again.json()["expires_at"] == to_rfc3339(NOW + 180)
        events = await bench.application.store.events(watched, 10)
        assert [event.type for event in events] == ["renewed"]


@pytest.mark.req("ANN-33")
async def test_bodies_over_16_kib_or_not_json_are_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        large = json.dumps({**message(), "pad": "x" * limits.ANNOUNCE_BYTES}).encode()
        json_type = {"Content-Type": "application/json; charset=utf-8"}
        assert error_of(await alice.post("/agents", content=large, headers=json_type))[:2] == (413, "ErrTooLarge")
        plain = {"Content-Type": "text/plain"}
        assert error_of(await alice.post("/agents", content=b"{}", headers=plain))[:2] == (415, "ErrMediaType")
        for sent in (b"", b"[]", b"{", b'{"a":1,"a":2}', b'{"agent":NaN}', b"\xff", b'{"protocol_version":"v1.0"}'):
            answer = await alice.post("/agents", content=sent, headers=json_type)
            assert error_of(answer)[:2] == (400, "ErrMalformedPayload")
            assert answer.headers["retry-after"] == "5"
            complete(answer.json())


@pytest.mark.req("ANN-33")
async def test_only_known_methods_are_taken(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        refused = await alice.put("/agents", json={})
        assert (refused.status_code, "POST" in refused.headers["allow"]) == (405, True)
        assert (await alice.request("OPTIONS", f"/agents/{AGENT_ID}")).headers["allow"] == "GET, HEAD, DELETE, OPTIONS"
        assert error_of(await alice.get("/agents/a/b"))[:2] == (404, "ErrNotFound")


@pytest.mark.req("ANN-35")
async def test_409_means_that_the_id_is_bound_to_another_key_and_a_replay_gets_401(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        await announce(alice, message(seq=5))
        assert error_of(await announce(alice, message(seq=6, signer=OTHER))) == (409, "ErrDuplicateID", "other_key")
        assert error_of(await announce(alice, message(seq=4))) == (401, "ErrAuth", "replay")
        assert (await announce(alice, message(seq=5))).status_code == 200, "the same again is no conflict"


@pytest.mark.req("ANN-20", "ANN-12")
async def test_the_vector_of_the_specification_is_admitted_and_served_verbatim(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await admit(bench)
        sent = dict(ANNOUNCE.examples()[1])
        assert (await announce(bench.as_("alice"), sent)).status_code == 200
        shown = (await bench.as_("bob").get(f"/agents/{AGENT_ID}")).json()
        assert (shown["agent"], shown["signature"]) == (sent["agent"], sent["signature"])
        held = (await bench.admin().get("/api/v1/keys")).json()["keys"]
        assert held[0]["key_id"] == "sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5"


@pytest.mark.req("ANN-33")
async def test_a_re_signed_announcement_is_a_renewal_with_the_newest_signature(tmp_path: Path) -> None:
    """Agents sign again every minute: that adds nothing to their history and no event to a watch."""
    async with service(tmp_path) as bench:
        await admit(bench)
        alice = bench.as_("alice")
        assert (await announce(alice, message(seq=1))).status_code == 200
        begun = (await bench.admin().get("/api/v1/stats")).json()["revision"]
        bench.clock.advance(20)
        again = message(seq=2, at=NOW + 20)
        answer = await announce(alice, again)
        assert (answer.status_code, answer.json()["coalesced"]) == (200, True)
        shown = (await alice.get(f"/agents/{AGENT_ID}")).json()
        assert (shown["agent"], shown["signature"]) == (again["agent"], again["signature"])
        changed = message(seq=3, at=NOW + 20, capabilities={"metrics": "3.0"})
        assert (await announce(alice, changed)).json()["coalesced"] is False
        events = await bench.application.store.events(begun, 10)
        assert [event.type for event in events] == ["renewed", "updated"]
        versions = (await alice.get(f"/api/v1/agents/urn:uuid:{AGENT_ID}:history")).json()["versions"]
        assert len(versions) == 2
