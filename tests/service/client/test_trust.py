"""Trust in the SDK: levels, pending changes, the doctor."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from support.service import Bench, profile, service
from support.signing import key_of
from waypost import Client
from waypost.errors import InvalidCursor, InvalidParameter, MissingScope, NotFound, PreconditionFailed
from waypost.trust.document_signatures import sign_profile

ID = "https://agents.example.net/id/minimal"
KEY = key_of(number=21)
ELSEWHERE = [{"protocol": "https", "endpoint": "https://elsewhere.example/invoke"}]


def client(bench: Bench, subject: str | None = None) -> Client:
    token = bench.admin_token if subject is None else bench.token(subject)
    transport = httpx2.ASGITransport(bench.application.http_app)
    return Client(bench.application.base_url, token, transport=transport)


async def verified(bench: Bench) -> None:
    asked = {"agent_id": ID, "public_key": KEY.public.pem()}
    (await bench.admin().post("/api/v1/keys", json=asked)).raise_for_status()
    async with client(bench, "alice") as alice:
        await alice.register(sign_profile(profile(), KEY))


async def test_a_program_asks_how_far_an_agent_can_be_trusted(tmp_path: Path) -> None:
    async with service(tmp_path) as bench, client(bench, "bob") as bob:
        await verified(bench)
        found = await bob.verify(ID)
        assert (found.level, found.shown) == ("verified", "verified")
        assert [(check.check, check.state) for check in found.checks] == [("profile-signature", "passed")]
        assert (await bob.document(ID)).trust == "verified"
        candidates = (await bob.find("short questions", constraints={"trust": "verified"})).candidates
        assert [candidate.trust.level for candidate in candidates if candidate.trust is not None] == ["verified"]
        forged = await bob.verify_document({**sign_profile(profile(), KEY), "name": "Another"})
        assert forged.level == "failed"
        with pytest.raises(NotFound):
            await bob.verify("nobody")


async def test_a_client_confirms_and_rejects_pending_changes(tmp_path: Path) -> None:
    async with service(tmp_path) as bench, client(bench, "alice") as alice:
        await verified(bench)
        receipt = await alice.register(profile(bindings=ELSEWHERE))
        assert receipt.outcome == "held"
        assert receipt.held is not None
        assert [change.part for change in receipt.held.changes] == ["endpoint", "key"]
        waiting = await alice.held(ID)
        assert waiting.etag == receipt.held.etag
        with pytest.raises(PreconditionFailed):
            await alice.confirm(ID, "another")
        assert (await alice.reject(ID, waiting.etag)).outcome == "rejected"
        await alice.register(profile(bindings=ELSEWHERE))
        assert (await alice.confirm(ID, waiting.etag)).outcome == "updated"
        with pytest.raises(NotFound):
            await alice.held(ID)


async def test_the_doctor_answers_admins_alone(tmp_path: Path) -> None:
    async with service(tmp_path) as bench, client(bench) as admin, client(bench, "bob") as bob:
        diagnosis = await admin.doctor()
        assert {finding.layer for finding in diagnosis.findings} >= {"transport", "authentication", "files"}
        assert set(diagnosis.counts) == {"danger", "warning", "info", "ok"}
        with pytest.raises(MissingScope):
            await bob.doctor()


async def test_a_program_reads_the_trust_store_page_by_page(tmp_path: Path) -> None:
    async with service(tmp_path) as bench, client(bench) as admin:
        for number in range(5):
            await admin.keys_trust(f"urn:agent:{number}", key_of(number=number).public.pem())
        revoked = key_of(number=3).public.key_id
        await admin.keys_revoke(key_id=revoked)
        first = await admin.keys_list(limit=4)
        assert (len(first.keys), first.revoked) == (4, ())
        last = await admin.keys_list(limit=4, cursor=first.next_cursor)
        assert (len(last.keys), [row.key_id for row in last.revoked], last.next_cursor) == (1, [revoked], None)
        assert sorted(key.agent_id for key in (*first.keys, *last.keys)) == [f"urn:agent:{n}" for n in range(5)]
        of_one = await admin.keys_list("urn:agent:3")
        assert ([key.state for key in of_one.keys], [row.key_id for row in of_one.revoked]) == (["revoked"], [revoked])
        assert (await admin.keys_list("urn:agent:2")).revoked == ()
        with pytest.raises(InvalidCursor):
            await admin.keys_list(cursor="not one of ours, at all")
        with pytest.raises(InvalidParameter):
            await admin.keys_list(limit=1000)
