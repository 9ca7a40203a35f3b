"""Swarms: agents that work on one task of a host agent together (ADP-47, P-5). Join, leave, see each other, tell all.

A swarm is one per host and task. Whoever brought a member in answers for it: nobody else changes its role or takes it out, but
the owner of the host may. What is told to all is kept for those who ask, brought to those who named an address, and said to
those who hold a line.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import Conflict, Forbidden, InvalidDocument, NotFound, RateLimited
from waypost.messaging.callbacks import CallbackDelivery
from waypost.model.json import dump_json
from waypost.model.times import to_rfc3339, to_rfc3339_millis
from waypost.registry.ports import KeyValueStore, KeyValueWrite
from waypost.responses.messaging import SwarmMemberView, SwarmMessage, SwarmView

SWARM_KIND = "swarm"
MEMBERSHIP_KIND = "swarm-of"  # by who brought the member in
SWARM_MESSAGE_KIND = "swarm-message"
DEFAULT_ROLE = "participant"
LEADER_ROLE = "coordinator"  # only the host's own
_MAX_RETRIES = 64  # many join at once


SendToMember = Callable[[str, SwarmMessage], Awaitable[None]]  # an agent, and what it is told


async def _send_nothing(agent: str, message: SwarmMessage) -> None:
    """Nobody is there: who wants to know asks."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    role: str
    joined_at: float
    by: str  # who brought it in
    callback: str | None = None


class Swarm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent: str  # the host
    task: str
    created_at: float
    members: tuple[Member, ...] = ()
    messages: int = 0  # how many were told so far

    def member(self, agent: str) -> Member | None:
        return next((member for member in self.members if member.agent == agent), None)


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to be in which swarm. `leads`: the caller speaks for the host."""

    host: str
    task: str
    agent: str
    role: str
    by: str
    callback: str | None = None
    leads: bool = False


_decode_swarm = msgspec.msgpack.Decoder(Swarm).decode


class SwarmStore:
    def __init__(
        self,
        keeper: KeyValueStore,
        now: Callable[[], float],
        told: Callable[[], None] = lambda: None,
        speak: SendToMember = _send_nothing,
    ) -> None:
        """`told` is called when a message is queued for delivery. `speak` sends it to members that are connected."""
        self._keeper = keeper
        self._now = now
        self._told = told
        self._speak = speak

    async def join(self, joining: JoinRequest) -> Swarm:
        """The swarm with the new member; joining again with the same role changes nothing but the address."""
        if joining.role == LEADER_ROLE and not joining.leads:
            raise Forbidden(
                f"The role {LEADER_ROLE!r} is for whoever owns the agent that the swarm is of.",
                path="$.role",
                hint=f"Join as {DEFAULT_ROLE}.",
            )
        swarm_id = _swarm_id(joining.host, joining.task)
        for _ in range(_MAX_RETRIES):
            kept = await self._keeper.get(SWARM_KIND, swarm_id, self._now())
            swarm = _decode_swarm(kept) if kept is not None else await self._new(swarm_id, joining)
            joined = self._with(swarm, joining)
            membership = self._membership(joining.by, swarm_id, is_in=True)
            if joined == swarm or await self._keeper.commit((self._write(joined, kept), membership), self._now()):
                return joined
        raise _busy_error()

    async def _new(self, swarm_id: str, joining: JoinRequest) -> Swarm:
        mine = await self._keeper.count(MEMBERSHIP_KIND, self._now(), prefix=f"{_hash_text(joining.by)} ")
        if mine >= limits.SWARMS_PER_CALLER:
            raise RateLimited(f"You are in {mine} swarms.", path="$.task", hint="Leave some first.", retry_after=60)
        if await self._keeper.count(SWARM_KIND, self._now()) >= limits.SWARMS:
            raise RateLimited(
                f"There are {limits.SWARMS} swarms here.", hint="Wait until some are over.", retry_after=60
            )
        return Swarm(id=swarm_id, agent=joining.host, task=joining.task, created_at=self._now())

    def _with(self, swarm: Swarm, joining: JoinRequest) -> Swarm:
        before = swarm.member(joining.agent)
        if before is not None and before.by != joining.by and not joining.leads:
            raise Forbidden(
                "Somebody else brought this agent into the swarm.", path="$.agent", hint="Ask them to take it out."
            )
        if before is not None and before.role != joining.role:
            raise Conflict(
                f"The agent is in the swarm as {before.role!r}.", path="$.role", hint="Leave first, then join again."
            )
        if before is None and len(swarm.members) >= limits.SWARM_MEMBERS:
            raise Forbidden(f"A swarm has at most {limits.SWARM_MEMBERS} members.", path="$.task", hint="Join another.")
        now = before.joined_at if before is not None else self._now()
        member = Member(agent=joining.agent, role=joining.role, joined_at=now, by=joining.by, callback=joining.callback)
        others = tuple(other for other in swarm.members if other.agent != joining.agent)
        return msgspec.structs.replace(
            swarm, members=(*others, member) if before is None else _replace_member(swarm, member)
        )

    async def leave(self, swarm_id: str, agent: str, by: str, *, leads: bool = False) -> Swarm:
        """The swarm without the member. The last one to leave ends it."""
        for _ in range(_MAX_RETRIES):
            swarm, kept = await self._held(swarm_id)
            member = swarm.member(agent)
            if member is None or not (leads or member.by == by):
                raise unknown_swarm_error(swarm_id)
            left = msgspec.structs.replace(
                swarm, members=tuple(other for other in swarm.members if other.agent != agent)
            )
            writes = [self._write(left, kept)]
            if not any(other.by == member.by for other in left.members):
                writes.append(self._membership(member.by, swarm_id, is_in=False))
            if await self._keeper.commit(writes, self._now()):
                return left
        raise _busy_error()

    async def get(self, swarm_id: str, by: str, *, leads: bool = False) -> Swarm:
        """For its members and its host; to anybody else there is none."""
        swarm, _ = await self._held(swarm_id)
        if not leads and not any(member.by == by for member in swarm.members):
            raise unknown_swarm_error(swarm_id)
        return swarm

    async def host_of(self, swarm_id: str) -> str | None:
        kept = await self._keeper.get(SWARM_KIND, swarm_id, self._now())
        return None if kept is None else _decode_swarm(kept).agent

    async def of(self, by: str) -> list[Swarm]:
        """The swarms in which somebody has members."""
        prefix = f"{_hash_text(by)} "
        found = await self._keeper.scan(MEMBERSHIP_KIND, self._now(), prefix=prefix, limit=limits.PAGE_MAX)
        kept = [await self._keeper.get(SWARM_KIND, one.key.removeprefix(prefix), self._now()) for one in found]
        return [_decode_swarm(value) for value in kept if value is not None]

    async def broadcast(self, swarm_id: str, sender: tuple[str, str], content: str, content_type: str) -> SwarmMessage:
        """Tell all members but the one that speaks; `sender` is that one, and who brought it in."""
        agent, by = sender
        message_id = str(uuid.uuid4())
        for _ in range(_MAX_RETRIES):
            swarm, kept = await self._held(swarm_id)
            member = swarm.member(agent)
            if member is None or member.by != by:
                raise unknown_swarm_error(swarm_id)
            told = msgspec.structs.replace(swarm, messages=swarm.messages + 1)
            message = self._message(told, message_id, agent, content, content_type)
            writes = [self._write(told, kept), *self._news(told, message)]
            if await self._keeper.commit(writes, self._now()):
                self._told()
                for other in told.members:
                    if other.agent != agent and other.callback is None:
                        await self._speak(other.agent, message)
                return message
        raise _busy_error()

    def _message(self, swarm: Swarm, message_id: str, agent: str, content: str, content_type: str) -> SwarmMessage:
        return SwarmMessage(
            swarm_id=swarm.id,
            message_id=message_id,
            number=swarm.messages,
            task=swarm.task,
            from_=agent,
            content=content,
            content_type=content_type,
            at=to_rfc3339_millis(self._now()),
        )

    def _news(self, swarm: Swarm, message: SwarmMessage) -> list[KeyValueWrite]:
        body, now = dump_json(message), self._now()
        ends = now + limits.SWARM_MESSAGE_KEEP_SECONDS
        writes = [
            KeyValueWrite(kind=SWARM_MESSAGE_KIND, key=f"{swarm.id} {swarm.messages:012}", value=body, expires_at=ends)
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
        """What was told after a number, the oldest first."""
        prefix = f"{swarm_id} "
        found = await self._keeper.scan(
            SWARM_MESSAGE_KIND, self._now(), prefix=prefix, after=f"{prefix}{after:012}", limit=limit
        )
        return [msgspec.json.decode(kept.value, type=SwarmMessage) for kept in found]

    async def _held(self, swarm_id: str) -> tuple[Swarm, bytes]:
        kept = await self._keeper.get(SWARM_KIND, swarm_id, self._now()) if len(swarm_id) <= 64 else None
        if kept is None:
            raise unknown_swarm_error(swarm_id)
        return _decode_swarm(kept), kept

    def _write(self, swarm: Swarm, kept: bytes | None) -> KeyValueWrite:
        value = msgspec.msgpack.encode(swarm) if swarm.members else None
        ends = self._now() + limits.SWARM_KEEP_SECONDS
        return KeyValueWrite(kind=SWARM_KIND, key=swarm.id, value=value, expires_at=ends, expected=kept)

    def _membership(self, by: str, swarm_id: str, *, is_in: bool) -> KeyValueWrite:
        ends = self._now() + limits.SWARM_KEEP_SECONDS
        return KeyValueWrite(
            kind=MEMBERSHIP_KIND, key=f"{_hash_text(by)} {swarm_id}", value=b"1" if is_in else None, expires_at=ends
        )


def _callback_recipients(members: Sequence[Member], speaker: str) -> list[tuple[Member, str]]:
    """Whom a message is brought to: each address once, and only so many on one server."""
    hosts: Counter[str | None] = Counter()
    reached: dict[str, Member] = {}
    for member in members:
        url = member.callback
        if url is None or url in reached or member.agent == speaker:
            continue
        host = urlsplit(url).hostname
        hosts[host] += 1
        if hosts[host] <= limits.SWARM_DELIVERIES_PER_HOST:
            reached[url] = member
    return [(member, url) for url, member in reached.items()]


def _replace_member(swarm: Swarm, member: Member) -> tuple[Member, ...]:
    """In the place where it was."""
    return tuple(member if other.agent == member.agent else other for other in swarm.members)


def parse_role(value: Any) -> str:
    if value is None:
        return DEFAULT_ROLE
    if not isinstance(value, str) or not 0 < len(value) <= limits.SWARM_ROLE_CHARS or not value.isprintable():
        raise InvalidDocument(
            f"A role is a text of 1 to {limits.SWARM_ROLE_CHARS} characters.",
            path="$.role",
            hint=f"Use {DEFAULT_ROLE}.",
        )
    return value


def member_views(members: Sequence[Member]) -> tuple[SwarmMemberView, ...]:
    return tuple(
        SwarmMemberView(agent=each.agent, role=each.role, joined=to_rfc3339(each.joined_at)) for each in members
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
    """The same words for unknown and foreign."""
    return NotFound(f"There is no swarm {swarm_id[:64]!r}.", path="id", hint="Join it first.")


def _busy_error() -> Conflict:
    return Conflict("The swarm changes all the time.", path="id", hint="Try again.")


def _swarm_id(host: str, task: str) -> str:
    return _hash_text(f"{host}\0{task}")[:24]


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
