"""The commands `task`, `swarm` and `invite`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.server import RunningServer
from support.shell import Shell
from support.signing import key_of


@pytest.fixture
def bob(shell: Shell) -> list[str]:
    """Flags of a user who is not the operator."""
    ran = shell("token", "mint", "--sub", "bob", "--scope", "discover:read", "--scope", "discover:write", "--ttl", "1h")
    return ["--token", ran.out.strip()]


def test_a_task_is_sent_awaited_and_its_status_read(shell: Shell) -> None:
    ran = shell("task", "send", "echo", '{"n": [1, 2]}', "--wait", "60s", "-o", "json")
    assert ran.code == 0, ran.err
    assert (ran.json["status"], ran.json["result"]) == ("succeeded", {"n": [1, 2]})
    sent = shell("task", "send", "echo", shell.write("input.json", b'"text"') and "@input.json")
    assert sent.code == 0
    task_id = sent.out.strip()
    assert f"waypost task status {task_id}" in sent.err
    assert task_id in shell("task", "status", task_id).out
    assert shell("task", "cancel", task_id).code in (0, 1)


def test_a_task_that_fails_is_an_exit_code(shell: Shell) -> None:
    failed = shell("task", "send", "discover", "{}", "--wait", "60s")
    assert failed.code == 1
    assert "invalid_request" in failed.out
    unknown = shell("task", "send", "sing")
    assert unknown.code == 64
    assert "discover and echo" in unknown.err
    assert shell("task", "send", "echo", "{not json").code == 1
    assert shell("task", "send", "echo", "@nowhere.json").code == 64
    assert shell("task", "send", "echo", "1", "2").code == 64
    assert shell("task", "status", "nothing").code == 1
    assert shell("task", "send", "echo", "--callback", "https://10.0.0.1/").code == 77


def test_a_task_is_for_the_agent_that_its_short_name_means(shell: Shell, agent: dict[str, Any]) -> None:
    shell("register", shell.write("agent.json", agent))
    short = agent["id"].rsplit("/", 1)[-1]
    sent = shell("task", "send", short, "translate", '{"text": "Bonjour"}')
    assert sent.code == 0, sent.err
    taken = shell("task", "take", agent["name"].upper(), "-o", "json")
    assert [task["taskId"] for task in taken.json] == [sent.out.strip()]
    assert (taken.json[0]["task"], taken.json[0]["input"]) == ("translate", {"text": "Bonjour"})
    assert shell("task", "list", "--agent", short, "-o", "json").json[0]["taskId"] == sent.out.strip()
    assert "No agent is registered as 'nosuch-agent'." in shell("task", "list", "--agent", "nosuch-agent").err
    unknown = shell("task", "send", "nosuch-agent", "translate", "{}")
    assert unknown.code == 1
    assert "No agent is registered as 'nosuch-agent'." in unknown.err


def test_an_agent_signs_instead_of_showing_a_token(shell: Shell) -> None:
    agent, key = "agent:signing.example.com", key_of(number=31)
    shell.write("public.pem", key.public.pem().encode())
    shell.write("agent.pem", key.pem())
    assert shell("keys", "trust", agent, "public.pem").code == 0
    ran = shell("task", "send", "echo", "1", "--wait", "60s", "--as", agent, "--key", "agent.pem", "-o", "json")
    assert (ran.code, ran.json["result"]) == (0, 1), ran.err
    assert shell("task", "status", ran.json["taskId"], "--as", agent, "--key", "agent.pem").code == 0
    shell.write("other.pem", key_of(number=32).pem())
    assert shell("task", "send", "echo", "--as", agent, "--key", "other.pem").code == 77
    assert shell("task", "send", "echo", "--key", "agent.pem").code == 64
    assert shell("task", "status", ran.json["taskId"], "--as", agent).code == 64
    unknown = shell("task", "send", "echo", "--as", agent)  # by the service, which does not host it
    assert unknown.code == 1
    assert "where: as" in unknown.err


def test_the_owner_of_an_agent_takes_its_tasks_and_reports(shell: Shell, agent: dict[str, Any], bob: list[str]) -> None:
    shell("register", shell.write("agent.json", agent))
    sent = shell("task", "send", "review", '"x"', "--agent", agent["id"], "-o", "json", *bob).json
    assert sent["taskId"] in shell("task", "list", *bob).out
    assert sent["taskId"] in shell("task", "list", "--agent", agent["id"]).out
    assert shell("task", "list", "--agent", agent["id"], *bob).code == 77
    (work,) = shell("task", "take", agent["id"], "--lease", "60s", "-o", "json").json
    assert (work["task"], work["input"], work["from"]) == ("review", "x", "bob")
    assert shell("task", "report", work["taskId"], work["lease"], "--running").code == 0
    assert shell("task", "report", work["taskId"], work["lease"], '{"grade": 1}').code == 0
    done = shell("task", "status", sent["taskId"], "-o", "json", *bob).json
    assert (done["status"], done["result"]) == ("succeeded", {"grade": 1})
    again = shell("task", "send", agent["id"], "review", '"y"', "-o", "json", *bob).json
    (work,) = shell("task", "take", agent["id"], "-o", "json").json
    shell("task", "report", work["taskId"], work["lease"], "--failed", "no paper")
    assert "no paper" in shell("task", "status", again["taskId"], *bob).out


def test_a_task_goes_to_an_agent_that_is_named_by_its_domain(shell: Shell, agent: dict[str, Any]) -> None:
    shell("register", shell.write("agent.json", agent))
    assert shell("host", "tasked.example.com", agent["id"]).code == 0
    sent = shell("task", "send", "tasked.example.com", "review", '"z"', "-o", "json")
    assert sent.code == 0, sent.err
    (work,) = shell("task", "take", agent["id"], "-o", "json").json
    assert (work["taskId"], work["input"]) == (sent.json["taskId"], "z")


def test_a_swarm_is_joined_listed_messaged_and_left(shell: Shell, bob: list[str]) -> None:
    joined = shell("swarm", "join", "agent:bob.example.com", "command-test", "-o", "json", *bob).json
    swarm = joined["swarmId"]
    shell("swarm", "join", "agent:carol.example.com", "command-test", "--role", "observer")
    assert shell("swarm", "join", "agent:bob.example.com", "command-test", "--role", "observer", *bob).code == 1
    assert "observer  agent:carol.example.com" in shell("swarm", "members", swarm, *bob).out
    assert "command-test" in shell("swarm", "list", *bob).out
    assert shell("swarm", "broadcast", swarm, "agent:bob.example.com", "half is done", *bob).code == 0
    assert "half is done" in shell("swarm", "messages", swarm).out
    assert shell("swarm", "leave", swarm, "agent:bob.example.com", *bob).code == 0
    assert shell("swarm", "members", swarm, *bob).code == 1


def test_a_swarm_has_the_members_and_the_host_that_short_names_mean(shell: Shell, agent: dict[str, Any]) -> None:
    shell("register", shell.write("agent.json", {**agent, "id": "agent:swarming.example.com"}))
    name = agent["name"].upper()
    joined = shell("swarm", "join", name, "short-names", "--host", name, "-o", "json")
    assert joined.code == 0, joined.err
    assert [member["agent"] for member in joined.json["members"]] == ["agent:swarming.example.com"]
    swarm = joined.json["swarmId"]
    assert "agent:swarming.example.com" in shell("swarm", "members", swarm).out.splitlines()[0]
    assert shell("swarm", "broadcast", swarm, name, "half is done").code == 0
    assert shell("swarm", "leave", swarm, "swarming.example.com").code == 0
    for command in (("join", "nosuch-agent", "short-names"), ("leave", swarm, "nosuch-agent")):
        unknown = shell("swarm", *command)
        assert (unknown.code, "No agent is registered as 'nosuch-agent'." in unknown.err) == (1, True)


def test_a_subject_is_invited_to_a_private_agent(
    shell: Shell, server: RunningServer, agent: dict[str, Any], bob: list[str]
) -> None:
    shell("register", shell.write("agent.json", agent), "--visibility", "private")
    assert shell("host", "invited.example.com", agent["id"]).code == 0
    assert shell("get", agent["id"], *bob).code == 1
    made = shell("invite", agent["id"], "--uses", "2", "--ttl", "1d")
    assert made.code == 0, made.err
    assert json.loads(made.out)["invite"]["agent"] == "agent:invited.example.com"
    assert "2 times" in made.err
    shell.write("invitation.json", made.out.encode())
    redeemed = shell("invite", "redeem", "invitation.json", *bob)
    assert redeemed.code == 0, redeemed.err
    assert redeemed.out.startswith("agent:invited.example.com  ed25519:")
    assert shell("get", agent["id"], *bob).code == 0
    (listed,) = shell("invite", "list", "--agent", agent["id"], "-o", "json").json
    assert (listed["used"], listed["redeemed_by"]) == (1, ["bob"])
    assert shell("invite", "revoke", listed["id"]).code == 0
    assert "revoked" in shell("invite", "list", "--agent", "agent:invited.example.com").out
    code = json.loads(made.out)["invite"]["code"]
    assert shell("invite", "redeem", code).code == 1
    assert "other.json is neither a file nor an invitation code" in shell("invite", "redeem", "other.json").err
    assert "invite list" in shell("invite", "revoke", "4d2f6a1b9c3e8f70").err
    assert "invitation.json" in shell("invite", "--help").out
    wrapped = shell("invite", agent["id"], "-o", "json")
    shell.write("wrapped.json", wrapped.out.encode())
    assert shell("invite", "redeem", "wrapped.json").code == 0
