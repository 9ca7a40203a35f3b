"""JSON-RPC 2.0: parsing calls and encoding responses."""

import json
from typing import Any

import pytest

from waypost.errors import InvalidDocument, MalformedJson, NotFound, RateLimited, error_codes
from waypost.protocols.jsonrpc import RpcCall, RpcRejection, encode_replies, error_reply, parse_calls, result_reply


def one(body: str | bytes) -> RpcCall | RpcRejection:
    incoming = parse_calls(body.encode() if isinstance(body, str) else body)
    assert len(incoming.calls) == 1
    return incoming.calls[0]


def refused(body: str | bytes) -> tuple[int, bytes]:
    found = one(body)
    assert isinstance(found, RpcRejection)
    return error_codes(found.error).jsonrpc, found.id


@pytest.mark.parametrize(
    "written",
    [
        "1",
        '"1"',
        "0",
        "-7",
        "null",
        "1.5",
        "1.50",
        "1e2",
        "-0.0",
        '""',
        "12345678901234567890123456789",
        str(2**53),
        "9" * 400,
    ],
)
def test_an_id_comes_back_as_it_was_written(written: str) -> None:
    call = one(f'{{"jsonrpc":"2.0","method":"m","params":{{"a":1.5,"b":[2]}},"id":{written}}}')
    assert call == RpcCall("m", {"a": 1.5, "b": [2]}, written.encode())
    assert result_reply(call.id or b"", {}).endswith(f'"id":{written}}}'.encode())


@pytest.mark.parametrize("text", ["é😀", "a\nb", "\u2028"])
def test_a_string_id_comes_back_equal(text: str) -> None:
    call = one(json.dumps({"jsonrpc": "2.0", "method": "m", "id": text}))
    assert call.id is not None
    assert json.loads(call.id) == text


@pytest.mark.parametrize("written", ["true", "false", "[]", "{}", "[1]"])
def test_an_id_of_another_type_is_refused_without_it(written: str) -> None:
    assert refused(f'{{"jsonrpc":"2.0","method":"m","id":{written}}}') == (-32600, b"null")


def test_a_call_without_an_id_is_a_notification() -> None:
    assert one('{"jsonrpc":"2.0","method":"m"}') == RpcCall("m", {}, None)


@pytest.mark.parametrize(
    ("body", "code", "call_id"),
    [
        (b"", -32700, b"null"),
        (b"{", -32700, b"null"),
        (b'{"jsonrpc":"2.0","method":"foobar, "params":"bar","baz]', -32700, b"null"),
        (b'{"jsonrpc":"2.0","method":"m","id":NaN}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":Infinity},"id":1}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","method":"m\xff","id":1}', -32700, b"null"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m","id":1}', -32700, b"null"),
        (b"\x00", -32700, b"null"),
        (b"[" * 65 + b"]" * 65, -32700, b"null"),
        (b"1", -32600, b"null"),
        (b'"a"', -32600, b"null"),
        (b"null", -32600, b"null"),
        (b"[]", -32600, b"null"),
        (b'{"method":"m","id":1}', -32600, b"1"),
        (b'{"jsonrpc":"1.0","method":"m","id":"x"}', -32600, b'"x"'),
        (b'{"jsonrpc":2.0,"method":"m","id":1}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","method":1,"params":"bar"}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":3}', -32600, b"3"),
        (b'{"jsonrpc":"2.0","method":"m","params":"bar","id":4}', -32600, b"4"),
        (b'{"jsonrpc":"2.0","method":"m","id":1,"id":2}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":{"b":1,"b":2}},"id":1}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":[12345678901234567890]},"id":7}', -32602, b"7"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"\\ud800"},"id":7}', -32700, b"7"),
    ],
)
def test_an_invalid_json_rpc_call_is_refused(body: bytes, code: int, call_id: bytes) -> None:
    assert refused(body) == (code, call_id)


def test_a_refusal_names_the_place_of_a_large_integer() -> None:
    found = one('{"jsonrpc":"2.0","method":"m","params":{"a":[1,12345678901234567890]},"id":7}')
    assert isinstance(found, RpcRejection)
    assert found.error.path == "params.a[1]"


def test_positional_parameters_are_refused_when_named_ones_are_read() -> None:
    call = one('{"jsonrpc":"2.0","method":"m","params":[1],"id":7}')
    assert isinstance(call, RpcCall)
    with pytest.raises(Exception, match="by name"):
        call.named_params()


def test_null_parameters_are_none() -> None:
    assert one('{"jsonrpc":"2.0","method":"m","params":null,"id":7}') == RpcCall("m", {}, b"7")


def test_each_call_of_a_batch_is_judged_alone_and_in_order() -> None:
    body = (
        '[{"jsonrpc":"2.0","method":"a","params":{"x":1.5},"id":1}, 1, {"foo":"boo"}, {"jsonrpc":"2.0","method":"b"},'
        '{"jsonrpc":"2.0","method":"c","id":1,"id":2},{"jsonrpc":"2.0","method":"d","id":123456789012345678901}]'
    )
    incoming = parse_calls(body.encode())
    assert incoming.is_batch
    first, second, third, fourth, fifth, sixth = incoming.calls
    assert first == RpcCall("a", {"x": 1.5}, b"1")
    assert [error_codes(item.error).jsonrpc for item in (second, third, fifth) if isinstance(item, RpcRejection)] == [
        -32600
    ] * 3
    assert fourth == RpcCall("b", {}, None)
    assert sixth == RpcCall("d", {}, b"123456789012345678901")


@pytest.mark.parametrize(("count", "taken"), [(100, True), (101, False), (1001, False)])
def test_a_batch_has_at_most_100_calls(count: int, taken: bool) -> None:
    incoming = parse_calls(json.dumps([{"jsonrpc": "2.0", "method": "m", "id": at} for at in range(count)]).encode())
    assert incoming.is_batch is taken
    if not taken:
        (found,) = incoming.calls
        assert isinstance(found, RpcRejection)
        assert error_codes(found.error).jsonrpc == -32600
        assert found.error.details == {"reason": "batch_too_large"}


def test_a_large_batch_of_repeated_names_is_read_in_linear_time() -> None:
    names = ",".join(f'"n{at}":0' for at in range(60_000))
    assert refused(f'{{{names},"n0":1}}') == (-32600, b"null")


def answer(data: bytes) -> Any:
    return json.loads(data)


def test_an_error_carries_the_profile_code_and_the_path() -> None:
    reply = answer(error_reply(b"1", InvalidDocument("It is wrong.", path="$.a", hint="Mend it.")))
    assert reply == {
        "jsonrpc": "2.0",
        "error": {
            "code": -32001,
            "message": "It is wrong.",
            "data": {
                "code": "invalid_request",
                "errors": [{"path": "$.a", "reason": "It is wrong."}],
                "hint": "Mend it.",
            },
        },
        "id": 1,
    }


def test_an_error_carries_retry_after() -> None:
    reply = answer(error_reply(b"null", RateLimited("Too fast.", retry_after=3)))
    assert reply["error"]["code"] == -32009
    assert reply["error"]["data"] == {"code": "rate_limited", "retry_after": 3}


def test_an_api_may_choose_the_error_code() -> None:
    assert answer(error_reply(b"1", MalformedJson("x"), code=-32001))["error"]["code"] == -32001
    assert answer(error_reply(b"1", NotFound("x")))["error"]["code"] == -32002


def test_replies_of_a_batch_are_an_array_and_silence_is_nothing() -> None:
    assert encode_replies([b"1", b"2"], is_batch=True) == b"[1,2]"
    assert encode_replies([b"1"], is_batch=True) == b"[1]"
    assert encode_replies([b"1"], is_batch=False) == b"1"
    assert encode_replies([], is_batch=True) is None
