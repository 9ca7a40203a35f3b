"""Write the sync client from the async one, name by name; `--check` only tells whether it is up to date.

The async client is the one that people edit. Names are replaced token by token, so that texts and comments stay as they are.
"""

from __future__ import annotations

import io
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
}
TEXTS = {
    '"""The client as it is written. `waypost.client.sync` is generated from it by scripts/unasync.py."""': (
        '"""The client without `await`, generated from `waypost.client.aio`."""'
    ),
    '"""`Client`: the registry as methods. Each is a call, an answer, a typed value; the rules live in the service."""': (
        '"""`SyncClient`: the registry as methods, each blocking until it is answered."""'
    ),
}


def without_async(source: str) -> str:
    """The same module with blocking calls."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines(keepends=True)
    written: list[str] = []
    at = (1, 0)
    for token in tokens:
        written.append(_between(lines, at, token.start))
        at = token.end
        if token.type == tokenize.NAME and token.string in DROPPED:
            at = (at[0], at[1] + 1)  # and the space behind it
        elif token.type == tokenize.NAME:
            written.append(NAMES.get(token.string, token.string))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            written.append(TEXTS.get(token.string, token.string))
        elif token.type == tokenize.INDENT:
            written.append(token.string)
    return _tidy(HEADER + "".join(written))


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start >= end or start[0] > len(lines):
        return ""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = "".join(lines[start[0] : end[0] - 1])
    return lines[start[0] - 1][start[1] :] + middle + (lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else "")


def _tidy(source: str) -> str:
    """Sorted imports, `yield from` and the house's line breaks: what shorter names and plain loops change."""
    first_party = 'lint.isort.known-first-party=["waypost"]'
    sort = ["check", "--select", "I,UP028", "--fix", "--unsafe-fixes", "--config", first_party]
    for arguments in (sort, ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet"]
        command += ["--stdin-filename", str(CLIENT / "sync" / "x.py"), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def twins() -> dict[Path, str]:
    """What the sync folder should hold."""
    sources = sorted((CLIENT / "aio").glob("*.py"))
    return {CLIENT / "sync" / source.name: without_async(source.read_text("utf-8")) for source in sources}


def stale(wanted: dict[Path, str]) -> list[str]:
    """The files that differ from what they should be, or should not be there."""
    held = set((CLIENT / "sync").glob("*.py"))
    differing = {path for path, text in wanted.items() if path not in held or path.read_text("utf-8") != text}
    return sorted(path.name for path in differing | (held - set(wanted)))


def main(arguments: list[str]) -> int:
    wanted = twins()
    if "--check" in arguments:
        names = stale(wanted)
        if names:
            print(f"Not up to date: {', '.join(names)}. Run scripts/unasync.py.", file=sys.stderr)
        return 1 if names else 0
    for path, text in wanted.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
