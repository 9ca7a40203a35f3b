"""`waypost version` and `waypost completion SHELL`: the installed command itself."""

from __future__ import annotations

import json
import platform
from typing import Any

import click
from click.shell_completion import get_completion_class

from waypost import __version__
from waypost.cli.options import example, merge_options, shared_options
from waypost.search.kernels import find_missing_kernels


@click.command(epilog=example("waypost version", "waypost version -o json"))
@shared_options
@click.pass_context
def version(context: click.Context, /, **given: Any) -> None:
    """Show the version.

    It also says whether the compiled search kernels are in use, and with -o json the version of Python.
    """
    if merge_options(context, given).get("output", "human") == "human":
        click.echo(describe_version())
        return
    kernels = "fallback" if find_missing_kernels() else "compiled"
    click.echo(json.dumps({"waypost": __version__, "python": platform.python_version(), "kernels": kernels}))


def describe_version() -> str:
    kernels = "Python fallback, slower; see `waypost doctor`" if find_missing_kernels() else "compiled"
    return f"waypost {__version__} (search kernels: {kernels})"


@click.command(
    epilog=example(
        'eval "$(waypost completion bash)"',
        "waypost completion zsh > ~/.zfunc/_waypost",
        "waypost completion fish > ~/.config/fish/completions/waypost.fish",
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"There is no completion for {shell}.", context)
    click.echo(script(context.find_root().command, {}, "waypost", "_WAYPOST_COMPLETE").source())
