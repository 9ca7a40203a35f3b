"""Messages that one node leaves for the agents of another one."""

from __future__ import annotations

from waypost import limits
from waypost.messaging.forwarding import MessageForwarding
from waypost.protocols.adp.agp.messages import JSON, MessageContent
from waypost.registry.memory_key_value import MemoryKeyValueStore

HERE, THERE = "http://10.0.0.1:8440", "http://10.0.0.2:8440"


class Nodes:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryKeyValueStore()

    async def open(self) -> tuple[MessageForwarding, MessageForwarding]:
        await self.store.open()
        here, there = (MessageForwarding(self.store, lambda: self.now, url) for url in (HERE, THERE))
        return here, there


def message(text: str) -> MessageContent:
    return MessageContent(text=text, type=JSON)


async def test_a_message_is_taken_once_by_the_node_it_was_left_for_and_in_order() -> None:
    nodes = Nodes()
    here, there = await nodes.open()
    for number in range(3):
        assert await here.put(THERE, "agent:bob.example.com", message(str(number)))
        nodes.now += 0.001
    assert await here.take() == []
    assert await there.take() == [("agent:bob.example.com", message(str(number))) for number in range(3)]
    assert await there.take() == []


async def test_a_node_that_sends_nothing_is_left_a_limited_number_of_messages_for_a_limited_time() -> None:
    nodes = Nodes()
    here, there = await nodes.open()
    for _ in range(limits.FORWARDED_MESSAGES):
        assert await here.put(THERE, "agent:bob.example.com", message("hello"))
    assert not await here.put(THERE, "agent:bob.example.com", message("one more"))
    assert await there.put(HERE, "agent:alice.example.com", message("hello")), "another node has its own limit"
    nodes.now += limits.FORWARDED_SECONDS + 1
    assert await there.take() == []
    assert await here.put(THERE, "agent:bob.example.com", message("one more"))
    assert await there.take() == [("agent:bob.example.com", message("one more"))]
