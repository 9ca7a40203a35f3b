"""API keys, for admins: `/api/v1/apikeys`."""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPES
from waypost.registry.credentials.api_keys import ApiKeyRequest, ApiKeyStore
from waypost.responses.trust import ApiKeyList, CreatedApiKey
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.request_params import read_object
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.trust.jwt import parse_duration

_MEMBERS = ("sub", "scopes", "ttl_seconds", "ttl", "note")


class ApiKeysApi:
    def __init__(self, keys: ApiKeyStore, require_authentication: Callable[[], None]) -> None:
        """`require_authentication` raises where every caller is admin."""
        self._keys = keys
        self._require_authentication = require_authentication

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/apikeys",
                operation="apikeys_list",
                handler=self.list_keys,
                summary="List the API keys, without their secrets",
                answers={200: ApiKeyList},
            ),
            Route(
                method="POST",
                path="/api/v1/apikeys",
                operation="apikeys_create",
                handler=self.create,
                summary="Create an API key; the answer is the only place where it is shown",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["sub", "scopes"],
                        "additionalProperties": False,
                        "properties": {
                            "sub": {"type": "string", "minLength": 1, "maxLength": limits.SUBJECT_CHARS},
                            "scopes": {"type": "array", "items": {"enum": list(SCOPES)}, "minItems": 1},
                            "ttl_seconds": {
                                "type": ["integer", "null"],
                                "minimum": 1,
                                "maximum": limits.API_KEY_TTL_MAX_SECONDS,
                                "description": "without it, the key is valid until it is revoked",
                            },
                            "ttl": {"type": ["string", "null"], "description": "the same with a unit, such as 90d"},
                            "note": {"type": "string", "maxLength": limits.API_KEY_NOTE_CHARS},
                        },
                    }
                ),
                answers={201: CreatedApiKey},
            ),
            Route(
                method="DELETE",
                path="/api/v1/apikeys/{id}",
                operation="apikeys_revoke",
                handler=self.revoke,
                summary="Revoke an API key",
                answers={204: BodySpec(description="revoked")},
            ),
        ]

    async def list_keys(self, call: RequestContext) -> AnyResponse:
        rows = tuple(entry.view() for entry in await self._keys.entries())
        return json_response(ApiKeyList(apikeys=rows), headers=[NO_STORE])

    async def create(self, call: RequestContext) -> AnyResponse:
        self._require_authentication()
        request = _parse_request(await read_object(call.request))
        try:
            created = await self._keys.create(call.principal, request)
        except InvalidParameter as error:  # which names a member of the body
            error.path = f"$.{error.path}"
            raise
        return json_response(created, 201, headers=[NO_STORE])

    async def revoke(self, call: RequestContext) -> AnyResponse:
        await self._keys.revoke(call.principal, call.id)
        return Response(204)


def _parse_request(body: JsonObject) -> ApiKeyRequest:
    for name in body:
        if name not in _MEMBERS:  # a misspelt lifetime must not make a key that never expires
            raise InvalidParameter(
                f"{name[:40]!r} is not a member of this request.",
                path=f"$.{name[:40]}",
                hint=f"Use {', '.join(_MEMBERS)}.",
            )
    subject, scopes, note = body.get("sub"), body.get("scopes"), body.get("note", "")
    if not isinstance(subject, str):
        raise InvalidParameter("sub must be a string.", path="$.sub", hint="Name the subject of the key.")
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise InvalidParameter("scopes must be an array of strings.", path="$.scopes", hint=f"Use {', '.join(SCOPES)}.")
    if not isinstance(note, str):
        raise InvalidParameter("note must be a string.", path="$.note")
    return ApiKeyRequest(subject=subject, scopes=tuple(scopes), ttl_seconds=_parse_lifetime(body), note=note)


def _parse_lifetime(body: JsonObject) -> int | None:
    """From `ttl_seconds`, or from `ttl`, which has a unit as in the command: "90d"."""
    value, ttl = body.get("ttl_seconds"), body.get("ttl")
    if ttl is not None:
        if value is not None:
            raise InvalidParameter("Both ttl and ttl_seconds are given.", path="$.ttl", hint="Leave one of them out.")
        if not isinstance(ttl, str):
            raise InvalidParameter(
                "ttl must be a string.", path="$.ttl", hint='Write it like "90d", or use ttl_seconds.'
            )
        return parse_duration(ttl, "$.ttl")
    if value is None:
        return None
    if isinstance(value, str):
        return parse_duration(value, "$.ttl_seconds")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameter(
            "ttl_seconds must be an integer.", path="$.ttl_seconds", hint="Leave it out for a key without expiry."
        )
    return value
