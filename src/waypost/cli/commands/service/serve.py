"""`waypost serve` and `waypost demo`.

The ready line comes first on stdout; the log goes to stderr, as lines of text or JSON. Control characters in log messages are
escaped, so that a caller cannot forge log lines.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from waypost import limits
from waypost.app import run, sign_in_link
from waypost.cli.options import example, merge_options, service_options
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339_millis
from waypost.server.http.request_log import FIELDS_ATTRIBUTE
from waypost.settings import Settings

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09} | {
    0x0A: "\\n",
    0x0D: "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class TextFormatter(logging.Formatter):
    """Text lines. Only a traceback, which contains no input, has line breaks."""

    def __init__(self) -> None:
        super().__init__(_LOG_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: JsonObject = {
            "at": to_rfc3339_millis(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        entry |= getattr(record, FIELDS_ATTRIBUTE, {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return dump_json(entry).decode()


def make_log_handler(log_format: str) -> logging.Handler:
    """A handler that writes to stderr in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    return handler


def run_service(settings: Settings, introduction: Callable[[str], str] | None = None) -> None:
    """Serve until stopped. `introduction` makes the text after the ready line from the base URL."""
    logging.basicConfig(level=settings.log_level.upper(), handlers=[make_log_handler(settings.log_format)])

    def ready(url: str) -> None:
        sys.stdout.write(f"waypost ready {url}\n")
        link = sign_in_link(settings, url)
        if link is not None:
            sys.stdout.write(f"sign in (once, within {limits.SIGN_IN_CODE_SECONDS // 60} minutes): {link}\n")
        if introduction is not None:
            sys.stdout.write(introduction(url) + "\n")
        sys.stdout.flush()

    run(settings, ready=ready)


@click.command(
    epilog=example(
        "waypost serve --port 8441 --anonymous-read",
        "waypost serve --host 0.0.0.0 --base-url https://agents.example.net --anonymous-read",
        "waypost serve --store memory --open --samples",
    )
)
@service_options
def serve(settings: Settings) -> None:
    """Run the service until it is stopped (Ctrl-C, SIGTERM).

    The first line on stdout is `waypost ready URL`; logs go to stderr. The commands on this machine find the admin token in
    the data folder.
    """
    run_service(settings)


DEMO_COMMANDS = """
Open {url} in a browser, or try, in another terminal:
  {waypost} find "translate an invoice" --explain{server}
  curl -s {url}/.well-known/agentframework/v1/agents
  {waypost} watch{server}

Ctrl-C ends the demo; nothing is stored."""


@click.command(epilog=example("waypost demo", "waypost demo --port 0"))
@service_options
@click.pass_context
def demo(context: click.Context, settings: Settings) -> None:
    """Try Waypost: a service in memory with sample agents, open to every program on this machine.

    Its data folder is temporary, unless --data names one: WAYPOST_DATA and the settings file do not count. So it neither
    reads nor writes the keys of another service.
    """
    with _demo_folder(context) as data:
        fixed = {"store": "memory", "workers": 1, "open": True, "samples": True, "health_checks": False}
        demo = msgspec.structs.replace(settings, data=data, **fixed)
        run_service(demo, introduction=_demo_text)


@contextlib.contextmanager
def _demo_folder(context: click.Context) -> Iterator[Path]:
    named: Path | None = merge_options(context, {"data": context.params.get("data")}).get("data")
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="waypost-demo-") as folder:
        yield Path(folder)


def _demo_text(url: str) -> str:
    server = "" if url == "http://127.0.0.1:8440" else f" --server {url}"
    return DEMO_COMMANDS.format(url=url, server=server, waypost=_program_name())


def _program_name() -> str:
    """`waypost`, or its path if the shell would not find it by name."""
    here = Path(sys.argv[0]).absolute()
    found = shutil.which("waypost")
    if here.name != "waypost" or (found and Path(found).samefile(here)):
        return "waypost"
    return shlex.quote(str(here))
