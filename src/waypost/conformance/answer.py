"""One recorded exchange, and how checks read it: strictly, because the other side may be careless or hostile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waypost import limits
from waypost.conformance.report import ProbeExchange, ProbeRequest, ProbeResponse
from waypost.conformance.suite import Untestable, Violation, expect
from waypost.errors import WaypostError
from waypost.model.json import kind_of, parse_json

_REFUSALS = (401, 403)
_HEADER_CHARS = 300  # of one value in the report


def shorten(text: str, most: int = 120) -> str:
    """At most `most` characters, for messages that quote a stranger."""
    return text if len(text) <= most else text[: most - 1] + "…"


class ProbeAnswer:
    """What a service answered to one request. `error` says why there is no answer."""

    def __init__(
        self,
        request: ProbeRequest,
        status: int | None = None,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        error: str = "",
    ) -> None:
        self.request = request
        self.status = status
        self.body = body
        self.error = error
        self._headers = [(name.lower(), value) for name, value in headers]
        self._value: Any = None
        self._fault: str | None = None
        self._is_parsed = False

    @property
    def name(self) -> str:
        """The request line, for messages."""
        return shorten(f"{self.request.method} {self.request.url}", 160)

    def header(self, name: str) -> str | None:
        """The value of a header; several fields of one name are joined by commas."""
        values = [value for field, value in self._headers if field == name.lower()]
        return ", ".join(values) if values else None

    def get_header(self, name: str) -> str:
        """The value of a header that must be there."""
        value = self.header(name)
        if value is None:
            self.expect_access()
        expect(value is not None, f"{self.name} answered without the header {name}.")
        return value or ""

    @property
    def media_type(self) -> str:
        """The media type without parameters, in lower case."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    def expect_status(self, *statuses: int) -> None:
        """The status must be one of these. If credentials were refused, nothing can be said."""
        self.expect_answer()
        if self.status in statuses:
            return
        self.expect_access()
        wanted = " or ".join(map(str, statuses))
        raise Violation(f"{self.name} answered {self.status}, expected {wanted}.")

    def expect_access(self) -> None:
        """If credentials were refused, nothing can be said."""
        if self.status in _REFUSALS:
            raise Untestable("needs_token", f"{self.name} answered {self.status}: credentials are needed, or others.")

    def expect_answer(self) -> None:
        """There must be an answer."""
        expect(not self.error, f"{self.name}: {self.error}")

    def json(self) -> Any:
        """The body as JSON without ambiguities. Parsed once: many checks read the same answer."""
        self.expect_answer()
        if not self._is_parsed:
            self._is_parsed = True
            try:
                self._value = parse_json(self.body, max_bytes=limits.CONFORMANCE_ANSWER_BYTES, any_length=True)
            except WaypostError as error:
                self._fault = shorten(error.message)
        if self._fault is not None:
            raise Violation(f"The body of {self.name} is not JSON: {self._fault}")
        return self._value

    def object(self) -> dict[str, Any]:
        """The body as a JSON object."""
        value = self.json()
        expect(isinstance(value, dict), f"The body of {self.name} is {kind_of(value)}, expected an object.")
        return value if isinstance(value, dict) else {}

    def objects(self, member: str) -> list[dict[str, Any]]:
        """The objects in an array that is a member of the body."""
        return objects_in(self.object(), member, f"the body of {self.name}")

    def exchange(self) -> ProbeExchange:
        """The exchange for the report: excerpts only."""
        text = self.body[: 4 * limits.CONFORMANCE_EXCERPT_CHARS].decode("utf-8", "replace")
        response = ProbeResponse(
            status=self.status,
            headers={name: shorten(value, _HEADER_CHARS) for name, value in self._headers},
            body=shorten(text, limits.CONFORMANCE_EXCERPT_CHARS),
            body_bytes=len(self.body),
            error=self.error,
        )
        return ProbeExchange(request=self.request, response=response)


def objects_in(document: Mapping[str, Any], member: str, where: str) -> list[dict[str, Any]]:
    """The objects in an array that must be there."""
    value = document.get(member)
    expect(isinstance(value, list), f"`{member}` in {where} is {_kind(document, member)}, expected an array.")
    items = value if isinstance(value, list) else []
    for index, item in enumerate(items):
        expect(isinstance(item, dict), f"`{member}[{index}]` in {where} is {kind_of(item)}, expected an object.")
    return items


def expect_text(document: Mapping[str, Any], *members: str, where: str) -> None:
    """Members that must be non-empty strings."""
    for member in members:
        value = document.get(member)
        expect(
            isinstance(value, str) and value.strip(),
            f"`{member}` of {where} is {_kind(document, member)}, expected a non-empty string.",
        )


def expect_texts(document: Mapping[str, Any], member: str, where: str) -> list[str]:
    """A member that must be an array of strings."""
    value = document.get(member)
    expect(
        isinstance(value, list) and all(isinstance(item, str) for item in value),
        f"`{member}` of {where} is {_kind(document, member)}, expected an array of strings.",
    )
    return value if isinstance(value, list) else []


def expect_object(document: Mapping[str, Any], member: str, where: str) -> dict[str, Any]:
    """A member that must be an object."""
    value = document.get(member)
    expect(isinstance(value, dict), f"`{member}` of {where} is {_kind(document, member)}, expected an object.")
    return value if isinstance(value, dict) else {}


def _kind(document: Mapping[str, Any], member: str) -> str:
    if member not in document:
        return "missing"
    value = document[member]
    return "empty" if value == "" else kind_of(value)
