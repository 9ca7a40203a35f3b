#!/usr/bin/env python3
"""Generate the sync client from the async one. `--check` only reports whether it is up to date.

Edit the async client. Names are replaced token by token, so strings and comments stay unchanged, except for the examples in
docstrings.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "waypost" / "client"
HEADER = "# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.\n"
DROPPED = frozenset(("async", "await"))
NAMES = {
    "aio": "sync",
    "Client": "SyncClient",
    "AsyncClient": "Client",
    "AsyncBaseTransport": "BaseTransport",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "asynccontextmanager": "contextmanager",
    "async_pause": "pause",
    "async_resolve": "resolve",
    "AsyncStopSignal": "StopSignal",
    "BackgroundTask": "BackgroundThread",
    "AsyncAgpCaller": "AgpCaller",
}
TEXTS = {
    '"""The async client. `waypost.client.sync` is generated from it by scripts/unasync.py."""': (
        '"""The sync client, generated from `waypost.client.aio`."""'
    ),
    '"""`Client`: the operations of a Waypost service as methods. The rules are those of the service."""': (
        '"""`SyncClient`: the operations of a Waypost service as blocking methods."""'
    ),
}


def without_async(source: str) -> str:
    """The module with blocking calls."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines(keepends=True)
    parts: list[str] = []
    at = (1, 0)
    for token in tokens:
        parts.append(_between(lines, at, token.start))
        at = token.end
        if token.type == tokenize.NAME and token.string in DROPPED:
            at = (at[0], at[1] + 1)  # and the space after it
        elif token.type == tokenize.NAME:
            parts.append(NAMES.get(token.string, token.string))
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            parts.append(TEXTS.get(token.string) or _sync_example(token.string))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER) or token.type == tokenize.INDENT:
            parts.append(token.string)
    return _tidy(HEADER + "".join(parts))


def _sync_example(docstring: str) -> str:
    """The docstring with a blocking example: what follows `Example:` is code."""
    text, mark, code = docstring.partition("Example:")
    code = re.sub(r"\basync (?=with|for)|\bawait ", "", code)
    return text + mark + re.sub(r"\b(?:Client(?=\()|aclose\b)", lambda name: NAMES[name[0]], code)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start >= end or start[0] > len(lines):
        return ""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = "".join(lines[start[0] : end[0] - 1])
    return lines[start[0] - 1][start[1] :] + middle + (lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else "")


def _tidy(source: str) -> str:
    """Sort imports, use `yield from` and format: shorter names and plain loops change all three."""
    first_party = 'lint.isort.known-first-party=["waypost"]'
    sort = ["check", "--select", "I,UP028", "--fix", "--unsafe-fixes", "--config", first_party]
    for arguments in (sort, ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet"]
        command += ["--stdin-filename", str(CLIENT / "sync" / "x.py"), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def generated_files() -> dict[Path, str]:
    """The files of the sync folder with their content."""
    sources = sorted((CLIENT / "aio").glob("*.py"))
    return {CLIENT / "sync" / source.name: without_async(source.read_text("utf-8")) for source in sources}


def stale_files(files: dict[Path, str]) -> list[str]:
    """The names of files that differ from the generated ones, are missing, or are not generated any more."""
    existing = set((CLIENT / "sync").glob("*.py"))
    differing = {path for path, text in files.items() if path not in existing or path.read_text("utf-8") != text}
    return sorted(path.name for path in differing | (existing - set(files)))


def main(arguments: list[str]) -> int:
    files = generated_files()
    if "--check" in arguments:
        names = stale_files(files)
        if names:
            print(f"Not up to date: {', '.join(names)}. Run scripts/unasync.py.", file=sys.stderr)
        return 1 if names else 0
    for path, text in files.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
