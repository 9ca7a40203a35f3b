"""Where results of tasks and news of swarms are posted to (`callback`): an ASGI application for a program of one's own.

It takes what an agent signed for ours (adp.md §7, P-5), hands it over once, and answers when the handler is done: what fails is
posted again. It knows no server; mount it in one that speaks https.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import Conflict, InvalidDocument, InvalidRequest, TooLarge, Unauthorized, WaypostError, codes_of
from waypost.meeting.peers import PeerKeys
from waypost.meeting.signatures import SIGNATURE, Signatures, read_signed
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.registry.keeping import Keeper, Write
from waypost.wire.agp_signing import VerifyingKey

POSTED = "callback"  # by agent, sender and id: what was handed over
_IDS = ("messageId", "taskId")
_BODY_BYTES = 2 * limits.TASK_RESULT_BYTES


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """What another agent posted: the status of a task that ended, or what was told in a swarm."""

    id: str
    sender: str  # who signed it
    document: JsonObject

    @property
    def is_result(self) -> bool:
        return "taskId" in self.document


Handler = Callable[[Posted], Awaitable[None]]
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Callbacks:
    """The application. `LiveAgent.callbacks` makes one for its agent."""

    def __init__(
        self, agent: str, peers: PeerKeys, keeper: Keeper, handler: Handler, now: Callable[[], float] = time.time
    ) -> None:
        self._agent = agent
        self._peers = peers
        self._keeper = keeper
        self._handler = handler
        self._now = now
        self._signatures = Signatures(self._key_of, keeper, now)
        self._working: set[str] = set()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            raise InvalidRequest("This takes requests only.", path="callback", hint="Mount it under a path of its own.")
        status, body = 204, b""
        try:
            await self._take(scope, receive)
        except WaypostError as error:
            status, body = codes_of(error).http, dump_json({"code": error.code, "message": str(error)})
        headers = [(b"content-type", b"application/json")] if body else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _take(self, scope: _Scope, receive: _Receive) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        signed = read_signed(lambda name: headers[name].decode("latin-1") if name in headers else None)
        if scope["method"] != "POST" or signed is None:
            raise Unauthorized("What is posted here is signed.", path=SIGNATURE, hint="Send the headers of P-5.")
        body = await _body(receive)
        document = parse_object(body, max_bytes=_BODY_BYTES)
        posted_id = next((document[name] for name in _IDS if isinstance(document.get(name), str)), None)
        if posted_id is None or not 0 < len(posted_id) <= limits.ID_CHARS:
            raise InvalidDocument(
                "Of what is this?", path="$.messageId", hint="Send the id of the message or the task."
            )
        await self._signatures.check_result(signed, posted_id, self._agent, body)
        await self._hand_over(Posted(id=posted_id, sender=signed.agent, document=document))

    async def _hand_over(self, posted: Posted) -> None:
        """Once: whoever posts it again may have missed our answer."""
        key = f"{self._agent} {posted.sender} {posted.id}"
        if await self._keeper.get(POSTED, key, self._now()) is not None:
            return
        if key in self._working:
            raise Conflict("This is being handed over.", path="$.messageId", hint="Post it again later.")
        self._working.add(key)
        try:
            await self._handler(posted)
            ends = self._now() + limits.AGP_SEEN_SECONDS
            await self._keeper.commit([Write(kind=POSTED, key=key, value=b"1", expires_at=ends)], self._now())
        finally:
            self._working.discard(key)

    async def _key_of(self, agent: str) -> VerifyingKey | None:
        found = await self._peers.key_of(agent)
        return None if found is None else found.key


async def _body(receive: _Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > _BODY_BYTES:
            raise TooLarge(f"At most {_BODY_BYTES} bytes are taken.", path="$", hint="Send a smaller result.")
        if not message.get("more_body", False):
            return b"".join(parts)
