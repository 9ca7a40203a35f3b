"""`waypost import SOURCE…` and `waypost export`.

Import splits files, folders and standard input into single documents: one per file, one per line, an array or a catalog.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from waypost import limits
from waypost.cli.commands.agents.register import FetchOptions, is_address, register_url
from waypost.cli.completion import complete_dialect
from waypost.cli.options import example
from waypost.cli.output import Printer, count_noun, report_error
from waypost.cli.session import Session, with_session
from waypost.cli.views import receipt_value, show_warnings
from waypost.client.requests import Failure
from waypost.client.sync.client import SyncClient
from waypost.errors import (
    FetchFailed,
    Forbidden,
    InternalError,
    InvalidDocument,
    InvalidParameter,
    InvalidRequest,
    MalformedJson,
    TooLarge,
    Unauthorized,
    Unavailable,
    WaypostError,
)
from waypost.model.json import parse_json
from waypost.protocols.dialects import unpack_documents
from waypost.protocols.rtfs.sexpr import is_sexpr_text
from waypost.responses.agents import Receipt

Item = TypeVar("Item")

_JSON_HINT = "A checker such as `python -m json.tool` shows the place."
_REMARK_SECONDS = 2.0
_POLL_SECONDS = 1.0


def show_progress(
    printer: Printer,
    label: str,
    items: Iterable[Item],
    *,
    total: int | None = None,
    visible: bool = True,
    remark: Callable[[], str] | None = None,
) -> Iterator[Item]:
    """Pass the items through; on a terminal show their count on stderr, and `remark`, which is called now and then."""
    if not (visible and printer.notes.is_terminal):
        yield from items
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    if remark is not None:
        columns.append(TextColumn("{task.fields[remark]}"))
    with Progress(*columns, console=printer.notes, transient=True) as progress:
        task = progress.add_task(label, total=total, remark="")
        remarked_at = time.monotonic()
        for item in items:
            progress.advance(task)
            if remark is not None and time.monotonic() - remarked_at > _REMARK_SECONDS:
                progress.update(task, remark=remark())
                remarked_at = time.monotonic()
            yield item


# --- Sources ---

_LINES = (".jsonl", ".ndjson")

SUFFIXES = (".json", *_LINES, ".rtfs")


class ImportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One document, or the error of reading it."""

    origin: str  # the file, with the line or index in it
    content: bytes = b""
    error: WaypostError | None = None

    @property
    def goes_in_batch(self) -> bool:
        """JSON fits on one line; an S-expression may contain comments, which end with their line."""
        return self.error is None and not is_sexpr_text(self.content)


def read_sources(names: Iterable[str]) -> Iterator[ImportDocument]:
    """Every document in these files and folders, in order."""
    for name in names:
        if name == "-":
            yield from read_stdin(sys.stdin.buffer)
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not files:
                raise InvalidParameter(
                    f"The folder {path} has no documents.",
                    path="FOLDER",
                    hint=f"Known suffixes: {', '.join(SUFFIXES)}.",
                )
        else:
            files = [path]
        for file in files:
            yield from _read_file(file)


def _read_file(path: Path) -> Iterator[ImportDocument]:
    try:
        with path.open("rb") as file:
            if path.suffix in _LINES:  # of any length
                yield from _split_lines(str(path), file)
            else:
                yield from _unpack(str(path), file.read(limits.BATCH_BYTES + 1), path.suffix)
    except OSError as error:
        raise unreadable_file(path, error.strerror) from None


def unreadable_file(path: Path, reason: str | None) -> InvalidRequest:
    """The error for a file or folder that somebody named.

    Args:
        path: As it was given.
        reason: Why it cannot be read.
    """
    where = "" if path.is_absolute() else f" It is relative to {Path.cwd()}."
    return InvalidRequest(f"{path} cannot be read: {reason}.", path=str(path), hint=f"Is the path right?{where}")


def read_stdin(file: BinaryIO) -> Iterator[ImportDocument]:
    """JSON lines of any length, such as an export, or one document."""
    content = file.read(limits.BATCH_BYTES + 1)
    if len(content) > limits.BATCH_BYTES and _begins_with_line(content):
        head, _, rest = content.rpartition(b"\n")
        yield from _split_lines("stdin", chain(head.split(b"\n"), (rest + file.readline(),), file))
    else:
        yield from _unpack("stdin", content, "")


def _begins_with_line(content: bytes) -> bool:
    try:
        msgspec.json.decode(content.partition(b"\n")[0])
    except msgspec.DecodeError:
        return False
    return content.lstrip().startswith(b"{")


def _unpack(origin: str, content: bytes, suffix: str) -> Iterator[ImportDocument]:
    if len(content) > limits.BATCH_BYTES:
        error = TooLarge(
            f"More than {limits.BATCH_BYTES} bytes.", hint="Split the file, or write one document per line (.jsonl)."
        )
        yield ImportDocument(origin=origin, error=error)
    elif not content.strip() and not suffix:
        return  # the export of an empty registry in a pipe
    elif suffix == ".rtfs" or is_sexpr_text(content):
        yield _check_size(origin, content)
    else:
        yield from _split_json(origin, content)


def _split_lines(origin: str, lines: Iterable[bytes]) -> Iterator[ImportDocument]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _check_size(f"{origin}:{number}", line.strip())


def _split_json(origin: str, content: bytes) -> Iterator[ImportDocument]:
    """One document, an array, a catalog, or else JSON lines."""
    try:
        packed = unpack_documents(content, limits.ARD_NESTED_CATALOGS)
    except msgspec.DecodeError as error:
        lines = [line for line in content.split(b"\n") if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith(b"{") for line in lines):
            yield from _split_lines(origin, content.split(b"\n"))
        else:
            yield ImportDocument(origin=origin, error=_find_json_error(content, error))
        return
    except InvalidDocument as error:
        yield ImportDocument(origin=origin, error=error)
        return
    if packed is None:
        yield _check_size(origin, content)
        return
    for index, item in enumerate(packed):
        yield _check_size(f"{origin}[{index}]", item)


def _find_json_error(content: bytes, error: msgspec.DecodeError) -> WaypostError:
    """The error that the service would report for this document."""
    try:
        parse_json(content, max_bytes=limits.BATCH_BYTES, any_length=True)
    except WaypostError as reported:
        return reported
    return MalformedJson(f"Not JSON: {error}.", path="$", hint=_JSON_HINT)


def _check_size(origin: str, content: bytes) -> ImportDocument:
    if len(content) > limits.DOCUMENT_BYTES:
        message = f"The document has {len(content)} bytes; the limit is {limits.DOCUMENT_BYTES}."
        return ImportDocument(origin=origin, error=TooLarge(message))
    return ImportDocument(origin=origin, content=content)


# --- Import ---

OUTCOMES = ("created", "updated", "refreshed", "unchanged", "failed")


@click.command(
    epilog=example(
        "waypost import agents.jsonl",
        "waypost import cards/ profile.rtfs ai-catalog.json",
        "waypost import https://agents.example.net/.well-known/ai-catalog.json",
        "waypost import example.com",
        "waypost export --server http://127.0.0.1:8441 | waypost import -",
    )
)
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|URL|DOMAIN|-...")
@click.option(
    "--visibility", type=click.Choice(("public", "internal", "private")), help="The visibility of the agents."
)
@click.option("--yes", is_flag=True, help="Register what an address offers without asking.")
@click.option("--dry-run", is_flag=True, help="Show what addresses offer, and register nothing.")
@click.option("--wait", is_flag=True, help="Wait until the vectors of all agents are computed (needs admin).")
@with_session
def import_agents(
    session: Session, sources: tuple[str, ...], visibility: str | None, yes: bool, dry_run: bool, wait: bool
) -> int:
    """Register many agents: JSON documents, JSON lines, RTFS profiles, AI catalogs, and folders of those.

    The service fetches documents at addresses; on a terminal they are shown before they are registered. A domain means
    every agent that its organisation lists in the DNS.

    A rejected document does not stop the others; it is reported on stderr, and the exit code is 1.

    Agents are found by their words at once, and by meaning when the service has computed their vectors, which takes minutes
    for a hundred thousand.
    """
    printer = session.printer()
    addresses = [source for source in sources if is_address(source)]
    if dry_run and len(addresses) < len(sources):
        raise click.UsageError("--dry-run is for URLs and domains only.")
    documents = list(read_sources(source for source in sources if not is_address(source)))
    choice = FetchOptions(yes=yes, dry_run=dry_run, visibility=visibility, organisation=True)
    with session.client() as client:
        fetched = [*_import_urls(client, printer, addresses, choice)]
        everything = chain(fetched, register_documents(client, documents, visibility))
        results = show_progress(
            printer,
            "Importing",
            everything,
            total=len(documents) + len(fetched),
            remark=lambda: _pending_remark(client),
        )
        values = (_show_result(printer, document, result) for document, result in results)
        if printer.is_human:
            counts = Counter(value["outcome"] for value in values)
            if counts or not dry_run:
                printer.line(_summary(counts))
            _await_vectors(client, printer, wait=wait)
            return 1 if counts["failed"] else 0
        listed = list(values)
        _await_vectors(client, printer, wait=wait)
    if listed or not dry_run:
        printer.values(listed)
    failed = [value for value in listed if value["outcome"] == "failed"]
    if failed:
        raise InvalidDocument(
            f"{count_noun(len(failed), 'document')} of {len(listed)} failed; the first: {failed[0]['error']['message']}",
            path=failed[0]["source"],
            hint="Each result says why; import again after the correction.",
        )
    return 0


def _count_pending(client: SyncClient) -> int:
    """0 if the caller may not see it: a token that only writes must not stop an import."""
    try:
        return client.stats().indexing_pending or 0
    except WaypostError:
        return 0


def _pending_remark(client: SyncClient) -> str:
    pending = _count_pending(client)
    return f"{pending:,} wait for their vectors" if pending else ""


def _await_vectors(client: SyncClient, printer: Printer, *, wait: bool) -> None:
    """Wait until the index is complete, or say on a terminal that it is not. Only an admin sees how much is left."""
    if not wait and not printer.notes.is_terminal:
        return
    if wait:
        left = client.stats().indexing_pending or 0
        for _ in show_progress(printer, "Computing vectors", _count_down(client, left), total=left):
            pass
    elif left := _count_pending(client):
        printer.note(f"{count_noun(left, 'agent')} found by words; vectors are being computed (--wait waits for them).")


def _count_down(client: SyncClient, left: int) -> Iterator[None]:
    """One item for each agent whose vectors were computed. Agents that others register meanwhile are waited for, too."""
    now = left
    while now:
        time.sleep(_POLL_SECONDS)
        now = client.stats().indexing_pending or 0
        yield from (None for _ in range(left - now))
        left = min(left, now)


def _import_urls(
    client: SyncClient, printer: Printer, addresses: list[str], choice: FetchOptions
) -> Iterator[tuple[ImportDocument, Receipt | Failure]]:
    for url in addresses:
        try:
            found = register_url(client, printer, url, choice)
        except (FetchFailed, InvalidRequest) as error:
            yield ImportDocument(origin=url), Failure(error=error)
            continue
        for number, agent in enumerate(found.agents if found is not None else ()):
            document = ImportDocument(origin=url if found is None or len(found.agents) == 1 else f"{url}[{number}]")
            if agent.error is not None:
                yield document, Failure(error=agent.error.to_error())
            elif agent.receipt is not None:
                yield document, agent.receipt


def register_documents(
    client: SyncClient, documents: list[ImportDocument], visibility: str | None
) -> Iterator[tuple[ImportDocument, Receipt | Failure]]:
    """Each document with its result, in order: JSON in batches, S-expressions one by one."""
    contents = (document.content for document in documents if document.goes_in_batch)
    answers = client.register_many(contents, visibility=visibility)
    for document in documents:
        if document.error is not None:
            yield document, Failure(error=document.error)
        elif document.goes_in_batch:
            yield document, _next_result(answers)
        else:
            yield document, _register_document(client, document, visibility)


def _next_result(answers: Iterator[Receipt | Failure]) -> Receipt | Failure:
    answer = next(answers, None)
    if answer is None:
        raise InternalError(
            "The service answered fewer lines than were sent.", hint="Import again; this creates no duplicates."
        )
    return answer


def _register_document(client: SyncClient, document: ImportDocument, visibility: str | None) -> Receipt | Failure:
    try:
        return client.register(document.content, visibility=visibility)
    except (Unauthorized, Forbidden, Unavailable):
        raise
    except WaypostError as error:
        return Failure(error=error)


def _show_result(printer: Printer, document: ImportDocument, result: Receipt | Failure) -> dict[str, Any]:
    if isinstance(result, Receipt):
        show_warnings(printer, result, document.origin)
        return {"source": document.origin, **receipt_value(result)}
    if printer.is_human:
        report_error(result.error, document.origin)
    return {"source": document.origin, "outcome": "failed", "error": error_value(result.error)}


def error_value(error: WaypostError) -> dict[str, Any]:
    members = {"code": error.code, "message": error.message, "path": error.path, "hint": error.hint}
    return {name: value for name, value in members.items() if value is not None}


def _summary(counts: Counter[str]) -> str:
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    return f"{counts.total()} read: {outcomes}" if outcomes else "Nothing to import."


# --- Export ---


@click.command(
    epilog=example(
        "waypost export > agents.jsonl",
        "waypost export --as a2a --to cards.jsonl",
        "waypost export --as source | waypost import - --server https://other.example",
    )
)
@click.option(
    "--as",
    "as_",
    default="profile",
    show_default=True,
    metavar="DIALECT",
    shell_complete=complete_dialect,
    help="A dialect, or `source`: as received.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of stdout.",
)
@with_session
def export(session: Session, as_: str, target: Path | None) -> None:
    """Write every agent that you may see, one JSON document per line (with -o json: one array).

    Agents without a document of the dialect are omitted, and counted on stderr. Documents do not contain the visibility:
    set it with `import --visibility`.
    """
    printer = session.printer()
    with session.client() as client, _open_target(target) as file:
        lines = show_progress(printer, "Exporting", client.export_lines(as_), visible=not file.isatty())
        written = _write_lines(file, lines, array=printer.output == "json")
        stats = client.stats()
        left_out = stats.agents - written if as_ != "source" else 0
        hidden = stats.agents - stats.by_visibility.get("public", 0)
    if left_out > 0:
        agents = "1 agent has" if left_out == 1 else f"{left_out} agents have"
        printer.note(f"warning: {agents} no {as_} document; --as source writes the received documents", "yellow")
    if hidden > 0:
        agents = "1 agent is" if hidden == 1 else f"{hidden} agents are"
        printer.note(
            f"warning: {agents} not public, but would become public by `import` without --visibility", "yellow"
        )


@contextlib.contextmanager
def _open_target(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise InvalidParameter(f"{path} cannot be written: {error.strerror}.", path="--to") from None
    with file:
        yield file


def _write_lines(file: BinaryIO, lines: Iterator[bytes], *, array: bool) -> int:
    """Return how many were written."""
    written = 0
    for line in lines:
        if array:
            file.write((b",\n" if written else b"[\n") + line)
        else:
            file.write(line + b"\n")
        written += 1
    if array:
        file.write(b"\n]\n" if written else b"[]\n")
    return written
