"""A client checks its own policy before it calls an agent."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.client.binding_policy import BindingPolicy
from waypost.errors import InvalidParameter, NotAllowed
from waypost.responses.search import Candidate

HTTPS = {"protocol": "https", "endpoint": "https://agents.example.com/run"}


def candidate(*bindings: dict[str, Any], **members: Any) -> Candidate:
    return Candidate.parse({"id": "an-agent", "bindings": bindings or (HTTPS,), **members})


@pytest.mark.req("PRO-16")
def test_the_preferred_binding_that_the_rules_admit_is_chosen() -> None:
    mcp = {"protocol": "mcp", "endpoint": "https://agents.example.com/mcp", "priority": 1}
    plain = {"protocol": "https", "endpoint": "http://agents.example.com/", "priority": 0}
    found = candidate(HTTPS, plain, mcp)
    assert BindingPolicy().choose(found) == mcp
    assert BindingPolicy(protocols=("https",)).choose(found) == HTTPS
    assert BindingPolicy(schemes=("http", "https")).choose(found) == plain


@pytest.mark.req("PRO-16")
@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://agents.example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("https://127.0.0.1/", "local address"),
        ("https://[::1]/", "local address"),
        ("https://10.1.2.3/", "local address"),
        ("https://169.254.169.254/latest", "local address"),
        ("https://localhost/", "local address"),
        ("https://printer.local./", "local address"),
        ("https://intranet/", "local address"),
        ("https://user:secret@agents.example.com/", "user"),
        ("https://[agents", "not a URL"),
        ("agents.example.com", "scheme"),
        ("", "scheme"),
    ],
)
def test_the_default_policy_refuses_unsafe_endpoints_with_the_reason(endpoint: str, told: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        BindingPolicy().choose(candidate({"protocol": "https", "endpoint": endpoint}))
    assert told in refused.value.message


@pytest.mark.req("PRO-16")
def test_hosts_are_admitted_and_denied_by_patterns() -> None:
    assert BindingPolicy(hosts=("*.example.com",)).choose(candidate()) == HTTPS
    for policy in (BindingPolicy(hosts=("*.example.org",)), BindingPolicy(denied_hosts=("agents.*",))):
        with pytest.raises(NotAllowed):
            policy.choose(candidate())
    local = {"protocol": "https", "endpoint": "https://127.0.0.1:8443/"}
    assert BindingPolicy(local_addresses=True).choose(candidate(local)) == local


@pytest.mark.req("PRO-16")
@pytest.mark.parametrize(
    ("members", "policy"),
    [
        ({"status": "suspended"}, BindingPolicy()),
        ({"trust": {"level": "failed"}}, BindingPolicy()),
        ({"trust": {"level": "made-up"}}, BindingPolicy()),
        ({}, BindingPolicy(least_trust="verified")),
        ({"freshness": {"expires_at": "2026-01-01T00:00:00Z"}}, BindingPolicy()),
    ],
)
def test_an_agent_that_is_not_in_use_or_not_trusted_enough_is_not_called(
    members: dict[str, Any], policy: BindingPolicy
) -> None:
    with pytest.raises(NotAllowed):
        policy.choose(candidate(**members), now=1_800_000_000.0)


@pytest.mark.req("PRO-16")
def test_a_policy_that_requires_verified_agents_allows_one() -> None:
    found = candidate(trust={"level": "verified"}, freshness={"expires_at": "2099-01-01T00:00:00Z"}, status="active")
    assert BindingPolicy(least_trust="verified").choose(found, now=1_800_000_000.0) == HTTPS


@pytest.mark.req("PRO-16")
def test_an_unknown_level_is_reported() -> None:
    with pytest.raises(InvalidParameter, match="level of trust"):
        BindingPolicy(least_trust="complete")
