"""A verified agent does not change its endpoint without confirmation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import NotFound, NotOwner, PreconditionFailed
from waypost.model.json import dump_json
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.model.verdict import Verdict
from waypost.registry.publication import Publication, PublicationReceipt

OWNER = Principal(subject="alice", scopes=frozenset((SCOPE_READ, SCOPE_WRITE)), credential="jwt:1", address="192.0.2.1")
OTHER = Principal(subject="mallory", scopes=frozenset((SCOPE_READ, SCOPE_WRITE)))
ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))
BOUND = (Verdict(check="key-pinned", state="passed", evidence={"key_id": "sha256:aa"}),)
DOMAIN = (Verdict(check="domain", state="passed"),)
ID = "https://agents.example.net/id/minimal"
ELSEWHERE = [{"protocol": "https", "endpoint": "https://evil.example/invoke"}]


async def publish(
    bench: Bench, *verdicts: Verdict, by: Principal = OWNER, agent_id: str = ID, **members: Any
) -> PublicationReceipt:
    document = dump_json(profile(agent_id, **members))
    dialect, decoded = bench.registry.decode(document, dialect="profile")
    return await bench.registry.publish(
        Publication(dialect=dialect, document=document, decoded=decoded, principal=by, verdicts=verdicts)
    )


async def endpoints(bench: Bench) -> list[str]:
    return [binding.endpoint for binding in (await bench.registry.get(OWNER, ID)).record.bindings]


SAFE = ["https://example.net/agent/invoke"]


@pytest.mark.parametrize(
    ("part", "members"),
    [
        ("endpoint", {"bindings": ELSEWHERE}),
        ("endpoint", {"bindings": [*profile()["bindings"], *ELSEWHERE]}),
        ("auth", {"auth": {"type": "none"}}),
        ("key", {"signature": {"kid": "another", "value": "x"}}),
    ],
)
async def test_a_change_of_endpoint_key_or_auth_of_a_verified_agent_waits(
    tmp_path: Path, part: str, members: dict[str, Any]
) -> None:
    async with service(tmp_path) as bench:
        first = await publish(bench, *BOUND)
        receipt = await publish(bench, **members)
        assert receipt.outcome == "held"
        assert receipt.held is not None
        assert [each.part for each in receipt.held.differences] == [part]
        assert receipt.etag == first.etag
        assert await endpoints(bench) == SAFE
        assert (await bench.registry.get(OWNER, ID)).etag == receipt.held.base
        assert receipt.held.expires_at == bench.clock.now() + limits.PENDING_CHANGE_SECONDS


async def test_a_change_of_text_does_not_wait(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        receipt = await publish(bench, description="Answers long questions.", tags=["new"])
    assert receipt.outcome == "updated"


async def test_an_unverified_agent_changes_at_once(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench)
        assert (await publish(bench, bindings=ELSEWHERE)).outcome == "updated"


async def test_a_change_that_is_signed_with_the_bound_key_does_not_wait(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        assert (await publish(bench, *BOUND, bindings=ELSEWHERE)).outcome == "updated"


async def test_a_proof_of_the_domain_alone_lets_no_change_pass(tmp_path: Path) -> None:
    """The owner's token includes the domain's proof, but not the key."""
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        assert (await publish(bench, *DOMAIN, bindings=ELSEWHERE)).outcome == "held"


async def test_a_document_of_another_dialect_does_not_move_a_verified_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        card = {
            "name": "Minimal Agent",
            "description": "Answers.",
            "url": "https://evil.example/a2a",
            "version": "1.0.0",
            "skills": [],
            "capabilities": {},
            "defaultInputModes": [],
            "defaultOutputModes": [],
        }
        dialect, decoded = bench.registry.decode(dump_json(card), source_url=ID)
        decoded = msgspec.structs.replace(decoded, aliases=(*decoded.aliases, ID))  # as a card of the same agent has it
        receipt = await bench.registry.publish(
            Publication(dialect=dialect, document=dump_json(card), decoded=decoded, principal=OWNER)
        )
        assert receipt.outcome == "held"
        assert await endpoints(bench) == SAFE


async def test_the_owner_confirms_a_pending_change_by_its_etag(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        with pytest.raises(PreconditionFailed):
            await bench.registry.confirm(OWNER, ID, "another")
        receipt = await bench.registry.confirm(OWNER, ID, waiting.etag)
        assert (receipt.outcome, receipt.etag) == ("updated", waiting.etag)
        assert await endpoints(bench) == ["https://evil.example/invoke"]
        with pytest.raises(NotFound):
            await bench.registry.pending_change(OWNER, ID)


async def test_an_admin_confirms_and_the_owner_stays_the_same(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        await bench.registry.confirm(ADMIN, ID, waiting.etag)
        registration = await bench.registry.get(OWNER, ID)
    assert registration.owner == "alice"
    assert registration.sources[0].subject == "alice"


async def test_a_rejected_change_is_discarded(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        assert (await bench.registry.reject(OWNER, ID, waiting.etag)).outcome == "rejected"
        with pytest.raises(NotFound):
            await bench.registry.confirm(OWNER, ID, waiting.etag)
        assert await endpoints(bench) == SAFE


async def test_no_other_subject_sees_confirms_or_rejects(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        with pytest.raises(NotOwner):
            await bench.registry.pending_change(OTHER, ID)
        with pytest.raises(NotOwner):
            await bench.registry.confirm(OTHER, ID, waiting.etag)
        with pytest.raises(NotOwner):
            await bench.registry.reject(OTHER, ID, waiting.etag)


async def test_a_pending_change_expires_after_a_week(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        bench.clock.advance(limits.PENDING_CHANGE_SECONDS - 1)
        await publish(bench, bindings=ELSEWHERE)  # sent again, it waits no longer for that
        bench.clock.advance(1)
        with pytest.raises(NotFound):
            await bench.registry.confirm(OWNER, ID, waiting.etag)
        await bench.registry.leader.expire_pending()
        assert await bench.application.store.notes("held:") == []


async def test_a_later_change_takes_the_place_of_the_one_that_waits(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        first = (await publish(bench, bindings=ELSEWHERE)).held
        second = (await publish(bench, auth={"type": "none"})).held
        assert first is not None
        assert second is not None
        with pytest.raises(PreconditionFailed):
            await bench.registry.confirm(OWNER, ID, first.etag)
        await publish(bench, *BOUND, description="Signed again.")
        with pytest.raises(NotFound):
            await bench.registry.pending_change(OWNER, ID)


async def test_the_same_document_is_taken_again_when_it_is_judged_otherwise(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench)
        assert (await publish(bench, *BOUND)).trust.level == "verified"
        assert (await publish(bench, *BOUND)).outcome == "unchanged"


async def test_a_pending_change_is_confirmed_only_against_its_base_version(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        waiting = (await publish(bench, bindings=ELSEWHERE)).held
        assert waiting is not None
        await bench.registry.withdraw(OWNER, ID)
        bench.clock.advance(10)
        await publish(bench, *BOUND, description="Registered anew.")
        with pytest.raises(PreconditionFailed):
            await bench.registry.confirm(OWNER, ID, waiting.etag)
        assert await endpoints(bench) == SAFE


async def test_a_repeated_request_is_answered_also_after_the_change_was_confirmed(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        client = bench.as_("alice")
        key = {"Idempotency-Key": "once"}
        first = await client.post("/api/v1/agents", json=profile(bindings=ELSEWHERE), headers=key)
        await bench.registry.confirm(OWNER, ID, first.json()["held"]["etag"])
        again = await client.post("/api/v1/agents", json=profile(bindings=ELSEWHERE), headers=key)
    assert (first.status_code, first.json()["outcome"]) == (202, "held")
    assert again.status_code in (200, 202)
    assert "held" not in again.json()


async def test_a_pending_change_over_http_says_how_to_confirm_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await publish(bench, *BOUND)
        client = bench.as_("alice")
        answer = await client.put(f"/profile/v1/agents/{ID.replace('/', '%2F')}", json=profile(bindings=ELSEWHERE))
        assert answer.status_code == 202
        assert answer.json()["outcome"] == "held"
        etag = answer.json()["held"]["etag"]
        path = f"/api/v1/agents/{ID.replace('/', '%2F')}"
        assert (await client.get(f"{path}:held")).json() == answer.json()["held"]
        assert (await client.post(f"{path}:confirm", json={})).status_code == 400
        assert (await bench.as_("mallory").post(f"{path}:confirm", json={"etag": etag})).status_code == 403
        assert (await bench.anonymous().get(f"{path}:held")).status_code == 401
        assert (await client.post(f"{path}:confirm", json={"etag": etag})).status_code == 200
        assert (await client.get(f"{path}:held")).status_code == 404
