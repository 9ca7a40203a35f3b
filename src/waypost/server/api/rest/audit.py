"""The audit trail, for admins: entries, a signed checkpoint, and proofs of inclusion and consistency. And the published log,
for everybody."""

from __future__ import annotations

from waypost import limits
from waypost.errors import InvalidParameter, NotAcceptable
from waypost.registry.audit_trail import AuditTrail, PublishedLog, SignedCheckpoint
from waypost.registry.ports import AuditQuery
from waypost.responses.base import embedded
from waypost.responses.trust import AuditTrailPage, LogCheckpoint, LogProof, PublishedLeaf, PublishedLeaves
from waypost.server.http.asgi import NO_STORE, AnyResponse, Request, Response, json_response
from waypost.server.http.content_negotiation import MediaType, choose_media_type
from waypost.server.http.request_params import limit_parameter, read_integer, read_limit
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route

_PLAIN, _JSON = MediaType("text", "plain"), MediaType("application", "json")
_NATURAL = {"type": "integer", "minimum": 0}
_TEXT_CHARS = limits.ID_CHARS
_PROOF_PARAMETERS = (
    ParameterSpec(name="entry", schema=_NATURAL, description="the number of an entry"),
    ParameterSpec(name="size", schema=_NATURAL, description="a size of the log; default: current"),
    ParameterSpec(name="from", schema=_NATURAL, description="an earlier size"),
    ParameterSpec(name="to", schema=_NATURAL, description="a later size; default: current"),
)


class AuditApi:
    """`/api/v1/audit`, and below `/audit/` what anyone may witness (paths of C2SP tlog-tiles)."""

    def __init__(self, trail: AuditTrail, published: PublishedLog) -> None:
        self._trail = trail
        self._published = published

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/audit",
                operation="audit",
                handler=self.page,
                summary="List entries of the audit trail",
                parameters=(
                    ParameterSpec(name="after", schema=_NATURAL, description="list the entries after this number"),
                    limit_parameter(limits.AUDIT_PAGE_MAX),
                    ParameterSpec(name="subject", description="who made the change"),
                    ParameterSpec(name="object", description="what was changed"),
                    ParameterSpec(name="action", description="the kind of change, e.g. register"),
                ),
                answers={200: AuditTrailPage},
            ),
            Route(
                method="GET",
                path="/api/v1/audit/checkpoint",
                operation="audit_checkpoint",
                handler=self.checkpoint,
                summary="Size and root of the audit trail, signed",
                answers={200: BodySpec(type=LogCheckpoint, also=("text/plain",))},
            ),
            Route(
                method="GET",
                path="/api/v1/audit/proof",
                operation="audit_proof",
                handler=self.proof,
                summary="Prove that the trail contains an entry, or that it only grew",
                parameters=_PROOF_PARAMETERS,
                answers={200: LogProof},
            ),
            Route(
                method="GET",
                path="/api/v1/audit/published",
                operation="published_checkpoints",
                handler=self.published_leaves,
                summary="List what the leaves of the published log commit to",
                parameters=(
                    ParameterSpec(name="after", schema=_NATURAL, description="list the leaves after this number"),
                    limit_parameter(limits.AUDIT_PAGE_MAX),
                ),
                answers={200: PublishedLeaves},
            ),
            Route(
                method="GET",
                path="/audit/checkpoint",
                operation="published_checkpoint",
                handler=self.published_checkpoint,
                summary="The signed checkpoint of the published log",
                answers={200: BodySpec(type=LogCheckpoint, also=("text/plain",))},
                open=True,
            ),
            Route(
                method="GET",
                path="/audit/proof",
                operation="published_proof",
                handler=self.published_proof,
                summary="Prove that the published log contains a leaf, or that it only grew",
                parameters=_PROOF_PARAMETERS,
                answers={200: LogProof},
                open=True,
            ),
        ]

    async def page(self, call: RequestContext) -> AnyResponse:
        request = call.request
        found = await self._trail.page(
            AuditQuery(
                after=read_integer(request, "after", 0, limits.JSON_INTEGER_MAX) or 0,
                limit=read_limit(request, default=limits.AUDIT_PAGE_DEFAULT, most=limits.AUDIT_PAGE_MAX),
                subject=_read_text(request, "subject"),
                object=_read_text(request, "object"),
                action=_read_text(request, "action"),
            )
        )
        # Entries are sent as they were hashed, so that a client can compute their leaves.
        entries = tuple(map(embedded, found.leaves))
        page = AuditTrailPage(entries=entries, size=found.size, oldest=found.oldest, next_after=found.next_after)
        return json_response(page, headers=[NO_STORE])

    async def checkpoint(self, call: RequestContext) -> AnyResponse:
        return _checkpoint_response(call, await self._trail.checkpoint())

    async def published_checkpoint(self, call: RequestContext) -> AnyResponse:
        return _checkpoint_response(call, await self._published.checkpoint())

    async def proof(self, call: RequestContext) -> AnyResponse:
        return await _proof_response(call, self._trail)

    async def published_proof(self, call: RequestContext) -> AnyResponse:
        return await _proof_response(call, self._published)

    async def published_leaves(self, call: RequestContext) -> AnyResponse:
        after = read_integer(call.request, "after", 0, limits.JSON_INTEGER_MAX) or 0
        limit = read_limit(call.request, default=limits.AUDIT_PAGE_DEFAULT, most=limits.AUDIT_PAGE_MAX)
        leaves = tuple(
            PublishedLeaf(number=leaf.number, at=leaf.at, size=leaf.size, root=leaf.root, nonce=leaf.nonce)
            for leaf in await self._published.page(after, limit)
        )
        return json_response(PublishedLeaves(origin=await self._trail.origin(), leaves=leaves), headers=[NO_STORE])


def _checkpoint_response(call: RequestContext, signed: SignedCheckpoint) -> AnyResponse:
    media_type = choose_media_type((_PLAIN, _JSON), call.request.header(b"accept"))
    if media_type is None:
        raise NotAcceptable("A checkpoint is text/plain or application/json.", path="Accept")
    headers = [NO_STORE, (b"vary", b"Accept")]
    if media_type == _PLAIN:
        return Response(200, signed.note.encode(), content_type=b"text/plain; charset=utf-8", headers=headers)
    origin, size, root = signed.checkpoint
    checkpoint = LogCheckpoint(origin=origin, size=size, root=root, key=signed.key, note=signed.note)
    return json_response(checkpoint, headers=headers)


async def _proof_response(call: RequestContext, log: AuditTrail | PublishedLog) -> AnyResponse:
    entry, size, first, second = (
        read_integer(call.request, name, 0, limits.JSON_INTEGER_MAX) for name in ("entry", "size", "from", "to")
    )
    if (entry is None) == (first is None):
        raise InvalidParameter(
            "Either entry or from is required.",
            path="entry",
            hint="?entry=N&size=M proves that the log contains an entry, ?from=M&to=N that it only grew.",
        )
    if entry is not None:
        inclusion = await log.inclusion(entry, size)
        proof = LogProof(
            entry=inclusion.entry,
            size=inclusion.size,
            leaf=inclusion.leaf,
            root=inclusion.root,
            hashes=tuple(inclusion.hashes),
        )
    else:
        consistency = await log.consistency(first or 0, second)
        proof = LogProof(
            from_=consistency.first,
            to=consistency.second,
            from_root=consistency.first_root,
            to_root=consistency.second_root,
            hashes=tuple(consistency.hashes),
        )
    return json_response(proof, headers=[NO_STORE])


def _read_text(request: Request, name: str) -> str | None:
    text = request.param(name)
    if text is not None and not 0 < len(text) <= _TEXT_CHARS:
        raise InvalidParameter(f"{name} must have 1 to {_TEXT_CHARS} characters.", path=name)
    return text
