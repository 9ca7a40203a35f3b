"""Programs that snippets start, without the network: each checks its arguments. Packages become an MCP server over stdio."""

from __future__ import annotations

import sys
from pathlib import Path

_STDIO_SERVER = Path(__file__).with_name("stdio_mcp_process.py")

# The first pattern of the arguments that fits decides: an MCP server over stdio, or nothing more than success.
_PROGRAMS = {
    "npx": [(r"-y (@[\w.-]+/)?[\w.-]+@[\w.+-]+", "serve")],
    "uvx": [(r"[\w.-]+@[\w.+-]+", "serve")],
    "dnx": [(r"[\w.-]+@[\w.+-]+ --yes", "serve")],
    "docker": [(r"run -i --rm( -e \w+)* [\w./:-]+", "serve"), (r"run --rm [\w./:-]+", "pass")],
    "git": [(r"clone -- https?://\S+", "pass")],
    "helm": [(r"install [\w-]+ [\w-]+ --repo https?://\S+", "pass")],
    "claude": [(r"mcp add .+", "configure")],
}
_SOURCE = """#!{python} -SE
import json, os, re, sys
arguments = " ".join(sys.argv[1:])
for pattern, action in {patterns!r}:
    if re.fullmatch(pattern, arguments):
        break
else:
    sys.exit("unexpected arguments: " + arguments)
if action == "serve":
    os.execv({python!r}, [{python!r}, {server!r}])
if action == "configure":  # claude mcp add: prints the configuration that it would write
    words, command = sys.argv[3:], []
    if "--" in words:
        words, command = words[: words.index("--")], words[words.index("--") + 1 :]
    options, places = {{"--transport": [], "--header": [], "--env": []}}, []
    while words:
        word = words.pop(0)
        options[word].append(words.pop(0)) if word in options else places.append(word)
    assert len(places) == (1 if command else 2), places
    headers = dict(each.split(": ", 1) for each in options["--header"])
    env = dict(each.split("=", 1) for each in options["--env"])
    print(json.dumps({{"command": command[0], "args": command[1:], "env": env}} if command
                     else {{"type": options["--transport"][0], "url": places[1], "headers": headers}}))
"""


def write_fake_programs(folder: Path) -> Path:
    """A folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, patterns in _PROGRAMS.items():
        text = _SOURCE.format(python=sys.executable, patterns=patterns, server=str(_STDIO_SERVER))
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder
