"""`waypost completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from waypost.cli.options import example


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
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.", context)
    click.echo(kind(context.find_root().command, {}, "waypost", "_WAYPOST_COMPLETE").source())
