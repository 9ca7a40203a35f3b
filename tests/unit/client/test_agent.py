"""`Agent`: a document with named members."""

from __future__ import annotations

import json

from waypost import Agent
from waypost.model.json import dump_json
from waypost.model.record import record_from_json


def test_an_agent_is_a_profile_document() -> None:
    agent = Agent(
        "https://a.example/t",
        "Translator",
        "Translates invoices.",
        tags=["translation"],
        examples=["Translate this invoice.", {"text": "Traduis ceci.", "language": "fr"}],
        version="1.0.0",
        vendor={"tier": 1},
    ).bind("https", "https://a.example/invoke", priority=2)
    record = record_from_json(agent)
    assert (record.id, record.tags, record.version) == (agent.id, ("translation",), "1.0.0")
    assert [example.text for example in record.examples] == ["Translate this invoice.", "Traduis ceci."]
    assert record.extra == {"vendor": {"tier": 1}}
    assert json.loads(dump_json(agent)) == json.loads(json.dumps(agent))


def test_a_view_keeps_every_member_of_the_document() -> None:
    document = {"id": "a", "name": "A", "description": "", "bindings": [], "x.example/odd": [1]}
    assert Agent.from_document(document) == document


def test_the_endpoint_is_that_of_the_most_preferred_binding() -> None:
    agent = Agent("a", "A", "d").bind("https", "https://two", priority=2).bind("wss", "wss://one", priority=1)
    assert agent.endpoint == "wss://one"
    assert agent.protocols == ("https", "wss")
    assert Agent("a", "A", "d").endpoint is None


def test_members_that_are_not_there_read_as_empty() -> None:
    agent = Agent.from_document({"id": "a", "name": "A"})
    assert (agent.tags, agent.bindings, agent.examples, agent.version, agent.description) == ((), (), (), None, "")
    assert agent.status == "active"
    assert repr(agent) == "Agent(id='a', name='A')"
