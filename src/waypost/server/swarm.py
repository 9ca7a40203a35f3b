"""Swarms on the wire: `POST /agent/swarm/join` (ADP-47, P-5), and paths of our own to leave, to look and to tell all."""

from __future__ import annotations

from waypost import limits
from waypost.errors import Forbidden, InvalidDocument, InvalidParameter
from waypost.meeting.signatures import parse_agent
from waypost.meeting.swarms import Joining, Swarms, members_json, parse_role, swarm_json
from waypost.model.json import JsonObject, parse_object
from waypost.registry.fetching import Sender as Outgoing
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.reading import read_limit
from waypost.server.routes import Body, Call, Parameter, Route
from waypost.server.senders import Sender, Senders, check_callback
from waypost.server.swarm_shapes import BROADCAST, JOIN, JOINED, LEAVE, MESSAGE, MESSAGES, SWARM, SWARMS

_NOT_STORED = (b"cache-control", b"no-store")
_AGENT = Parameter(
    name="agent", description="the agent that the swarm is of; without it the one of Host, else the service"
)
_TEXT = "text/plain"


class SwarmFace:
    def __init__(self, swarms: Swarms, senders: Senders, outgoing: Outgoing) -> None:
        self._swarms = swarms
        self._senders = senders
        self._outgoing = outgoing

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/agent/swarm/join",
                operation="join_swarm",
                handler=self.join,
                summary="Bring an agent into the swarm of a task",
                parameters=(_AGENT,),
                body=Body(schema=JOIN),
                answers={200: Body(schema=JOINED)},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm",
                operation="list_swarms",
                handler=self.list,
                summary="The swarms that you brought agents into",
                answers={200: Body(schema=SWARMS)},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm/{id}",
                operation="swarm_members",
                handler=self.show,
                summary="A swarm and its members, for those who are in it",
                answers={200: Body(schema=SWARM)},
                signed=True,
            ),
            Route(
                method="POST",
                path="/agent/swarm/{id}:leave",
                operation="leave_swarm",
                handler=self.leave,
                summary="Take an agent out of a swarm",
                body=Body(schema=LEAVE),
                answers={200: Body(schema=SWARM)},
                signed=True,
            ),
            Route(
                method="POST",
                path="/agent/swarm/{id}:broadcast",
                operation="broadcast",
                handler=self.broadcast,
                summary="Tell all members of a swarm",
                body=Body(schema=BROADCAST),
                answers={200: Body(schema=MESSAGE)},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm/{id}:messages",
                operation="swarm_messages",
                handler=self.messages,
                summary="What was told in a swarm",
                parameters=(
                    Parameter(name="after", schema={"type": "integer"}, description="the number of the last one seen"),
                    Parameter(name="limit", schema={"type": "integer"}),
                ),
                answers={200: Body(schema=MESSAGES)},
                signed=True,
            ),
        ]

    async def join(self, call: Call) -> AnyResponse:
        sender, asked = await self._asked(call)
        agent = parse_agent(asked.get("agent"), "$.agent")
        task = _text(asked, "task", limits.TASK_NAME_CHARS)
        host = self._senders.host(call.request, sender)
        self._require_speaker(sender, agent)
        callback = asked.get("callback")
        if callback is not None:
            check_callback(self._outgoing, sender, callback)
        joining = Joining(
            host=host,
            task=task,
            agent=agent,
            role=parse_role(asked.get("role")),
            by=sender.name,
            callback=callback,
            leads=self._leads(sender, host),
        )
        swarm = await self._swarms.join(joining)
        answer = {"swarmId": swarm.id, "agent": agent, "role": joining.role, "members": members_json(swarm.members)}
        return json_response(answer, headers=[_NOT_STORED])

    async def list(self, call: Call) -> AnyResponse:
        sender, _ = await self._asked(call)
        found = [swarm_json(swarm) for swarm in await self._swarms.of(sender.name)]
        return json_response({"swarms": found}, headers=[_NOT_STORED])

    async def show(self, call: Call) -> AnyResponse:
        sender, _ = await self._asked(call)
        swarm = await self._swarms.get(call.id, sender.name, leads=await self._leads_in(sender, call.id))
        return json_response(swarm_json(swarm), headers=[_NOT_STORED])

    async def leave(self, call: Call) -> AnyResponse:
        sender, asked = await self._asked(call)
        agent = parse_agent(asked.get("agent"), "$.agent")
        swarm = await self._swarms.leave(call.id, agent, sender.name, leads=await self._leads_in(sender, call.id))
        return json_response(swarm_json(swarm), headers=[_NOT_STORED])

    async def broadcast(self, call: Call) -> AnyResponse:
        sender, asked = await self._asked(call)
        agent = parse_agent(asked.get("agent"), "$.agent")
        content = _text(asked, "content", limits.SWARM_MESSAGE_BYTES)
        kind = _text(asked, "contentType", 64) if "contentType" in asked else _TEXT
        message = await self._swarms.broadcast(call.id, (agent, sender.name), content, kind)
        return json_response(message, headers=[_NOT_STORED])

    async def messages(self, call: Call) -> AnyResponse:
        sender, _ = await self._asked(call)
        after = call.request.param("after", "0") or "0"
        if not after.isascii() or not after.isdigit() or len(after) > 12:
            raise InvalidParameter("after is the number of a message.", path="after", hint="Begin with 0.")
        swarm = await self._swarms.get(call.id, sender.name, leads=await self._leads_in(sender, call.id))
        found = await self._swarms.messages(swarm.id, int(after), read_limit(call.request))
        return json_response({"messages": found}, headers=[_NOT_STORED])

    # --- Who speaks ------------------------------------------------------------------------------

    async def _asked(self, call: Call) -> tuple[Sender, JsonObject]:
        most = 2 * limits.SWARM_MESSAGE_BYTES
        body = await call.request.body(most)
        sender = await self._senders.sender(call, body)
        return sender, parse_object(body, max_bytes=most) if call.request.method == "POST" else {}

    def _require_speaker(self, sender: Sender, agent: str) -> None:
        """An agent that signs speaks for itself; a subject for its own agents, and for those that nobody registered here."""
        if sender.agent is not None:
            may = sender.agent == agent
        else:
            owner = self._senders.owner_of(agent)
            may = sender.principal.is_admin or owner is None or owner == sender.principal.subject
        if not may:
            raise Forbidden("You do not speak for this agent.", path="$.agent", hint="Join with an agent of yours.")

    def _leads(self, sender: Sender, host: str) -> bool:
        if sender.agent is not None:
            return sender.agent == host
        return sender.principal.is_admin or self._senders.owner_of(host) == sender.principal.subject

    async def _leads_in(self, sender: Sender, swarm_id: str) -> bool:
        host = await self._swarms.host_of(swarm_id)
        return host is not None and self._leads(sender, host)


def _text(asked: JsonObject, name: str, most: int) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value or len(value.encode("utf-8", "replace")) > most:
        raise InvalidDocument(f"{name} is a text of 1 to {most} bytes.", path=f"$.{name}", hint="Send a string.")
    if name == "task" and not value.isprintable():
        raise InvalidDocument("A task has a printable name.", path="$.task", hint="Leave out control characters.")
    return value
