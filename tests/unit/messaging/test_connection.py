"""Two agents over one link: connect, chat, lose the connection and reconnect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from support.agp import (
    ALICE,
    BOB,
    CAROL,
    WAIT_SECONDS,
    Meeting,
    MemoryLink,
    SeededDraws,
    action_of,
    correspondent,
    echo,
    hello_text,
    key_of,
    pair,
    party,
    signed,
    text_of,
)
from waypost import limits
from waypost.errors import BadSignature, HandshakeTimeout, Timeout, Unavailable
from waypost.messaging.connection import AgpConnection, AgpTimeouts
from waypost.messaging.endpoint import AgpEndpoint, PendingAnswer, reply_id
from waypost.messaging.message_store import OUTBOX_KIND, AgentMessage, RetentionPolicy
from waypost.net.clock import ManualClock
from waypost.protocols.adp.agp.messages import MessageContent
from waypost.protocols.adp.agp.session import AgpSession
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import KeyValueWrite


async def test_a_question_is_answered_and_both_sides_are_verified() -> None:
    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, on_chat=echo)
    async with Meeting(alice, bob):
        answer = await text_of(alice.stream_answer(alice.make_message(BOB, MessageContent(text="hello"))))
        assert answer == "echo: hello"
        for side, peer in ((alice, BOB), (bob, ALICE)):
            verdict = side.connections[peer].verdict()
            assert verdict is not None
            assert (verdict.check, verdict.state) == ("peer-verified", "passed")
            assert verdict.evidence["key_by"] == "given"


@pytest.mark.parametrize("suspended", [ALICE, BOB])
async def test_after_a_suspend_agents_still_understand_each_other(suspended: str) -> None:
    """The clock that does not jump stood still on one machine (E13)."""
    clocks = {ALICE: ManualClock(), BOB: ManualClock()}
    alice = await correspondent(ALICE, BOB, clock=clocks[ALICE])
    bob = await correspondent(BOB, ALICE, clock=clocks[BOB], on_chat=echo)
    for agent, clock in clocks.items():
        (clock.jump if agent == suspended else clock.advance)(86_400)
    async with Meeting(alice, bob):
        answer = await text_of(alice.stream_answer(alice.make_message(BOB, MessageContent(text="hello"))))
        assert answer == "echo: hello"


async def test_the_result_of_a_task_is_a_task_as_its_request_was() -> None:
    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, on_task=echo)
    async with Meeting(alice, bob):
        [answer] = [
            part async for part in alice.stream_answer(alice.make_message(BOB, MessageContent(text="{}"), kind="task"))
        ]
        assert (answer.kind, answer.content.text) == ("task", "echo: {}")


async def test_an_answer_comes_in_parts() -> None:
    async def count(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        for number in range(3):
            yield MessageContent(text=str(number), more=True)
        yield MessageContent()

    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, on_chat=count)
    async with Meeting(alice, bob):
        parts = [
            part.content.text
            async for part in alice.stream_answer(alice.make_message(BOB, MessageContent(text="count")))
        ]
        assert parts == ["0", "1", "2", ""]


async def test_messages_for_an_offline_agent_are_delivered_once_on_its_next_connection() -> None:
    heard: list[str] = []

    async def note(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        heard.append(letter.content.text)
        yield MessageContent(text="ok")

    kept = MemoryKeyValueStore(), MemoryKeyValueStore()
    alice = await correspondent(ALICE, BOB, keeper=kept[0])
    bob = await correspondent(BOB, ALICE, keeper=kept[1], on_chat=note)
    for number in range(5):
        await alice.send(alice.make_message(BOB, MessageContent(text=f"early {number}")))
    for line in range(3):
        async with Meeting(alice, bob):
            assert (
                await text_of(alice.stream_answer(alice.make_message(BOB, MessageContent(text=f"line {line}")))) == "ok"
            )
    assert heard == [*(f"early {number}" for number in range(5)), "line 0", "line 1", "line 2"]


class Hesitant(MemoryKeyValueStore):
    """A keeper that is slow to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.may_forget = asyncio.Event()

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        if any(write.kind == OUTBOX_KIND and write.value is None for write in writes):
            await self.may_forget.wait()
        return await super().commit(writes, now)


async def called(bob: AgpEndpoint, now: float) -> tuple[MemoryLink, asyncio.Task[None]]:
    """A line of alice to bob, by hand: she acknowledges nothing that he says."""
    near, far = pair()
    task = asyncio.create_task(bob.run_connection(far))
    await near.send(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now))
    answer = action_of(str(await near.receive()))
    await near.send(signed(ALICE, BOB, answer["nonce"], kind="ack", at=now))
    return near, task


async def replies_until_echo(near: MemoryLink, now: float, text: str) -> list[str]:
    """What bob says until he has answered."""
    await near.send(signed(ALICE, BOB, text, at=now))
    said: list[str] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while f"echo: {text}" not in said:
            frame = json.loads(await near.receive())
            if frame["type"] == "chat":
                said.append(frame["body"]["content"])
    return said


async def test_a_peer_that_reconnects_after_an_orderly_close_gets_no_duplicate() -> None:
    keeper, clock = Hesitant(), ManualClock()
    bob = await correspondent(
        BOB, ALICE, on_chat=echo, keeper=keeper, clock=clock, retention=RetentionPolicy(only_cut=True)
    )
    near, first = await called(bob, clock.now())
    assert await replies_until_echo(near, clock.now(), "one") == ["echo: one"]
    await near.close(1000, "")
    near, second = await called(bob, clock.now())
    assert await replies_until_echo(near, clock.now(), "two") == ["echo: two"]
    near.cut()
    keeper.may_forget.set()
    await asyncio.gather(first, second, return_exceptions=True)
    near, third = await called(bob, clock.now())
    assert await replies_until_echo(near, clock.now(), "three") == ["echo: two", "echo: three"]  # that line was cut
    near.cut()
    await asyncio.gather(third, return_exceptions=True)


async def test_a_line_that_is_cut_again_and_again_loses_and_repeats_nothing() -> None:
    heard: list[str] = []

    async def note(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        heard.append(letter.content.text)
        yield MessageContent(text="ok")

    late: list[str] = []

    async def take_late(letter: AgentMessage) -> None:
        late.append(letter.content.reply_to or "")

    clock = ManualClock()
    alice = await correspondent(ALICE, BOB, on_late_answer=take_late, clock=clock)
    bob = await correspondent(BOB, ALICE, on_chat=note, clock=clock)
    letters = [alice.make_message(BOB, MessageContent(text=str(number))) for number in range(75)]
    sent = 0
    for turn in range(15):
        async with Meeting(alice, bob) as meeting:
            for letter in letters[sent : sent + 5]:
                await alice.send(letter)
            sent += 5
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            meeting.ends[0].cut()
        clock.advance(2)
    async with Meeting(alice, bob), asyncio.timeout(WAIT_SECONDS):
        while len(heard) < 75 or len(late) < 75:
            await asyncio.sleep(0)
    assert sorted(heard, key=int) == [str(number) for number in range(75)]
    assert sorted(late) == sorted(letter.id for letter in letters)


# --- What goes wrong --------------------------------------------------------------------------------


async def test_a_handshake_that_takes_too_long_ends_with_its_code() -> None:
    bob = await correspondent(BOB, ALICE, timeouts=AgpTimeouts(handshake_seconds=0.02))
    near, far = pair()
    with pytest.raises(HandshakeTimeout):
        await bob.run_connection(far)
    assert near.closed is not None
    assert near.closed[0] == 4408


async def test_a_peer_that_takes_nothing_loses_the_session_and_none_of_its_messages() -> None:
    timing = AgpTimeouts(heartbeat_seconds=0.03, stall_seconds=0.02)
    alice, bob = await correspondent(ALICE, BOB, timeouts=timing), await correspondent(BOB, ALICE)
    near, far = pair(most=2)
    opened = asyncio.Event()

    async def told(_: AgpConnection) -> None:
        opened.set()

    calling = asyncio.create_task(alice.run_connection(near, peer=BOB, opened=told))
    answering = asyncio.create_task(bob.run_connection(far))
    await asyncio.wait_for(opened.wait(), WAIT_SECONDS)
    answering.cancel()  # no reader from now on
    for number in range(20):
        await alice.send(alice.make_message(BOB, MessageContent(text=str(number))))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(calling, WAIT_SECONDS)
    assert len(await alice.store.unacknowledged(BOB)) == 20
    await asyncio.gather(answering, return_exceptions=True)


async def test_a_flood_waits_on_the_side_of_the_sender() -> None:
    """A handler that is stuck stops the reading: what waits here has a bound."""
    stuck = asyncio.Event()

    async def wait(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        await stuck.wait()
        yield MessageContent(text="ok")

    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, on_chat=wait)
    count = 4 * limits.AGP_QUEUE
    async with Meeting(alice, bob) as meeting:
        sending = asyncio.create_task(_send_all(alice, count))
        bound = 2 * limits.AGP_QUEUE + limits.AGP_WINDOW + limits.AGP_ACK_IDS
        for _ in range(50):
            await asyncio.sleep(0.002)
            assert len(await bob.store.unfinished()) <= bound
        assert len(await alice.store.unacknowledged(BOB)) >= count - bound
        stuck.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await sending
            while await alice.store.unacknowledged(BOB):
                await asyncio.sleep(0.01)
        assert meeting.ends[0].closed is None


async def test_in_a_batch_messages_after_a_forged_one_are_neither_delivered_nor_acknowledged() -> None:
    heard: list[str] = []

    async def note(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        heard.append(letter.content.text)
        return
        yield

    clock = ManualClock()
    bob = await correspondent(BOB, ALICE, on_chat=note, clock=clock)
    near, far = pair()
    conversing = asyncio.create_task(bob.run_connection(far))
    peer = AgpSession(party(ALICE), SeededDraws(7), peer=BOB, calls=True)
    async with asyncio.timeout(WAIT_SECONDS):
        await near.send(peer.call(clock.now()))
        peer.receive(await near.receive(), clock.now())
        for frame in peer.admit(key_of(BOB).public, clock.now()):
            await near.send(frame)
        frames = [signed(ALICE, BOB, f"{number}", at=clock.now(), id=f"id-{number}") for number in range(40)]
        frames[30] = signed(ALICE, BOB, "forged", at=clock.now(), key=key_of(CAROL))
        for frame in frames:
            await near.send(frame)
        with pytest.raises(BadSignature):
            await conversing
        kept = len([letter for letter in await bob.store.unfinished() if letter.content.text not in heard]) + len(heard)
        while len(heard) < kept:
            await asyncio.sleep(0.01)
    assert near.closed is not None
    assert near.closed[0] == 4401
    assert heard == [str(number) for number in range(len(heard))]
    told = [json.loads(frame) for frame in far.sent]
    acknowledged = [name for each in told if each["type"] == "ack" for name in each["body"]["content"].split()]
    assert set(acknowledged) <= {f"id-{text}" for text in heard}
    assert len(heard) <= 30


async def _send_all(sender: AgpEndpoint, count: int) -> None:
    for number in range(count):
        await sender.send(sender.make_message(BOB, MessageContent(text=str(number))))


async def test_silence_is_broken_by_heartbeats_and_ends_without_them() -> None:
    timing = AgpTimeouts(heartbeat_seconds=0.03, silence_seconds=60)
    alice, bob = await correspondent(ALICE, BOB, timeouts=timing), await correspondent(BOB, ALICE, timeouts=timing)
    async with Meeting(alice, bob) as meeting:
        await _until(lambda: sum('"heartbeat' in frame.replace("\\", "") for frame in meeting.ends[0].sent) > 2)
        assert bob.connections[ALICE].is_open
    near, far = pair()
    bob = await correspondent(BOB, ALICE, timeouts=AgpTimeouts(heartbeat_seconds=0.03, silence_seconds=2.0))
    calling = asyncio.create_task(alice.run_connection(near, peer=BOB))
    answering = asyncio.create_task(bob.run_connection(far))
    await _until(lambda: BOB in alice.connections)
    calling.cancel()  # gone without a word, and the line stays
    with pytest.raises(Unavailable):
        await asyncio.wait_for(answering, WAIT_SECONDS)
    await asyncio.gather(calling, return_exceptions=True)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_a_handler_that_fails_costs_its_answer_and_nothing_else() -> None:
    async def fail(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        if letter.content.text == "fail":
            raise ValueError("a fault of a handler")
        yield MessageContent(text="fine")

    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, on_chat=fail)
    async with Meeting(alice, bob):
        assert "failed to answer" in await text_of(
            alice.stream_answer(alice.make_message(BOB, MessageContent(text="fail")))
        )
        assert await text_of(alice.stream_answer(alice.make_message(BOB, MessageContent(text="go on")))) == "fine"


async def test_a_handler_may_ask_back_in_the_same_conversation() -> None:
    async def ask_back(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        yield MessageContent(
            text="bob heard " + await text_of(bob.stream_answer(bob.make_message(ALICE, MessageContent(text="what?"))))
        )

    alice = await correspondent(ALICE, BOB, on_chat=echo)
    bob = await correspondent(BOB, ALICE, on_chat=ask_back)
    async with Meeting(alice, bob):
        assert (
            await text_of(alice.stream_answer(alice.make_message(BOB, MessageContent(text="hello"))))
            == "bob heard echo: what?"
        )


async def test_a_message_unfinished_at_a_restart_is_redelivered_and_marked() -> None:
    keeper, heard = MemoryKeyValueStore(), []

    async def never(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        await asyncio.Event().wait()
        yield MessageContent()

    async def note(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        heard.append((letter.content.text, letter.again))
        yield MessageContent(text="at last")

    clock = ManualClock()
    alice = await correspondent(ALICE, BOB, clock=clock)
    bob = await correspondent(BOB, ALICE, keeper=keeper, on_chat=never, clock=clock)
    question = alice.make_message(BOB, MessageContent(text="are you there?"))
    async with Meeting(alice, bob):
        await alice.send(question)
        async with asyncio.timeout(WAIT_SECONDS):
            while await alice.store.unacknowledged(BOB):
                await asyncio.sleep(0.005)
    await bob.close()
    late: list[str] = []

    async def take(letter: AgentMessage) -> None:
        late.append(letter.content.text)

    clock.advance(2)
    alice.on_late_answer = take
    again = await correspondent(BOB, ALICE, keeper=keeper, on_chat=note, clock=clock)
    await again.recover()
    async with Meeting(alice, again):
        await _until(lambda: bool(late))
    assert heard == [("are you there?", True)]
    assert late == ["at last"]
    assert await again.store.unfinished() == []


async def test_a_relay_cannot_pass_an_answer_off_as_one_to_another_question() -> None:
    """`replyTo` is not signed; the id of an answer follows from its question, and is."""
    first, second = "question one", "question two"
    letter = AgentMessage(id="q1", peer=BOB, content=MessageContent(text=first))
    asked = PendingAnswer(letter)
    right = AgentMessage(
        id=reply_id("q1", 0, last=False), peer=BOB, content=MessageContent(text="a", reply_to="q1", more=True)
    )
    assert asked.add(right)
    other = AgentMessage(id=reply_id("q2", 1, last=True), peer=BOB, content=MessageContent(text=second, reply_to="q1"))
    assert not asked.add(other)
    assert not PendingAnswer(letter).add(
        AgentMessage(id="x", peer=ALICE, content=MessageContent(text="", reply_to="q1"))
    )


async def test_a_reply_that_takes_too_long_is_announced_and_delivered_later() -> None:
    gate = asyncio.Event()
    late: asyncio.Queue[AgentMessage] = asyncio.Queue()

    async def slow(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        await gate.wait()
        yield MessageContent(text="late")

    alice, bob = await correspondent(ALICE, BOB, on_late_answer=late.put), await correspondent(BOB, ALICE, on_chat=slow)
    async with Meeting(alice, bob):
        with pytest.raises(Timeout):
            await alice.request(alice.make_message(BOB, MessageContent(text="?")), seconds=0.01)
        gate.set()
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await late.get()).content.text == "late"
