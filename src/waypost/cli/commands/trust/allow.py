"""`waypost allow add|remove|list`."""

from __future__ import annotations

import click
import msgspec

from waypost.cli.options import example
from waypost.cli.output import sanitize, without_none
from waypost.cli.session import Session, with_session


@click.group()
def allow() -> None:
    """Manage the allow-list of announcers. If it is empty, only an admin may announce."""


@allow.command(
    "add",
    epilog=example(
        "waypost allow add 3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
        "waypost allow add key:sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5",
        "waypost allow add '*'",
    ),
)
@click.argument("rule")
@with_session
def add(session: Session, rule: str) -> None:
    """Add RULE: an agent_id, key:sha256:<hex>, san:<suffix> (mode ca) or *. It takes effect at once."""
    printer = session.printer()
    with session.client() as client:
        added = client.allow_add(rule)
    if printer.is_human:
        printer.line(f"{added.outcome:<9}  {sanitize(added.rule)}")
    else:
        printer.value(without_none(msgspec.to_builtins(added)))


@allow.command("remove", epilog=example("waypost allow remove '*'"))
@click.argument("rule")
@with_session
def remove(session: Session, rule: str) -> None:
    """Remove RULE. Agents announced under it stay until their lease ends."""
    printer = session.printer()
    with session.client() as client:
        client.allow_remove(rule)
    if printer.is_human:
        printer.line(f"removed    {sanitize(rule)}")
    else:
        printer.value({"rule": rule, "outcome": "removed"})


@allow.command("list", epilog=example("waypost allow list -o json"))
@with_session
def list_rules(session: Session) -> None:
    """List the rules."""
    printer = session.printer()
    with session.client() as client:
        rules = client.allow_list()
    if not printer.is_human:
        printer.values(without_none(msgspec.to_builtins(rule)) for rule in rules)
        return
    printer.rows((sanitize(rule.rule), rule.added_at, sanitize(rule.added_by)) for rule in rules)
    if not rules and printer.is_terminal:
        printer.note("No rules: only an admin may announce. Add one with `waypost allow add AGENT_ID`.")
