"""The audit trail and earlier versions in the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from support.server import RunningServer, running_server
from support.service import profile
from waypost import Client, errors
from waypost.trust.transparency_log import (
    entry_leaves,
    parse_verifier_key,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory") as running:
        yield running


def _agent(agent_id: str, text: str, **members: Any) -> dict[str, Any]:
    return profile(agent_id, description=text, **members)


async def test_the_trail_is_read_and_proved(server: RunningServer) -> None:
    async with Client(server.url, server.admin_token) as client:
        before = await client.audit_checkpoint()
        for number in range(5):
            await client.register(_agent(f"urn:trail:{number}", "One."))
        told = await client.audit_checkpoint()
        now = verify_checkpoint(told.note, parse_verifier_key(told.key))
        assert (now.size, now.root) == (told.size, told.root)
        page = await client.audit(before.size, limit=3)
        assert [entry.object for entry in page.entries] == [f"urn:trail:{number}" for number in range(3)]
        assert page.next_after == before.size + 3
        for number, leaf in entry_leaves(page).items():
            proof = await client.audit_proof(entry=number, size=now.size)
            assert verify_inclusion(leaf, number - 1, now.size, proof.hashes, now.root)
        grown = await client.audit_proof(from_=before.size)
        assert verify_consistency(before.size, now.size, grown.hashes, before.root, now.root)
        filtered = await client.audit(object="urn:trail:4", action="register", subject="admin")
        assert [entry.outcome for entry in filtered.entries] == ["created"]
        with pytest.raises(errors.InvalidRequest):
            await client.audit_proof(entry=1, from_=1)


async def test_the_published_log_is_read_without_a_token(server: RunningServer) -> None:
    async with Client(server.url) as witness:
        told = await witness.published_checkpoint()
        now = verify_checkpoint(told.note, parse_verifier_key(told.key))
        proof = await witness.published_proof(entry=1, size=now.size)
        assert proof.leaf is not None
        assert verify_inclusion(proof.leaf, 0, now.size, proof.hashes, now.root)
    async with Client(server.url, server.admin_token) as client:
        opened = await client.published_checkpoints()
        assert [leaf.number for leaf in opened.leaves] == list(range(1, now.size + 1))
        assert told.origin == f"{opened.origin}/published"


async def test_the_keys_of_the_service_are_rotated(server: RunningServer) -> None:
    async with Client(server.url, server.admin_token) as client:
        before = {key.name: key for key in (await client.service_keys()).keys}
        assert list(before) == ["token", "identity", "cursor"]
        rotated = await client.rotate_service_key("token", overlap_seconds=60)
        assert rotated.key_id != before["token"].key_id
        assert (rotated.accepted_keys, rotated.accepted_until is not None) == (2, True)
        with pytest.raises(errors.NotFound):
            await client.rotate_service_key("nothing")


async def test_versions_are_listed_and_compared(server: RunningServer) -> None:
    async with Client(server.url, server.admin_token) as client:
        await client.register(_agent("urn:versions:1", "One."))
        await client.register(_agent("urn:versions:1", "Two.", tags=["new"]))
        history = await client.history("urn:versions:1")
        assert [version.current for version in history.versions] == [True, False]
        assert history.versions[0].changed == ("$.description", "$.tags")
        assert history.versions[0].subject == "admin"
        assert len((await client.history("urn:versions:1", limit=1)).versions) == 1
        new, old = history.versions
        comparison = await client.diff("urn:versions:1", old.etag, new.etag)
        assert (comparison.from_, comparison.to, comparison.complete) == (old.etag, new.etag, True)
        text, tags = comparison.differences
        assert (text.path, text.before, text.after) == ("$.description", "One.", "Two.")
        assert (tags.path, tags.before, tags.after) == ("$.tags", msgspec.UNSET, ["new"])
        assert await client.diff("urn:versions:1") == comparison
        with pytest.raises(errors.NotFound):
            await client.diff("urn:versions:1", "AAAAAAAAAAAAAAAAAAAAAA")
