"""The commands against a real service, through pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.records import CODECS
from support.server import RunningServer, running_server
from support.shell import Shell
from support.website import website
from waypost import SyncClient
from waypost.errors import AddressDenied

Document = dict[str, Any]


def minted(shell: Shell, *scopes: str, sub: str = "alice", ttl: str = "1h") -> str:
    flags = [part for scope in scopes for part in ("--scope", scope)]
    ran = shell("token", "mint", "--sub", sub, "--ttl", ttl, *flags)
    assert ran.code == 0, ran.err
    return ran.out.strip()


# --- register, get -----------------------------------------------------------------------------------------------------


def test_an_agent_is_registered_read_and_withdrawn(shell: Shell, agent: Document) -> None:
    name = shell.write("agent.json", agent)
    ran = shell("register", name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"created    {agent['id']}  (profile)\n"
    assert shell("register", name).out.startswith("unchanged")
    assert json.loads(shell("get", agent["id"]).out) == agent
    assert shell("withdraw", agent["id"]).out == f"withdrawn  {agent['id']}\n"
    gone = shell("get", agent["id"])
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith("error: ")


def test_documents_are_validated_without_a_service(lonely_shell: Shell, tmp_path: Path, agent: Document) -> None:
    good = lonely_shell.write("folder/good.json", agent)
    bad = lonely_shell.write("folder/bad.json", {"id": "x", "name": 1, "bindings": []})
    ran = lonely_shell("validate", good)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("valid")
    assert agent["id"] in ran.out
    ran = lonely_shell("validate", bad)
    assert ran.code == 1
    assert "profile" in ran.out
    for path in ("$.name", "$.description", "$.bindings"):
        assert f"  {path}  " in ran.out
    value = lonely_shell("validate", bad, "-o", "json").json
    assert (value["valid"], value["dialect"]) == (False, "profile")
    assert {problem["path"] for problem in value["problems"]} == {"$.name", "$.description", "$.bindings"}
    assert [line["valid"] for line in lonely_shell("validate", "folder", "-o", "jsonl").lines] == [False, True]
    assert lonely_shell("validate", "-", stdin=json.dumps(agent).encode()).code == 0
    assert lonely_shell("validate", "-", stdin=b"{").code == 1
    assert lonely_shell("validate", "none.json").code == 1
    with website(tmp_path / "folder") as site:
        assert lonely_shell("validate", f"{site}/good.json").code == 0
        assert lonely_shell("validate", f"{site}/bad.json").code == 1
        assert lonely_shell("validate", f"{site}/none.json").code == 69


def test_commands_take_short_ids(shell: Shell, agent: Document) -> None:
    short = agent["id"].rpartition("/")[2]
    assert shell("register", shell.write("agent.json", agent)).code == 0
    assert shell("get", short, "-o", "json").json["id"] == agent["id"]
    assert shell("get", agent["name"].upper(), "-o", "json").json["id"] == agent["id"]
    assert shell("get", short, "--history").code == 0
    assert shell("renew", short, "-o", "json").json["id"] == agent["id"]
    assert agent["id"] in shell("verify", short).out
    mistyped = shell("renew", short[:-1] + "x")
    assert mistyped.code == 1
    assert agent["id"] in mistyped.err
    assert shell("withdraw", short, "-o", "json").json == [{"id": agent["id"], "outcome": "withdrawn"}]


def test_completion_offers_ids_and_values(shell: Shell, agent: Document) -> None:
    assert shell("register", shell.write("agent.json", agent)).code == 0
    for word, offered in {
        "waypost get https://agents.example.net/test_completion_offers_i": agent["id"],
        "waypost get test_completion_offers_i": agent["id"],
        "waypost get //agents.example.net/test_completion_offers_i": agent["id"].removeprefix("https:"),
        "waypost withdraw test_completion_offers_i": agent["id"],
        "waypost get x --as pro": "profile",
        "waypost list --tag test-completion": agent["tags"][1],
        "waypost task take test_completion_offers_i": agent["id"],
        "waypost keys trust test_completion_offers_i": agent["id"],
        "waypost register x --dialect pro": "profile",
        "waypost export --as pro": "profile",
    }.items():
        ran = shell(_WAYPOST_COMPLETE="bash_complete", COMP_WORDS=word, COMP_CWORD=str(word.count(" ")))
        assert f"plain,{offered}\n" in ran.out, word


def test_completion_without_a_service_offers_nothing(lonely_shell: Shell) -> None:
    ran = lonely_shell(_WAYPOST_COMPLETE="bash_complete", COMP_WORDS="waypost get a", COMP_CWORD="2")
    assert (ran.out.strip(), ran.err) == ("", "")


def test_words_need_no_quotes(shell: Shell, agent: Document) -> None:
    assert shell("register", shell.write("agent.json", agent)).code == 0
    loose = shell("find", "translate", "an", "invoice", "--tag", agent["tags"][1], "-o", "json").json
    quoted = shell("find", "translate an invoice", "--tag", agent["tags"][1], "-o", "json").json
    assert [found["id"] for found in loose["candidates"]] == [agent["id"]]
    assert [found["score"] for found in loose["candidates"]] == [found["score"] for found in quoted["candidates"]]


def test_host_and_port_name_the_server(shell: Shell, server: RunningServer) -> None:
    address = server.url.removeprefix("http://")
    assert shell("list", "-o", "json", "--server", address, WAYPOST_SERVER="").code == 0


def test_an_empty_list_says_so(shell: Shell) -> None:
    ran = shell("list", "--owner", "nobody")
    assert (ran.code, ran.out) == (0, "")
    assert "No agent matches these filters" in ran.err
    assert shell("list", "--owner", "nobody", "-o", "json").json == []


def test_errors_of_several_documents_come_after_the_warnings(shell: Shell, agent: Document) -> None:
    good = shell.write("good.json", agent)
    bad = shell.write("bad.json", b"{")
    for command in ("register", "import"):
        ran = shell(command, bad, good, "-o", "json")
        assert ran.code != 0
        assert set(json.loads(ran.err.splitlines()[-1])["error"]) == {"code", "message", "path", "hint"}


def test_own_bytes_come_back_from_a_pipe(shell: Shell, agent: Document) -> None:
    content = json.dumps(agent, indent=3).encode()
    assert shell("register", "-", stdin=content).code == 0
    assert shell("get", agent["id"], "--as", "profile").out.encode().strip() == content


@pytest.mark.req("MAP-1")
def test_a_card_at_an_address_is_fetched_and_named_by_it(shell: Shell, tmp_path: Path) -> None:
    card = CODECS["a2a"].examples()[0]
    (tmp_path / "card.json").write_text(json.dumps(card, indent=3))
    with website(tmp_path) as site:
        ran = shell("register", f"{site}/card.json", "-o", "json")
    assert (ran.code, ran.json["id"], ran.json["dialect"]) == (0, f"{site}/card.json", "a2a")
    assert shell("get", f"{site}/card.json", "--as", "a2a").out.strip() == json.dumps(card, indent=3)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("{site}/nothing.json", 69),
        ("http://127.0.0.1:1/card.json", 64),
        ("http://127.0.0.1:1025/card.json", 69),
        ("ftp://agents.example.net/card.json", 64),
        ("http://10.0.0.1/card.json", 77),
        ("http://169.254.169.254/latest/meta-data", 77),
        ("http://127.0.0.2:1026/card.json", 69),  # the command itself fetches addresses on this machine
        ("{server}/healthz", 1),
    ],
)
def test_an_address_without_a_document_is_reported(
    shell: Shell, server: RunningServer, tmp_path: Path, address: str, code: int
) -> None:
    with website(tmp_path) as site:
        ran = shell("register", address.format(server=server.url, site=site))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")


def test_a_dry_run_shows_the_agent_at_a_url_and_does_not_register_it(
    shell: Shell, tmp_path: Path, agent: Document
) -> None:
    card = {**agent, "name": "Shown Before Saved"}
    (tmp_path / ".well-known").mkdir()
    (tmp_path / ".well-known/agent-card.json").write_text(json.dumps(card))
    with website(tmp_path) as site:
        shown = shell("register", site, "--dry-run")
        assert shown.code == 0
        assert "Shown Before Saved" in shown.out
        assert "self-asserted" in shown.out
        assert "Shown Before Saved" not in shell("list").out
        value = shell("import", f"{site}/.well-known/agent-card.json", "--dry-run", "-o", "json").json
        assert [agent["outcome"] for agent in value["agents"]] == ["found"]
        ran = shell("register", site, "--yes", "-o", "json")
        assert ran.json["outcome"] == "created"
        assert "found: profile 'Shown Before Saved'" in ran.err


def test_a_catalog_at_an_address_is_imported(shell: Shell, tmp_path: Path) -> None:
    entries = [
        {
            "identifier": f"urn:air:example.com:imported:{number}",
            "displayName": f"Imported {number}",
            "type": "application/a2a-agent-card+json",
            "url": f"https://example.com/{number}.json",
        }
        for number in range(3)
    ]
    entries.append({"identifier": "none"})
    (tmp_path / "ai-catalog.json").write_text(json.dumps({"specVersion": "1.0", "entries": entries}))
    with website(tmp_path) as site:
        ran = shell("import", f"{site}/ai-catalog.json", "-o", "jsonl")
    assert [line["outcome"] for line in ran.lines] == ["created", "created", "created", "failed"]
    assert ran.code == 1


def test_an_agent_on_this_machine_is_registered_by_its_address(shell: Shell, tmp_path: Path) -> None:
    """The command fetches it; the service never connects to such an address."""
    card = {**CODECS["a2a"].examples()[1], "name": "Local Echo"}
    (tmp_path / "site/.well-known").mkdir(parents=True)
    (tmp_path / "site/.well-known/agent-card.json").write_text(json.dumps(card))
    with running_server("--no-health-checks") as strict, website(tmp_path / "site") as site:
        own = Shell(tmp_path, strict.environment())
        found_at = f"{site}/.well-known/agent-card.json"
        shown = own("register", site, "--dry-run")
        assert shown.out == f"found  {found_at}  (a2a)  Local Echo  self-asserted\n"
        assert own("list", "-o", "json").json == []
        ran = own("register", site.removeprefix("http://"), "-o", "json")
        assert (ran.code, ran.json["id"], ran.json["outcome"]) == (0, found_at, "created")
        assert own("get", "local echo", "-o", "json").json["id"] == found_at
        assert own("register", site, "--local", "-o", "json").json["outcome"] == "unchanged"
        with SyncClient(strict.url, strict.admin_token) as client, pytest.raises(AddressDenied):
            client.fetch(site, save=True)


def test_an_address_can_be_fetched_from_this_machine(shell: Shell, tmp_path: Path, agent: Document) -> None:
    """For networks that the service cannot reach; metadata services are still denied."""
    (tmp_path / "card.json").write_text(json.dumps(agent))
    with website(tmp_path) as site:
        ran = shell("register", f"{site}/card.json", "--local", "-o", "json")
        assert (ran.code, ran.json["outcome"]) == (0, "created")
    assert shell("register", "http://169.254.169.254/", "--local").code == 77


def test_a_receipt_is_one_object_for_one_file_and_a_list_for_several(shell: Shell, agent: Document) -> None:
    one = shell.write("one.json", agent)
    two = shell.write("two.json", {**agent, "id": agent["id"] + "-2"})
    single = shell("register", one, "-o", "json").json
    assert (single["id"], single["outcome"], single["dialect"]) == (agent["id"], "created", "profile")
    assert [item["outcome"] for item in shell("register", one, two, "-o", "json").json] == ["unchanged", "created"]
    assert len(shell("register", one, two, "-o", "jsonl").lines) == 2


def test_a_refused_document_is_reported_with_path_and_hint(shell: Shell, agent: Document) -> None:
    del agent["name"]
    ran = shell("register", shell.write("agent.json", agent), "--dialect", "profile")
    assert ran.code == 1
    assert "where: $.name" in ran.err
    assert "hint: " in ran.err
    assert shell("register", shell.write("broken.json", b'{"id":')).code == 1


def test_one_bad_file_does_not_stop_the_others(shell: Shell, agent: Document) -> None:
    bad, good = shell.write("bad.json", b"{"), shell.write("good.json", agent)
    ran = shell("register", bad, good)
    assert ran.code == 1
    assert ran.out.startswith("created")
    assert "bad.json: " in ran.err


def test_an_agent_is_shown_in_another_dialect_with_its_losses_beside(shell: Shell, agent: Document) -> None:
    shell("register", "-", stdin=json.dumps(agent).encode())
    ran = shell("get", agent["id"], "--as", "a2a")
    assert ran.code == 0
    assert json.loads(ran.out)["name"] == agent["name"]
    wrong = shell("get", agent["id"], "--as", "a2b")
    assert wrong.code == 64
    assert "a2a" in wrong.err


def test_an_update_may_be_guarded(shell: Shell, agent: Document) -> None:
    receipt = shell("register", shell.write("a.json", agent), "-o", "json").json
    changed = shell.write("b.json", {**agent, "version": "2.0.0"})
    assert shell("register", changed, "--if-match", "other").code == 1
    assert shell("register", changed, "--if-match", receipt["etag"], "-o", "json").json["outcome"] == "updated"
    assert shell("withdraw", agent["id"], "--if-match", receipt["etag"]).code == 1


def test_a_lease_is_granted_and_renewed(shell: Shell, agent: Document) -> None:
    receipt = shell("register", shell.write("a.json", agent), "--ttl", "15m", "-o", "json").json
    assert receipt["ttl_seconds"] == 900
    renewed = shell("renew", agent["id"], "--ttl", "1h", "-o", "json").json
    assert (renewed["outcome"], renewed["ttl_seconds"]) == ("refreshed", 3600)
    assert renewed["expires_at"] > receipt["expires_at"]
    assert shell("renew", agent["id"] + "-unknown").code == 1


# --- Credentials -------------------------------------------------------------------------------------------------------


def test_a_wrong_token_ends_with_77(shell: Shell, agent: Document) -> None:
    ran = shell("list", "--token", "wrong")
    assert ran.code == 77
    assert ran.out == ""
    assert shell("register", shell.write("a.json", agent), WAYPOST_TOKEN="wrong").code == 77


def test_a_token_without_the_scope_ends_with_77(shell: Shell, agent: Document) -> None:
    reader = minted(shell, "discover:read")
    assert shell("list", "--token", reader).code == 0
    ran = shell("register", shell.write("a.json", agent), "--token", reader)
    assert ran.code == 77
    assert "discover:write" in ran.err
    assert shell("import", "a.json", "--token", reader).code == 77


def test_an_agent_of_another_owner_cannot_be_taken(shell: Shell, agent: Document) -> None:
    alice = minted(shell, "discover:read", "discover:write", sub="alice")
    bob = minted(shell, "discover:read", "discover:write", sub="bob")
    name = shell.write("a.json", agent)
    assert shell("register", name, "--token", alice).code == 0
    assert shell("register", name, "--token", bob).code == 77
    assert shell("withdraw", agent["id"], "--token", bob).code == 77
    assert shell("withdraw", agent["id"], "--token", alice).code == 0


def test_a_private_agent_does_not_exist_for_others(shell: Shell, agent: Document) -> None:
    alice = minted(shell, "discover:read", "discover:write", sub="alice")
    bob = minted(shell, "discover:read", sub="bob")
    shell("register", shell.write("a.json", agent), "--token", alice, "--visibility", "private")
    assert shell("get", agent["id"], "--token", alice).code == 0
    assert shell("get", agent["id"], "--token", bob).code == 1
    assert agent["id"] not in shell("list", "--token", bob).out


def test_a_token_is_signed_with_the_key_in_the_data_folder_where_no_server_is_named(
    shell: Shell, server: RunningServer
) -> None:
    named = shell.environment.pop("WAYPOST_SERVER")
    ran = shell("token", "mint", "--sub", "carol", "--scope", "discover:read", "-o", "json")
    assert ran.code == 0, ran.err
    assert ran.json["expires_at"].endswith("Z")
    assert shell("list", "--server", named, "--token", ran.json["token"]).code == 0


def test_only_admin_mints_over_the_wire(shell: Shell) -> None:
    reader = minted(shell, "discover:read")
    assert shell("token", "mint", "--sub", "x", "--scope", "admin", "--token", reader).code == 77
    assert shell("token", "mint", "--sub", "x", "--scope", "admin", "--ttl", "9d").code == 64


# --- list, find --------------------------------------------------------------------------------------------------------


def test_a_list_in_a_pipe_is_columns_between_tabs(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("a.json", agent))
    tag = agent["tags"][1]
    (line,) = shell("list", "--tag", tag).out.splitlines()
    assert line.split("\t") == [agent["id"], agent["name"], "https", ", ".join(agent["tags"]), "active"]
    assert shell("list", "--tag", tag, "-o", "json").json == [agent]
    assert shell("list", "--tag", f"{tag},translation", "-o", "jsonl").lines == [agent]
    assert shell("list", "--tag", tag, "--protocol", "wss").out == ""
    assert shell("list", "--tag", tag, "--status", "nonsense").code == 64


def test_a_list_is_limited(shell: Shell, agent: Document) -> None:
    for number in range(3):
        shell("register", "-", stdin=json.dumps({**agent, "id": f"{agent['id']}-{number}"}).encode())
    assert len(shell("list", "--tag", agent["tags"][1], "--limit", "2", "-o", "jsonl").lines) == 2


def test_a_search_names_the_agent_and_the_reason(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("a.json", agent))
    tag = agent["tags"][1]
    (line,) = shell("find", "translate an invoice", "--tag", tag).out.splitlines()
    match, name, agent_id, reason = line.split("\t")
    assert (match, name, agent_id) == ("strong", agent["name"], agent["id"])
    assert "invoice" in reason
    answer = shell("find", "translate an invoice", "--tag", tag, "-o", "json").json
    (found,) = answer["candidates"]
    assert found["id"] == agent["id"]
    assert {"name", "score", "match", "reason", "tags", "protocols", "endpoint", "bindings", "trust"} <= set(found)
    assert found["endpoint"] == found["bindings"][0]["endpoint"]
    assert shell("find", "translate", "--tag", tag, "-o", "jsonl").lines[0]["id"] == agent["id"]
    explained = shell("find", "translate an invoice to German", "--tag", tag, "--explain").out
    assert agent["name"] in explained
    assert "█" in explained
    assert "Translate this invoice to German." in explained


def test_nothing_found_is_no_error(shell: Shell) -> None:
    ran = shell("find", "xyzzy plugh", "--tag", "no-such-tag-anywhere")
    assert (ran.code, ran.out) == (0, "")
    assert "Nothing fits" in ran.err


def test_an_inapplicable_filter_is_reported(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("a.json", agent))
    ran = shell("find", "translate", "-c", "unsupported_private_filter=example")
    assert "unsupported_private_filter" in ran.err


# --- watch, import, export ---------------------------------------------------------------------------------------------


def test_a_watch_prints_changes_and_ends_after_its_count(shell: Shell, agent: Document, server: RunningServer) -> None:
    shell("register", shell.write("a.json", agent))
    with SyncClient(server.url, server.admin_token) as client:
        cursor = next(change.cursor for change in client.watch("0") if change.id == agent["id"])
    shell("withdraw", agent["id"])
    (change,) = shell("watch", "--from", cursor, "--count", "1", "--agents", "-o", "json").lines
    assert (change["type"], change["id"]) == ("withdrawn", agent["id"])
    assert shell("watch", "--from", cursor, "-n", "1").out.split()[1:] == ["withdrawn", agent["id"]]
    assert len(shell("watch", "--from", "0", "--count", "2", "-o", "jsonl").lines) == 2
    assert shell("watch", "--from", "never-given").code == 1


def test_a_standing_query_prints_the_match_of_agents_that_fit(shell: Shell, agent: Document) -> None:
    other = {**agent, "id": f"{agent['id']}/bread", "name": "Baker", "description": "Bakes bread.", "tags": []}
    other.pop("examples", None)
    shell("register", shell.write("other.json", other))
    shell("register", shell.write("a.json", agent))
    options = ("--from", "0", "--count", "1", "--query", agent["name"])
    (change,) = shell("watch", *options, "-o", "json").lines
    assert (change["id"], change["match"]) == (agent["id"], "strong")
    assert shell("watch", *options, "--min-match", "strong").out.split()[2:] == ["strong", agent["id"]]
    assert shell("watch", "--min-match", "weak").code == 64


def test_many_agents_are_imported_and_exported(shell: Shell, agent: Document) -> None:
    documents = [{**agent, "id": f"{agent['id']}/{number}"} for number in range(600)]
    lines = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
    name = shell.write("many.jsonl", lines + b'{"id":"incomplete"}\nnot json\n')
    ran = shell("import", name)
    assert ran.code == 1
    assert ran.out == "602 read: 600 created, 2 failed\n"
    assert "many.jsonl:601: " in ran.err
    assert "many.jsonl:602: " in ran.err
    again = shell("import", name, "-o", "jsonl")
    assert [item["outcome"] for item in again.lines].count("unchanged") == 600
    assert again.lines[0]["source"] == "many.jsonl:1"
    exported = {item["id"]: item for item in shell("export").lines}
    assert all(exported[document["id"]] == document for document in documents)


def test_an_import_waits_for_the_vectors(shell: Shell, server: RunningServer, agent: Document) -> None:
    lines = b"".join(json.dumps({**agent, "id": f"{agent['id']}/{number}"}).encode() + b"\n" for number in range(50))
    assert shell("import", shell.write("some.jsonl", lines), "--wait").out == "50 read: 50 created\n"
    with SyncClient(server.url, token=server.admin_token) as client:
        assert client.stats().indexing_pending == 0


def test_an_export_may_go_to_a_file_or_be_one_array(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("a.json", agent))
    ran = shell("export", "--to", "out.jsonl")
    assert (ran.code, ran.out) == (0, "")
    assert agent["id"] in (shell.folder / "out.jsonl").read_text()
    assert agent in shell("export", "-o", "json").json
    assert shell("export", "--to", "no/such/folder.jsonl").code == 64
    assert shell("export", "--as", "nonsense").code == 64


def test_an_export_counts_agents_without_a_document_of_the_dialect(shell: Shell, agent: Document) -> None:
    unreachable = {
        "id": "annotator",
        "name": "Annotator",
        "endpoints": [{"method": "POST", "path": "/v1/message:send"}],
    }
    shell("register", shell.write("a.json", agent))
    shell("register", shell.write("b.json", unreachable))
    ran = shell("export")
    assert [item["bindings"] for item in ran.lines if item["id"] == unreachable["id"]] == [[]]
    cards = shell("export", "--as", "a2a")
    assert (cards.code, "1 agent has no a2a document" in cards.err) == (0, True)
    assert len(cards.lines) == len(ran.lines) - 1
    whole = shell("export", "--as", "source")
    assert unreachable in whole.lines
    assert "document" not in whole.err


def test_an_export_warns_of_agents_that_are_not_public(shell: Shell, agent: Document) -> None:
    """No document contains the visibility, so an import would make the agent public."""
    shell("register", shell.write("a.json", agent), "--visibility", "private")
    ran = shell("export", "--as", "source")
    assert agent in ran.lines
    (told,) = ran.err.splitlines()
    assert "not public" in told
    assert "--visibility" in told


def test_the_export_of_an_empty_registry_is_imported(shell: Shell) -> None:
    ran = shell("import", "-", stdin=b"")
    assert (ran.code, ran.out) == (0, "Nothing to import.\n")


def test_folders_and_profiles_are_imported(shell: Shell, agent: Document) -> None:
    shell.write("all/one.json", agent)
    profile = f'; a profile\n(agent-profile :id "{agent["id"]}-rtfs" :name "R" :version "1.0.0"\n'
    profile += ':communication-endpoints [{:endpoint-id "main" :protocol :json-rpc :uri "https://a.example/rpc"}])\n'
    shell.write("all/two.rtfs", profile.encode())
    ran = shell("import", "all", "-o", "json")
    assert [item["outcome"] for item in ran.json] == ["created", "created"], ran.err


def test_a_reader_that_wants_no_more_is_no_failure(shell: Shell, agent: Document) -> None:
    documents = [{**agent, "id": f"{agent['id']}/{number}"} for number in range(600)]
    shell("import", "-", stdin=json.dumps(documents).encode())
    command = f"set -o pipefail; {sys.executable} -m waypost export | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=shell.environment, timeout=300, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == 1


# --- On a terminal -----------------------------------------------------------------------------------------------------


def on_terminal(shell: Shell, *arguments: str) -> str:
    """The output on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**shell.environment, "TERM": "xterm-256color", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "waypost", *arguments], stdout=theirs, stderr=theirs, cwd=shell.folder, env=environment
    )
    os.close(theirs)
    seen = b""
    try:
        while select.select([ours], [], [], 120)[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                break  # the other side closed the terminal
            if not chunk:
                break
            seen += chunk
        assert process.wait(120) == 0, seen
    finally:
        process.kill()
        process.wait(120)
        os.close(ours)
    return seen.decode()


@pytest.mark.parametrize("command", ["list", "get", "find"])
def test_a_terminal_gets_colours_and_columns_and_no_foreign_escapes(
    shell: Shell, agent: Document, command: str
) -> None:
    agent["description"] = "Translates.\u001b[2J\u001b]0;owned\u0007"
    shell("register", "-", stdin=json.dumps(agent).encode())
    arguments = {
        "list": ("list", "--tag", agent["tags"][1]),
        "get": ("get", agent["id"]),
        "find": ("find", "translates", "--tag", agent["tags"][1]),
    }[command]
    seen = on_terminal(shell, *arguments)
    assert "\x1b[" in seen
    assert "\x1b[2J" not in seen
    assert "\x1b]0;owned" not in seen
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert agent["id"].rsplit("/", 1)[1][:20] in plain


def test_a_terminal_sees_progress_of_a_long_import(shell: Shell, agent: Document) -> None:
    documents = [{**agent, "id": f"{agent['id']}/{number}"} for number in range(20)]
    shell.write("many.json", documents)
    assert "Importing" in on_terminal(shell, "import", "many.json")


def test_a_domain_is_claimed_checked_listed_and_given_up(shell: Shell) -> None:
    claimed = shell("domain", "prove", "shown.example.com", "--method", "http")
    assert claimed.code == 0
    assert "https://shown.example.com/.well-known/waypost-proof" in claimed.out
    assert "waypost domain check shown.example.com" in claimed.err
    value = shell("domain", "prove", "shown.example.com", "--method", "http", "-o", "json").json
    assert value["line"] in claimed.out
    assert "shown.example.com" in shell("domain", "list").out
    assert shell("domain", "list", "-o", "json").json[0]["state"] == "pending"
    assert shell("domain", "check", "other.example.com").code == 1
    assert shell("domain", "prove", "co.uk").code == 64
    assert shell("domain", "remove", "shown.example.com").code == 0
    assert "shown.example.com" not in shell("domain", "list").out


def test_a_token_that_only_writes_imports_on_a_terminal(shell: Shell, agent: Document) -> None:
    """The command cannot read the progress of the index then."""
    writer = minted(shell, "discover:write", sub="loader")
    name = shell.write("one.jsonl", json.dumps(agent).encode() + b"\n")
    master, slave = pty.openpty()
    try:
        command = [sys.executable, "-m", "waypost", "import", name, "--token", writer]
        ran = subprocess.run(
            command, check=False, cwd=shell.folder, env=shell.environment, stdout=slave, stderr=slave, timeout=120
        )
    finally:
        os.close(slave)
        os.close(master)
    assert ran.returncode == 0


def test_stats_count_the_agents_and_show_an_admin_the_service(shell: Shell, agent: Document) -> None:
    before = shell("stats", "-o", "json").json["agents"]
    shell("register", shell.write("counted.json", json.dumps(agent).encode()))
    figures = shell("stats", "-o", "json").json
    assert (figures["agents"], figures["by_status"]["active"]) == (before + 1, before + 1)
    assert {"revision", "indexing_pending", "workers"} <= figures.keys()
    shown = shell("stats").out
    assert shown.splitlines()[0].split() == ["agents", str(before + 1)]
    reader = minted(shell, "discover:read")
    assert "revision" not in shell("stats", "--token", reader, "-o", "json").json
