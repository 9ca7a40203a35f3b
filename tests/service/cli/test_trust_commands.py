"""The commands `verify` and `confirm`."""

from __future__ import annotations

import json
from typing import Any

from support.shell import Shell
from support.signing import key_of
from waypost.trust.document_signatures import sign_profile

KEY, OTHER = key_of(number=11), key_of(number=12)


def bound(shell: Shell, agent: dict[str, Any]) -> None:
    """The agent of the test, registered, signed, and its key trusted."""
    shell.write("key.pem", KEY.public.pem().encode())
    assert shell("keys", "trust", agent["id"], "key.pem").code == 0
    assert shell("register", shell.write("agent.json", sign_profile(agent, KEY))).code == 0


def test_an_agent_is_checked_step_by_step(shell: Shell, agent: dict[str, Any]) -> None:
    bound(shell, agent)
    ran = shell("verify", agent["id"])
    assert ran.code == 0
    assert ran.out.startswith("verified  ")
    assert "✓ profile-signature" in ran.out
    assert f"key_id: {KEY.public.key_id}" in ran.out
    told = shell("verify", agent["id"], "-o", "json").json
    assert told["trust"]["level"] == told["shown"] == "verified"


def test_an_agent_that_only_claims_is_no_failure(shell: Shell, agent: dict[str, Any]) -> None:
    shell("register", shell.write("agent.json", agent))
    ran = shell("verify", agent["id"])
    assert ran.code == 0
    assert ran.out.startswith("self-asserted  ")
    assert "- profile-signature" in ran.out


def test_a_file_is_checked_with_the_keys_of_the_service(shell: Shell, agent: dict[str, Any]) -> None:
    bound(shell, agent)
    forged = {**sign_profile(agent, KEY), "name": "Another"}
    assert shell("verify", "agent.json").out.startswith("verified  ")
    ran = shell("verify", shell.write("forged.json", forged))
    assert ran.code == 1
    assert ran.out.startswith("FAILED  ")
    assert "✗ profile-signature" in ran.out


def test_a_file_is_checked_with_a_key_and_without_a_service(lonely_shell: Shell, agent: dict[str, Any]) -> None:
    shell = lonely_shell
    shell.write("agent.json", sign_profile(agent, KEY))
    shell.write("key.pem", KEY.public.pem().encode())
    shell.write("other.pem", OTHER.public.pem().encode())
    assert shell("verify", "agent.json", "--key", "key.pem").out.startswith("verified  ")
    unbound = shell("verify", "agent.json", "--key", "other.pem")
    assert unbound.code == 0
    assert "? profile-signature" in unbound.out
    alone = shell("verify", "agent.json")
    assert alone.out.startswith("self-asserted  ")
    assert "--key" in alone.err


def test_unverifiable_documents_are_reported(shell: Shell) -> None:
    assert shell("verify").code == 64
    nobody = shell("verify", "nobody-knows-this")
    assert nobody.code == 1
    assert "nobody-knows-this" in nobody.err
    domain = shell("verify", "unknown.example.org", "--resolver", "127.0.0.1:1")
    assert domain.code == 75
    assert "SVCB of unknown.example.org could not be looked up" in domain.err
    assert shell("verify", "nothing", "--key", shell.write("key.pem", KEY.public.pem().encode())).code == 64


def test_the_trust_badge_is_shown_with_the_agent(shell: Shell, agent: dict[str, Any]) -> None:
    bound(shell, agent)
    assert "trust: verified" in shell("get", agent["id"]).err
    assert "verified" in shell("find", agent["name"], "--explain", "-n", "1").out.splitlines()[0]
    other = {**agent, "id": agent["id"] + "-2", "name": agent["name"] + " two"}
    shell("register", shell.write("other.json", other))
    assert "trust: self-asserted" in shell("get", other["id"]).err


def test_a_change_that_waits_is_shown_confirmed_and_rejected(shell: Shell, agent: dict[str, Any]) -> None:
    bound(shell, agent)
    moved = {**agent, "bindings": [{"protocol": "https", "endpoint": "https://elsewhere.example/invoke"}]}
    held = shell("register", shell.write("moved.json", moved))
    assert held.code == 0
    assert held.out.startswith("held")
    assert "waypost confirm" in held.err
    shown = shell("confirm", agent["id"], "--show")
    assert "- https https://agents.example.net/invoke" in shown.out
    assert "+ https https://elsewhere.example/invoke" in shown.out
    etag = shell("confirm", agent["id"], "--show", "-o", "json").json["etag"]
    asked = shell("confirm", agent["id"])
    assert asked.code == 64  # no terminal: a script must name what it confirms
    assert etag in asked.err
    assert shell("confirm", agent["id"], "--reject", "--etag", etag).out.startswith("rejected")
    assert shell("confirm", agent["id"], "--etag", etag).code == 1
    shell("register", "moved.json")
    assert shell("confirm", agent["id"], "--etag", etag).out.startswith("updated")
    assert shell("get", agent["id"], "-o", "json").json["bindings"] == moved["bindings"]


def test_a_domain_whose_dns_is_unreachable_is_reported_as_temporary(shell: Shell) -> None:
    for command in ("resolve", "verify"):
        ran = shell(command, "alice.example.test", "--resolver", "127.0.0.1:1", "-o", "json")
        assert (ran.code, ran.json["code"]) == (75, "dns_failed")


def test_keys_and_findings_as_lines_are_one_line_each(shell: Shell, agent: dict[str, Any]) -> None:
    bound(shell, agent)
    keys = [json.loads(line) for line in shell("keys", "list", "-o", "jsonl").out.splitlines()]
    assert agent["id"] in {key.get("agent_id") for key in keys}
    findings = [json.loads(line) for line in shell("doctor", "-o", "jsonl").out.splitlines()]
    assert findings
    assert all({"layer", "severity", "message"} <= finding.keys() for finding in findings)


# --- apikeys ----------------------------------------------------------------------------------------------------------


def test_an_api_key_is_created_used_listed_and_revoked(shell: Shell) -> None:
    made = shell("apikeys", "create", "--sub", "ci", "--scope", "discover:read", "--ttl", "90d", "-o", "json")
    assert made.code == 0, made.err
    assert list(made.json) == ["id", "key", "sub", "scopes", "expires_at"]
    key, key_id = made.json["key"], made.json["id"]
    assert shell("list", "--token", key).code == 0
    assert shell("list", WAYPOST_TOKEN=key).code == 0
    assert key_id in [row["id"] for row in shell("apikeys", "list", "-o", "json").json]
    assert shell("apikeys", "list", "--token", key).code == 77
    assert shell("apikeys", "revoke", key_id, "-o", "json").json == {"id": key_id, "outcome": "revoked"}
    assert shell("list", "--token", key).code == 77
    assert shell("apikeys", "revoke", key_id).code == 1
    assert key_id not in shell("apikeys", "list").out


def test_a_new_api_key_is_all_that_is_printed_in_a_pipe(shell: Shell) -> None:
    made = shell("apikeys", "create", "--sub", "ci", "--scope", "discover:read", "--note", "from a pipe")
    assert (made.code, made.err) == (0, "")
    assert made.out.strip().startswith("wp_")
    assert "from a pipe" in shell("apikeys", "list").out
