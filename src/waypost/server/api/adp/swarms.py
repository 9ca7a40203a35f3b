"""Swarms over HTTP: `POST /agent/swarm/join` (ADP-47, P-5), and our own paths to leave, list and broadcast."""

from __future__ import annotations

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.messaging.request_signatures import parse_agent_uri
from waypost.messaging.swarms import JoinRequest, SwarmStore, member_views, parse_role, swarm_view
from waypost.model.json import JsonObject, parse_object
from waypost.registry.ports import OutboundSender as Outgoing
from waypost.responses.messaging import SwarmList, SwarmMembership, SwarmMessage, SwarmMessageList, SwarmView
from waypost.server.api.adp.requesters import Requester, Requesters, check_callback
from waypost.server.api.adp.schemas import AGENT_URI, TEXT, Schema, object_schema
from waypost.server.http.asgi import AnyResponse, json_response
from waypost.server.http.request_params import limit_parameter, read_integer, read_limit
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route

_ROLE: Schema = {"type": "string", "maxLength": limits.SWARM_ROLE_CHARS, "default": "participant"}


JOIN_SCHEMA = object_schema(
    ["agent", "task"],
    agent=AGENT_URI,
    task={"type": "string", "maxLength": limits.TASK_NAME_CHARS},
    role=_ROLE,
    callback={"type": "string", "format": "uri", "description": "https; broadcasts are posted there, signed"},
)

LEAVE_SCHEMA = object_schema(["agent"], agent=AGENT_URI)

BROADCAST_SCHEMA = object_schema(
    ["agent", "content"],
    agent=AGENT_URI,
    content={"type": "string", "description": f"at most {limits.SWARM_MESSAGE_BYTES} bytes"},
    contentType=TEXT,
)


_NOT_STORED = (b"cache-control", b"no-store")

_AGENT_PARAMETER = ParameterSpec(
    name="agent", description="the agent that owns the swarm; default: the agent that Host selects, else the service"
)

_TEXT_MEDIA_TYPE = "text/plain"


class SwarmApi:
    def __init__(self, swarms: SwarmStore, senders: Requesters, outgoing: Outgoing) -> None:
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
                summary="Add an agent to the swarm of a task",
                parameters=(_AGENT_PARAMETER,),
                body=BodySpec(schema=JOIN_SCHEMA),
                answers={200: SwarmMembership},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm",
                operation="list_swarms",
                handler=self.list,
                summary="List the swarms that your agents are in",
                answers={200: SwarmList},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm/{id}",
                operation="swarm_members",
                handler=self.show,
                summary="Show a swarm and its members, to members",
                answers={200: SwarmView},
                signed=True,
            ),
            Route(
                method="POST",
                path="/agent/swarm/{id}:leave",
                operation="leave_swarm",
                handler=self.leave,
                summary="Remove an agent from a swarm",
                body=BodySpec(schema=LEAVE_SCHEMA),
                answers={200: SwarmView},
                signed=True,
            ),
            Route(
                method="POST",
                path="/agent/swarm/{id}:broadcast",
                operation="broadcast",
                handler=self.broadcast,
                summary="Broadcast to all members of a swarm",
                body=BodySpec(schema=BROADCAST_SCHEMA),
                answers={200: SwarmMessage},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/swarm/{id}:messages",
                operation="swarm_messages",
                handler=self.messages,
                summary="List the broadcasts of a swarm",
                parameters=(
                    ParameterSpec(
                        name="after",
                        schema={"type": "integer", "minimum": 0},
                        description="number of the last known broadcast",
                    ),
                    limit_parameter(),
                ),
                answers={200: SwarmMessageList},
                signed=True,
            ),
        ]

    async def join(self, call: RequestContext) -> AnyResponse:
        sender, payload = await self._read_request(call)
        agent = parse_agent_uri(payload.get("agent"), "$.agent")
        task = _parse_text(payload, "task", limits.TASK_NAME_CHARS)
        host = self._senders.host(call.request, sender)
        verdict = await self._senders.judge_name(sender, agent)
        callback = payload.get("callback")
        if callback is not None:
            check_callback(self._outgoing, sender, callback)
        joining = JoinRequest(
            host=host,
            task=task,
            agent=agent,
            role=parse_role(payload.get("role")),
            by=sender.name,
            callback=callback,
            leads=self._leads(sender, host),
            verdict=verdict,
        )
        swarm = await self._swarms.join(joining)
        answer = SwarmMembership(
            swarm_id=swarm.id,
            agent=agent,
            role=joining.role,
            verdict=verdict,
            members=member_views(swarm.members),
        )
        return json_response(answer, headers=[_NOT_STORED])

    async def list(self, call: RequestContext) -> AnyResponse:
        sender, _ = await self._read_request(call)
        swarms = tuple(map(swarm_view, await self._swarms.of(sender.name)))
        return json_response(SwarmList(swarms=swarms), headers=[_NOT_STORED])

    async def show(self, call: RequestContext) -> AnyResponse:
        sender, _ = await self._read_request(call)
        swarm = await self._swarms.get(call.id, sender.name, leads=await self._leads_in(sender, call.id))
        return json_response(swarm_view(swarm), headers=[_NOT_STORED])

    async def leave(self, call: RequestContext) -> AnyResponse:
        sender, payload = await self._read_request(call)
        agent = parse_agent_uri(payload.get("agent"), "$.agent")
        swarm = await self._swarms.leave(call.id, agent, sender.name, leads=await self._leads_in(sender, call.id))
        return json_response(swarm_view(swarm), headers=[_NOT_STORED])

    async def broadcast(self, call: RequestContext) -> AnyResponse:
        sender, payload = await self._read_request(call)
        agent = parse_agent_uri(payload.get("agent"), "$.agent")
        content = _parse_text(payload, "content", limits.SWARM_MESSAGE_BYTES)
        kind = _parse_text(payload, "contentType", 64) if "contentType" in payload else _TEXT_MEDIA_TYPE
        message = await self._swarms.broadcast(call.id, (agent, sender.name), content, kind)
        return json_response(message, headers=[_NOT_STORED])

    async def messages(self, call: RequestContext) -> AnyResponse:
        sender, _ = await self._read_request(call)
        after = read_integer(call.request, "after", 0, limits.JSON_INTEGER_MAX) or 0
        swarm = await self._swarms.get(call.id, sender.name, leads=await self._leads_in(sender, call.id))
        found = await self._swarms.messages(swarm.id, after, read_limit(call.request))
        return json_response(SwarmMessageList(messages=tuple(found)), headers=[_NOT_STORED])

    # --- Who acts --------------------------------------------------------------------------------

    async def _read_request(self, call: RequestContext) -> tuple[Requester, JsonObject]:
        most = 2 * limits.SWARM_MESSAGE_BYTES
        body = await call.request.body(most)
        sender = await self._senders.sender(call, body)
        return sender, parse_object(body, max_bytes=most) if call.request.method == "POST" else {}

    def _leads(self, sender: Requester, host: str) -> bool:
        if sender.agent is not None:
            return sender.agent == host
        return sender.principal.is_admin or self._senders.owner_of(host) == sender.principal.subject

    async def _leads_in(self, sender: Requester, swarm_id: str) -> bool:
        host = await self._swarms.host_of(swarm_id)
        return host is not None and self._leads(sender, host)


def _parse_text(payload: JsonObject, name: str, most: int) -> str:
    value = payload.get(name)
    if not isinstance(value, str) or not value or len(value.encode("utf-8", "replace")) > most:
        raise InvalidDocument(f"{name} must be a text of 1 to {most} bytes.", path=f"$.{name}", hint="Send a string.")
    if name == "task" and not value.isprintable():
        raise InvalidDocument("The task must be a printable name.", path="$.task", hint="Remove control characters.")
    return value
