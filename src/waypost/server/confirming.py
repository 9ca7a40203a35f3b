"""What waits for its owner, on the service's own face: show it, confirm it, reject it."""

from __future__ import annotations

from waypost.errors import InvalidParameter
from waypost.registry.drift import held_json
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.own import place_of, written
from waypost.server.reading import read_object
from waypost.server.routes import Body, Call, Route
from waypost.server.shapes import HELD, RECEIPT

_ETAG = Body(
    schema={
        "type": "object",
        "required": ["etag"],
        "properties": {"etag": {"type": "string", "description": "of the change that is meant, as `held.etag` says"}},
    }
)
_NOT_STORED = (b"cache-control", b"no-store")


class ConfirmingFace:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:held",
                operation="held",
                handler=self.held,
                summary="The change of a verified agent that waits",
                answers={200: Body(schema=HELD)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:confirm",
                operation="confirm",
                handler=self.confirm,
                summary="Let a change pass that waits",
                body=_ETAG,
                answers={200: Body(schema=RECEIPT)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:reject",
                operation="reject",
                handler=self.reject,
                summary="Forget a change that waits",
                body=_ETAG,
                answers={200: Body(schema=RECEIPT)},
            ),
        ]

    async def held(self, call: Call) -> AnyResponse:
        waiting = await self._registry.held(call.principal, call.id)
        return json_response(held_json(waiting), headers=[_NOT_STORED])

    async def confirm(self, call: Call) -> AnyResponse:
        receipt = await self._registry.confirm(call.principal, call.id, await _read_etag(call))
        return written(receipt, place_of(receipt))

    async def reject(self, call: Call) -> AnyResponse:
        receipt = await self._registry.reject(call.principal, call.id, await _read_etag(call))
        return written(receipt, place_of(receipt))


async def _read_etag(call: Call) -> str:
    etag = (await read_object(call.request)).get("etag")
    if not isinstance(etag, str) or not etag:
        raise InvalidParameter(
            "etag is missing.", path="$.etag", hint="Name the change that you have seen: `held.etag` of the answer."
        )
    return etag
