"""Responses about tasks, swarms and invitations. Their members are those of ADP (adp.md §7), in camel case."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from waypost.responses.base import Answer, Part, Timestamp, described, one_of

TASK_STATUSES: Final = ("accepted", "running", "succeeded", "failed", "cancelled")
FINAL_TASK_STATUSES: Final = frozenset(TASK_STATUSES[2:])

_State = Annotated[str, one_of(*TASK_STATUSES)]


class TaskError(Part, frozen=True, kw_only=True):
    """Why a task failed."""

    code: str
    message: str


class TaskCallback(Part, frozen=True, kw_only=True):
    """Where the result of a task is posted to, and whether that succeeded."""

    url: str
    state: Annotated[str, one_of("pending", "delivered", "failed")]


class AcceptedTask(Answer, frozen=True, kw_only=True, rename="camel"):
    """A task that was accepted."""

    task_id: str
    status: _State
    status_url: str
    reason: Annotated[str, described("why the task takes this way: a verified record here, or the DNS")] = ""


class TaskStatus(Answer, frozen=True, kw_only=True, rename="camel"):
    """The state of a task, with its result or its error when it is done."""

    task_id: str
    status: _State
    updated: Timestamp
    result: Any = None
    error: TaskError | None = None
    task: str = ""
    agent: str = ""
    from_: Annotated[str, described("who sent the task")] = msgspec.field(name="from", default="")
    expires: Timestamp | None = None
    callback: TaskCallback | None = None

    @property
    def is_done(self) -> bool:
        """True when the task succeeded, failed or was cancelled."""
        return self.status in FINAL_TASK_STATUSES


class TaskList(Answer, frozen=True, kw_only=True):
    """Tasks that are not done."""

    tasks: tuple[TaskStatus, ...]


class LeasedTask(TaskStatus, frozen=True, kw_only=True, rename="camel"):
    """A task to work on. Reports need its lease, which ends at `lease_until`."""

    input: Any
    lease: str
    lease_until: Timestamp | None = None


class LeasedTaskList(Answer, frozen=True, kw_only=True):
    """The tasks that a worker took."""

    tasks: tuple[LeasedTask, ...]


_NameVerdict = Annotated[
    str,
    one_of("verified", "registered", "unverified"),
    described(
        "whether the agent has proven its name: by its key or a proven record, by a self-asserted record, not at all"
    ),
]


class SwarmMemberView(Part, frozen=True, kw_only=True):
    """A member of a swarm."""

    agent: str
    role: str
    joined: Timestamp
    verdict: _NameVerdict = ""  # from an older service


class SwarmMembership(Answer, frozen=True, kw_only=True, rename="camel"):
    """An agent that joined a swarm."""

    swarm_id: str
    agent: str
    role: str
    members: tuple[SwarmMemberView, ...]
    verdict: _NameVerdict = ""  # from an older service


class SwarmView(Answer, frozen=True, kw_only=True, rename="camel"):
    """A swarm, as its members see it."""

    swarm_id: str
    host: str
    task: str
    created: Timestamp
    messages: int
    members: tuple[SwarmMemberView, ...]


class SwarmList(Answer, frozen=True, kw_only=True):
    """The swarms of the caller."""

    swarms: tuple[SwarmView, ...]


class SwarmMessage(Answer, frozen=True, kw_only=True, rename="camel"):
    """A message to all members of a swarm."""

    swarm_id: str
    message_id: str
    number: int
    task: str
    from_: str = msgspec.field(name="from")
    content: str
    content_type: str
    at: Timestamp
    verdict: _NameVerdict = ""  # from an older service


class SwarmMessageList(Answer, frozen=True, kw_only=True):
    """Messages of a swarm, oldest first."""

    messages: tuple[SwarmMessage, ...]


class InvitationView(Answer, frozen=True, kw_only=True):
    """An invitation to an agent. The service stores only a hash of its code."""

    id: str
    agent: str
    record: str
    state: Annotated[str, one_of("open", "used", "expired", "revoked")]
    uses: int
    used: int
    redeemed_by: tuple[str, ...]
    created: Timestamp
    expires: Timestamp
    by: str
    invitation: (
        Annotated[dict[str, Any], described("the ADP invitation with its code; only when it is made")] | None
    ) = None

    @property
    def code(self) -> str | None:
        """The code, in the answer to `invite`."""
        return None if self.invitation is None else self.invitation["invite"]["code"]


class InvitationList(Answer, frozen=True, kw_only=True):
    """The invitations of the caller; for an admin, all of them."""

    invitations: tuple[InvitationView, ...]


class RedeemedInvitation(Part, frozen=True, kw_only=True):
    """The agent behind an invitation."""

    agent: str
    id: str | None = None
    document: Annotated[dict[str, Any], described("the ADP document of the agent")]
    fingerprint: str | None = None
    shared: Annotated[bool, described("the caller sees the agent's record from now on")]
    pinned: Annotated[bool, described("the key is stored as the agent's key")] | None = None
