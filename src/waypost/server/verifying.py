"""How far an agent can be trusted, checked now: every verdict with its evidence."""

from __future__ import annotations

from waypost import limits
from waypost.model.json import JsonObject
from waypost.model.registration import verdicts_of
from waypost.model.times import to_rfc3339
from waypost.model.verdict import summary
from waypost.registry.engine import Registry
from waypost.registry.judging import Judged
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.reading import check_dialect
from waypost.server.routes import Body, Call, Parameter, Route
from waypost.server.shapes import DIALECT, VERIFICATION, document_schema


class VerifyingFace:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:verify",
                operation="verify",
                handler=self.verify,
                summary="Check the documents of an agent now",
                answers={200: Body(schema=VERIFICATION)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents:verify",
                operation="verify_document",
                handler=self.verify_document,
                summary="Check a document of any dialect without registering it",
                parameters=(
                    Parameter(name="dialect", schema=DIALECT, description="when the content should not decide"),
                ),
                body=Body(schema=document_schema(), description="a document of any dialect"),
                answers={200: Body(schema=VERIFICATION)},
            ),
        ]

    async def verify(self, call: Call) -> AnyResponse:
        judged = await self._registry.verify(call.principal, call.id)
        headers = [(b"cache-control", b"no-store"), (b"vary", b"Authorization")]
        return json_response(judged_json(judged), headers=headers)

    async def verify_document(self, call: Call) -> AnyResponse:
        dialect = call.request.param("dialect")
        document = await call.request.body(limits.DOCUMENT_BYTES)
        name, decoded = self._registry.decode(
            document, dialect=check_dialect(dialect, "dialect") if dialect is not None else None
        )
        verdicts = await self._registry.verify_document(name, document, decoded.record.id)
        answer = {
            "id": decoded.record.id,
            "trust": summary(verdicts),
            "documents": [{"dialect": name, **summary(verdicts)}],
            "checked_at": to_rfc3339(self._registry.clock.now()),
        }
        return json_response(answer, headers=[(b"cache-control", b"no-store")])


def judged_json(judged: Judged) -> JsonObject:
    return {
        "id": judged.held.id,
        "trust": summary(verdicts_of(judged.now)),
        "shown": summary(verdicts_of(judged.held))["level"],
        "documents": [
            {
                "dialect": source.dialect,
                **summary(source.verdicts),
                "received_at": to_rfc3339(source.received_at),
                "via": source.via,
            }
            for source in judged.now.sources
        ],
        "checked_at": to_rfc3339(judged.at),
    }
