"""`waypost apply PATH`: make the registry agree with a folder of documents.

The ids that an apply registered are recorded in the folder, in `.waypost-applied`, for each service. So --prune removes only
agents that an earlier apply of the same folder registered, that still belong to the same subject, and that nobody has changed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.commands.agents.bulk import ImportDocument, error_value, read_sources, register_documents
from waypost.cli.options import example
from waypost.cli.output import Printer, count_noun, report_error, sanitize, truncate
from waypost.cli.session import Session, with_session
from waypost.cli.views import OUTCOME_STYLES, show_warnings
from waypost.client.requests import Failure
from waypost.client.sync.client import SyncClient
from waypost.errors import InvalidDocument, InvalidParameter, NotFound, PreconditionFailed, WaypostError
from waypost.model.events import JsonDifference, differences_between
from waypost.model.json import dump_json
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document

STATE_FILE = ".waypost-applied"
_VALUE_CHARS = 80


class AppliedAgents(msgspec.Struct, kw_only=True):
    """What an earlier apply registered at one service."""

    subject: str | None = None
    etags: dict[str, str] = msgspec.field(default_factory=dict)  # by id


class WantedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the folder, and the agent that it describes."""

    source: ImportDocument
    id: str
    dialect: str


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an apply does, or would do, with one agent."""

    id: str
    outcome: str
    source: str | None = None
    differences: tuple[JsonDifference, ...] = ()
    error: WaypostError | None = None

    def value(self) -> dict[str, Any]:
        members: dict[str, Any] = {"id": self.id, "outcome": self.outcome}
        if self.source is not None:
            members["source"] = self.source
        if self.differences:
            members["differences"] = [msgspec.to_builtins(difference) for difference in self.differences]
        if self.error is not None:
            members["error"] = error_value(self.error)
        return members


@click.command(
    epilog=example(
        "waypost apply agents/ --dry-run",
        "waypost apply agents/ --prune",
        "waypost apply agents/ --visibility internal -o json",
    )
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--prune", is_flag=True, help="Withdraw agents of an earlier apply whose documents are no longer in PATH."
)
@click.option("--dry-run", is_flag=True, help="Show the differences, and change nothing.")
@click.option(
    "--visibility", type=click.Choice(("public", "internal", "private")), help="The visibility of the agents."
)
@with_session
def apply(session: Session, path: Path, prune: bool, dry_run: bool, visibility: str | None) -> int:
    """Make the registry agree with a folder of documents: register what is new or changed.

    All documents are checked first; if one is invalid, nothing is changed. --prune withdraws only agents that an earlier apply
    of the same folder registered (they are recorded in PATH/.waypost-applied), that still belong to the same subject, and that
    were not changed since.
    """
    printer = session.printer()
    wanted = _read_wanted(path)
    with session.client() as client:
        state = _AppliedState(path, client.base_url)
        stale = [agent_id for agent_id in state.agents.etags if agent_id not in {agent.id for agent in wanted}]
        if dry_run:
            changes = [*_compare(client, wanted), *(_prune(client, state, stale, dry_run=True) if prune else ())]
        else:
            changes = [*_register(client, printer, wanted, visibility, state)]
            changes += _prune(client, state, stale, dry_run=False) if prune else ()
            state.save()
    _show(printer, changes, dry_run=dry_run)
    if stale and not prune:
        is_one = len(stale) == 1
        printer.note(
            f"{count_noun(len(stale), 'agent')} of an earlier apply {'is' if is_one else 'are'} not in {path}: "
            f"--prune withdraws {'it' if is_one else 'them'}."
        )
    failed = [change for change in changes if change.outcome == "failed"]
    if failed and not printer.is_human and failed[0].error is not None:
        report_error(failed[0].error, failed[0].source)
    return 1 if failed else 0


def _read_wanted(path: Path) -> list[WantedAgent]:
    """The agents of the folder. Raises the first error after all were reported, so that nothing is half applied."""
    wanted: dict[str, WantedAgent] = {}
    errors: list[tuple[WaypostError, str]] = []
    for source in read_sources((str(path),)):
        try:
            agent = _decode(source)
            if agent.id in wanted:
                raise InvalidDocument(
                    f"{agent.id} is also described by {wanted[agent.id].source.origin}.",
                    path="$.id",
                    hint="Remove one of the documents.",
                )
            wanted[agent.id] = agent
        except WaypostError as error:
            errors.append((error, source.origin))
    for problem, origin in errors:
        report_error(problem, origin)
    if errors:
        raise InvalidDocument(
            f"Nothing was changed: {count_noun(len(errors), 'document')} cannot be used.",
            path=errors[0][1],
            hint="`waypost validate` lists every problem.",
        )
    return list(wanted.values())


def _decode(source: ImportDocument) -> WantedAgent:
    if source.error is not None:
        raise source.error
    dialect, _, decoded = decode_document(source.content, None, DecodeContext(now=time.time()))
    return WantedAgent(source=source, id=decoded.record.id, dialect=dialect)


# --- Changes ---


def _compare(client: SyncClient, wanted: list[WantedAgent]) -> Iterator[PlannedChange]:
    """What registering would change: the documents as they were received, compared with those of the folder."""
    for agent in wanted:
        origin = agent.source.origin
        try:
            current = client.document(agent.id, agent.dialect)
        except NotFound:
            yield PlannedChange(id=agent.id, outcome="create", source=origin)
            continue
        if not current.body:  # a text
            same = current.content.strip() == agent.source.content.strip()
            yield PlannedChange(id=agent.id, outcome="unchanged" if same else "update", source=origin)
            continue
        new = msgspec.json.decode(agent.source.content)
        found = tuple(differences_between(current.body, new, limits.DIFFERENCES))
        yield PlannedChange(id=agent.id, outcome="update" if found else "unchanged", source=origin, differences=found)


def _register(
    client: SyncClient, printer: Printer, wanted: list[WantedAgent], visibility: str | None, state: _AppliedState
) -> Iterator[PlannedChange]:
    results = register_documents(client, [agent.source for agent in wanted], visibility)
    for agent, (source, result) in zip(wanted, results, strict=True):
        if isinstance(result, Failure):
            yield PlannedChange(id=agent.id, outcome="failed", source=source.origin, error=result.error)
            continue
        show_warnings(printer, result, source.origin)
        state.note(client, result.id, result.etag)
        yield PlannedChange(id=result.id, outcome=result.outcome, source=source.origin)


def _prune(client: SyncClient, state: _AppliedState, stale: list[str], *, dry_run: bool) -> Iterator[PlannedChange]:
    for agent_id in stale:
        try:
            state.require_unchanged(client, agent_id)
            if not dry_run:
                client.withdraw(agent_id, state.agents.etags[agent_id])
        except NotFound:
            state.forget(agent_id)
            continue
        except WaypostError as error:
            yield PlannedChange(
                id=agent_id, outcome="kept" if isinstance(error, PreconditionFailed) else "failed", error=error
            )
            continue
        if not dry_run:
            state.forget(agent_id)
        yield PlannedChange(id=agent_id, outcome="withdraw" if dry_run else "withdrawn")


# --- What an earlier apply registered ---


class _AppliedState:
    """The record of applies in the folder."""

    def __init__(self, path: Path, server: str) -> None:
        self._file = (path if path.is_dir() else path.parent) / STATE_FILE
        self._server = server
        self._services = self._load()
        self.agents = self._services.setdefault(server, AppliedAgents())

    def _load(self) -> dict[str, AppliedAgents]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, AppliedAgents])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise InvalidParameter(
                f"{self._file} cannot be read: {error}.",
                path=str(self._file),
                hint="Remove it; then --prune does not know the agents of earlier applies.",
            ) from None

    def note(self, client: SyncClient, agent_id: str, etag: str) -> None:
        if self.agents.subject is None:
            self.agents.subject = client.history(agent_id).versions[0].subject
        self.agents.etags[agent_id] = etag

    def forget(self, agent_id: str) -> None:
        self.agents.etags.pop(agent_id, None)

    def require_unchanged(self, client: SyncClient, agent_id: str) -> None:
        """Raise PreconditionFailed if another subject owns the agent now, or it was changed."""
        current = client.history(agent_id).versions[0]
        if current.subject != self.agents.subject or current.etag != self.agents.etags[agent_id]:
            raise PreconditionFailed(
                f"{agent_id} was changed since the last apply.",
                path="id",
                hint="`waypost withdraw` removes it nevertheless.",
            )

    def save(self) -> None:
        content = msgspec.json.format(msgspec.json.encode(self._services), indent=2)
        try:
            fresh = self._file.with_name(f"{STATE_FILE}.{os.getpid()}")
            fresh.write_bytes(content + b"\n")
            fresh.replace(self._file)
        except OSError as error:
            raise InvalidParameter(
                f"{self._file} cannot be written: {error.strerror}.",
                path=str(self._file),
                hint="The agents are registered, but a later --prune will not know them.",
            ) from None


# --- Output ---

_PLAN_MARKS = {"create": ("+", "green"), "update": ("~", "cyan"), "withdraw": ("-", "red"), "unchanged": ("=", "dim")}
_PLANNED = {"create": "to create", "update": "to update", "withdraw": "to withdraw"}


def _show(printer: Printer, changes: list[PlannedChange], *, dry_run: bool) -> None:
    if not printer.is_human:
        printer.values(change.value() for change in changes)
        return
    for change in changes:
        if change.outcome == "kept" and change.error is not None:
            printer.note(f"kept       {change.error.message} {change.error.hint}", style="yellow")
        elif change.error is not None:
            report_error(change.error, change.source or change.id)
        elif dry_run:
            _show_planned(printer, change)
        else:
            line = Text().append(f"{change.outcome:<9}", style=OUTCOME_STYLES.get(change.outcome, ""))
            printer.line(line.append(f"  {sanitize(change.id)}"))
    counts = Counter(change.outcome for change in changes)
    summary = ", ".join(f"{count} {_PLANNED.get(outcome, outcome)}" for outcome, count in counts.items())
    printer.note(f"{summary or 'Nothing to do'}{'; nothing was changed' if dry_run else ''}.")


def _show_planned(printer: Printer, change: PlannedChange) -> None:
    mark, style = _PLAN_MARKS.get(change.outcome, ("?", ""))
    source = f"  ({sanitize(change.source)})" if change.source else ""
    printer.line(Text().append(f"{mark} {change.outcome:<9}", style=style).append(f"  {sanitize(change.id)}{source}"))
    for difference in change.differences:
        printer.line(Text(f"    {sanitize(difference.path)}", style="bold"))
        for sign, value in (("-", difference.before), ("+", difference.after)):
            if value is not msgspec.UNSET:
                shown = value if isinstance(value, str) else dump_json(value).decode()
                printer.line(f"      {sign} {truncate(shown, _VALUE_CHARS)}")
