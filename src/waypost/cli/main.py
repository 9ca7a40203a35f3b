"""The command `waypost`: finds the command that was asked for, runs it, and turns what went wrong into an exit code.

Commands are loaded by name when they are used, so that `waypost version` does not load a server.
"""

from __future__ import annotations

import gc
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from waypost import __version__
from waypost.cli.options import shared_options
from waypost.cli.report import report_error
from waypost.errors import CODES, InvalidParameter, WaypostError, codes_of

EXIT_USAGE = CODES[InvalidParameter].exit
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

# Read by libraries when they are loaded, which no command is before `run`. Requests are answered side by side already:
# threads of a single product would only fight over the cores.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

COMMANDS = {
    "serve": "Run the service.",
    "demo": "Try it: a service in memory, open, with sample agents.",
    "register": "Register agents from documents of any dialect.",
    "get": "Show one agent, in any dialect.",
    "diff": "Show how two versions of an agent differ.",
    "list": "List agents.",
    "find": "Find agents for a task.",
    "facets": "Count agents by tag, protocol, status and owner.",
    "renew": "Prolong the lease of an agent.",
    "share": "Choose who sees a private agent.",
    "host": "Answer for an agent under a domain.",
    "domain": "Prove that a domain is yours.",
    "dns": "Write, publish and check the DNS records of an agent.",
    "withdraw": "Remove agents.",
    "confirm": "Confirm a change of a verified agent that waits.",
    "watch": "Follow the changes.",
    "import": "Register many agents from files and folders.",
    "export": "Write all agents as JSON lines.",
    "announce": "Announce an agent on the LAN and to a registry.",
    "browse": "Show the agents on the LAN.",
    "resolve": "Follow a domain to its agent, and see how far that is proven.",
    "chat": "Talk to an agent.",
    "task": "Give agents tasks, and ask how they go.",
    "swarm": "Let agents work on one task together.",
    "invite": "Invite others to a private agent.",
    "verify": "Check signatures, and that the audit trail was not rewritten.",
    "audit": "Show who changed what.",
    "token": "Make access tokens.",
    "allow": "Say who may announce.",
    "keys": "Make keys; bind, list and revoke those of agents.",
    "mcp": "Speak MCP on stdin and stdout, for hosts that start a server.",
    "doctor": "List what protects a deployment, and what does not.",
    "completion": "Print the completion script of a shell.",
    "version": "Show the version.",
}


class LazyGroup(click.Group):
    """Loads a command's module when the command is used; names and summaries come from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # what is loaded stays: there is nothing to collect in it
        try:
            module = import_module(f"waypost.cli.commands.{cmd_name}_command")
        finally:
            gc.enable()
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click sees it, to whom it is a failure
            return _forget_stdout()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " `waypost --help` lists the commands."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Start with `waypost demo`. Every command tells more with --help.",
)
@shared_options
@click.version_option(__version__, prog_name="waypost", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, /, **given: Any) -> None:
    """Waypost: register an agent once, in any protocol, and find it through all of them."""
    context.obj = given
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; the exit code."""
    try:
        outcome = cli.main(args=arguments, prog_name="waypost", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except WaypostError as error:
        report_error(error)
        return codes_of(error).exit
    except BrokenPipeError:
        return _forget_stdout()
    return outcome if isinstance(outcome, int) else 0


def _forget_stdout() -> int:
    """The reader wanted no more, which is no failure; what is still buffered has no place to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def run() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    sys.exit(main())


if __name__ == "__main__":
    run()
