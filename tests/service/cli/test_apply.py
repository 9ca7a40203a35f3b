"""`waypost apply`: a folder of documents is the wanted state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.records import CODECS
from support.server import RunningServer, running_server
from support.shell import Shell
from waypost import SyncClient


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory", "--no-health-checks") as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, server: RunningServer) -> Iterator[Shell]:
    yield Shell(tmp_path, server.environment())
    with SyncClient(server.url, server.admin_token) as client:
        for agent in list(client.list()):
            client.withdraw(agent.id)


def document(name: str, **members: Any) -> dict[str, Any]:
    return {
        "id": f"https://agents.example.net/{name}",
        "name": name,
        "description": "Is applied.",
        "bindings": [{"protocol": "https", "endpoint": f"https://agents.example.net/{name}/invoke"}],
        **members,
    }


def fill(shell: Shell, *names: str) -> None:
    for name in names:
        shell.write(f"agents/{name}.json", document(name))


def outcomes(shell: Shell, *options: str) -> dict[str, str]:
    ran = shell("apply", "agents", "-o", "jsonl", *options)
    assert ran.code == 0, ran.err
    return {line["id"].rpartition("/")[2]: line["outcome"] for line in ran.lines}


def registered(shell: Shell) -> set[str]:
    return {line["id"].rpartition("/")[2] for line in shell("list", "-o", "jsonl").lines}


def test_a_folder_is_applied_and_applied_again(shell: Shell) -> None:
    fill(shell, "one", "two")
    shell.write("agents/deep/card.json", CODECS["a2a"].examples()[1])
    assert outcomes(shell, "--dry-run")["one"] == "create"
    assert registered(shell) == set()
    assert set(outcomes(shell).values()) == {"created"}
    assert len(registered(shell)) == 3
    assert set(outcomes(shell).values()) == {"unchanged"}
    shell.write("agents/one.json", document("one", description="Was changed."))
    assert {outcomes(shell)[name] for name in ("one", "two")} == {"updated", "unchanged"}


def test_a_dry_run_prints_the_differences(shell: Shell) -> None:
    fill(shell, "one", "two")
    outcomes(shell)
    shell.write("agents/one.json", document("one", description="Was changed."))
    (shell.folder / "agents/two.json").unlink()
    fill(shell, "three")
    kept = shell("apply", "agents", "--dry-run")
    assert "1 agent of an earlier apply is not in agents: --prune withdraws it." in kept.err
    ran = shell("apply", "agents", "--dry-run", "--prune")
    assert ran.code == 0
    assert "~ update     https://agents.example.net/one" in ran.out
    assert "    $.description\n      - Is applied.\n      + Was changed.\n" in ran.out
    assert "+ create     https://agents.example.net/three" in ran.out
    assert "- withdraw   https://agents.example.net/two" in ran.out
    assert "1 to update, 1 to create, 1 to withdraw; nothing was changed." in ran.err
    changed = next(
        line for line in shell("apply", "agents", "--dry-run", "-o", "jsonl").lines if line["outcome"] == "update"
    )
    assert changed["differences"] == [{"path": "$.description", "before": "Is applied.", "after": "Was changed."}]
    assert registered(shell) == {"one", "two"}


def test_pruning_removes_only_what_this_folder_registered(shell: Shell) -> None:
    fill(shell, "one", "two", "three")
    shell.write("other.json", document("other"))
    assert shell("register", "other.json").code == 0
    outcomes(shell)
    (shell.folder / "agents/two.json").unlink()
    kept = shell("apply", "agents")
    assert "1 agent of an earlier apply" in kept.err
    assert registered(shell) == {"one", "two", "three", "other"}
    assert outcomes(shell, "--prune")["two"] == "withdrawn"
    assert registered(shell) == {"one", "three", "other"}
    assert "two" not in outcomes(shell, "--prune")


def test_pruning_keeps_what_was_changed_or_taken_over(shell: Shell, server: RunningServer) -> None:
    fill(shell, "one", "two", "three")
    outcomes(shell)
    with SyncClient(server.url, server.admin_token) as admin:
        admin.register(document("two", description="By hand."))
        admin.withdraw("https://agents.example.net/three")
        token = admin.mint_token("bob", ("discover:read", "discover:write")).token
        with SyncClient(server.url, token) as bob:
            bob.register(document("three"))
    for name in ("two", "three"):
        (shell.folder / f"agents/{name}.json").unlink()
    found = outcomes(shell, "--prune")
    assert (found["two"], found["three"]) == ("kept", "kept")
    assert registered(shell) == {"one", "two", "three"}


def test_one_bad_document_changes_nothing(shell: Shell) -> None:
    fill(shell, "one")
    shell.write("agents/bad.json", {"id": "x"})
    shell.write("agents/broken.json", b"{")
    ran = shell("apply", "agents", "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    assert "2 documents" in json.loads(ran.err.splitlines()[-1])["error"]["message"]
    assert registered(shell) == set()
    shell.write("agents/bad.json", document("one"))
    (shell.folder / "agents/broken.json").unlink()
    assert "also described by" in shell("apply", "agents").err


def test_an_empty_folder_is_refused(shell: Shell) -> None:
    fill(shell, "one")
    outcomes(shell)
    (shell.folder / "agents/one.json").unlink()
    assert shell("apply", "agents", "--prune").code == 64
    assert registered(shell) == {"one"}
    ran = shell("apply", "nothing")
    assert ran.code == 1
    assert "nothing cannot be read: No such file" in ran.err
