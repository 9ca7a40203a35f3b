"""The agent's side of a relay: many conversations on one line, told apart by who speaks."""

from __future__ import annotations

import asyncio
import logging

from waypost import limits
from waypost.errors import WaypostError
from waypost.meeting.conversation import Conversation, Ended, PeerFault
from waypost.meeting.correspondent import Correspondent
from waypost.meeting.link import Link, LinkLost
from waypost.model.json import JsonObject
from waypost.wire.agp import Message, read_frame
from waypost.wire.agp_hello import find_hello

log = logging.getLogger("waypost.meeting")


class _Guest:
    """A conversation on the line of the relay: a link of its own, as far as it can tell."""

    def __init__(self, line: RelayLine) -> None:
        self._line = line
        self.frames: asyncio.Queue[str | LinkLost] = asyncio.Queue(limits.AGP_QUEUE)

    async def send(self, frame: str) -> None:
        await self._line.send(frame)

    async def receive(self) -> str | bytes:
        frame = await self.frames.get()
        if isinstance(frame, LinkLost):
            raise frame
        return frame

    async def close(self, code: int, reason: str) -> None:
        """The line stays: others speak on it."""

    def lose(self) -> None:
        while self.frames.full():
            self.frames.get_nowait()
        self.frames.put_nowait(LinkLost(1001, "the other side is gone"))


class RelayLine:
    """A line to a relay (a `Link` for the conversation with the relay itself)."""

    def __init__(self, link: Link, correspondent: Correspondent, relay: str) -> None:
        self._link = link
        self._correspondent = correspondent
        self._relay = relay
        self._guests: dict[str, _Guest] = {}

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        try:
            while True:
                frame = await self._link.receive()
                if isinstance(frame, bytes):
                    return frame
                document = read_frame(frame)
                sender = str(document.get("from")).lower()
                if sender == self._relay:
                    return frame
                await self._passed_on(sender, document, frame)
        except LinkLost:
            for guest in list(self._guests.values()):
                guest.lose()
            raise

    async def close(self, code: int, reason: str) -> None:
        for guest in list(self._guests.values()):
            guest.lose()
        await self._link.close(code, reason)

    async def _passed_on(self, sender: str, document: JsonObject, frame: str) -> None:
        """What somebody said to us. What cannot be used costs its sender the conversation, and nobody the line."""
        try:
            is_hello = find_hello(document) is not None
            guest = self._guests.get(sender)
            if is_hello and len(self._guests) < limits.AGP_GUESTS:
                if guest is not None:
                    guest.lose()
                guest = self._guests[sender] = _Guest(self)
                self._correspondent.begin(self._converse(sender, guest))
            if guest is not None:
                await guest.frames.put(frame)
            elif not is_hello:
                await self._correspondent.take_kept(frame, self.send)
        except WaypostError as error:
            log.debug("what %s said through the relay was refused: %s", sender, error)

    async def _converse(self, sender: str, guest: _Guest) -> None:
        try:
            await self._correspondent.converse(guest)
        except (LinkLost, Ended, PeerFault, WaypostError) as error:
            log.debug("the conversation with %s through the relay ended: %s", sender, error)
        finally:
            if self._guests.get(sender) is guest:
                del self._guests[sender]

    async def controlled(self, conversation: Conversation, action: JsonObject, message: Message) -> bool:
        """A word of the relay itself."""
        if action["action"] == "gone":
            guest = self._guests.get(str(action.get("agent")).lower())
            if guest is not None:
                guest.lose()
        return True


async def attach(conversation: Conversation) -> None:
    """Ask the relay to keep this line for what is for us."""
    await conversation.control("attach")
