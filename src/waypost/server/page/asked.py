"""What a visitor asks of the catalogue: words, filters, a place in the list; and the addresses that ask a bit otherwise."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.server.asgi import Request
from waypost.server.page.markup import Html, el
from waypost.server.reading import read_filters

FILTERS = ("tag", "protocol", "status")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()  # none: those that lists show
    cursor: str | None = None

    def values(self, name: str) -> tuple[str, ...]:
        return {"tag": self.tags, "protocol": self.protocols, "status": self.statuses}[name]

    @property
    def is_filtered(self) -> bool:
        return bool(self.tags or self.protocols or self.statuses)

    @property
    def is_plain(self) -> bool:
        return not (self.text or self.is_filtered or self.cursor)

    def address(self, **changes: object) -> str:
        """Of the catalogue as it is asked here but for some changes; from its first page."""
        asked = msgspec.structs.replace(self, **{"cursor": None, **changes}) if changes else self
        pairs = [("q", asked.text)] if asked.text else []
        pairs += [(name, value) for name in FILTERS for value in asked.values(name)]
        if asked.cursor is not None:
            pairs.append(("cursor", asked.cursor))
        return f"/?{urlencode(pairs)}" if pairs else "/"

    def toggled(self, name: str, value: str) -> str:
        """With this filter if it was without, without it if it was with."""
        held = self.values(name)
        kept = tuple(each for each in held if each != value) if value in held else (*held, value)
        return self.address(**{_FIELDS[name]: kept})

    def hidden_fields(self) -> list[Html]:
        """The filters, inside the form that asks with other words."""
        return [el("input", type="hidden", name=name, value=value) for name in FILTERS for value in self.values(name)]


_FIELDS = {"tag": "tags", "protocol": "protocols", "status": "statuses"}


def read_asked(request: Request) -> Asked:
    text = (request.param("q") or "").strip()
    if len(text) > limits.QUERY_CHARS:
        raise InvalidParameter(
            f"The question has {len(text)} characters; at most {limits.QUERY_CHARS} are read.",
            path="q",
            hint="Shorten it.",
        )
    filters = read_filters(request)
    for name, values in (("tag", filters.tags), ("protocol", filters.protocols)):
        if len(values) > limits.FILTER_VALUES:
            raise InvalidParameter(f"At most {limits.FILTER_VALUES} values are read.", path=name, hint="Ask for fewer.")
    return Asked(
        text=text,
        tags=tuple(dict.fromkeys(filters.tags)),
        protocols=tuple(dict.fromkeys(filters.protocols)),
        statuses=tuple(dict.fromkeys(value for name, value in request.query if name == "status")),
        cursor=request.param("cursor"),
    )
