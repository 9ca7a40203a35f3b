# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""The half of the client for what comes after discovery: tasks, swarms, invitations."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.client.pause import pause
from waypost.client.requests import JSON, ApiRequest, json_request, parse_json_object, query_params
from waypost.client.results import (
    INVITATIONS,
    SWARMS,
    TASKS,
    AcceptedTask,
    InvitationView,
    LeasedTask,
    RedeemedInvitation,
    SwarmMembership,
    SwarmMessage,
    SwarmView,
    TaskStatus,
    drop_none,
    invitation_path,
    redeem_body,
    swarm_path,
    task_path,
)
from waypost.client.sync.connection import Connection
from waypost.errors import Timeout
from waypost.model.json import dump_json

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class MessagingMethods:
    _connection: Connection

    # --- Tasks -------------------------------------------------------------------------------------------------------

    def send_task(
        self,
        task: str,
        input: Any = None,  # noqa: A002
        *,
        agent: str | None = None,
        callback: str | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
        as_agent: str | None = None,
    ) -> AcceptedTask:
        """Give a task to an agent, or to the service itself (`discover`, `echo`). `callback` (https) is told the result.
        `as_agent` is an agent of yours, hosted there, in whose name it is sent.

        An idempotency key is made when none is given, so that a lost answer may be asked for again.
        """
        wanted = {"task": task, "input": input} | drop_none(callback=callback, ttl_seconds=ttl_seconds)
        call = ApiRequest(
            method="POST",
            path=TASKS,
            params=query_params(agent=agent, **{"as": as_agent}),
            headers={"Content-Type": JSON, "Idempotency-Key": idempotency_key or uuid.uuid4().hex},
            content=dump_json(wanted),
        )
        return msgspec.convert(parse_json_object(self._connection.send(call)), AcceptedTask)

    def task_status(self, task_id: str) -> TaskStatus:
        """How a task goes that you sent, or that is for an agent of yours; with its result when it is done."""
        answer = self._connection.send(ApiRequest(method="GET", path=task_path(task_id)))
        return msgspec.convert(parse_json_object(answer), TaskStatus)

    def wait_task(self, task_id: str, seconds: float = 60.0) -> TaskStatus:
        """The status once the task is done. Timeout when it takes longer; it goes on all the same."""
        waited, step = 0.0, _FIRST_PAUSE_SECONDS
        while True:
            status = self.task_status(task_id)
            if status.is_done:
                return status
            if waited >= seconds:
                raise Timeout(
                    f"The task is {status.status} after {seconds:g} seconds.",
                    path="seconds",
                    hint="Wait longer, or ask for its status later.",
                )
            pause(min(step, seconds - waited))
            waited += step
            step = min(2 * step, _LONGEST_PAUSE_SECONDS)

    def cancel_task(self, task_id: str) -> TaskStatus:
        """Cancel a task. Conflict when it ended otherwise."""
        answer = self._connection.send(ApiRequest(method="DELETE", path=task_path(task_id)))
        return msgspec.convert(parse_json_object(answer), TaskStatus)

    def list_tasks(
        self, agent: str | None = None, status: str | None = None, limit: int | None = None
    ) -> tuple[TaskStatus, ...]:
        """The tasks that are not done: those that you sent, or those for an agent of yours."""
        call = ApiRequest(method="GET", path=TASKS, params=query_params(agent=agent, status=status, limit=limit))
        return msgspec.convert(parse_json_object(self._connection.send(call))["tasks"], tuple[TaskStatus, ...])

    def take_tasks(
        self, agent: str, *, limit: int = 1, lease_seconds: int | None = None, wait_seconds: int = 0
    ) -> tuple[LeasedTask, ...]:
        """Take tasks that wait for an agent of yours; wait so long for one when there is none.

        Each comes with a lease. Whoever has it reports the end, or that it goes on, before the lease ends.
        """
        wanted = {"agent": agent, "limit": limit} | drop_none(
            lease_seconds=lease_seconds, wait_seconds=wait_seconds or None
        )
        call = ApiRequest(
            method="POST",
            path=f"{TASKS}:take",
            headers={"Content-Type": JSON},
            content=dump_json(wanted),
            repeatable=False,
            read_seconds=wait_seconds + 30.0,
        )
        return msgspec.convert(parse_json_object(self._connection.send(call))["tasks"], tuple[LeasedTask, ...])

    def report_task(
        self,
        task_id: str,
        lease: str,
        status: str = "succeeded",
        *,
        result: Any = None,
        error: Mapping[str, str] | None = None,
        lease_seconds: int | None = None,
    ) -> TaskStatus:
        """Say how a task ended that you took (succeeded, failed), or that it goes on (running)."""
        said: dict[str, Any] = {"lease": lease, "status": status}
        if status == "succeeded":
            said["result"] = result
        said |= drop_none(error=None if error is None else dict(error), lease_seconds=lease_seconds)
        answer = self._connection.send(json_request(task_path(task_id, ":report"), said))
        return msgspec.convert(parse_json_object(answer), TaskStatus)

    # --- Swarms ------------------------------------------------------------------------------------------------------

    def join_swarm(
        self, agent: str, task: str, role: str = "participant", *, host: str | None = None, callback: str | None = None
    ) -> SwarmMembership:
        """Bring an agent into the swarm of a task. `callback` (https) is brought what is told to all."""
        wanted = {"agent": agent, "task": task, "role": role} | drop_none(callback=callback)
        call = ApiRequest(
            method="POST",
            path=f"{SWARMS}/join",
            params=query_params(agent=host),
            headers={"Content-Type": JSON},
            content=dump_json(wanted),
        )
        return msgspec.convert(parse_json_object(self._connection.send(call)), SwarmMembership)

    def leave_swarm(self, swarm_id: str, agent: str) -> SwarmView:
        """Take an agent out of a swarm; the last one to leave ends it."""
        call = json_request(swarm_path(swarm_id, ":leave"), {"agent": agent})
        return msgspec.convert(parse_json_object(self._connection.send(call)), SwarmView)

    def list_swarms(self) -> tuple[SwarmView, ...]:
        """The swarms that you brought agents into."""
        answer = parse_json_object(self._connection.send(ApiRequest(method="GET", path=SWARMS)))
        return msgspec.convert(answer["swarms"], tuple[SwarmView, ...])

    def swarm_members(self, swarm_id: str) -> SwarmView:
        """A swarm and its members, for those who are in it."""
        answer = self._connection.send(ApiRequest(method="GET", path=swarm_path(swarm_id)))
        return msgspec.convert(parse_json_object(answer), SwarmView)

    def broadcast(self, swarm_id: str, agent: str, content: str, content_type: str = "text/plain") -> SwarmMessage:
        """Tell all members of a swarm, as the member that `agent` names."""
        said = {"agent": agent, "content": content, "contentType": content_type}
        answer = self._connection.send(json_request(swarm_path(swarm_id, ":broadcast"), said))
        return msgspec.convert(parse_json_object(answer), SwarmMessage)

    def swarm_messages(self, swarm_id: str, after: int = 0, limit: int | None = None) -> tuple[SwarmMessage, ...]:
        """What was told in a swarm after a number, the oldest first."""
        call = ApiRequest(
            method="GET", path=swarm_path(swarm_id, ":messages"), params=query_params(after=after, limit=limit)
        )
        answer = parse_json_object(self._connection.send(call))
        return msgspec.convert(answer["messages"], tuple[SwarmMessage, ...])

    # --- Invitations -------------------------------------------------------------------------------------------------

    def invite(self, agent: str, *, uses: int = 1, ttl_seconds: int | None = None) -> InvitationView:
        """Invite to an agent of yours. The code is told once: only its hash is kept."""
        call = json_request(INVITATIONS, {"agent": agent, "uses": uses} | drop_none(ttl_seconds=ttl_seconds))
        return msgspec.convert(parse_json_object(self._connection.send(call)), InvitationView)

    def list_invitations(self, agent: str | None = None, limit: int | None = None) -> tuple[InvitationView, ...]:
        """The invitations that you made, or those to one agent of yours."""
        call = ApiRequest(method="GET", path=INVITATIONS, params=query_params(agent=agent, limit=limit))
        answer = parse_json_object(self._connection.send(call))
        return msgspec.convert(answer["invitations"], tuple[InvitationView, ...])

    def revoke_invitation(self, invitation_id: str) -> None:
        """Nobody redeems it any more. Whoever did before still sees the agent; `share` ends that."""
        self._connection.send(ApiRequest(method="DELETE", path=invitation_path(invitation_id)))

    def redeem(self, invitation: Mapping[str, Any] | str) -> RedeemedInvitation:
        """Redeem an invitation (the whole document) or a code of this service.

        The agent's document must hold the key that the invitation names; the service keeps it as the agent's.
        """
        answer = self._connection.send(json_request(f"{INVITATIONS}:redeem", redeem_body(invitation)))
        return msgspec.convert(parse_json_object(answer), RedeemedInvitation)
