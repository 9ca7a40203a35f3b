"""Callbacks to an agent: accepted if signed for it, once, and again if they could not be handled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from support.agp import ALICE, BOB, CAROL, key_of
from waypost import LiveAgent
from waypost.client.contacts import Contact
from waypost.client.tasks import ReceivedCallback
from waypost.messaging.peers import PeerIdentity
from waypost.messaging.request_signatures import sign_result
from waypost.net.clock import SystemClock

NEWS = {"messageId": "m-1", "swarmId": "s-1", "from": CAROL, "content": "half is done", "contentType": "text/plain"}


class Known:
    """Alice and Carol, by their keys."""

    async def find(self, agent: str) -> Contact | None:
        if agent not in (ALICE, CAROL):
            return None
        public = key_of(agent).public
        key = PeerIdentity(agent=agent, fingerprint=public.fingerprint() or "", by="given", key=public)
        return Contact(agent=agent, url="wss://nowhere.invalid", key=key)


class RecordingHandler:
    """Bob's program: it records received callbacks, or fails."""

    def __init__(self) -> None:
        self.taken: list[ReceivedCallback] = []
        self.is_closed = False

    async def take(self, posted: ReceivedCallback) -> None:
        if self.is_closed:
            raise OSError("the desk is closed")
        self.taken.append(posted)


@pytest.fixture
async def desk() -> AsyncIterator[tuple[RecordingHandler, httpx2.AsyncClient]]:
    made = RecordingHandler()
    async with LiveAgent(BOB, key_of(BOB), contacts=(Known(),)) as agent:
        transport = httpx2.ASGITransport(agent.callbacks(made.take), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="https://bob.example.com") as client:
            yield made, client


def signed(document: dict[str, object], sender: str = ALICE, to: str = BOB, ago: float = 0) -> dict[str, object]:
    body = json.dumps(document).encode()
    now = SystemClock().now() - ago
    message_id = str(document.get("messageId") or document.get("taskId"))
    return {"content": body, "headers": dict(sign_result(key_of(sender), message_id, sender, to, now, body))}


async def test_a_signed_callback_is_delivered_once_with_its_signer(
    desk: tuple[RecordingHandler, httpx2.AsyncClient],
) -> None:
    made, client = desk
    for _ in range(2):
        assert (await client.post("/news", **signed(NEWS))).status_code == 204  # type: ignore[arg-type]
    result = {"taskId": "t-1", "status": "succeeded", "result": {"text": "done"}}
    assert (await client.post("/news", **signed(result, CAROL))).status_code == 204  # type: ignore[arg-type]
    assert [(each.id, each.sender, each.is_result) for each in made.taken] == [
        ("m-1", ALICE, False),
        ("t-1", CAROL, True),
    ]
    assert made.taken[0].document == NEWS


async def test_a_misaddressed_old_altered_or_unsigned_callback_is_refused(
    desk: tuple[RecordingHandler, httpx2.AsyncClient],
) -> None:
    made, client = desk
    changed = signed(NEWS) | {"content": json.dumps(NEWS | {"content": "all is done"}).encode()}
    for post in (signed(NEWS, to=CAROL), signed(NEWS, ago=4000), changed, {"content": b"{}"}):
        answer = await client.post("/news", **post)  # type: ignore[arg-type]
        assert answer.status_code in (401, 403), answer.text
        assert answer.json()["message"]
    assert (await client.post("/news", **signed({"a": 1}))).status_code == 400  # type: ignore[arg-type]
    assert made.taken == []


async def test_a_message_that_failed_is_accepted_when_it_is_posted_again(
    desk: tuple[RecordingHandler, httpx2.AsyncClient],
) -> None:
    made, client = desk
    made.is_closed = True
    assert (await client.post("/news", **signed(NEWS))).status_code == 500  # type: ignore[arg-type]
    made.is_closed = False
    assert (await client.post("/news", **signed(NEWS))).status_code == 204  # type: ignore[arg-type]
    assert [each.id for each in made.taken] == ["m-1"]
