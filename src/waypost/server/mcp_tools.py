"""The tools that the service offers over MCP: find an agent, read one, register one. Each is an operation of the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.dialects import CODECS
from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject, dump_json, kind_of, parse_json
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.registry.engine import Registry
from waypost.registry.publication import Publication
from waypost.server.asgi import Request
from waypost.server.own import OwnFace
from waypost.server.profile import ProfileFace
from waypost.server.reading import check_dialect, read_visibility, receipt_json
from waypost.server.routes import Call

_TEXTS: Final[JsonObject] = {"type": "array", "items": {"type": "string"}, "maxItems": limits.FILTER_VALUES}


class Asked(msgspec.Struct, frozen=True):
    """One call of a tool."""

    arguments: JsonObject
    principal: Principal
    request: Request
    request_id: str


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input: JsonObject
    scope: str
    answer: Callable[[Asked], Awaitable[Any]]

    def described(self) -> JsonObject:
        reads = self.scope == SCOPE_READ
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "annotations": {
                "readOnlyHint": reads,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }

    def check(self, arguments: JsonObject) -> None:
        """Names and kinds; what a value means is judged where it is used."""
        known: Mapping[str, Any] = self.input["properties"]
        for name in arguments:
            if name not in known:
                raise InvalidParameter(
                    f"{self.name} has no argument {name[:64]!r}.", path=name[:64], hint=f"It takes {', '.join(known)}."
                )
        for name in self.input["required"]:
            if arguments.get(name) is None:
                raise InvalidParameter(f"{name} is missing.", path=name, hint=known[name]["description"])


def tools_of(registry: Registry, profile: ProfileFace, own: OwnFace) -> dict[str, Tool]:
    async def find(asked: Asked) -> Any:
        return parse_json(await profile.found(asked.arguments, asked.principal, asked.request_id))

    async def get(asked: Asked) -> Any:
        wanted = _text(asked.arguments, "id")
        dialect = check_dialect(_text(asked.arguments, "as"), "as") if "as" in asked.arguments else "profile"
        rendering = await own.rendering(Call(asked.request, asked.principal, asked.request_id, wanted), dialect)
        return parse_json(rendering.body)

    async def register(asked: Asked) -> Any:
        given = asked.arguments["document"]
        if not isinstance(given, str | dict):
            raise InvalidParameter(
                f"document is an object or a text, not {kind_of(given)}.", path="document", hint="Give the card itself."
            )
        document = given.encode() if isinstance(given, str) else dump_json(given)
        name, decoded = registry.decode(document)
        receipt = await registry.publish(
            Publication(
                dialect=name,
                document=document,
                decoded=decoded,
                principal=asked.principal,
                via="mcp",
                visibility=read_visibility(asked.request),
            )
        )
        return receipt_json(receipt)

    return {
        tool.name: tool
        for tool in (
            Tool(
                name="find_agents",
                title="Find agents",
                description="Find agents that can do a task, best first, with a score from 0 to 1 and how far each was verified.",
                input=_FIND,
                scope=SCOPE_READ,
                answer=find,
            ),
            Tool(
                name="get_agent",
                title="Read an agent",
                description="Read one agent: what it does, how to reach it; in the format that is asked for.",
                input=_GET,
                scope=SCOPE_READ,
                answer=get,
            ),
            Tool(
                name="register_agent",
                title="Register an agent",
                description="Register an agent by its card, manifest or metadata; the format is recognised from the content.",
                input=_REGISTER,
                scope=SCOPE_WRITE,
                answer=register,
            ),
        )
    }


def _text(arguments: JsonObject, name: str) -> str:
    value = arguments[name]
    if not isinstance(value, str) or not value:
        raise InvalidParameter(f"{name} is a text, not {kind_of(value)}.", path=name)
    return value


_FIND: Final[JsonObject] = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {
        "query": {
            "type": "string",
            "maxLength": limits.QUERY_CHARS,
            "description": "The task in words, in any language.",
        },
        "required_tags": {**_TEXTS, "description": "Tags that an agent must have, all of them."},
        "preferred_tags": {**_TEXTS, "description": "Tags that count in favour."},
        "excluded_tags": {**_TEXTS, "description": "Tags that an agent must not have."},
        "protocols": {**_TEXTS, "description": "Protocols of which an agent must speak one, such as a2a or mcp."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.DISCOVER_LIMIT_MAX,
            "default": limits.DISCOVER_LIMIT_DEFAULT,
            "description": "How many at most.",
        },
        "include_evidence": {"type": "boolean", "default": False, "description": "Say why each was chosen."},
    },
}
_GET: Final[JsonObject] = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "description": "The agent's id, or any other name of it."},
        "as": {"type": "string", "enum": list(CODECS), "default": "profile", "description": "The format."},
    },
}
_REGISTER: Final[JsonObject] = {
    "type": "object",
    "required": ["document"],
    "additionalProperties": False,
    "properties": {
        "document": {
            "type": ["object", "string"],
            "description": "The agent's document in any format: Agent Metadata, an A2A card, an MCP server.json, …",
        }
    },
}
