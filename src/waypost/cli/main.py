"""The entry point of the command `waypost`: run a subcommand and turn errors into exit codes.

Subcommands are loaded on use, so that `waypost version` does not load a server.
"""

from __future__ import annotations

import gc
import os
import sys
from difflib import get_close_matches
from errno import ENOSPC
from importlib import import_module
from typing import Any, NamedTuple, TextIO

import click

from waypost.cli.commands.service.installation import describe_version
from waypost.cli.options import find_output_option, shared_options
from waypost.cli.output import error_format, report_error, report_usage_error
from waypost.errors import ERROR_CODES, InvalidParameter, StorageFull, WaypostError, error_codes

EXIT_USAGE = ERROR_CODES[InvalidParameter].exit
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
_FULL_HINT = "Free some space and run the command again."

# Libraries read these when they are loaded, which happens after `run`. Requests already run in parallel: threads within one
# matrix product would only compete for the cores.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class LazyCommand(NamedTuple):
    """Where a command is defined: a module below `waypost.cli.commands`, its attribute, and its line in `--help`."""

    module: str
    attribute: str
    summary: str


# As `waypost --help` shows them.
COMMAND_GROUPS = {
    "Start": {
        "demo": LazyCommand("service.serve", "demo", "Try Waypost: a service in memory, open, with sample agents."),
        "serve": LazyCommand("service.serve", "serve", "Run the service."),
    },
    "Find and use agents": {
        "find": LazyCommand("agents.find", "find", "Find agents for a task."),
        "get": LazyCommand("agents.read", "get", "Show one agent, in any dialect."),
        "list": LazyCommand("agents.read", "list_agents", "List agents."),
        "facets": LazyCommand("agents.find", "facets", "Count agents by tag, protocol, status and owner."),
        "watch": LazyCommand("agents.read", "watch", "Follow the changes of the registry."),
        "diff": LazyCommand("agents.read", "diff", "Show how two versions of an agent differ."),
        "call": LazyCommand("agents.call", "call", "Call an agent by its own protocol: A2A, MCP, AGP or HTTP."),
        "chat": LazyCommand("messaging.chat", "chat", "Talk to an agent."),
        "task": LazyCommand("messaging.task", "task", "Send tasks to agents, and read their status."),
        "swarm": LazyCommand("messaging.swarm", "swarm_group", "Manage swarms: agents that work on one task together."),
    },
    "Register agents": {
        "register": LazyCommand("agents.register", "register", "Register agents from documents of any dialect."),
        "validate": LazyCommand("agents.validate", "validate", "Check documents; nothing is sent."),
        "apply": LazyCommand("agents.apply", "apply", "Make the registry agree with a folder of documents."),
        "renew": LazyCommand("agents.lifecycle", "renew", "Renew the lease of an agent."),
        "withdraw": LazyCommand("agents.lifecycle", "withdraw", "Remove agents."),
        "share": LazyCommand("agents.lifecycle", "share", "Share a private agent with other subjects."),
        "invite": LazyCommand("messaging.invite", "invite", "Invite others to a private agent."),
        "confirm": LazyCommand("agents.lifecycle", "confirm", "Confirm or reject a pending change."),
        "import": LazyCommand("agents.bulk", "import_agents", "Register many agents from files and folders."),
        "export": LazyCommand("agents.bulk", "export", "Write all agents as JSON lines."),
    },
    "Domains and the LAN": {
        "resolve": LazyCommand("network.resolve", "resolve_name", "Resolve a domain to its agent and its trust level."),
        "dns": LazyCommand("network.dns", "dns", "Write, publish and check the DNS records of an agent."),
        "domain": LazyCommand("network.domain", "domain_group", "Prove that a domain is yours."),
        "host": LazyCommand("network.domain", "host", "Serve an agent under a domain."),
        "announce": LazyCommand("network.announce", "announce", "Announce an agent on the LAN and to a registry."),
        "browse": LazyCommand("network.browse", "browse", "Show the agents on the LAN."),
        "peers": LazyCommand("network.peers", "peers", "Follow other registries."),
    },
    "Trust and access": {
        "verify": LazyCommand("trust.verify", "verify", "Verify signatures, or the integrity of the audit trail."),
        "keys": LazyCommand("trust.keys", "keys", "Create keys; trust, list and revoke the keys of agents."),
        "token": LazyCommand("trust.token", "token", "Mint access tokens."),
        "apikeys": LazyCommand("trust.apikeys", "apikeys", "Create, list and revoke API keys."),
        "allow": LazyCommand("trust.keys", "allow", "Manage the allow-list of announcers."),
        "audit": LazyCommand("trust.audit", "audit", "Show the audit trail."),
    },
    "Operate": {
        "stats": LazyCommand("service.stats", "stats", "Count the agents, and show the state of the service."),
        "doctor": LazyCommand("service.doctor", "doctor", "Check the security and health of a deployment."),
        "conformance": LazyCommand(
            "service.conformance",
            "conformance",
            "Check any registry or agent by the requirements of the specifications.",
        ),
        "backup": LazyCommand(
            "service.recovery", "backup", "Write a backup of the data folder, also while the service runs."
        ),
        "restore": LazyCommand("service.recovery", "restore", "Restore a backup into an empty folder."),
        "store": LazyCommand("service.store", "store", "Copy the records to another store: SQLite or PostgreSQL."),
        "check": LazyCommand("service.recovery", "check", "Check the integrity of every file of the data folder."),
        "mcp": LazyCommand("service.mcp", "mcp", "Run an MCP server on stdin and stdout."),
        "completion": LazyCommand("service.installation", "completion", "Print the completion script of a shell."),
        "version": LazyCommand("service.installation", "version", "Show the version."),
    },
}

COMMANDS = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}


class LazyGroup(click.Group):
    """Loads the module of a command on use; names and summaries come from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # loaded modules live as long as the process
        try:
            module = import_module(f"waypost.cli.commands.{COMMANDS[cmd_name].module}")
        finally:
            gc.enable()
        command: click.Command = getattr(module, COMMANDS[cmd_name].attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would report a failure
            return _discard_stdout()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " `waypost --help` lists the commands."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands first: they are what a newcomer looks for."""
        self.format_commands(ctx, formatter)
        records = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("Options, before or after any command"):
            formatter.write_dl(records)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, group in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.summary) for name, command in group.items()])


def _show_version(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(describe_version())
        context.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Start with `waypost demo`. `waypost COMMAND --help` describes a command and gives examples.",
)
@shared_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(context: click.Context, /, **given: Any) -> None:
    """Waypost: register an agent once, in any protocol, and find it through all of them."""
    context.obj = given
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    with error_format(find_output_option(sys.argv[1:] if arguments is None else arguments)):
        return _run_command(arguments)


def _run_command(arguments: list[str] | None) -> int:
    try:
        outcome = cli.main(args=arguments, prog_name="waypost", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        report_usage_error(error)
        return EXIT_USAGE
    except click.ClickException as error:
        report_usage_error(error)
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except WaypostError as error:
        report_error(error)
        return error_codes(error).exit
    except BrokenPipeError:
        return _discard_stdout()
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        _discard_stdout()
        full = StorageFull(f"The disk is full: {error.filename or 'the output'} is not complete.", hint=_FULL_HINT)
        report_error(full)
        return error_codes(full).exit
    return outcome if isinstance(outcome, int) else 0


def _discard_stdout() -> int:
    """The reader of the pipe closed it, which is no failure: discard what is still buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _open_null() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def run() -> None:
    """Run the command line of this process and exit: the entry point in `pyproject.toml`."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # None if the caller closed them: `waypost get ID >&-`.
    sys.stdout = sys.stdout or _open_null()
    sys.stderr = sys.stderr or _open_null()
    sys.exit(main())


if __name__ == "__main__":
    run()
