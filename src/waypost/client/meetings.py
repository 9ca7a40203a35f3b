"""What the client gives back about tasks, swarms and invitations. Members it does not know are no error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

TASKS = "/agent/tasks"
SWARMS = "/agent/swarm"
INVITATIONS = "/api/v1/invitations"
DONE = frozenset(("succeeded", "failed", "cancelled"))


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str = ""


class SentTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task that was accepted."""

    task_id: str
    status: str = "accepted"
    status_url: str = ""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a task goes: accepted, running, succeeded, failed or cancelled."""

    task_id: str
    status: str
    updated: str = ""
    result: Any = None
    error: TaskFailure | None = None
    task: str = ""
    agent: str = ""
    expires: str | None = None
    callback: dict[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        return self.status in DONE


class Work(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task to work on. `lease` is to be shown with every report; it ends at `lease_until`."""

    task_id: str
    task: str
    input: Any = None
    agent: str = ""
    status: str = "running"
    lease: str = ""
    lease_until: str | None = None
    expires: str | None = None
    from_: str = msgspec.field(name="from", default="")


class SwarmMember(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    role: str
    joined: str = ""


class Joined(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent in a swarm."""

    swarm_id: str
    agent: str
    role: str
    members: tuple[SwarmMember, ...] = ()


class SwarmView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A swarm, for those who are in it."""

    swarm_id: str
    host: str
    task: str
    created: str = ""
    messages: int = 0
    members: tuple[SwarmMember, ...] = ()


class SwarmMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    swarm_id: str
    message_id: str
    number: int
    content: str
    content_type: str = "text/plain"
    task: str = ""
    at: str = ""
    from_: str = msgspec.field(name="from", default="")


class InvitationView(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation. `invitation` is what is given to whoever is invited; it is told once, when it is made."""

    id: str
    agent: str
    state: str  # open used expired revoked
    uses: int = 1
    used: int = 0
    record: str = ""
    redeemed_by: tuple[str, ...] = ()
    created: str = ""
    expires: str = ""
    by: str = ""
    invitation: dict[str, Any] | None = None

    @property
    def code(self) -> str | None:
        return None if self.invitation is None else self.invitation["invite"]["code"]


class Redeemed(msgspec.Struct, frozen=True, kw_only=True):
    """What an invitation led to. `shared`: the record can be read here from now on; `pinned`: the key is kept as the agent's."""

    agent: str
    document: dict[str, Any]
    id: str | None = None
    fingerprint: str | None = None
    shared: bool = False
    pinned: bool = False


def task_path(task_id: str, verb: str = "") -> str:
    return f"{TASKS}/{quote(task_id, safe='')}{verb}"


def swarm_path(swarm_id: str, verb: str = "") -> str:
    return f"{SWARMS}/{quote(swarm_id, safe='')}{verb}"


def invitation_path(invitation_id: str) -> str:
    return f"{INVITATIONS}/{quote(invitation_id, safe='')}"


def named(**members: Any) -> dict[str, Any]:
    """The members that were given."""
    return {name: value for name, value in members.items() if value is not None}


def redeem_body(invitation: Mapping[str, Any] | str) -> dict[str, Any]:
    return {"code": invitation} if isinstance(invitation, str) else {"invitation": dict(invitation)}
