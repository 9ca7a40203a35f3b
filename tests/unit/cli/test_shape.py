"""All commands: help with an example, usage errors, shared options. No service is needed."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from support.shell import Shell
from waypost.cli.main import COMMANDS, cli
from waypost.cli.options import find_output_option
from waypost.errors import ERROR_CODES

RUNNER = CliRunner()


# These commands do not call a service and show no result, so they have neither --server nor --output.
WITHOUT_SHARED_OPTIONS = ("serve", "demo", "completion")


# The commands of 0.1: scripts of users rely on them.
RELEASED = """
serve · host · demo · find · get · register · withdraw · list · watch · announce · browse · resolve · verify
dns zone · dns publish · dns check · keys new · keys list · keys trust · keys revoke · keys rotate · token mint
allow add · allow remove · allow list · invite · invite make · invite list · invite revoke · invite redeem
chat · import · export · doctor · mcp · version · diff · facets · renew · share · confirm · audit · completion
domain prove · domain check · domain list · domain remove · dns serve
task send · task status · task cancel · task list · task take · task report
swarm join · swarm leave · swarm list · swarm members · swarm broadcast · swarm messages
"""


def released() -> list[tuple[str, ...]]:
    return [tuple(name.split()) for line in RELEASED.split("\n") for name in line.split("·") if name.strip()]


@pytest.mark.parametrize("words", released(), ids=" ".join)
def test_every_released_command_still_exists(words: tuple[str, ...]) -> None:
    command = cli.get_command(click.Context(cli), words[0])
    for name in words[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert command is not None


def leaves() -> list[tuple[str, ...]]:
    """Every command; for a group, its subcommands."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        of_group = command.commands if isinstance(command, click.Group) else {}
        found += [(name, part) for part in of_group] or [(name,)]
    return found


@pytest.mark.parametrize("words", leaves(), ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    shown = RUNNER.invoke(cli, [*words, "--help"], terminal_width=120)
    assert shown.exit_code == 0, shown.output
    assert "Examples:" in shown.output, "give the command an epilog: @click.command(epilog=example(...))"
    assert f"waypost {' '.join(words)}" in shown.output.split("Examples:")[1]


@pytest.mark.parametrize("words", [words for words in leaves() if words[0] not in WITHOUT_SHARED_OPTIONS], ids=" ".join)
def test_every_command_that_talks_to_a_service_takes_the_shared_options(words: tuple[str, ...]) -> None:
    shown = RUNNER.invoke(cli, [*words, "--help"], terminal_width=120).output
    for option in ("--output", "--server", "--token", "--timeout", "--data", "--config"):
        assert option in shown, "decorate the command with @with_session, or list it in WITHOUT_SHARED_OPTIONS"


def test_the_overview_lists_every_command_without_loading_it() -> None:
    shown = RUNNER.invoke(cli, [], terminal_width=120)
    assert shown.exit_code == 0
    for name, command in COMMANDS.items():
        assert name in shown.output
        assert command.summary in shown.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("--nonsense",),
        ("get",),
        ("find",),
        ("find", "x", "--limit", "0"),
        ("find", "x", "--constraint", "region"),
        ("list", "--limit", "many"),
        ("list", "-o", "xml"),
        ("register",),
        ("register", "a.json", "--visibility", "secret"),
        ("register", "a.json", "--ttl", "soon"),
        ("token", "mint", "--sub", "a"),
        ("token", "mint", "--sub", "a", "--scope", "everything"),
        ("completion", "tcsh"),
        ("serve", "--port", "x"),
    ],
)
def test_a_usage_error_exits_with_64_and_a_reason(lonely_shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = lonely_shell(*arguments)
    assert ran.code == 64
    assert ran.out == ""
    assert "Error: " in ran.err


def test_a_mistyped_command_is_answered_with_the_nearest_one(lonely_shell: Shell) -> None:
    assert "Did you mean 'register'?" in lonely_shell("regster").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "a"),
        ("list",),
        ("find", "a"),
        ("withdraw", "a"),
        ("renew", "a"),
        ("watch", "--from", "0"),
        ("export",),
        ("token", "mint", "--sub", "a", "--scope", "admin"),
    ],
)
def test_a_service_that_is_not_there_ends_with_69(lonely_shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = lonely_shell(*arguments)
    assert ran.code == 69
    assert ran.out == ""
    assert "http://127.0.0.1:1" in ran.err
    assert "hint:" in ran.err


def test_a_service_that_is_not_there_ends_with_69_for_documents_too(lonely_shell: Shell) -> None:
    name = lonely_shell.write("a.json", {"id": "a"})
    assert lonely_shell("register", name).code == 69
    assert lonely_shell("import", name).code == 69


def test_settings_that_cannot_be_used_end_with_78(lonely_shell: Shell) -> None:
    ran = lonely_shell("list", WAYPOST_TIMEOUTS="3")
    assert ran.code == 78
    assert "WAYPOST_TIMEOUT" in ran.err
    assert lonely_shell("list", WAYPOST_SERVER="x y").code == 78
    assert lonely_shell("list", WAYPOST_TIMEOUT="-1").code == 78
    assert lonely_shell("serve", "--open", "--host", "0.0.0.0").code == 78
    assert lonely_shell("serve", "--config", "missing.toml").code == 78
    assert lonely_shell("serve", "--store", "redis").code == 78


def test_every_exit_code_is_one_that_is_promised() -> None:
    assert {codes.exit for codes in ERROR_CODES.values()} <= {1, 64, 69, 75, 77, 78}


def test_the_version_is_printed_in_every_format(lonely_shell: Shell) -> None:
    assert lonely_shell("version").out.startswith("waypost ")
    assert lonely_shell("--version").out == lonely_shell("version").out
    assert lonely_shell("version", "-o", "json").json["waypost"] in lonely_shell("version").out
    assert lonely_shell("-o", "jsonl", "version").lines[0]["waypost"]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(lonely_shell: Shell, shell_name: str) -> None:
    assert "_WAYPOST_COMPLETE" in lonely_shell("completion", shell_name).out


def test_completion_offers_commands_and_options(lonely_shell: Shell) -> None:
    ran = lonely_shell(_WAYPOST_COMPLETE="bash_complete", COMP_WORDS="waypost regi", COMP_CWORD="1")
    assert "register" in ran.out
    ran = lonely_shell(_WAYPOST_COMPLETE="bash_complete", COMP_WORDS="waypost find --expl", COMP_CWORD="2")
    assert "--explain" in ran.out


def test_a_file_that_is_not_there_is_named(lonely_shell: Shell) -> None:
    assert "none.json" in lonely_shell("register", "none.json").err
    ran = lonely_shell("import", "none.json")
    assert ran.code == 1
    assert "none.json" in ran.err


def test_an_empty_folder_cannot_be_imported(lonely_shell: Shell) -> None:
    (lonely_shell.folder / "empty").mkdir()
    ran = lonely_shell("import", "empty")
    assert ran.code == 64
    assert "has no documents" in ran.err


# --- Help ----------------------------------------------------------------------------------------------------------------


def test_the_help_of_serve_fits_on_one_screen(lonely_shell: Shell) -> None:
    shown = lonely_shell("serve", "--help", COLUMNS="80", LINES="24").out
    assert len(shown.splitlines()) <= 26
    assert "--help-all" in shown
    assert "--udp-port" not in shown
    assert "--udp-port" in lonely_shell("serve", "--help-all").out


def test_commands_are_shown_in_groups_and_shared_options_described_once(lonely_shell: Shell) -> None:
    overview = lonely_shell("--help").out
    assert overview.index("Find and use agents:") < overview.index("  find ") < overview.index("Register agents:")
    assert "How long to wait for an answer" in overview
    shown = lonely_shell("get", "--help").out
    assert "How long to wait for an answer" not in shown
    assert "see `waypost --help`" in shown


# --- Errors as JSON ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("get", "a", "-o", "json"), 69, "unavailable"),
        (("-o", "json", "get", "a"), 69, "unavailable"),
        (("find", "a", "b", "--output=jsonl"), 69, "unavailable"),
        (("get", "-ojson"), 64, "invalid_request"),
        (("nonsense", "-o", "json"), 64, "invalid_request"),
        (("list", "--limit", "many", "-o", "json"), 64, "invalid_request"),
        (("list", "--server", "x y", "-o", "json"), 64, "invalid_request"),
        (("-o", "json", "--timeout", "-1", "list"), 64, "invalid_request"),
        (("register", "none.json", "-o", "json"), 1, "invalid_request"),
    ],
)
def test_errors_are_one_line_of_json(lonely_shell: Shell, arguments: tuple[str, ...], code: int, error: str) -> None:
    ran = lonely_shell(*arguments)
    assert (ran.code, ran.out) == (code, "")
    value = json.loads(ran.err.splitlines()[-1])
    assert set(value) == {"error"}
    assert set(value["error"]) == {"code", "message", "path", "hint"}
    assert value["error"]["code"] == error
    assert value["error"]["message"]


def test_an_option_after_two_dashes_does_not_choose_the_format() -> None:
    assert find_output_option(["find", "--", "-o", "json"]) == "human"
    assert find_output_option(["find", "-o", "xml"]) == "human"
    assert find_output_option(["-o", "json", "find", "-ojsonl"]) == "jsonl"
