"""The options that commands share, read off the table of settings. Loads neither a client nor a server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from waypost.errors import InvalidParameter
from waypost.settings import CLIENT_SETTINGS, RENAMED_SETTINGS, SERVICE_SETTINGS, Setting, load_settings
from waypost.trust.jwt import parse_duration

Function = TypeVar("Function", bound=Callable[..., Any])

_TYPES: dict[str, Any] = {
    "text": click.STRING,
    "path": click.Path(path_type=Path),
    "integer": click.INT,
    "seconds": click.FLOAT,
}

_SHARED = (*CLIENT_SETTINGS, SERVICE_SETTINGS[0])

_WITH_FLAGS = [setting for setting in SERVICE_SETTINGS if not setting.in_file_only]

FORMATS = ("human", "json", "jsonl")


def shared_options(function: Function) -> Function:
    """`-o`, `--server`, `--token`, `--timeout`, `--data`, `--config`."""
    options = [
        click.option(
            "-o",
            "--output",
            type=click.Choice(FORMATS),
            help="How to print data.  [default: human]",
        ),
        *(_option(setting) for setting in _SHARED),
        _config_option(),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def service_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting of the service, and `--config`; they arrive as `settings`."""

    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, /, config: Path | None, **given: Any) -> Any:
        before = merge_options(context, {"data": given.get("data"), "config": config})
        flags = {setting.name: given.pop(setting.name) for setting in _WITH_FLAGS}
        flags["data"] = before.get("data")
        return function(load_settings(flags, config=before.get("config")), **given)

    wrapped = command
    renamed = (_renamed_option(old, new) for old, new in RENAMED_SETTINGS.items())
    for option in reversed([*(_option(setting) for setting in _WITH_FLAGS), *renamed, _config_option()]):
        wrapped = option(wrapped)
    return wrapped


def merge_options(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """What was given to the command wins over what was given before it (`waypost -o json list`)."""
    before = context.find_root().obj or {}
    values = {name: before.get(name) if value is None else value for name, value in given.items()}
    return {name: value for name, value in values.items() if value is not None}


def _option(setting: Setting) -> Callable[[Function], Function]:
    shown = setting.shown_default if setting.default in (None, ()) else setting.default
    default = "" if shown is None or setting.kind == "switch" else f"  [default: {shown}]"
    text = f"{setting.doc.replace('`', '')}{default}"
    if setting.kind == "switch":
        names = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(names, setting.name, default=None, help=text)
    if setting.kind == "list":
        text = f"{text}  Repeat it, or put commas between."
        metavar = setting.metavar or "TEXT"
        return click.option(
            setting.flag, setting.name, multiple=True, metavar=metavar, help=text, callback=_none_when_empty
        )
    kind = click.Choice(setting.choices) if setting.choices else _TYPES[setting.kind]
    return click.option(setting.flag, setting.name, type=kind, metavar=setting.metavar, help=text)


def _renamed_option(old: str, new: str) -> Callable[[Function], Function]:
    """A hidden flag that reports the new name of its setting."""
    flags = {f"--{name.replace('_', '-')}": f"--{new.replace('_', '-')}" for name in (old, f"no_{old}")}

    def report(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{parameter.opts[0]} is now named {flags[parameter.opts[0]]}.", context)

    return click.option(
        *flags, old, hidden=True, expose_value=False, callback=report, is_flag=False, flag_value="", default=None
    )


def _none_when_empty(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Any:
    """A flag that may be repeated is never None by itself, and would win over the variable without having been given."""
    return value or None


def _config_option() -> Callable[[Function], Function]:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The settings file.  [default: ./waypost.toml, if it is there]",
    )


def example(*lines: str) -> str:
    """The epilog of a command: examples, kept line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def split_values(values: Iterable[str]) -> tuple[str, ...]:
    """Repeated values, and values with commas: `-t a,b -t c`."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


# ---- Durations on the command line: `90`, `90s`, `15m`, `1h`, `1d`.


def parse_duration_option(text: str) -> int:
    """The type of an option that takes a duration: whole seconds."""
    try:
        return parse_duration(text)
    except InvalidParameter as error:
        raise click.BadParameter(str(error)) from None
