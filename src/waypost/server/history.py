"""Earlier versions of an agent, on the service's own face: the list of them, and how two of them differ."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost import limits
from waypost.model.times import to_rfc3339_millis
from waypost.registry.engine import Registry
from waypost.registry.history import Comparison, History, VersionLine, compare_versions, history_of
from waypost.server.asgi import AnyResponse, Headers, json_response
from waypost.server.reading import read_limit
from waypost.server.routes import Body, Call, Parameter, Route
from waypost.server.trail_shapes import DIFF, HISTORY

_MOST = limits.HISTORY_VERSIONS + 1  # and the current one


class HistoryFace:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:history",
                operation="history",
                handler=self.history,
                summary="The versions of an agent that are kept",
                parameters=(Parameter(name="limit", schema={"type": "integer", "minimum": 1, "maximum": _MOST}),),
                answers={200: Body(schema=HISTORY)},
            ),
            Route(
                method="GET",
                path="/api/v1/agents/{id}:diff",
                operation="diff",
                handler=self.diff,
                summary="How two versions of an agent differ",
                parameters=(
                    Parameter(name="from", description="etag of a version; the one before `to`, when absent"),
                    Parameter(name="to", description="etag of a version; the current one, when absent"),
                ),
                answers={200: Body(schema=DIFF)},
            ),
        ]

    async def history(self, call: Call) -> AnyResponse:
        limit = read_limit(call.request, default=_MOST, most=_MOST)
        found = await history_of(self._registry, call.principal, call.id, limit)
        return json_response(_history_json(found), headers=_headers())

    async def diff(self, call: Call) -> AnyResponse:
        request = call.request
        found = await compare_versions(
            self._registry, call.principal, call.id, request.param("from"), request.param("to")
        )
        return json_response(_comparison_json(found), headers=_headers())


def _headers() -> Headers:
    """Who asks decides what is seen."""
    return [(b"cache-control", b"private, no-cache"), (b"vary", b"Authorization")]


def _history_json(found: History) -> dict[str, Any]:
    lines = [_line_json(line, names_subjects=found.names_subjects) for line in found.lines]
    return {"id": found.registration.id, "versions": lines}


def _line_json(line: VersionLine, *, names_subjects: bool) -> dict[str, Any]:
    version = line.version
    told: dict[str, Any] = {"etag": version.etag, "at": to_rfc3339_millis(version.at), "current": line.current}
    if line.changed is not None:
        told["changed"] = line.changed
    if names_subjects:
        told["subject"] = version.subject
        told["digests"] = version.digests
    return told


def _comparison_json(found: Comparison) -> dict[str, Any]:
    return {
        "id": found.id,
        "from": found.before.etag,
        "to": found.after.etag,
        "differences": [msgspec.to_builtins(each) for each in found.differences],
        "complete": len(found.differences) < limits.DIFFERENCES,
    }
