"""AGP conversations without a network: two ends of a link, agents with keys, seeded randomness."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

from waypost.messaging.connection import AgpConnection, AgpTimeouts, LinkLost
from waypost.messaging.endpoint import AgpEndpoint
from waypost.messaging.message_store import AgentMessage
from waypost.messaging.peers import KeySource, PeerIdentity
from waypost.model.names import domain_of
from waypost.model.times import to_rfc3339
from waypost.net.clock import ManualClock
from waypost.protocols.adp.agp.hello import AgpIdentity
from waypost.protocols.adp.agp.messages import MessageContent, sign
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.server.http.asgi import App
from waypost.trust.keys.private_key import PrivateKey, new_private_key

WAIT_SECONDS = 60.0
_SEEDS = itertools.count(1)  # no two draw the same
ALICE, BOB, CAROL = "agent:alice.example.com", "agent:bob.example.com", "agent:carol.example.com"


class SeededDraws:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def message_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def nonce(self) -> bytes:
        return self._random.randbytes(24)


def key_of(agent: str) -> PrivateKey:
    return new_private_key("ed25519", random.Random(agent).randbytes(32))


def party(agent: str, key: PrivateKey | None = None) -> AgpIdentity:
    key = key or key_of(agent)
    return AgpIdentity(agent=agent, key=key, fingerprint=key.public.fingerprint() or "", raw=key.public.raw or b"")


class StaticKeys:
    """Fingerprints that were obtained by other means."""

    def __init__(self, fingerprints: Mapping[str, str] | None = None, by: KeySource = "given") -> None:
        self._by: KeySource = by
        self.fingerprints: dict[str, str] = dict(fingerprints or {})

    async def key_of(self, agent: str) -> PeerIdentity | None:
        found = self.fingerprints.get(agent)
        if found is None:
            return None
        return PeerIdentity(agent=agent, fingerprint=found, by=self._by, domain=domain_of(agent) or "")


def known(*agents: str) -> StaticKeys:
    return StaticKeys({agent: key_of(agent).public.fingerprint() or "" for agent in agents})


class MemoryLink:
    """One end. `most`: how many frames may be queued before `send` blocks."""

    def __init__(self, most: int = 64) -> None:
        self.frames: asyncio.Queue[str | bytes | LinkLost] = asyncio.Queue(most)
        self.other: MemoryLink
        self.closed: tuple[int, str] | None = None
        self.sent: list[str] = []

    async def send(self, frame: str) -> None:
        if self.closed is not None:
            raise LinkLost(*self.closed)
        self.sent.append(frame)
        await self.other.frames.put(frame)

    async def receive(self) -> str | bytes:
        frame = await self.frames.get()
        if isinstance(frame, LinkLost):
            raise frame
        return frame

    async def close(self, code: int, reason: str) -> None:
        for end in (self, self.other):
            if end.closed is None:
                end.closed = (code, reason)
                while end.frames.full():
                    end.frames.get_nowait()
                end.frames.put_nowait(LinkLost(code, reason))

    def cut(self) -> None:
        """Cut the connection without a close frame."""
        for end in (self, self.other):
            if end.closed is None:
                end.closed = (1006, "")
                while not end.frames.empty():
                    end.frames.get_nowait()
                end.frames.put_nowait(LinkLost())


def pair(most: int = 64) -> tuple[MemoryLink, MemoryLink]:
    one, two = MemoryLink(most), MemoryLink(most)
    one.other, two.other = two, one
    return one, two


async def echo(letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
    yield MessageContent(text=f"echo: {letter.content.text}")


async def correspondent(
    agent: str, *peers: str, keeper: MemoryKeyValueStore | None = None, **named: Any
) -> AgpEndpoint:
    keeper = keeper or MemoryKeyValueStore()
    await keeper.open()
    clock = named.pop("clock", None) or ManualClock()
    return AgpEndpoint(
        party(agent), keeper, known(*peers), clock, SeededDraws(next(_SEEDS)), **{"timeouts": AgpTimeouts(), **named}
    )


class Meeting:
    """Two endpoints on one link. Use as `async with`."""

    def __init__(self, caller: AgpEndpoint, answerer: AgpEndpoint, most: int = 64) -> None:
        self.caller, self.answerer = caller, answerer
        self.ends = pair(most)
        self.outcomes: list[BaseException | None] = []

    async def __aenter__(self) -> Meeting:
        near, far = self.ends
        opened = asyncio.Event()
        both = 2

        async def count(_: AgpConnection) -> None:
            nonlocal both
            both -= 1
            if not both:
                opened.set()

        self._tasks = [
            asyncio.create_task(self.caller.run_connection(near, peer=self.answerer.me.agent, opened=count)),
            asyncio.create_task(self.answerer.run_connection(far, opened=count)),
        ]
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait([*self._tasks, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_SECONDS)
        waiting.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ends[0].cut()
        await self.ended()

    async def ended(self) -> list[BaseException | None]:
        async with asyncio.timeout(WAIT_SECONDS):
            self.outcomes = list(await asyncio.gather(*self._tasks, return_exceptions=True))
        return self.outcomes


async def text_of(asking: AsyncIterator[AgentMessage]) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        return "".join([part.content.text async for part in asking])


# --- Raw frames, right and wrong -------------------------------------------------------------------


def signed(
    sender: str,
    to: str,
    text: str = "",
    *,
    kind: str = "chat",
    at: float,
    key: PrivateKey | None = None,
    **changed: Any,
) -> str:
    """The frame of a message. Members in `changed` are set before signing; `body` and `signature` after."""
    said = {"id": changed.pop("id", str(uuid.uuid4())), "from": sender, "to": to, "type": kind}
    said |= {"timestamp": to_rfc3339(at)} | {
        name: value for name, value in changed.items() if name not in ("body", "signature")
    }
    covered = "\n".join([*(str(said[name]) for name in ("id", "from", "to", "type", "timestamp")), text]).encode()
    signature = sign(key or key_of(sender), covered)
    document = {**said, "signature": signature, "body": {"content": text, "contentType": "text/plain"}}
    return json.dumps({**document, **{name: changed[name] for name in ("body", "signature") if name in changed}})


def hello_text(sender: str, *, nonce: str = "n" * 32, key: PrivateKey | None = None, **changed: Any) -> str:
    shown = (key or key_of(sender)).public
    raw = urlsafe_b64encode(shown.raw or b"").rstrip(b"=").decode()
    told = {"action": "hello", "protocol": "ADP/1.1", "agent": sender, "fingerprint": shown.fingerprint()}
    return json.dumps(told | {"nonce": nonce, "key": raw} | changed)


def action_of(frame: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads(frame)["body"]["content"])
    return found


class Socket:
    """A WebSocket to a service in this process."""

    def __init__(self, application: App, path: str = "/agent/chat", host: str = "127.0.0.1", **headers: str) -> None:
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "ws",
            "client": ("127.0.0.1", 1),
            "subprotocols": ["adp-v1"],
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        self._sent.put_nowait({"type": "websocket.connect"})
        self._task = asyncio.create_task(application(scope, self._sent.get, self._heard.put))  # type: ignore[arg-type]

    async def __aenter__(self) -> Socket:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self, code: int = 1000) -> None:
        """Close; 1006 is what the other side sees of a cut connection."""
        self._sent.put_nowait({"type": "websocket.disconnect", "code": code})
        await asyncio.wait([self._task], timeout=WAIT_SECONDS)

    def send(self, frame: str | bytes) -> None:
        name = "bytes" if isinstance(frame, bytes) else "text"
        self._sent.put_nowait({"type": "websocket.receive", name: frame})

    async def event(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._heard.get()

    async def receive(self) -> str:
        event = await self.event()
        if event["type"] == "websocket.accept":
            event = await self.event()
        assert event["type"] == "websocket.send", event
        return str(event["text"])

    async def closed(self) -> tuple[int, str | None]:
        """The code of the close frame, and that of the error message before it."""
        told: str | None = None
        while (event := await self.event())["type"] != "websocket.close":
            if event["type"] == "websocket.send" and json.loads(event["text"])["type"] == "system":
                told = action_of(event["text"]).get("code", told)
        return event["code"], told

    async def answer(self, frame: str) -> str:
        """Send a message and return the text of the reply, once it is acknowledged and answered."""
        said = json.loads(frame)
        self.send(frame)
        found: str | None = None
        is_acknowledged = False
        while found is None or not is_acknowledged:
            heard = json.loads(await self.receive())
            body = heard["body"]
            is_acknowledged |= heard["type"] == "ack" and said["id"] in body["content"].split()
            if heard["type"] == said["type"] and body.get("replyTo") == said["id"]:
                found = body["content"]
        return found

    async def open(self, sender: str, to: str, at: float, *, key: PrivateKey | None = None) -> None:
        """The handshake, message by message."""
        self.send(signed(sender, to, hello_text(sender, key=key), kind="system", at=at, key=key))
        answer = action_of(await self.receive())
        assert answer["action"] == "hello", answer
        self.send(signed(sender, to, answer["nonce"], kind="ack", at=at, key=key))
