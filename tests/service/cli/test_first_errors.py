"""The ten errors that people meet first: each says on one line what is wrong and on one line what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.ports import free_port
from support.server import RunningServer
from support.shell import Ran, Shell

GREETER = {
    "id": "greeter",
    "name": "Greeter",
    "description": "Greets guests.",
    "bindings": [{"protocol": "https", "endpoint": "https://greeter.example.com/"}],
}
FULL = Path("/dev/full")


@dataclass(frozen=True)
class Mistake:
    """What somebody types, and what the command answers."""

    run: Callable[[Shell], Ran]
    exit: int
    message: str
    hint: str


def register_a_wrong_path(shell: Shell) -> Ran:
    return shell("register", "agnet.json")


def register_broken_json(shell: Shell) -> Ran:
    return shell("register", shell.write("agent.json", b'{"id": "greeter",}'))


def ask_another_program(shell: Shell) -> Ran:
    with other_program() as port:
        return shell("find", "greet", "--server", f"127.0.0.1:{port}")


def ask_nobody(shell: Shell) -> Ran:
    return shell("find", "greet", "--server", f"127.0.0.1:{free_port()}")


def use_an_expired_token(shell: Shell) -> Ran:
    token = shell("token", "mint", "--sub", "joe", "--scope", "discover:read", "--ttl", "1s").out.strip()
    for _ in range(200):
        ran = shell("find", "greet", WAYPOST_TOKEN=token)
        if ran.code:
            return ran
    raise AssertionError("the token never expired")


def register_with_a_token_for_reading(shell: Shell) -> Ran:
    token = shell("token", "mint", "--sub", "joe", "--scope", "discover:read").out.strip()
    return shell("register", shell.write("agent.json", GREETER), WAYPOST_TOKEN=token)


def register_an_unknown_format(shell: Shell) -> Ran:
    card = {"name": "Greeter", "description": "Greets.", "version": "1", "skills": [], "url": "https://g.example.com"}
    return shell("register", shell.write("card.json", card))


def get_an_unknown_id(shell: Shell) -> Ran:
    shell("register", shell.write("agent.json", GREETER))
    return shell("get", "greter")


def browse_without_the_interface(shell: Shell) -> Ran:
    return shell("browse", "--udp", "--interface", "nosuch0", "--timeout", "1")


def export_to_a_full_disk(shell: Shell) -> Ran:
    shell("register", shell.write("agent.json", GREETER))
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "waypost", "export"],
            cwd=shell.folder,
            env=shell.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    return Ran(done.returncode, "", done.stderr.decode())


MISTAKES = {
    "a wrong path": Mistake(
        register_a_wrong_path, 1, r"agnet\.json cannot be read: No such file", r"Is the path right"
    ),
    "wrong JSON": Mistake(register_broken_json, 1, r"Not JSON: .* at line 1, column 18", r"json\.tool"),
    "the wrong port": Mistake(ask_another_program, 1, r"answered with status 501", r"address of a Waypost service"),
    "no server": Mistake(ask_nobody, 69, r"Cannot connect: http://127\.0\.0\.1:\d+", r"waypost demo"),
    "an expired token": Mistake(use_an_expired_token, 77, r"token: it has expired", r"token mint"),
    "a missing scope": Mistake(
        register_with_a_token_for_reading, 77, r"'joe' lacks the scope discover:write", r"--scope discover:write"
    ),
    "an unknown format": Mistake(
        register_an_unknown_format, 1, r"looks like an A2A card: add `capabilities`", r"waypost validate"
    ),
    "an unknown id": Mistake(get_an_unknown_id, 1, r"No agent is registered as 'greter'", r"Did you mean greeter\?"),
    "no network interface": Mistake(browse_without_the_interface, 78, r"no interface 'nosuch0'", r"Name one of .*lo"),
    "a full disk": Mistake(export_to_a_full_disk, 75, r"The disk is full", r"Free some space"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_one_line_what_and_one_line_what_to_do(shell: Shell, name: str) -> None:
    mistake = MISTAKES[name]
    ran = mistake.run(shell)
    lines = [line for line in ran.err.splitlines() if line]
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("  hint: ") for line in lines if line.startswith("  hint: ")]
    assert (ran.code, len(told), len(hints)) == (mistake.exit, 1, 1), ran.err
    assert re.search(mistake.message, told[0]), told
    assert re.search(mistake.hint, hints[0]), hints
    assert "Traceback" not in ran.err
    assert max(map(len, told + hints)) <= 220


def test_the_same_as_json(shell: Shell) -> None:
    ran = shell("get", "nobody-has-this-id", "-o", "json")
    error = json.loads(ran.err.splitlines()[-1])["error"]
    assert (error["code"], error["path"]) == ("not_found", "id")
    assert error["message"]
    assert error["hint"]


def test_a_name_that_fits_nothing_gets_no_suggestions(shell: Shell) -> None:
    """A weak match for a query is no near name."""
    shell("register", shell.write("agent.json", GREETER))
    for command in ("get", "withdraw", "chat", "renew"):
        ran = shell(command, "quuxly")
        assert (ran.code, ran.err.count("quuxly")) == (1, 1), ran.err
        assert "Did you mean" not in ran.err
    assert "Did you mean greeter?" in shell("get", "greets-guests").err


def test_a_mistyped_file_is_not_resolved_as_a_domain(shell: Shell) -> None:
    ran = shell("verify", "agnet.json")
    assert (ran.code, ran.out) == (1, "")
    assert "agnet.json cannot be read: No such file" in ran.err


def test_a_filter_that_matches_nothing_is_not_an_empty_registry(shell: Shell) -> None:
    shell("register", shell.write("agent.json", GREETER))
    ran = shell("list", "--tag", "nosuch")
    assert (ran.code, ran.out) == (0, "")
    assert "No agent matches these filters." in ran.err
    assert "Register one" not in ran.err


def test_a_number_is_called_a_number(shell: Shell) -> None:
    ran = shell("find", "greet", "--limit", "many", "-o", "json")
    assert ran.code == 64
    assert "'many' is not a valid whole number" in json.loads(ran.err.splitlines()[-1])["error"]["message"]


NOT_JSON = {
    "a byte order mark": (b'\xef\xbb\xbf{"id": "x"}', "starts with a byte order mark", "without a byte order mark"),
    "UTF-16": ('\ufeff{"id": "x"}'.encode("utf-16-le"), "encoded as UTF-16", "Save it as UTF-8"),
    "YAML": (b"id: greeter\nname: Greeter\n", "Not JSON", "This looks like YAML"),
    "YAML with a marker": (b"---\n- id: greeter\n", "Not JSON", "This looks like YAML"),
    "a page": (b"<!doctype html><title>x</title>", "Not JSON", "This is a page"),
    "nothing": (b"", "The document is empty", "Send a JSON document"),
    "a program": (b"\x7fELF\x02\x01\xff\xfe\x80", "Byte 6 is not valid UTF-8", "Encode the document as UTF-8"),
    "half of it": (b'{"id": "x",', "at line 1, column 12", "json.tool"),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_named_and_validate_says_the_same(shell: Shell, name: str) -> None:
    content, message, hint = NOT_JSON[name]
    file = shell.write("agent.json", content)
    refused, checked = shell("register", file), shell("validate", file)
    assert (refused.code, checked.code) == (1, 1)
    for told in (refused.err, checked.out):
        assert message in told
        assert hint in told


def test_a_folder_is_no_document_and_its_commands_are_named(shell: Shell) -> None:
    shell.write("cards/agent.json", GREETER)
    ran = shell("register", "cards")
    assert ran.code == 1
    assert "cards is a folder" in ran.err
    assert "waypost import cards" in ran.err
    assert shell("import", "cards").code == 0


def test_nothing_on_standard_input_is_not_valid(shell: Shell) -> None:
    ran = shell("validate", "-", stdin=b"")
    assert ran.code == 1
    assert "The document is empty" in ran.out


def test_without_a_token_the_command_says_how_to_give_one(shell: Shell) -> None:
    ran = shell("list", WAYPOST_DATA=str(shell.folder / "nowhere"))
    assert ran.code == 77
    assert "--token" in ran.err
    assert "WAYPOST_TOKEN" in ran.err
    assert "--data DIR" in ran.err
    assert "--data DIR" not in shell("list", WAYPOST_TOKEN="a.b.c").err, "a token that is wrong is not a missing one"


@pytest.mark.parametrize("stream", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_traceback(shell: Shell, stream: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m waypost list {stream}', sys.executable],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr


def without_zeroconf(shell: Shell, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as if the extra `lan` were not installed."""
    shell.write("hidden/sitecustomize.py", b"import sys\nsys.modules['zeroconf'] = None\n")
    return subprocess.run(
        [sys.executable, "-m", "waypost", *words],
        cwd=shell.folder,
        env={**shell.environment, "PYTHONPATH": os.pathsep.join((str(shell.folder / "hidden"), *sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_browse_says_that_it_is_without_mdns(shell: Shell) -> None:
    assert "Without mDNS" in without_zeroconf(shell, "browse", "--timeout", "0.1").stderr
    assert "Without mDNS" not in without_zeroconf(shell, "browse", "--udp", "--timeout", "0.1").stderr


def test_a_missing_extra_is_named(shell: Shell) -> None:
    done = without_zeroconf(shell, "announce", shell.write("agent.json", GREETER), "--mdns")
    assert done.returncode == 78, done.stderr
    assert "mDNS needs the package zeroconf." in done.stderr
    assert "waypost[lan]" in done.stderr


def test_a_backup_replaces_no_device(server: RunningServer, shell: Shell) -> None:
    pipe = shell.folder / "pipe"
    os.mkfifo(pipe)
    ran = shell("backup", str(pipe))
    assert ran.code == 78
    assert "is not a file" in ran.err
    assert pipe.is_fifo()


@contextmanager
def other_program() -> Iterator[int]:
    """An HTTP server that is not Waypost."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
