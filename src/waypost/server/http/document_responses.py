"""Responses to writes and reads of agents that several APIs share: receipts, one document, a list."""

from __future__ import annotations

from typing import Any

from waypost.model.query import Suggestions
from waypost.model.times import rfc3339_or_none
from waypost.registry.find.empty_results import suggestion_warnings
from waypost.registry.publication import PublicationReceipt, pending_view
from waypost.responses.agents import Receipt
from waypost.server.http.asgi import Request, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, quote_etag, strong_etag
from waypost.server.renderer import RenderedDocument


def to_receipt(receipt: PublicationReceipt) -> Receipt:
    """The receipt of a write as answers show it."""
    return Receipt(
        id=receipt.id,
        aliases=receipt.aliases,
        dialect=receipt.dialect,
        outcome=receipt.outcome,
        etag=receipt.etag,
        losses=receipt.losses,
        warnings=receipt.warnings,
        trust=receipt.trust,
        held=None if receipt.held is None else pending_view(receipt.held),
        expires_at=rfc3339_or_none(receipt.expires_at),
        ttl_seconds=receipt.ttl_seconds,
    )


def suggestion_members(suggestions: Suggestions) -> dict[str, Any]:
    """The members of a list that suggest known tags for unknown ones; none without suggestions."""
    if not suggestions:
        return {}
    return {"suggestions": {"tags": suggestions}, "warnings": tuple(suggestion_warnings(suggestions))}


def write_response(receipt: PublicationReceipt, location: str) -> Response:
    """201 for a new agent, 202 for a change that awaits confirmation, 200 otherwise."""
    response = json_response(to_receipt(receipt), 201 if receipt.created else 202 if receipt.held else 200)
    return response.add(b"location", location).add(b"etag", quote_etag(receipt.etag))


def document_response(request: Request, rendering: RenderedDocument) -> Response:
    if is_not_modified(request, rendering.etag, rendering.changed_at):
        return Response(304, headers=[pair for pair in rendering.headers if pair[0] != b"content-type"])
    response = Response(200, headers=list(rendering.headers))
    response.body = rendering.body
    return response


def list_response(request: Request, body: bytes, last_modified: float | None) -> Response:
    etag = strong_etag(body, b"application/json")
    headers = [(b"etag", etag.encode()), (b"vary", b"Authorization, Accept"), (b"cache-control", b"private, no-cache")]
    if last_modified is not None:
        headers.append((b"last-modified", format_http_date(last_modified)))
    if is_not_modified(request, etag, last_modified):
        return Response(304, headers=headers)
    return Response(200, body, headers=headers)
