"""rtfs.md §7: the discover-agents form."""

import json
from typing import Any

import pytest

from waypost.errors import InvalidDocument, Timeout
from waypost.protocols.rtfs.discover_form import (
    DiscoverOptions,
    DiscoverValue,
    failed_discovery,
    parse_discover,
    parse_response,
    print_discover,
)
from waypost.protocols.rtfs.sexpr import Form, Keyword, Map, Vector, parse_form, print_form, print_line

CRITERIA = ':capability-id "vendor/translate" :discovery-tags [:nlp "french"] :limit 5'
PARAMS = {"capability_id": "vendor/translate", "discovery_tags": ["nlp", "french"], "limit": 5}


@pytest.mark.req("RTFS-60")
@pytest.mark.parametrize(
    "text",
    [
        f"(discover-agents {{{CRITERIA}}} {{:timeout-ms 5000}})",
        f"(discover-agents {{{CRITERIA}}} [{{:timeout-ms 5000}}])",
        f"(discover-agents {CRITERIA} {{:timeout-ms 5000}})",
        f"(discover-agents {CRITERIA} [{{:timeout-ms 5000}}])",
        '(discover-agents {:capability "vendor/translate" :tags [:nlp :french]} {:timeout-ms 5000 :limit 5})',
    ],
)
def test_all_shapes_give_the_same_call(text: str) -> None:
    form = parse_discover(text)
    assert form.params == PARAMS
    assert form.options == DiscoverOptions(timeout_ms=5000)
    assert json.loads(form.request("7")) == {
        "jsonrpc": "2.0",
        "method": "rtfs.registry.discover",
        "params": PARAMS,
        "id": "7",
    }
    assert parse_discover(print_discover(form)) == form


@pytest.mark.req("RTFS-60")
def test_queries_and_constraints_convert() -> None:
    form = parse_discover(
        """(discover-agents {:version ">=1.0 <2.0"
             :discovery-query {:text-search "images" :max-price 3 "metadata.owner" :acme :nested {:a-b [1 nil]}}
             :capability-constraints {:type :task}})"""
    )
    assert form.params == {
        "version_constraint": ">=1.0 <2.0",
        "discovery_query": {
            "text_search": "images",
            "max-price": 3,
            "metadata.owner": "acme",
            "nested": {"a_b": [1, None]},
            "capabilities.type": "task",
        },
    }
    assert parse_discover(print_discover(form)).params == form.params


@pytest.mark.req("RTFS-61")
def test_options_stay_with_the_caller() -> None:
    form = parse_discover(
        """(discover-agents {:agent-id "a" :colour :red}
             {:registry-uri "https://r.example/rtfs" :cache-policy :refresh-cache :retries 3})"""
    )
    assert form.params == {"agent_id": "a"}
    assert form.options == DiscoverOptions("https://r.example/rtfs", 10_000, "refresh-cache")
    assert [warning.split(":")[1] for warning in form.warnings] == ["colour", "retries"]
    assert parse_discover('(discover-agents {:agent-id "a"})').options == DiscoverOptions(None, 10_000, "use-cache")
    assert parse_discover(print_discover(form)).options == form.options


@pytest.mark.req("RTFS-61", "RTFS-62")
@pytest.mark.parametrize(
    "rest",
    [
        "",
        "{}",
        "{:limit 3}",
        "{:discovery-tags []}",
        "{:agent-id name}",
        "{:agent-id @ctx}",
        "{:agent-id (get-id)}",
        "{:agent-id :keyword}",
        "{:discovery-tags [tag]}",
        "{:discovery-tags :nlp}",
        "{:discovery-query {:owner (whoami)}}",
        "{:discovery-query {:owner someone}}",
        "{:discovery-query []}",
        '{:agent-id "a" :limit "3"}',
        '{:agent-id "a"} {:timeout-ms 0}',
        '{:agent-id "a"} {:timeout-ms 600001}',
        '{:agent-id "a"} {:cache-policy :sometimes}',
        '{:agent-id "a"} {:registry-uri :here}',
        '{:agent-id "a"} [{} {}]',
        '{:agent-id "a"} {} {}',
        ':agent-id "a" :agent-id "b"',
        '{:agent-id "a"',
    ],
)
def test_a_form_that_is_not_literal_data_fails_before_a_request_is_sent(rest: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_discover(f"(discover-agents {rest})")
    failure = failed_discovery(refused.value).form()
    assert failure.items[0] == Keyword("error")
    assert kind(failure) == "error/discovery.query-failed"


def kind(failure: Form) -> str:
    assert isinstance(failure, Vector)
    details = failure.items[1]
    assert isinstance(details, Map)
    found = details.find("type")
    assert isinstance(found, Keyword)
    return found.name


def answer(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "7", **members}).encode()


@pytest.mark.req("RTFS-63")
def test_cards_become_maps_with_their_json_names_as_keywords() -> None:
    body = answer(result={"agents": [{"agent_id": "a", "discovery_tags": ["x y"], "metadata": {"odd key": None}}]})
    value = parse_response(200, body, "7").form()
    assert print_form(value) == '[{:agent_id "a" :discovery_tags ["x y"] :metadata {:"odd key" nil}}]'
    assert parse_response(200, answer(result={"agents": []}), "7").form() == Vector() == DiscoverValue().form()
    assert parse_form(print_form(value)) == value


@pytest.mark.req("RTFS-63")
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (503, b"busy", "unavailable"),
        (500, answer(error={"code": -32603, "message": "x"}), "unavailable"),
        (200, answer(error={"code": -32011, "message": "x"}), "unavailable"),
        *[
            (200, answer(error={"code": code, "message": "x"}), "query-failed")
            for code in (-32600, -32601, -32602, -32700, -32004)
        ],
        (401, b"", "unauthorized"),
        (403, b"{}", "unauthorized"),
        (200, answer(error={"code": -32003, "message": "x"}), "unauthorized"),
        (200, answer(error={"code": -32008, "message": "x"}), "unauthorized"),
        (429, b"", "rate-limited"),
        (200, answer(error={"code": -32009, "message": "x"}), "rate-limited"),
        (200, answer(error={"code": -32005, "message": "x", "data": {"code": "rate_limited"}}), "rate-limited"),
        (200, b"<html>", "invalid-response"),
        (200, b"[]", "invalid-response"),
        (200, answer(), "invalid-response"),
        (200, answer(id="8", result={"agents": []}), "invalid-response"),
        (200, answer(result={"agents": [{"name": "no id"}]}), "invalid-response"),
        (200, answer(result={}), "invalid-response"),
    ],
)
def test_a_failure_has_the_stated_type(status: int, body: bytes, expected: str) -> None:
    assert kind(parse_response(status, body, "7").form()) == f"error/discovery.{expected}"


@pytest.mark.req("RTFS-63")
def test_a_failure_carries_its_details() -> None:
    body = answer(error={"code": -32009, "message": "slow down", "data": {"code": "rate_limited", "retry_after": 3}})
    assert print_line(parse_response(200, body, "7", registry_uri="https://r.example").form()) == (
        '[:error {:type :error/discovery.rate-limited :message "slow down" :details {:registry-uri "https://r.example" '
        ':http-status 200 :code -32009 :data {:code "rate_limited" :retry_after 3} :retry-after 3}}]'
    )
    assert failed_discovery(Timeout("Too slow.")).text == (
        '[:error {:type :error/discovery.timeout :message "Too slow." :details {}}]\n'
    )
