"""Who sees a private agent, on the service's own face: `POST /api/v1/agents/{id}:share`."""

from __future__ import annotations

from waypost import limits
from waypost.model.principal import PRIVATE
from waypost.registry.engine import Registry
from waypost.registry.sharing import parse_invitees
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.conditional import quote_etag
from waypost.server.reading import read_object, receipt_json
from waypost.server.routes import Body, Call, Route
from waypost.server.shapes import RECEIPT

_NAMES = {"type": "array", "maxItems": limits.INVITEES, "items": {"type": "string", "minLength": 1}}
_ANSWER = RECEIPT | {
    "properties": RECEIPT["properties"] | {"invitees": {"type": "array", "items": {"type": "string"}}},
}


class SharingFace:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents/{id}:share",
                operation="share",
                handler=self.share,
                summary="Let subjects see a private agent, or no longer",
                body=Body(schema={"type": "object", "properties": {"add": _NAMES, "remove": _NAMES}}),
                answers={200: Body(schema=_ANSWER)},
            ),
        ]

    async def share(self, call: Call) -> AnyResponse:
        """The answer names all who are let in. Without `add` and `remove` it only shows them."""
        asked = await read_object(call.request)
        add, remove = (parse_invitees(asked.get(name, []), f"$.{name}") for name in ("add", "remove"))
        receipt = await self._registry.share(
            call.principal, self._registry.addressed(call.principal, call.id), add, remove
        )
        answer = receipt_json(receipt)
        registration = receipt.registration
        if registration is not None:
            answer["invitees"] = list(registration.invitees)
            if registration.invitees and registration.visibility != PRIVATE:
                answer["warnings"].append(f"The agent is {registration.visibility}: more than its invitees see it.")
        return json_response(answer).add(b"etag", quote_etag(receipt.etag))
