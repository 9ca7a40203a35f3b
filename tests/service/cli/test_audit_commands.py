"""`waypost audit` and `waypost verify --log` against a real service; a rewritten trail is detected."""

from __future__ import annotations

import base64
import json
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.ports import free_port
from support.server import RunningServer, clean_environment, running_server
from support.shell import Shell
from support.website import website
from waypost.trust.transparency_log import EMPTY_ROOT, Checkpoint, VerifierKey, sign_checkpoint

Document = dict[str, Any]


def test_the_trail_is_listed_and_filtered(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("agent.json", agent))
    shell("withdraw", agent["id"])
    ran = shell("audit", "--object", agent["id"], "-o", "jsonl")
    assert [(each["action"], each["outcome"]) for each in ran.lines] == [
        ("register", "created"),
        ("withdraw", "withdrawn"),
    ]
    last = ran.lines[-1]["number"]
    assert shell("audit", "--after", str(last - 1), "-n", "1", "-o", "json").json[0]["object"] == agent["id"]
    human = shell("audit", "--object", agent["id"], "--action", "withdraw")
    assert human.out.split("\t")[2:4] == ["withdraw", agent["id"]]


def test_new_entries_are_followed(shell: Shell, server: RunningServer, agent: Document) -> None:
    size = shell("audit", "-n", "1", "-o", "json").json
    after = str(size[0]["number"]) if size else "0"
    following = subprocess.Popen(
        [sys.executable, "-m", "waypost", "audit", "-f", "--after", after, "-n", "2", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        text=True,
        env=server.environment(),
    )
    shell("register", shell.write("agent.json", agent))
    shell("withdraw", agent["id"])
    out, _ = following.communicate(timeout=120)
    assert [json.loads(line)["action"] for line in out.splitlines()] == ["register", "withdraw"]


def test_without_the_right_the_trail_stays_closed(shell: Shell) -> None:
    token = shell("token", "mint", "--sub", "reader", "--scope", "discover:read").out.strip()
    assert shell("audit", "--token", token).code == 77
    assert shell("verify", "--log", "--token", token).code == 77


def _rewrite(data: Path, number: int) -> None:
    """An attacker with write access to the file, who fixes its checksums: the subject is changed."""
    with sqlite3.connect(data / "waypost.sqlite3") as file:
        ((leaf,),) = file.execute("SELECT leaf FROM audit WHERE number = ?", (number,)).fetchall()
        forged = leaf.replace(b'"subject":"admin"', b'"subject":"mallory"')
        assert forged != leaf
        file.execute("UPDATE audit SET leaf = ?, crc = ? WHERE number = ?", (forged, zlib.crc32(forged), number))
    file.close()


def test_a_trail_that_only_grew_passes_and_one_that_was_rewritten_fails(tmp_path: Path, agent: Document) -> None:
    port, data = str(free_port()), tmp_path / "data"
    mine = {"WAYPOST_SERVER": f"http://127.0.0.1:{port}", "WAYPOST_DATA": str(tmp_path / "mine")}
    with running_server("--port", port, data=data) as server:
        shell = Shell(tmp_path, clean_environment({**mine, "WAYPOST_TOKEN": server.admin_token}))
        for number in range(3):
            shell("register", shell.write("agent.json", {**agent, "id": f"{agent['id']}/{number}"}))
        first = shell("verify", "--log", "-o", "json")
        assert (first.code, [check["state"] for check in first.json["checks"]]) == (
            0,
            ["passed", "not_checked", "passed", "passed"],
        )
        shell("withdraw", f"{agent['id']}/0")
        second = shell("verify", "--log", "-o", "json")
        assert (second.code, {check["state"] for check in second.json["checks"]}) == (0, {"passed"})
        assert second.json["size"] == first.json["size"] + 1
    _rewrite(data, 2)
    with running_server("--port", port, data=data):
        for _ in range(2):  # what failed is not remembered
            found = shell("verify", "--log")
            assert found.code == 1
            assert "the trail was rewritten" in found.out


def test_a_service_with_another_key_or_a_shorter_trail_fails(tmp_path: Path, agent: Document) -> None:
    port = str(free_port())
    mine = {"WAYPOST_SERVER": f"http://127.0.0.1:{port}", "WAYPOST_DATA": str(tmp_path / "mine")}
    for folder in ("first", "second"):
        with running_server("--port", port, data=tmp_path / folder) as server:
            shell = Shell(tmp_path, clean_environment({**mine, "WAYPOST_TOKEN": server.admin_token}))
            if folder == "first":
                shell("register", shell.write("agent.json", agent))
                assert shell("verify", "--log").code == 0
            else:
                found = shell("verify", "--log")
                assert found.code == 1
                assert "another key than before" in found.out
    (tmp_path / "second" / "keys" / "identity.pem").write_bytes(
        (tmp_path / "first" / "keys" / "identity.pem").read_bytes()
    )
    with running_server("--port", port, data=tmp_path / "second"):
        found = shell("verify", "--log")
        assert found.code == 1
        assert "truncated or replaced" in found.out


def _told(folder: Path, signer: Ed25519PrivateKey, named: Ed25519PrivateKey) -> None:
    """A service of files: a checkpoint by one key, which may name another."""
    raw = [key.public_key().public_bytes_raw() for key in (signer, named)]
    keys = [VerifierKey("log.example", each) for each in raw]
    checkpoint = Checkpoint("log.example", 0, EMPTY_ROOT)
    note = sign_checkpoint(checkpoint, keys[0], signer.sign)
    answer = {"origin": "log.example", "size": 0, "key": keys[1].text(), "note": note}
    place = folder / "api" / "v1" / "audit"
    place.mkdir(parents=True, exist_ok=True)
    (place / "checkpoint").write_text(json.dumps({**answer, "root": base64.b64encode(EMPTY_ROOT).decode()}))
    (place / "proof").write_text('{"hashes": []}')


def test_a_forging_service_cannot_bring_in_a_key_of_its_own(tmp_path: Path) -> None:
    first, second = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
    with website(tmp_path / "site") as url:
        mine = {"WAYPOST_SERVER": url, "WAYPOST_DATA": str(tmp_path / "mine"), "WAYPOST_TOKEN": "x"}
        shell = Shell(tmp_path, clean_environment(mine))
        _told(tmp_path / "site", first, first)
        assert shell("verify", "--log").code == 0
        for signer, named in ((first, second), (second, second), (second, first)):
            _told(tmp_path / "site", signer, named)
            assert shell("verify", "--log").code == 1
        _told(tmp_path / "site", first, first)
        assert shell("verify", "--log").code == 0


def test_an_unreadable_saved_checkpoint_is_an_error(shell: Shell, tmp_path: Path) -> None:
    environment = {"WAYPOST_DATA": str(tmp_path / "mine")}
    token = (Path(shell.environment["WAYPOST_DATA"]) / "admin.token").read_text().strip()
    assert shell("verify", "--log", "--token", token, **environment).code == 0
    (kept,) = (tmp_path / "mine" / "checkpoints").iterdir()
    kept.write_bytes(b"{")
    ran = shell("verify", "--log", "--token", token, **environment)
    assert ran.code == 78
    assert str(kept) in ran.err


# --- Versions -------------------------------------------------------------------------------------


def test_versions_are_listed_and_compared(shell: Shell, agent: Document) -> None:
    for step, text in enumerate(("Translates invoices.", "Translates letters.", "Translates poems.")):
        document = {**agent, "description": text, "version": f"1.0.{step}"}
        assert shell("register", shell.write("agent.json", document)).code == 0
    versions = shell("get", agent["id"], "--history", "-o", "json").json["versions"]
    assert [each["changed"] for each in versions[:2]] == [["$.description", "$.version"]] * 2
    human = shell("get", agent["id"], "--history").out.splitlines()
    assert [line.split("\t")[0] for line in human] == [each["etag"] for each in versions]
    newest = shell("diff", agent["id"])
    assert newest.code == 0
    assert newest.out.splitlines()[:3] == ["$.description", "  - Translates letters.", "  + Translates poems."]
    whole = shell("diff", agent["id"], "-o", "json", "--", versions[2]["etag"], versions[0]["etag"]).json
    assert whole["differences"][0] == {
        "path": "$.description",
        "before": "Translates invoices.",
        "after": "Translates poems.",
    }


def test_an_evicted_version_is_an_error_with_a_hint(shell: Shell, agent: Document) -> None:
    shell("register", shell.write("agent.json", agent))
    ran = shell("diff", agent["id"])
    assert (ran.code, ran.out) == (1, "")
    assert "No earlier version" in ran.err
    assert shell("get", agent["id"], "--history", "--as", "a2a").code == 64
