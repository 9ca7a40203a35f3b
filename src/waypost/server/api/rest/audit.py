"""The audit trail on the service's own face, for admins: entries, a signed checkpoint, proofs."""

from __future__ import annotations

import base64
from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, NotAcceptable
from waypost.model.json import dump_json
from waypost.registry.audit_trail import AuditTrail, ConsistencyProof, InclusionProof, SignedCheckpoint
from waypost.registry.ports import AuditQuery
from waypost.server.http.asgi import AnyResponse, Request, Response, json_response
from waypost.server.http.content_negotiation import MediaType, choose_media_type
from waypost.server.http.request_params import read_limit
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import AUDIT_CHECKPOINT, AUDIT_PAGE, AUDIT_PROOF

_NOT_STORED = (b"cache-control", b"no-store")
_PLAIN, _JSON = MediaType("text", "plain"), MediaType("application", "json")
_NOTE = b"text/plain; charset=utf-8"
_NATURAL = {"type": "integer", "minimum": 0}
_NUMBER_DIGITS = 15
_TEXT_CHARS = limits.ID_CHARS


class AuditApi:
    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/audit",
                operation="audit",
                handler=self.page,
                summary="Who changed what",
                parameters=(
                    ParameterSpec(
                        name="after", schema=_NATURAL, description="the number of an entry; those after it follow"
                    ),
                    ParameterSpec(
                        name="limit", schema={"type": "integer", "minimum": 1, "maximum": limits.AUDIT_PAGE_MAX}
                    ),
                    ParameterSpec(name="subject", description="who did it"),
                    ParameterSpec(name="object", description="what it was done to"),
                    ParameterSpec(name="action"),
                ),
                answers={200: BodySpec(schema=AUDIT_PAGE)},
            ),
            Route(
                method="GET",
                path="/api/v1/audit/checkpoint",
                operation="audit_checkpoint",
                handler=self.checkpoint,
                summary="Size and root of the audit trail, signed",
                answers={
                    200: BodySpec(schema=AUDIT_CHECKPOINT, content_type="application/json", also=("text/plain",)),
                },
            ),
            Route(
                method="GET",
                path="/api/v1/audit/proof",
                operation="audit_proof",
                handler=self.proof,
                summary="That an entry is in the trail, or that the trail only grew",
                parameters=(
                    ParameterSpec(name="entry", schema=_NATURAL, description="the number of an entry"),
                    ParameterSpec(name="size", schema=_NATURAL, description="of the trail; now, when absent"),
                    ParameterSpec(name="from", schema=_NATURAL, description="an earlier size"),
                    ParameterSpec(name="to", schema=_NATURAL, description="a later size; now, when absent"),
                ),
                answers={200: BodySpec(schema=AUDIT_PROOF)},
            ),
        ]

    async def page(self, call: RequestContext) -> AnyResponse:
        request = call.request
        page = await self._trail.page(
            AuditQuery(
                after=_read_number(request, "after") or 0,
                limit=read_limit(request, default=limits.AUDIT_PAGE_DEFAULT, most=limits.AUDIT_PAGE_MAX),
                subject=_read_text(request, "subject"),
                object=_read_text(request, "object"),
                action=_read_text(request, "action"),
            )
        )
        rest: dict[str, Any] = {"size": page.size, "oldest": page.oldest}
        if page.next_after is not None:
            rest["next_after"] = page.next_after
        # The entries are sent as they were hashed, so that a reader can compute their leaves.
        body = b'{"entries":[' + b",".join(page.leaves) + b"]," + dump_json(rest)[1:]
        return Response(200, body, headers=[_NOT_STORED])

    async def checkpoint(self, call: RequestContext) -> AnyResponse:
        chosen = choose_media_type((_PLAIN, _JSON), call.request.header(b"accept"))
        if chosen is None:
            raise NotAcceptable("A checkpoint is text/plain or application/json.", path="Accept")
        signed = await self._trail.checkpoint()
        if chosen == _JSON:
            return json_response(_checkpoint_json(signed), headers=[_NOT_STORED, (b"vary", b"Accept")])
        return Response(200, signed.note.encode(), content_type=_NOTE, headers=[_NOT_STORED, (b"vary", b"Accept")])

    async def proof(self, call: RequestContext) -> AnyResponse:
        asked = {name: _read_number(call.request, name) for name in ("entry", "size", "from", "to")}
        entry, first = asked["entry"], asked["from"]
        if (entry is None) == (first is None):
            raise InvalidParameter(
                "Name either entry or from.",
                path="entry",
                hint="?entry=N&size=M proves that an entry is there, ?from=M&to=N that nothing before was changed.",
            )
        if entry is not None:
            return json_response(
                _inclusion_json(await self._trail.inclusion(entry, asked["size"])), headers=[_NOT_STORED]
            )
        proof = await self._trail.consistency(first or 0, asked["to"])
        return json_response(_consistency_json(proof), headers=[_NOT_STORED])


def _read_number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _NUMBER_DIGITS:
        raise InvalidParameter(f"{name} must be a whole number.", path=name)
    return int(text)


def _read_text(request: Request, name: str) -> str | None:
    text = request.param(name)
    if text is not None and not 0 < len(text) <= _TEXT_CHARS:
        raise InvalidParameter(f"{name} is a text of 1 to {_TEXT_CHARS} characters.", path=name)
    return text


def _checkpoint_json(signed: SignedCheckpoint) -> dict[str, Any]:
    origin, size, root = signed.checkpoint
    return {"origin": origin, "size": size, "root": _text(root), "key": signed.key, "note": signed.note}


def _inclusion_json(proof: InclusionProof) -> dict[str, Any]:
    return {
        "entry": proof.entry,
        "size": proof.size,
        "leaf": _text(proof.leaf),
        "root": _text(proof.root),
        "hashes": list(map(_text, proof.hashes)),
    }


def _consistency_json(proof: ConsistencyProof) -> dict[str, Any]:
    return {
        "from": proof.first,
        "to": proof.second,
        "from_root": _text(proof.first_root),
        "to_root": _text(proof.second_root),
        "hashes": list(map(_text, proof.hashes)),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
