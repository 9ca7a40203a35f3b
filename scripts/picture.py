#!/usr/bin/env python3
"""Make docs/images/find.svg, the picture of the README: what the command prints for a search and a check, in a terminal.

scripts/picture.py            writes it
scripts/picture.py --check    only says, by its exit code, whether the commands still print that

Scores and times are left to the day: `--check` compares the words.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from html import unescape
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "find.svg"
COLUMNS = 120
READY_SECONDS = 120
COMMANDS = ("waypost find review my pull request --explain", 'waypost verify "code reviewer"')
# Black, red, green, yellow, blue, magenta, cyan, white; then the bright ones.
COLOURS = (
    "181c24 f06262 78c882 e6be5a 6ea5f5 c88ceb 5ac8d2 dee2e8 6e7682 ff8282 96e1a0 fad782 96c3ff dcaafa 82e1eb fafafc"
)
RGB = [tuple(bytes.fromhex(colour)) for colour in COLOURS.split()]
THEME = TerminalTheme(RGB[0], RGB[7], RGB[:8], RGB[8:])
# The frame, without fonts from another host.
FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">
<title id="title">A search, its evidence, and the check of what it found</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#181c24" width="100%" height="100%" rx="8"/>
<g fill="#3a4150"><circle cx="20" cy="20" r="6"/><circle cx="40" cy="20" r="6"/><circle cx="60" cy="20" r="6"/></g>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


@contextmanager
def running_demo() -> Iterator[dict[str, str]]:
    """The environment of a command that talks to a demo."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WAYPOST_", "NO_COLOR"))},
            "HOME": home,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
        }
        demo = subprocess.Popen(
            ["waypost", "demo", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=-3, text=True
        )
        try:
            ready = demo.stdout.readline() if demo.stdout else ""
            environment["WAYPOST_SERVER"] = ready.split()[-1]
            _wait_for_the_models(environment)
            yield environment
        finally:
            demo.terminate()
            demo.wait(60)


def _wait_for_the_models(environment: dict[str, str]) -> None:
    """The first seconds of a demo are without sentence vectors, and its results differ until all agents have them."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        with urlopen(f"{environment['WAYPOST_SERVER']}/api/v1/stats") as answer:
            if json.load(answer)["indexing_pending"] == 0:
                return
        time.sleep(0.5)
    sys.exit("the models were not loaded in time")


def run_in_terminal(command: str, environment: dict[str, str]) -> str:
    """What a command prints on a terminal, with colours."""
    shown, terminal = pty.openpty()
    process = subprocess.Popen(["bash", "-c", command], env=environment, stdout=terminal, stderr=terminal)
    os.close(terminal)
    parts = []
    while True:
        try:
            part = os.read(shown, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(shown)
    if process.wait(120):
        sys.exit(f"{command} failed")
    return b"".join(parts).decode().replace("\r\n", "\n")


def draw() -> str:
    with running_demo() as environment, open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            printed = run_in_terminal(command, environment)
            console.print(Text.from_ansi(printed.rstrip("\n")), soft_wrap=False, end="\n\n")
    return console.export_svg(theme=THEME, code_format=FRAME, unique_id="terminal")


def words_of(svg: str) -> list[str]:
    """What a reader sees, without numbers and bars."""
    lines = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return re.findall(r"[^\W\d_]{3,}", unescape(" ".join(lines)))


def _changes(before: list[str], after: list[str]) -> str:
    """The words that differ, with - or + in front."""
    return " ".join(
        line for line in unified_diff(before, after, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    svg = draw()
    if not parser.parse_args().check:
        PICTURE.write_text(svg, encoding="utf-8")
    elif changes := _changes(words_of(PICTURE.read_text(encoding="utf-8")), words_of(svg)):
        sys.exit(f"docs/images/find.svg shows something else: run scripts/picture.py. Words: {changes}")


if __name__ == "__main__":
    main()
