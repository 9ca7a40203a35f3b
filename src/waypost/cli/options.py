"""Options that commands share, derived from the table of settings. Loads neither a client nor a server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import click

from waypost.cli.completion import complete_facet
from waypost.errors import ConfigurationError, InvalidParameter
from waypost.model.principal import SCOPES
from waypost.settings import CLIENT_SETTINGS, RENAMED_SETTINGS, SERVICE_SETTINGS, Setting, load_settings
from waypost.settings.locations import parse_server
from waypost.settings.setting import URL_MARK, check_value
from waypost.trust.jwt import parse_duration

Function = TypeVar("Function", bound=Callable[..., Any])

_TYPES: dict[str, Any] = {
    "text": click.STRING,
    "path": click.Path(path_type=Path),
    "integer": click.INT,
    "seconds": click.FLOAT,
}


class WholeNumber(click.IntRange):
    """An integer within bounds, under a name that people use: it is in the help and in the error."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


_SHARED = (*CLIENT_SETTINGS, SERVICE_SETTINGS[0])

_WITH_FLAGS = [setting for setting in SERVICE_SETTINGS if not setting.in_file_only]

# The settings in `waypost serve --help`, on one line each; --help-all describes all of them.
_COMMON = {
    "data": "The folder of all state.",
    "host": "The address to listen on.  [default: 127.0.0.1]",
    "port": "The port; 0 picks a free one.  [default: 8440]",
    "base_url": "The URL for clients, if it is not http://HOST:PORT.",
    "store": "sqlite (default), memory or postgresql://….",
    "workers": "The number of server processes.  [default: 1]",
    "open": "No authentication; only on a loopback address.",
    "anonymous_read": "Let callers without a token read public agents.",
    "tls_cert": "The certificate chain and key (PEM); turns TLS on.",
    "mdns": "Receive announcements of agents on the LAN.",
}
_HELP_ALL = "waypost.help_all"

FORMATS = ("human", "json", "jsonl")


class SharedOption(click.Option):
    """An option of every command. `waypost --help` describes it; the help of a command only names it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if ctx.parent is None or self.name == "output":
            return super().get_help_record(ctx)
        shared = [option for option in ctx.command.params if isinstance(option, SharedOption)][1:]
        if self is not shared[0]:
            return None
        return ", ".join(option.opts[0] for option in shared), "Shared options: see `waypost --help`."


def shared_options(function: Function) -> Function:
    """`-o`, `--server`, `--token`, `--timeout`, `--data`, `--config`."""
    options = [
        click.option(
            "-o",
            "--output",
            cls=SharedOption,
            type=click.Choice(FORMATS),
            help="The output format, also of errors.  [default: human]",
        ),
        *(_option(setting, SharedOption) for setting in _SHARED),
        _config_option(SharedOption),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def find_output_option(arguments: Sequence[str]) -> str:
    """The value of `-o` in a command line that may be invalid; `human` if there is none."""
    found = "human"
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if argument == "--":
            break
        if argument in ("-o", "--output"):
            found = following
        elif argument.startswith(("--output=", "-o")):
            found = argument.removeprefix("--output=").removeprefix("-o").removeprefix("=")
    return found if found in FORMATS else "human"


class ServiceOption(click.Option):
    """A setting of the service. `--help` shows the most used ones, `--help-all` all."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if ctx.meta.get(_HELP_ALL):
            return super().get_help_record(ctx)
        if self.name not in _COMMON:
            return None
        metavar = self.metavar or self.type.name
        value = "" if self.is_flag else f" {metavar if metavar.isupper() else self.opts[0][2:].upper()}"
        return f"{self.opts[0]}{value}", _COMMON[self.name]


def _show_all_help(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.meta[_HELP_ALL] = True
        click.echo(context.get_help())
        context.exit()


def service_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting of the service, and `--config`; the command receives them as `settings`."""

    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, /, config: Path | None, **given: Any) -> Any:
        before = merge_options(context, {"data": given.get("data"), "config": config})
        flags = {setting.name: given.pop(setting.name) for setting in _WITH_FLAGS}
        flags["data"] = before.get("data")
        return function(load_settings(flags, config=before.get("config")), **given)

    wrapped = command
    renamed = (_renamed_option(old, new) for old, new in RENAMED_SETTINGS.items())
    help_all = click.option(
        "--help-all",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all_help,
        help=f"Show all {len(_WITH_FLAGS)} settings and exit.",
    )
    flags = [_option(setting, ServiceOption) for setting in _WITH_FLAGS]
    for option in reversed([*flags, *renamed, _config_option(), help_all]):
        wrapped = option(wrapped)
    return wrapped


def merge_options(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Options after the command override those before it (`waypost -o json list`)."""
    before = context.find_root().obj or {}
    values = {name: before.get(name) if value is None else value for name, value in given.items()}
    return {name: value for name, value in values.items() if value is not None}


def _option(setting: Setting, kind_of_option: type[click.Option]) -> Callable[[Function], Function]:
    shown = setting.shown_default if setting.default in (None, (), {}) else setting.default
    default = "" if shown is None or setting.kind == "switch" else f"  [default: {shown}]"
    text = f"{setting.doc.replace('`', '')}{default}"
    if setting.kind == "switch":
        names = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(names, setting.name, cls=kind_of_option, default=None, help=text)
    if setting.kind in ("list", "map"):
        text = f"{text}  Repeatable, or separated by commas."
        metavar = setting.metavar or "TEXT"
        return click.option(
            setting.flag,
            setting.name,
            cls=kind_of_option,
            multiple=True,
            metavar=metavar,
            help=text,
            callback=_none_when_empty,
        )
    kind, shown_as = _TYPES[setting.kind], setting.metavar
    if any(choice.endswith(URL_MARK) for choice in setting.choices):  # the setting itself checks URLs
        shown_choices = (f"{choice}…" if choice.endswith(URL_MARK) else choice for choice in setting.choices)
        shown_as = f"[{'|'.join(shown_choices)}]"
    elif setting.choices:
        kind = click.Choice(tuple(setting.choices))
    callback = _usage_check(setting) if kind_of_option is SharedOption else None
    return click.option(
        setting.flag, setting.name, cls=kind_of_option, type=kind, metavar=shown_as, help=text, callback=callback
    )


def _usage_check(setting: Setting) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A value on the command line that cannot be used is an error of usage; in the settings it is one of configuration."""

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            value = check_value(setting, value, setting.flag)
            return parse_server(value) if setting.name == "server" else value
        except ConfigurationError as error:
            raise click.BadParameter(f"{error.message} {error.hint or ''}".rstrip(), context, parameter) from None

    return check


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
    """A repeatable flag that is not given must be None: an empty tuple would override the variable."""
    return value or None


def _config_option(kind_of_option: type[click.Option] = click.Option) -> Callable[[Function], Function]:
    return click.option(
        "--config",
        cls=kind_of_option,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The settings file.  [default: ./waypost.toml]",
    )


def example(*lines: str) -> str:
    """The epilog of a command: one example per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def split_values(values: Iterable[str]) -> tuple[str, ...]:
    """Repeated values, and values with commas: `-t a,b -t c`."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def parse_duration_option(text: str) -> int:
    """The type of a duration option (`90`, `90s`, `15m`, `1h`, `1d`), in whole seconds."""
    try:
        return parse_duration(text)
    except InvalidParameter as error:
        raise click.BadParameter(str(error)) from None


def scopes_option(text: str) -> Callable[[Function], Function]:
    """`--scope`, which a credential needs at least once."""
    return click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help=text)


def tag_option(command: Function) -> Function:
    return click.option(
        "-t",
        "--tag",
        "tags",
        multiple=True,
        metavar="TAG",
        shell_complete=complete_facet("tag"),
        help="Only agents with this tag. Repeatable.",
    )(command)


def filter_options(command: Function) -> Function:
    """The filters of commands that list or count agents."""
    options = (
        tag_option,
        click.option(
            "-p",
            "--protocol",
            metavar="NAME",
            shell_complete=complete_facet("protocol"),
            help="Only agents that speak this protocol.",
        ),
        click.option(
            "--status",
            metavar="STATUS",
            shell_complete=complete_facet("status"),
            help="active, inactive, suspended, deprecated or testing.",
        ),
        click.option(
            "--owner", metavar="SUBJECT", shell_complete=complete_facet("owner"), help="Only agents of this owner."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def signer_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--as AGENT --key FILE`: the agent signs the request instead of a token (P-5).

    The command receives the result as `signer`, or None.
    """

    @functools.wraps(function)
    def command(*arguments: Any, as_agent: str | None, key: Path | None, **given: Any) -> Any:
        if as_agent is not None and key is None:
            raise click.UsageError("--as needs --key.")
        return function(*arguments, signer=_signer(as_agent, key), **given)

    return _with_signer_options(command, "Sign as this agent, instead of using a token.")


def signer_or_hosted_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same; without a key the command receives the agent as `hosted`: the service that hosts it signs."""

    @functools.wraps(function)
    def command(*arguments: Any, as_agent: str | None, key: Path | None, **given: Any) -> Any:
        signer = _signer(as_agent, key)
        return function(*arguments, signer=signer, hosted=None if signer is not None else as_agent, **given)

    return _with_signer_options(command, "Act as this agent: signed with --key, else by the service that hosts it.")


def _with_signer_options(command: Callable[..., Any], text: str) -> Callable[..., Any]:
    path = click.Path(path_type=Path, dir_okay=False)
    command = click.option("--key", type=path, metavar="FILE", help="Its Ed25519 key.")(command)
    return click.option("--as", "as_agent", metavar="AGENT", help=text)(command)


def _signer(agent: str | None, key: Path | None) -> Any:
    if key is None:
        return None
    if agent is None:
        raise click.UsageError("--key needs --as.")
    # Loading the key code takes longer than the rest of the command: import it on use only.
    from waypost.client.identity import AgentSigner, read_key

    return AgentSigner(agent, read_key(key))
