"""`waypost task send|status|cancel|list|take|report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import httpx2
import msgspec
from rich.text import Text

from waypost.cli.completion import complete_agent
from waypost.cli.options import example, parse_duration_option, signer_options, signer_or_hosted_options
from waypost.cli.output import Printer, sanitize, without_none
from waypost.cli.session import Session, use_agent, with_session
from waypost.domains.target import is_domain
from waypost.model.json import dump_json, parse_json
from waypost.responses.messaging import AcceptedTask, LeasedTask, TaskStatus

_TASKS_OF_SERVICE = ("discover", "echo")
_STYLES = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "running": "cyan"}


@click.group(
    epilog=example(
        'waypost task send discover \'{"query": "translate an invoice"}\' --wait 30s',
        "waypost task send agent:alice.example.com summarise @report.json",
    )
)
def task() -> None:
    """Send tasks to agents, and read their status."""


@task.command(
    "send",
    epilog=example(
        "waypost task send echo '[1, 2]' --wait 10s",
        "waypost task send agent:alice.example.com summarise @report.json",
        "waypost task send agent:alice.example.com summarise - < report.json",
    ),
)
@click.argument("words", nargs=-1, required=True, metavar="[AGENT] TASK [INPUT]")
@click.option(
    "--agent", metavar="AGENT", shell_complete=complete_agent, help="The agent to do it.  [default: the service itself]"
)
@click.option("--callback", metavar="URL", help="An https URL that receives the signed result.")
@click.option("--ttl", type=parse_duration_option, metavar="TIME", help="How long it may take until it fails.")
@click.option("--once", metavar="TEXT", help="An idempotency key: a repeated request does not create a second task.")
@click.option("--wait", type=parse_duration_option, metavar="TIME", help="Wait this long for the result.")
@signer_or_hosted_options
@with_session
def send(
    session: Session,
    signer: httpx2.Auth | None,
    hosted: str | None,
    words: tuple[str, ...],
    agent: str | None,
    callback: str | None,
    ttl: int | None,
    once: str | None,
    wait: int | None,
) -> int:
    """Send an AGENT a TASK with an INPUT as JSON: literal, @FILE, or - for stdin.

    The first of three arguments is an AGENT, and so is one with a colon, if another one follows. Without an agent the service
    does it: discover, echo.

    With --wait, the exit code is 1 if the task failed.
    """
    printer = session.printer()
    agent, task, text = _split_arguments(words, agent)
    value = _input(text)
    with session.client(signer) as client:

        def send_to(agent: str | None) -> AcceptedTask:
            return client.send_task(
                task,
                value,
                agent=agent,
                callback=callback,
                ttl_seconds=ttl,
                idempotency_key=once,
                as_agent=hosted,
            )

        sent = send_to(None) if agent is None else use_agent(client, agent, send_to)
        if wait is None:
            _show_sent(printer, sent.task_id, msgspec.to_builtins(sent))
            return 0
        status = client.wait_task(sent.task_id, wait)
    _show(printer, status)
    return 0 if status.status == "succeeded" else 1


@task.command("status", epilog=example("waypost task status 3f7cc0e9-fc57-4d09-a978-ce220937b942"))
@click.argument("id")
@signer_options
@with_session
def status(session: Session, signer: httpx2.Auth | None, id: str) -> None:  # noqa: A002
    """Show the status of a task, and its result."""
    with session.client(signer) as client:
        _show(session.printer(), client.task_status(id))


@task.command("cancel", epilog=example("waypost task cancel 3f7cc0e9-fc57-4d09-a978-ce220937b942"))
@click.argument("id")
@signer_options
@with_session
def cancel(session: Session, signer: httpx2.Auth | None, id: str) -> None:  # noqa: A002
    """Cancel an unfinished task."""
    with session.client(signer) as client:
        _show(session.printer(), client.cancel_task(id))


@task.command("list", epilog=example("waypost task list", "waypost task list --agent agent:alice.example.com"))
@click.option("--agent", metavar="AGENT", shell_complete=complete_agent, help="The tasks for this agent of yours.")
@click.option("--status", type=click.Choice(("accepted", "running")), help="Only tasks with this status.")
@with_session
def list_tasks(session: Session, agent: str | None, status: str | None) -> None:
    """List your unfinished tasks."""
    printer = session.printer()
    with session.client() as client:

        def list_of(agent: str | None) -> tuple[TaskStatus, ...]:
            return client.list_tasks(agent=agent, status=status)

        found = list_of(None) if agent is None else use_agent(client, agent, list_of)
    if not printer.is_human:
        printer.values(map(_value, found))
        return
    for task in found:
        printer.line(_line(task))
    if not found:
        printer.note("No unfinished tasks.")


@task.command("take", epilog=example("waypost task take agent:alice.example.com --wait 30s -o json"))
@click.argument("agent", shell_complete=complete_agent)
@click.option("--limit", type=int, default=1, show_default=True, help="The maximum number.")
@click.option(
    "--lease", type=parse_duration_option, metavar="TIME", help="How long they are reserved for you.  [default: 5m]"
)
@click.option("--wait", type=parse_duration_option, metavar="TIME", help="Wait this long for a task, at most 30s.")
@with_session
def take(session: Session, agent: str, limit: int, lease: int | None, wait: int | None) -> None:
    """Take queued tasks of your AGENT, to work on them."""
    printer = session.printer()
    with session.client() as client:
        taken = use_agent(
            client,
            agent,
            lambda agent_id: client.take_tasks(agent_id, limit=limit, lease_seconds=lease, wait_seconds=wait or 0),
        )
    if not printer.is_human:
        printer.values(_leased_value(work) for work in taken)
        return
    for work in taken:
        printer.line(f"{work.task_id}  {sanitize(work.task)}  lease {work.lease}")
        printer.line(f"  {sanitize(dump_json(work.input).decode())}")
    if not taken:
        printer.note("No task is queued for this agent.")


@task.command(
    "report",
    epilog=example(
        'waypost task report ID LEASE \'{"text": "…"}\'', "waypost task report ID LEASE --failed 'no paper'"
    ),
)
@click.argument("id")
@click.argument("lease")
@click.argument("result", required=False)
@click.option("--failed", metavar="MESSAGE", help="Report a failure, with its reason.")
@click.option("--running", is_flag=True, help="Still running: renew the lease.")
@with_session
def report(session: Session, id: str, lease: str, result: str | None, failed: str | None, running: bool) -> None:  # noqa: A002
    """Report the RESULT (JSON) of a task that you took under a LEASE."""
    outcome = "failed" if failed is not None else "running" if running else "succeeded"
    error = None if failed is None else {"code": "failed", "message": failed}
    with session.client() as client:
        _show(session.printer(), client.report_task(id, lease, outcome, result=_input(result), error=error))


def _split_arguments(words: tuple[str, ...], agent: str | None) -> tuple[str | None, str, str | None]:
    """Return agent, task and input."""
    if agent is None and len(words) > 1 and ":" in words[0] and words[1][:1] not in ("{", "[", '"', "@"):
        agent, words = words[0], words[1:]
    elif agent is None and len(words) == 3 and words[0] not in _TASKS_OF_SERVICE:
        is_named_by_domain = "." in words[0] and is_domain(words[0])
        agent, words = f"agent:{words[0]}" if is_named_by_domain else words[0], words[1:]
    if len(words) > 2:
        raise click.UsageError("Expected [AGENT] TASK [INPUT]; quote arguments that contain spaces.")
    return agent, words[0], words[1] if len(words) == 2 else None


def _input(text: str | None) -> Any:
    """Parse JSON: literal, from a file or from stdin."""
    if text is None:
        return None
    try:
        data = (
            sys.stdin.buffer.read()
            if text == "-"
            else Path(text[1:]).read_bytes()
            if text[:1] == "@"
            else text.encode()
        )
    except OSError as error:
        raise click.UsageError(f"{text[1:]} cannot be read: {error.strerror}.") from None
    return parse_json(data)


def _show_sent(printer: Printer, task_id: str, value: dict[str, Any]) -> None:
    if not printer.is_human:
        printer.value(value)
        return
    printer.line(task_id)
    reason = f" ({sanitize(value['reason'])})" if value.get("reason") else ""
    printer.note(f"Accepted{reason}. Show its status with: waypost task status {task_id}")


def _show(printer: Printer, status: TaskStatus) -> None:
    if not printer.is_human:
        printer.value(_value(status))
        return
    printer.line(_line(status))
    if status.result is not None:
        printer.raw(msgspec.json.format(dump_json(status.result), indent=2))
    if status.error is not None:
        printer.line(f"  {sanitize(status.error.code)}: {sanitize(status.error.message)}")


def _line(status: TaskStatus) -> Text:
    line = Text().append(f"{status.status:<9}", style=_STYLES.get(status.status, ""))
    line.append(f"  {sanitize(status.task_id)}")
    return line.append(f"  {sanitize(status.task)}  {sanitize(status.agent)}", style="dim")


def _value(status: TaskStatus) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(status))


def _leased_value(work: LeasedTask) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(work))
