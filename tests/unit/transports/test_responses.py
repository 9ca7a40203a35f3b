"""Responses to queries, and how long they are cached."""

from __future__ import annotations

from typing import Any

import pytest

from support.announce import AGENT_ID, announcement, key
from waypost import limits
from waypost.model.json import JsonObject
from waypost.protocols.announce.messages import AgentQuery, build_response, parse_capability_requirement
from waypost.transports.responses import QueryResponses, ResponseCache
from waypost.trust.announce.admission import new_pinned_key
from waypost.trust.announce.trust_store import AgentPin

NOW = 1_780_000_000.0
METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))
OTHER = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"


def answer(seq: int = 1, *, signer: str = "one", **members: Any) -> JsonObject:
    return build_response(announcement(key(signer), seq=seq, at=NOW, **members))


def test_of_several_answers_of_one_agent_the_newest_counts() -> None:
    answers = QueryResponses(METRICS)
    for seq in (2, 3, 1):
        assert answers.add(answer(seq))
    assert answers.messages() == [answer(3)]


def test_responses_that_do_not_match_the_query_are_ignored() -> None:
    answers = QueryResponses(METRICS)
    assert not answers.add(answer(capabilities={"logs": "1"}))
    assert not answers.add({**answer(), "matched": False})
    assert not answers.add({"protocol_version": "v1.0", "agent": {"agent_id": "x"}})
    assert answers.messages() == []


def test_a_broken_signature_is_no_answer() -> None:
    forged = answer(9)
    forged["agent"]["transport"]["endpoint"] = "6.6.6.6:1"
    answers = QueryResponses(METRICS)
    assert not answers.add(forged)


def test_another_key_does_not_displace_the_first_one_however_new_it_claims_to_be() -> None:
    answers = QueryResponses(METRICS)
    answers.add(answer(1))
    answers.add(answer(99, signer="mallory"))
    assert answers.messages() == [answer(1)]


def test_the_key_that_is_bound_displaces_any_other() -> None:
    pin = AgentPin(agent_id=AGENT_ID, keys=(new_pinned_key(key("one").public, "tofu", NOW),))
    answers = QueryResponses(METRICS)
    answers.add(answer(99, signer="mallory"), pin)
    answers.add(answer(1), pin)
    assert answers.messages() == [answer(1)]


def test_a_signed_answer_displaces_an_unsigned_one_and_never_the_other_way_round() -> None:
    unsigned = answer(50)
    del unsigned["signature"]
    answers = QueryResponses(METRICS)
    assert answers.add(unsigned)
    assert answers.add(answer(1))
    answers.add(unsigned)
    assert answers.messages() == [answer(1)]


def test_an_answer_is_good_for_five_minutes_and_never_past_its_ttl() -> None:
    memory = ResponseCache()
    memory.put(METRICS, [(answer(), 10.0)], NOW)
    assert memory.find(METRICS, NOW + 9.9) == [answer()]
    assert memory.find(METRICS, NOW + 10) is None
    memory.put(METRICS, [(answer(), 3600.0)], NOW)
    assert memory.find(METRICS, NOW + limits.POSITIVE_CACHE_SECONDS - 1) == [answer()]
    assert memory.find(METRICS, NOW + limits.POSITIVE_CACHE_SECONDS) is None


def test_nothing_found_is_remembered_for_five_seconds() -> None:
    memory = ResponseCache()
    memory.put(METRICS, [], NOW)
    assert memory.find(METRICS, NOW + 4.9) == []
    assert memory.find(METRICS, NOW + 5) is None


def test_a_removed_agent_is_in_no_cached_response() -> None:
    memory = ResponseCache()
    memory.put(METRICS, [(answer(), 60.0), (answer(agent_id=OTHER), 60.0)], NOW)
    memory.remove_agent(AGENT_ID.upper())
    assert memory.find(METRICS, NOW) == [answer(agent_id=OTHER)]


def test_stale_responses_are_returned_on_request() -> None:
    memory = ResponseCache()
    memory.put(METRICS, [(answer(), 10.0)], NOW)
    assert memory.find(METRICS, NOW + 60) is None
    assert memory.find_stale(METRICS) == [answer()]
    assert memory.find_stale(AgentQuery()) == []


def test_the_cache_key_ignores_the_query_id() -> None:
    memory = ResponseCache()
    memory.put(AgentQuery(requirements=METRICS.requirements, query_id="one", minor=1), [(answer(), 60.0)], NOW)
    assert memory.find(METRICS, NOW) == [answer()]


@pytest.mark.parametrize("most", [1, 3])
def test_the_memory_is_bounded(most: int) -> None:
    memory = ResponseCache(most)
    for number in range(most + 2):
        memory.put(AgentQuery(agent_id=str(number)), [], NOW)
    assert len(memory) == most


def test_one_question_collects_at_most_a_thousand_agents() -> None:
    answers = QueryResponses(AgentQuery())
    for number in range(limits.ANSWERS_PER_QUERY + 1):
        unsigned = answer(agent_id=f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d")
        del unsigned["signature"]
        answers.add(unsigned)
    assert len(answers) == limits.ANSWERS_PER_QUERY
