"""Two agents over one link: they meet, talk, lose the line and meet again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from support.agp import ALICE, BOB, Meeting, correspondent, echo, text_of
from waypost.meeting.conversation import Conversation
from waypost.meeting.mail import Letter
from waypost.net.clock import ManualClock
from waypost.stores.keeper_memory import MemoryKeeper
from waypost.wire.agp import Content


async def test_a_question_is_answered_and_both_sides_are_verified() -> None:
    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, chat=echo)
    async with Meeting(alice, bob):
        answer = await text_of(alice.ask(alice.letter(BOB, Content(text="hello"))))
        assert answer == "echo: hello"
        for side, peer in ((alice, BOB), (bob, ALICE)):
            verdict = side.conversations[peer].verdict()
            assert verdict is not None
            assert (verdict.check, verdict.state) == ("peer-verified", "passed")
            assert verdict.evidence["key_by"] == "given"


async def test_an_answer_comes_in_parts() -> None:
    async def count(letter: Letter, conversation: Conversation | None) -> AsyncIterator[Content]:
        for number in range(3):
            yield Content(text=str(number), more=True)
        yield Content()

    alice, bob = await correspondent(ALICE, BOB), await correspondent(BOB, ALICE, chat=count)
    async with Meeting(alice, bob):
        parts = [part.content.text async for part in alice.ask(alice.letter(BOB, Content(text="count")))]
        assert parts == ["0", "1", "2", ""]


async def test_what_was_said_while_nobody_was_there_is_delivered_once_on_the_next_line() -> None:
    heard: list[str] = []

    async def note(letter: Letter, conversation: Conversation | None) -> AsyncIterator[Content]:
        heard.append(letter.content.text)
        yield Content(text="ok")

    kept = MemoryKeeper(), MemoryKeeper()
    alice = await correspondent(ALICE, BOB, keeper=kept[0])
    bob = await correspondent(BOB, ALICE, keeper=kept[1], chat=note)
    for number in range(5):
        await alice.send(alice.letter(BOB, Content(text=f"early {number}")))
    for line in range(3):
        async with Meeting(alice, bob):
            assert await text_of(alice.ask(alice.letter(BOB, Content(text=f"line {line}")))) == "ok"
    assert heard == [*(f"early {number}" for number in range(5)), "line 0", "line 1", "line 2"]


async def test_a_line_that_is_cut_again_and_again_loses_and_repeats_nothing() -> None:
    heard: list[str] = []

    async def note(letter: Letter, conversation: Conversation | None) -> AsyncIterator[Content]:
        heard.append(letter.content.text)
        yield Content(text="ok")

    late: list[str] = []

    async def take_late(letter: Letter) -> None:
        late.append(letter.content.reply_to or "")

    clock = ManualClock()
    alice = await correspondent(ALICE, BOB, answered=take_late, clock=clock)
    bob = await correspondent(BOB, ALICE, chat=note, clock=clock)
    letters = [alice.letter(BOB, Content(text=str(number))) for number in range(200)]
    sent = 0
    for turn in range(40):
        async with Meeting(alice, bob) as meeting:
            for letter in letters[sent : sent + 5]:
                await alice.send(letter)
            sent += 5
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            meeting.ends[0].cut()
        clock.advance(2)
    async with Meeting(alice, bob), asyncio.timeout(20):
        while len(heard) < 200 or len(late) < 200:
            await asyncio.sleep(0)
    assert sorted(heard, key=int) == [str(number) for number in range(200)]
    assert sorted(late) == sorted(letter.id for letter in letters)
