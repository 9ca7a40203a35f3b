"""Responses to writes and reads of agents that several APIs share: receipts, one document, a list."""

from __future__ import annotations

from waypost.registry.publication import PublicationReceipt
from waypost.server.http.asgi import Request, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, quote_etag, strong_etag
from waypost.server.http.request_params import receipt_json
from waypost.server.renderer import RenderedDocument


def write_response(receipt: PublicationReceipt, location: str) -> Response:
    """201 for a new agent, 202 for a change that awaits confirmation, 200 otherwise."""
    response = json_response(receipt_json(receipt), 201 if receipt.created else 202 if receipt.held else 200)
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
