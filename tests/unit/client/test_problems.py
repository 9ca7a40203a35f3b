"""A response is mapped to the error class that the service raised."""

from __future__ import annotations

import httpx2
import pytest

from waypost import errors
from waypost.client.http import error_from_response, error_from_transport, may_have_been_applied
from waypost.client.requests import parse_json_body
from waypost.errors import ERROR_CODES, ConfigurationError, WaypostError
from waypost.responses.agents import ErrorDetail
from waypost.server.http.problems import problem_headers, problem_response


@pytest.mark.parametrize(
    "kind", [kind for kind in ERROR_CODES if kind is not ConfigurationError], ids=lambda kind: kind.__name__
)
def test_every_leaf_survives_the_wire(kind: type[WaypostError]) -> None:
    raised = kind("What happened.", path="$.name", hint="Do this.", retry_after=7)
    answer = problem_response(raised, instance="/x", correlation_id="c-1")
    headers = {name.decode(): value.decode() for name, value in problem_headers(raised)}
    error = error_from_response(answer.status, headers, answer.body)
    assert type(error) is kind, f"{type(error).__name__} has the same status, code and title in errors.py"
    assert (error.message, error.path, error.hint) == ("What happened.", "$.name", "Do this.")
    assert error.retry_after == 7
    assert error.details["correlation_id"] == "c-1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (418, errors.InvalidRequest),
        (429, errors.RateLimited),
        (500, errors.InternalError),
        (502, errors.Unavailable),
        (504, errors.Unavailable),
    ],
)
def test_an_answer_without_a_problem_document_is_mapped_by_its_status(status: int, kind: type[WaypostError]) -> None:
    error = error_from_response(status, {"retry-after": "3"}, b"<html>proxy</html>")
    assert type(error) is kind
    assert str(status) in error.message
    assert error.retry_after == 3


def test_an_answer_that_is_not_utf_8_is_mapped_like_any_other() -> None:
    assert type(error_from_response(502, {}, b'{"detail": "\xff"}')) is errors.Unavailable
    with pytest.raises(errors.InvalidDocument):
        parse_json_body(b'{"\xff": 1}')


def test_a_retry_after_that_is_a_date_is_not_read() -> None:
    assert error_from_response(503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"").retry_after is None


def test_a_line_of_a_batch_carries_its_error() -> None:
    error = ErrorDetail(code="conflict", message="Held.", path="$.id").to_error()
    assert isinstance(error, errors.Conflict)
    assert (error.message, error.path) == ("Held.", "$.id")


def test_a_connection_that_was_refused_has_done_nothing() -> None:
    error = error_from_transport(httpx2.ConnectError("refused"), "http://x")
    assert isinstance(error, errors.Unavailable)
    assert not may_have_been_applied(error)
    assert "http://x" in error.message


def test_a_connection_that_broke_may_have_done_something() -> None:
    assert may_have_been_applied(error_from_transport(httpx2.ReadError("reset"), "http://x"))
    late = error_from_transport(httpx2.ReadTimeout("late"), "http://x")
    assert isinstance(late, errors.Timeout)
    assert may_have_been_applied(late)
