"""What a form sends: names and texts, once each, within bounds."""

from __future__ import annotations

from urllib.parse import parse_qsl

from waypost import limits
from waypost.errors import InvalidRequest
from waypost.server.asgi import Request

_FORM = "application/x-www-form-urlencoded"
_FIELDS = 16


async def read_form(request: Request, most: int = limits.REQUEST_BYTES) -> dict[str, str]:
    """The fields of a form. A browser sends every line end as two characters, whatever was pasted: they are one again."""
    kind = (request.header(b"content-type") or "").split(";", 1)[0].strip().lower()
    if kind != _FORM:
        raise InvalidRequest(f"A form is sent as {_FORM}.", path="Content-Type", hint="Send it from the page.")
    body = await request.body(most)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError:
        raise InvalidRequest("The form cannot be read.", path="$", hint="Send it from the page.") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
