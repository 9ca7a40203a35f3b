"""Paging of lists: the parameters `limit` and `cursor`. Cursors are sealed by `registry/cursors.py`."""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.server.http.asgi import Request
from waypost.server.http.request_params import read_integer
from waypost.server.http.routing import ParameterSpec


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list is requested. Without a cursor, the first one."""

    limit: int
    cursor: str | None


def limit_parameter(most: int = limits.PAGE_MAX) -> ParameterSpec:
    """Describes `limit`, the largest number of items in a page."""
    return ParameterSpec(name="limit", schema={"type": "integer", "minimum": 1, "maximum": most})


PAGE_PARAMETERS = (
    limit_parameter(),
    ParameterSpec(name="cursor", description="`next_cursor` of the page before"),
)


def read_page(request: Request) -> PageRequest:
    """The requested page of a list with cursors."""
    return PageRequest(limit=read_limit(request), cursor=request.param("cursor"))


def read_limit(request: Request, *, default: int = limits.PAGE_DEFAULT, most: int = limits.PAGE_MAX) -> int:
    """The requested size of a page."""
    limit = read_integer(request, "limit", 1, most, hint="Request the rest in further pages.")
    return default if limit is None else limit
