"""Which binding of an agent is called."""

from __future__ import annotations

import pytest

from waypost import Agent
from waypost.client.binding_policy import BindingPolicy
from waypost.client.calls import choose_target
from waypost.errors import InvalidRequest

LINK = {"protocol": "a2a", "endpoint": "https://example.com/card.json", "unresolved": True}


def test_the_document_that_a_catalog_names_is_not_called() -> None:
    with pytest.raises(InvalidRequest, match="only a link to its document is known"):
        choose_target(Agent("x", "X", "Does x.", bindings=[LINK]), BindingPolicy(), None)
    endpoint = {"protocol": "a2a", "endpoint": "https://example.com/a2a"}
    agent = Agent("x", "X", "Does x.", bindings=[LINK, endpoint])
    assert choose_target(agent, BindingPolicy(), None).endpoint == "https://example.com/a2a"
