"""Mailboxes of offline agents have limits of number, size, sender and time."""

from __future__ import annotations

import msgspec
import pytest

from support.agp import ALICE, BOB, signed
from waypost import limits
from waypost.errors import QuotaExceeded
from waypost.messaging.message_store import OUTBOX_KIND, AgentMessage, MessageStore
from waypost.messaging.relay import Mailboxes
from waypost.net.clock import ManualClock
from waypost.protocols.adp.agp.messages import MessageContent, parse_message
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import KeyValueWrite


async def frames(made: Mailboxes) -> list[str]:
    return [frame for _, frame in await made.frames(BOB)]


async def boxes() -> tuple[Mailboxes, ManualClock, MemoryKeyValueStore]:
    keeper, clock = MemoryKeyValueStore(), ManualClock()
    await keeper.open()
    return Mailboxes(keeper, clock), clock, keeper


async def deposit(made: Mailboxes, clock: ManualClock, sender: str, number: int, text: str = "") -> str:
    frame = signed(sender, BOB, text or str(number), at=clock.now(), id=f"{sender}-{number}")
    await made.deposit(BOB, parse_message(frame), frame)
    return frame


async def test_stored_frames_are_returned_unchanged_and_in_order_until_removed() -> None:
    made, clock, keeper = await boxes()
    kept = [await deposit(made, clock, ALICE, number) for number in (3, 1, 2)]
    assert await frames(made) == kept
    assert await frames(Mailboxes(keeper, clock)) == kept  # after a restart
    again = signed(ALICE, BOB, "3", at=clock.now() + 1, id=f"{ALICE}-3")  # signed again, it replaces itself
    await made.deposit(BOB, parse_message(again), again)
    assert sorted(await frames(made)) == sorted([again, *kept[1:]])
    await made.remove(BOB, ALICE, (f"{ALICE}-3", f"{ALICE}-1"))
    assert await frames(made) == [kept[2]]


async def test_messages_too_old_for_their_receiver_are_dropped() -> None:
    made, clock, _ = await boxes()
    await deposit(made, clock, ALICE, 1)
    clock.advance(limits.AGP_MAILBOX_SECONDS - 1)
    assert len(await made.frames(BOB)) == 1
    clock.advance(2)
    assert await made.frames(BOB) == []
    assert limits.AGP_MAILBOX_SECONDS < limits.AGP_PAST_SECONDS


async def test_no_sender_fills_a_mailbox_for_the_others() -> None:
    made, clock, keeper = await boxes()
    for number in range(limits.AGP_MAILBOX_PER_SENDER):
        await deposit(made, clock, ALICE, number)
    with pytest.raises(QuotaExceeded):
        await deposit(made, clock, ALICE, -1)
    await deposit(made, clock, ALICE, 7)  # one that is there may come again
    await deposit(made, clock, "agent:carol.example.com", 1)
    with pytest.raises(QuotaExceeded):
        await deposit(Mailboxes(keeper, clock), clock, ALICE, -1)  # and after a restart


async def test_a_mailbox_has_a_size() -> None:
    made, clock, _ = await boxes()
    large = "x" * (limits.AGP_MAILBOX_BYTES // 10)
    for number in range(9):
        await deposit(made, clock, f"agent:sender{number}.example.com", number, large)
    with pytest.raises(QuotaExceeded):
        await deposit(made, clock, ALICE, 1, large)


async def test_queued_messages_are_counted_and_kept_in_order() -> None:
    keeper, clock = MemoryKeyValueStore(), ManualClock()
    await keeper.open()
    mail = MessageStore(ALICE, keeper, clock)
    letters = [AgentMessage(id=str(number), peer=BOB, content=MessageContent(text=str(number))) for number in range(5)]
    await mail.post(letters)
    assert await MessageStore(ALICE, keeper, clock).unacknowledged(BOB) == letters
    assert await MessageStore(BOB, keeper, clock).unacknowledged(ALICE) == []
    assert await mail.pending_peers() == [BOB]
    await mail.acknowledge(["1", "3", "unknown"])
    assert [letter.id for letter in await mail.unacknowledged(BOB)] == ["0", "2", "4"]
    clock.advance(limits.AGP_OUTBOX_SECONDS + 1)
    assert await mail.unacknowledged(BOB) == []


async def test_an_outbox_has_a_bound() -> None:
    keeper, clock = MemoryKeyValueStore(), ManualClock()
    await keeper.open()
    mail = MessageStore(ALICE, keeper, clock)
    most = limits.AGP_OUTBOX_PER_PEER
    await mail.post([AgentMessage(id=str(number), peer=BOB, content=MessageContent()) for number in range(most)])
    with pytest.raises(QuotaExceeded):
        await mail.post([AgentMessage(id="more", peer=BOB, content=MessageContent())])
    await mail.post([AgentMessage(id="other", peer="agent:carol.example.com", content=MessageContent())])
    await mail.acknowledge(["0"])
    await mail.post([AgentMessage(id="more", peer=BOB, content=MessageContent())])
    clock.advance(limits.AGP_OUTBOX_SECONDS + 1)  # undelivered messages are dropped
    await mail.post([AgentMessage(id=f"later {number}", peer=BOB, content=MessageContent()) for number in range(most)])


async def test_a_repeated_message_is_signed_with_a_later_time() -> None:
    keeper, clock = MemoryKeyValueStore(), ManualClock()
    await keeper.open()
    mail = MessageStore(ALICE, keeper, clock)
    letter = AgentMessage(id="1", peer=BOB, content=MessageContent(), at=clock.now())
    await mail.post([letter])
    first = mail.signing_time(letter, clock.now())
    assert mail.signing_time(letter, clock.now()) == first + 1
    restarted = MessageStore(ALICE, keeper, clock)
    [kept] = await restarted.unacknowledged(BOB)
    assert restarted.signing_time(kept, clock.now()) > first


async def test_letters_of_earlier_versions_are_read() -> None:
    """They were kept as JSON."""
    keeper, clock = MemoryKeyValueStore(), ManualClock()
    await keeper.open()
    letter = AgentMessage(id="1", peer=BOB, content=MessageContent(text='a "quoted" word\n'), at=clock.now())
    older = KeyValueWrite(kind=OUTBOX_KIND, key=f"{ALICE} {BOB} {0:020d} 1", value=msgspec.json.encode(letter))
    await keeper.commit([older], clock.now())
    mail = MessageStore(ALICE, keeper, clock)
    newer = msgspec.structs.replace(letter, id="2")
    await mail.post([newer])
    assert await mail.unacknowledged(BOB) == [letter, newer]
