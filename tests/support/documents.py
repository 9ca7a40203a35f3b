"""Runs the commands and programs that a page of the documentation shows, in their order.

`waypost serve …` is not run, only parsed: the service of the page runs already. Folders of a real machine are replaced.

Readers do not see the marks, which are HTML comments before a block:

    <!-- test: skip REASON -->       the block is not run; its commands must still be ones that the parser accepts
    <!-- test: fails -->             the block must fail
    <!-- test: endless -->           the block runs until it is stopped
    <!-- test: background -->        the block runs until the end of the page, as in another terminal
    <!-- test: file NAME -->         the block is the content of a file
    <!-- test: with EXAMPLE WORD --> the next block has WORD of the shell in the place of an example, such as an id
    <!-- test: service FLAGS -->     start the service of the page with these flags (once, at the top)
    <!-- test: agents -->            agents that answer are registered: invoice-translator, calculator, weather
    <!-- test: other ADDRESS FLAGS --> start another service with these flags, which the page calls ADDRESS
    <!-- test: setup                 commands that readers do not need, or have done before
    … -->
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from support.callable_agents import http_app, mcp_app, serving
from support.server import RunningServer, running_server
from waypost import Agent, SyncClient
from waypost.cli.main import cli

ADDRESS = re.compile(r"http://127\.0\.0\.1:8440|(?<=[ =])127\.0\.0\.1:8440")
_PART = re.compile(
    r"^<!-- test: (?P<mark>.*?) ?-->\n|^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL
)
_RUN = ("sh", "console", "python")
_SECONDS = 120
_ENDLESS_SECONDS = 4
_FOLDERS = ("/mnt/backups", "/var/lib")  # of a real machine; here they are below the folder of the page
_STATE = ".shell-state"


@dataclass(frozen=True)
class Block:
    """A fenced block, and what its mark says: (word, rest)."""

    kind: str
    text: str
    mark: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Page:
    """The blocks of a page that matter, the flags of its service, and addresses and flags of other services."""

    blocks: tuple[Block, ...]
    flags: tuple[str, ...]
    others: dict[str, tuple[str, ...]]
    has_agents: bool

    @property
    def skipped(self) -> list[Block]:
        return [block for block in self.blocks if block.mark[0] == "skip"]

    @property
    def run(self) -> list[Block]:
        return [block for block in self.blocks if block.mark[0] not in ("skip", "setup", "file")]


def read_page(path: Path) -> Page:
    blocks: list[Block] = []
    flags: tuple[str, ...] = ("--samples",)
    others: dict[str, tuple[str, ...]] = {}
    has_agents = False
    mark = ("", "")
    for part in _PART.finditer(path.read_text(encoding="utf-8")):
        if part["mark"] is not None:
            word, _, rest = part["mark"].partition("\n" if part["mark"].startswith("setup") else " ")
            if word == "service":
                flags = tuple(shlex.split(rest))
            elif word == "agents":
                has_agents = True
            elif word == "other":
                address, *words = shlex.split(rest)
                others[address] = tuple(words)
            elif word == "setup":
                blocks.append(Block("sh", rest, (word, "")))
            else:
                assert word in ("skip", "fails", "endless", "background", "file", "with"), part["mark"]
                assert word not in ("skip", "file", "with") or rest, "give a reason, a name or a word"
                mark = (word, rest)
            continue
        kind = part["info"].partition(" ")[0]
        if kind in _RUN or mark[0]:
            blocks.append(Block(kind, _commands(part["body"]) if kind == "console" else part["body"], mark))
        mark = ("", "")
    return Page(tuple(block for block in blocks if block.text.strip()), flags, others, has_agents)


def _commands(recorded: str) -> str:
    """The lines that were typed in a recording."""
    return "".join(f"{line.removeprefix('$ ')}\n" for line in recorded.splitlines() if line.startswith("$ "))


def run_page(page: Page, folder: Path, server: RunningServer) -> None:
    """Run the blocks one after the other in a folder, as somebody who follows the page."""
    binaries = Path(sys.executable).parent
    environment = {**server.environment(), "TOKEN": server.admin_token, "HOME": str(folder)}
    environment["PATH"] = f"{binaries}:{environment['PATH']}"
    (folder / _STATE).write_text("")
    with ExitStack() as running:
        others = {name: running.enter_context(running_server(*flags)).url for name, flags in page.others.items()}
        if page.has_agents:
            running.enter_context(_agents(server))
        _run_blocks(page, folder, {**others, "http://127.0.0.1:8440": server.url}, environment, running)


@contextmanager
def _agents(server: RunningServer) -> Iterator[None]:
    with serving(http_app()) as http, serving(mcp_app(tools=2)) as mcp:
        agents = [
            Agent("urn:example:invoice-translator", "Translator", "Translates.").bind("http", f"{http}/plain"),
            Agent("urn:example:calculator", "Calculator", "Adds numbers.").bind("mcp", f"{mcp}/mcp"),
            Agent("urn:example:weather", "Weather", "Forecasts the weather.").bind("http", f"{http}/plain"),
        ]
        with SyncClient(server.url, server.admin_token) as client:
            for agent in agents:
                client.register(agent)
        yield


def _run_blocks(
    page: Page, folder: Path, urls: dict[str, str], environment: dict[str, str], terminals: ExitStack
) -> None:
    for number, block in enumerate(page.blocks):
        text = ADDRESS.sub(urls["http://127.0.0.1:8440"], block.text)
        for address, url in urls.items():
            text = text.replace(address, url)
        for place in _FOLDERS:
            (folder / place[1:]).mkdir(parents=True, exist_ok=True)
            text = text.replace(place, f"{folder}{place}")
        if block.mark[0] == "file":
            (folder / block.mark[1]).write_text(text)
        elif block.mark[0] == "skip":
            check_commands(block)
        elif block.kind == "python":
            program = folder / f"block_{number}.py"
            program.write_text(text)
            _run([sys.executable, str(program)], block, folder, environment)
        elif block.mark[0] == "background":
            terminals.enter_context(_terminal(text, folder, environment))
        else:
            check_commands(block)
            if block.mark[0] == "with":
                example, _, word = block.mark[1].partition(" ")
                assert example in text, f"the block does not have {example}"
                text = text.replace(example, word)
            text = re.sub(r"^waypost serve\b(?:.*\\\n)*.*$", "true", text, flags=re.MULTILINE)
            script = f"set -eo pipefail\n. ./{_STATE}\n{text}\nexport -p > {_STATE}\n"
            _run(["bash", "-c", script], block, folder, environment)


@contextmanager
def _terminal(text: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with (folder / "terminal.log").open("ab") as log:
        process = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=environment, stdin=-3, stdout=log, stderr=log, start_new_session=True
        )
    yield
    is_running = process.poll() is None
    subprocess.run(["kill", "--", f"-{process.pid}"], check=False)
    process.wait(_SECONDS)
    assert is_running, (folder / "terminal.log").read_text()


def _run(command: list[str], block: Block, folder: Path, environment: dict[str, str]) -> None:
    is_endless = block.mark[0] == "endless"
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=-3, stdout=-1, stderr=-1, text=True, start_new_session=True
    )
    try:
        out, error = process.communicate(timeout=_ENDLESS_SECONDS if is_endless else _SECONDS)
    except subprocess.TimeoutExpired:
        subprocess.run(["kill", "--", f"-{process.pid}"], check=False)
        process.communicate()
        assert is_endless, f"it does not end:\n{block.text}"
        return
    assert not is_endless, f"it ends:\n{block.text}\n{out}{error}"
    assert (process.returncode != 0) == (block.mark[0] == "fails"), f"{block.text}\n{out}{error}"


def check_commands(block: Block) -> None:
    """Every `waypost …` of a block is one that the command's parser accepts."""
    if block.kind == "python":
        return
    for arguments in _waypost_commands(block.text):
        _parse(arguments)


def _waypost_commands(text: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(
        re.sub(r"(?m)(^|\s)#.*$", "", text.replace("\\\n", " ")), posix=True, punctuation_chars="();<>|&\n"
    )
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word.strip("();<>|&\n") == "":
            if words and words[0] == "waypost":
                yield words[1:]
            words = []
        else:
            words.append(word)


def _parse(arguments: list[str]) -> None:
    command: click.Command = cli
    rest = [word for word in arguments if word != "…"]
    try:
        context = click.Context(cli, info_name="waypost")
        while isinstance(command, click.Group):
            name = rest[0] if command is cli or rest[0] in command.commands else next(iter(command.commands))
            found = command.get_command(context, name)
            assert found is not None, f"waypost {shlex.join(arguments)}: there is no command {name!r}"
            command, rest = found, rest[1:] if name == rest[0] else rest
            context = click.Context(command, parent=context, info_name=command.name)
        command.parse_args(context, rest)
    except click.ClickException as error:
        if isinstance(error, click.BadParameter) and "does not exist" in error.message:
            return  # a file of the reader
        raise AssertionError(f"waypost {shlex.join(arguments)}: {error.format_message()}") from None
