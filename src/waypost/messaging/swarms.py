"""Swarms: agents that work together on one task of a host agent (ADP-47, P-5). They join, leave and broadcast messages.

There is one swarm for each host and task. Only the caller that added a member, or the owner of the host, may change or remove
it. Anybody can write a name, so each member and each message has a verdict: `verified` (signed with the key of the agent, or by
the owner of a record that is proven), `registered` (by the owner of a self-asserted record), or `unverified`. A member that
proves its name replaces one that has not. A broadcast is stored for members that poll, posted to members with a callback, and
sent to connected members.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import Conflict, Forbidden, InvalidDocument, NotFound, RateLimited
from waypost.messaging.task_runner import CallbackDelivery
from waypost.model.json import dump_json
from waypost.model.times import to_rfc3339, to_rfc3339_millis
from waypost.registry.ports import KeyValueStore, KeyValueWrite
from waypost.responses.messaging import SwarmMemberView, SwarmMessage, SwarmView

NameVerdict = Literal["verified", "registered", "unverified"]

SWARM_KIND = "swarm"
MEMBERSHIP_KIND = "swarm-of"  # by the caller that added the member
SWARM_MESSAGE_KIND = "swarm-message"
DEFAULT_ROLE = "participant"
LEADER_ROLE = "coordinator"  # only for the owner of the host
_MAX_RETRIES = 64  # many may join concurrently


SendToMember = Callable[[str, SwarmMessage], Awaitable[None]]  # agent and message


async def _send_nothing(agent: str, message: SwarmMessage) -> None:
    """No member is connected."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    role: str
    joined_at: float
    by: str  # the caller that added it
    callback: str | None = None
    verdict: NameVerdict = "unverified"  # also of members that joined before there were verdicts


class Swarm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent: str  # the host
    task: str
    created_at: float
    members: tuple[Member, ...] = ()
    messages: int = 0  # number of broadcasts

    def member(self, agent: str) -> Member | None:
        return next((member for member in self.members if member.agent == agent), None)


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to join. `leads`: the caller owns the host."""

    host: str
    task: str
    agent: str
    role: str
    by: str
    callback: str | None = None
    leads: bool = False
    verdict: NameVerdict = "unverified"


_decode_swarm = msgspec.msgpack.Decoder(Swarm).decode


class SwarmStore:
    def __init__(
        self,
        store: KeyValueStore,
        now: Callable[[], float],
        on_message: Callable[[], None] = lambda: None,
        send: SendToMember = _send_nothing,
    ) -> None:
        """`on_message` is called when a message is queued for delivery. `send` sends it to connected members."""
        self._store = store
        self._now = now
        self._on_message = on_message
        self._send = send

    async def join(self, request: JoinRequest) -> Swarm:
        """Add a member; returns the swarm. Joining again with the same role only changes the callback."""
        if request.role == LEADER_ROLE and not request.leads:
            raise Forbidden(
                f"The role {LEADER_ROLE!r} is for the owner of the host.",
                path="$.role",
                hint=f"Join as {DEFAULT_ROLE}.",
            )
        swarm_id = _swarm_id(request.host, request.task)
        for _ in range(_MAX_RETRIES):
            stored = await self._store.get(SWARM_KIND, swarm_id, self._now())
            swarm = _decode_swarm(stored) if stored is not None else await self._new(swarm_id, request)
            joined = self._add_member(swarm, request)
            membership = self._membership(request.by, swarm_id, is_in=True)
            if joined == swarm or await self._store.commit((self._write(joined, stored), membership), self._now()):
                return joined
        raise _busy_error()

    async def _new(self, swarm_id: str, request: JoinRequest) -> Swarm:
        mine = await self._store.count(MEMBERSHIP_KIND, self._now(), prefix=f"{_hash_text(request.by)} ")
        if mine >= limits.SWARMS_PER_CALLER:
            raise RateLimited(
                f"You are in {mine} swarms already.", path="$.task", hint="Leave some first.", retry_after=60
            )
        if await self._store.count(SWARM_KIND, self._now()) >= limits.SWARMS:
            raise RateLimited(
                f"The limit of {limits.SWARMS} swarms is reached.", hint="Try again later.", retry_after=60
            )
        return Swarm(id=swarm_id, agent=request.host, task=request.task, created_at=self._now())

    def _add_member(self, swarm: Swarm, request: JoinRequest) -> Swarm:
        before = swarm.member(request.agent)
        if before is not None and before.by != request.by and _outranks(request.verdict, before.verdict):
            others = tuple(other for other in swarm.members if other is not before)
            swarm, before = msgspec.structs.replace(swarm, members=others), None
        if before is not None and before.by != request.by and not request.leads:
            raise Forbidden(
                "Another caller added this agent to the swarm.", path="$.agent", hint="Ask them to remove it."
            )
        if before is not None and before.role != request.role:
            raise Conflict(
                f"The agent is in the swarm as {before.role!r}.", path="$.role", hint="Leave first, then join again."
            )
        if before is None and len(swarm.members) >= limits.SWARM_MEMBERS:
            raise Forbidden(f"A swarm has at most {limits.SWARM_MEMBERS} members.", path="$.task", hint="Join another.")
        now = before.joined_at if before is not None else self._now()
        member = Member(
            agent=request.agent,
            role=request.role,
            joined_at=now,
            by=request.by,
            callback=request.callback,
            verdict=request.verdict,
        )
        others = tuple(other for other in swarm.members if other.agent != request.agent)
        return msgspec.structs.replace(
            swarm, members=(*others, member) if before is None else _replace_member(swarm, member)
        )

    async def leave(self, swarm_id: str, agent: str, by: str, *, leads: bool = False) -> Swarm:
        """Remove a member; returns the swarm. It ends with its last member."""
        for _ in range(_MAX_RETRIES):
            swarm, stored = await self._load(swarm_id)
            member = swarm.member(agent)
            if member is None or not (leads or member.by == by):
                raise unknown_swarm_error(swarm_id)
            left = msgspec.structs.replace(
                swarm, members=tuple(other for other in swarm.members if other.agent != agent)
            )
            writes = [self._write(left, stored)]
            if not any(other.by == member.by for other in left.members):
                writes.append(self._membership(member.by, swarm_id, is_in=False))
            if await self._store.commit(writes, self._now()):
                return left
        raise _busy_error()

    async def get(self, swarm_id: str, by: str, *, leads: bool = False) -> Swarm:
        """For members and the host only; to others it does not exist."""
        swarm, _ = await self._load(swarm_id)
        if not leads and not any(member.by == by for member in swarm.members):
            raise unknown_swarm_error(swarm_id)
        return swarm

    async def host_of(self, swarm_id: str) -> str | None:
        stored = await self._store.get(SWARM_KIND, swarm_id, self._now())
        return None if stored is None else _decode_swarm(stored).agent

    async def of(self, by: str) -> list[Swarm]:
        """The swarms with members that a caller added."""
        prefix = f"{_hash_text(by)} "
        found = await self._store.scan(MEMBERSHIP_KIND, self._now(), prefix=prefix, limit=limits.PAGE_MAX)
        values = [await self._store.get(SWARM_KIND, one.key.removeprefix(prefix), self._now()) for one in found]
        return [_decode_swarm(value) for value in values if value is not None]

    async def broadcast(self, swarm_id: str, sender: tuple[str, str], content: str, content_type: str) -> SwarmMessage:
        """Send a message to all other members; `sender` is the agent, and the caller that added it."""
        agent, by = sender
        message_id = str(uuid.uuid4())
        for _ in range(_MAX_RETRIES):
            swarm, stored = await self._load(swarm_id)
            member = swarm.member(agent)
            if member is None or member.by != by:
                raise unknown_swarm_error(swarm_id)
            updated = msgspec.structs.replace(swarm, messages=swarm.messages + 1)
            message = self._message(updated, message_id, member, content, content_type)
            writes = [self._write(updated, stored), *self._message_writes(updated, message)]
            if await self._store.commit(writes, self._now()):
                self._on_message()
                for other in updated.members:
                    if other.agent != agent and other.callback is None:
                        await self._send(other.agent, message)
                return message
        raise _busy_error()

    def _message(self, swarm: Swarm, message_id: str, sender: Member, content: str, content_type: str) -> SwarmMessage:
        return SwarmMessage(
            swarm_id=swarm.id,
            message_id=message_id,
            number=swarm.messages,
            task=swarm.task,
            from_=sender.agent,
            verdict=sender.verdict,
            content=content,
            content_type=content_type,
            at=to_rfc3339_millis(self._now()),
        )

    def _message_writes(self, swarm: Swarm, message: SwarmMessage) -> list[KeyValueWrite]:
        body, now = dump_json(message), self._now()
        expires_at = now + limits.SWARM_MESSAGE_KEEP_SECONDS
        writes = [
            KeyValueWrite(
                kind=SWARM_MESSAGE_KIND, key=f"{swarm.id} {swarm.messages:012}", value=body, expires_at=expires_at
            )
        ]
        if swarm.messages > limits.SWARM_MESSAGES:
            old = f"{swarm.id} {swarm.messages - limits.SWARM_MESSAGES:012}"
            writes.append(KeyValueWrite(kind=SWARM_MESSAGE_KIND, key=old, value=None))
        for member, url in _callback_recipients(swarm.members, message.from_):
            delivery = CallbackDelivery(
                at=now, url=url, message_id=message.message_id, from_=swarm.agent, to=member.agent, body=body
            )  # fmt: skip
            writes.append(delivery.write())
        return writes

    async def messages(self, swarm_id: str, after: int, limit: int) -> list[SwarmMessage]:
        """The messages after a number, the oldest first."""
        prefix = f"{swarm_id} "
        found = await self._store.scan(
            SWARM_MESSAGE_KIND, self._now(), prefix=prefix, after=f"{prefix}{after:012}", limit=limit
        )
        messages = (msgspec.json.decode(item.value, type=SwarmMessage) for item in found)
        return [each if each.verdict else msgspec.structs.replace(each, verdict="unverified") for each in messages]

    async def _load(self, swarm_id: str) -> tuple[Swarm, bytes]:
        stored = await self._store.get(SWARM_KIND, swarm_id, self._now()) if len(swarm_id) <= 64 else None
        if stored is None:
            raise unknown_swarm_error(swarm_id)
        return _decode_swarm(stored), stored

    def _write(self, swarm: Swarm, stored: bytes | None) -> KeyValueWrite:
        value = msgspec.msgpack.encode(swarm) if swarm.members else None
        expires_at = self._now() + limits.SWARM_KEEP_SECONDS
        return KeyValueWrite(kind=SWARM_KIND, key=swarm.id, value=value, expires_at=expires_at, expected=stored)

    def _membership(self, by: str, swarm_id: str, *, is_in: bool) -> KeyValueWrite:
        expires_at = self._now() + limits.SWARM_KEEP_SECONDS
        return KeyValueWrite(
            kind=MEMBERSHIP_KIND,
            key=f"{_hash_text(by)} {swarm_id}",
            value=b"1" if is_in else None,
            expires_at=expires_at,
        )


def _callback_recipients(members: Sequence[Member], sender: str) -> list[tuple[Member, str]]:
    """The members to post a message to: each URL once, with a limit for each server."""
    hosts: Counter[str | None] = Counter()
    reached: dict[str, Member] = {}
    for member in members:
        url = member.callback
        if url is None or url in reached or member.agent == sender:
            continue
        host = urlsplit(url).hostname
        hosts[host] += 1
        if hosts[host] <= limits.SWARM_DELIVERIES_PER_HOST:
            reached[url] = member
    return [(member, url) for url, member in reached.items()]


def _replace_member(swarm: Swarm, member: Member) -> tuple[Member, ...]:
    """Keep the order of members."""
    return tuple(member if other.agent == member.agent else other for other in swarm.members)


_VERDICTS: tuple[NameVerdict, ...] = ("unverified", "registered", "verified")  # the weakest first


def _outranks(one: NameVerdict, other: NameVerdict) -> bool:
    return _VERDICTS.index(one) > _VERDICTS.index(other)


def parse_role(value: Any) -> str:
    if value is None:
        return DEFAULT_ROLE
    if not isinstance(value, str) or not 0 < len(value) <= limits.SWARM_ROLE_CHARS or not value.isprintable():
        raise InvalidDocument(
            f"A role must have 1 to {limits.SWARM_ROLE_CHARS} printable characters.",
            path="$.role",
            hint=f"Use {DEFAULT_ROLE}.",
        )
    return value


def member_views(members: Sequence[Member]) -> tuple[SwarmMemberView, ...]:
    return tuple(
        SwarmMemberView(agent=each.agent, role=each.role, joined=to_rfc3339(each.joined_at), verdict=each.verdict)
        for each in members
    )


def swarm_view(swarm: Swarm) -> SwarmView:
    return SwarmView(
        swarm_id=swarm.id,
        host=swarm.agent,
        task=swarm.task,
        created=to_rfc3339(swarm.created_at),
        messages=swarm.messages,
        members=member_views(swarm.members),
    )


def unknown_swarm_error(swarm_id: str) -> NotFound:
    """The same text for unknown swarms and those of others."""
    return NotFound(f"There is no swarm {swarm_id[:64]!r}.", path="id", hint="Join it first.")


def _busy_error() -> Conflict:
    return Conflict("The swarm is being changed concurrently.", path="id", hint="Try again.")


def _swarm_id(host: str, task: str) -> str:
    return _hash_text(f"{host}\0{task}")[:24]


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
