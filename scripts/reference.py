#!/usr/bin/env python3
"""Writes the parts of the documents that the code already knows: settings, errors, operations, commands, dialects, leases.

    scripts/reference.py            writes them, between the markers of each page
    scripts/reference.py --check    fails when a page says something else than the code

A page keeps its own prose around the block `<!-- generated: NAME -->` … `<!-- /generated -->`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

import reference_dialects
import requirements
from waypost import settings
from waypost.app import build
from waypost.app.http import MOUNTED_ROUTES
from waypost.cli.main import COMMANDS, cli
from waypost.errors import ERROR_CODES, WaypostError
from waypost.protocols.adp.agp import session
from waypost.protocols.dialects import get_codec
from waypost.registry.operations import OPERATIONS, Operation
from waypost.server.http.routing import Route

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def render_settings(rows: Iterable[settings.Setting]) -> str:
    return table(
        ("setting", "flag", "variable", "default", "meaning"),
        ((f"`{row.name}`", *_names(row), _default(row), _meaning(row)) for row in rows),
    )


def _names(row: settings.Setting) -> tuple[str, str]:
    return ("in the file only", "") if row.in_file_only else (f"`{row.flag}`", f"`{row.variable}`")


def _default(row: settings.Setting) -> str:
    if row.shown_default:
        return row.shown_default
    if row.default is None:
        return "none"
    shown = str(row.default).lower() if isinstance(row.default, bool) else row.default
    return f"`{shown}`"


def _meaning(row: settings.Setting) -> str:
    where = "" if row.in_file else " Not read from a file."
    choices = f" One of {', '.join(f'`{choice}`' for choice in row.choices)}." if row.choices else ""
    return f"{row.doc}{choices}{where}"


def render_errors() -> str:
    head = ("error", "`code`", "HTTP", "JSON-RPC", "announce", "WebSocket", "ARD", "exit", "title")
    return table(head, (_error_row(kind) for kind in ERROR_CODES))


def _error_row(kind: type[WaypostError]) -> tuple[object, ...]:
    row = ERROR_CODES[kind]
    return (
        f"`{kind.__name__}`",
        f"`{kind.code}`",
        row.http,
        row.jsonrpc,
        f"`{row.ann}`",
        row.ws_close,
        f"`{row.ard}`",
        row.exit,
        row.title,
    )


def render_commands() -> str:
    """One section for each command, as its --help tells it."""
    context = click.Context(cli, info_name="waypost")
    return "\n\n".join(_command_section(cli.get_command(context, name), context, name) for name in COMMANDS)


def _command_section(command: click.Command | None, parent: click.Context, name: str) -> str:
    if command is None:
        raise SystemExit(f"the command {name} is listed and cannot be loaded")
    context = click.Context(command, parent=parent, info_name=name)
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"## {context.command_path}", f"```\n{usage}\n```", _paragraphs(command.help or "")]
    rows = [row for row in map(_option_row, _own_parameters(command)) if row]
    if rows:
        parts.append(table(("option", "meaning"), rows))
    if command.epilog:
        parts.append(f"```sh\n{_examples(command.epilog)}\n```")
    if isinstance(command, click.Group):
        nested = (_command_section(command.get_command(context, sub), context, sub) for sub in command.commands)
        parts += [section.replace("## ", "### ", 1) for section in nested]
    return "\n\n".join(parts)


def _own_parameters(command: click.Command) -> list[click.Option]:
    shared = {parameter.name for parameter in cli.params}
    return [item for item in command.params if isinstance(item, click.Option) and item.name not in shared]


def _option_row(option: click.Option) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names, (option.help or "").replace("  [default", " [default")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _examples(epilog: str) -> str:
    lines = epilog.replace("\b", "").strip().splitlines()
    return "\n".join(line.strip() for line in lines if line.strip() != "Examples:")


def render_shared_options() -> str:
    return table(("option", "meaning"), (_option_row(item) for item in cli.params if isinstance(item, click.Option)))


def render_planned() -> str:
    """How much of each specification is planned, by capability."""
    rows = [row for spec in requirements.read_specifications() for row in spec.requirements if row.status == "planned"]
    words = dict.fromkeys(row.issue for row in rows)
    grouped = ((word, ", ".join(_ranges([row.id for row in rows if row.issue == word]))) for word in words)
    return table(("capability", "requirements"), grouped)


def _ranges(ids: list[str]) -> Iterator[str]:
    """`A-1`, `A-2`, `A-3` as `A-1…3`."""
    runs: list[list[tuple[str, int]]] = []
    for name in ids:
        prefix, _, number = name.rpartition("-")
        if runs and runs[-1][-1] == (prefix, int(number) - 1):
            runs[-1].append((prefix, int(number)))
        else:
            runs.append([(prefix, int(number))])
    for run in runs:
        (prefix, first), (_, last) = run[0], run[-1]
        yield f"{prefix}-{first}" if first == last else f"{prefix}-{first}…{last}"


def render_departed() -> str:
    rows = [row for spec in requirements.read_specifications() for row in spec.requirements if row.status == "departed"]
    if not rows:
        return "Nothing."
    return table(("requirement", "says", "instead, and why"), ((row.id, row.text, row.reason) for row in rows))


def render_dialect(name: str) -> str:
    """Media type, remainder and losses of a dialect, and where each member of a record goes."""
    codec = get_codec(name)
    place = reference_dialects.carried_at(codec)
    lines = [
        f"Media type `{codec.media_type}`; schema `/schemas/{name}.json`. "
        + (f"The remainder travels in `{place}`." if place else "There is no place for a remainder."),
        "May lose: " + (", ".join(f"`{path}`" for path in codec.loses) or "nothing") + ".",
        table(("record", "document"), reference_dialects.mapping_rows(codec)),
    ]
    return "\n\n".join(lines)


def routes() -> list[Route]:
    """Every route of a service: those of the router, and those of the faces that route by themselves."""
    with tempfile.TemporaryDirectory() as folder:
        application = build(settings.Settings(data=Path(folder), store="memory"))
        return [*application.http_app.router.routes, *MOUNTED_ROUTES]


def render_routes() -> str:
    rows = ((f"`{row.method} {row.path}`", row.summary, f"`{row.operation}`", _needs(row)) for row in routes())
    return table(("path", "what", "operation", "needs"), rows)


def _needs(route: Route) -> str:
    scope = None if route.open else route.scope or OPERATIONS[route.operation].scope
    return f"`{scope}`" if scope else "open"


def render_operations() -> str:
    head = ("operation", "what", "needs", "command", "`Client`", "errors")
    return table(head, map(_operation_row, OPERATIONS.values()))


def _operation_row(row: Operation) -> tuple[str, ...]:
    return (
        f"`{row.name}`",
        row.summary,
        f"`{row.scope}`" if row.scope else "open",
        f"`waypost {row.command}`" if row.command else "",
        f"`{row.method}`" if row.method else "",
        ", ".join(f"`{kind.__name__}`" for kind in dict.fromkeys(row.errors)),
    )


def render_agp_states() -> str:
    """The table of a session's states as a diagram."""
    return "\n".join(("```mermaid", session.mermaid_diagram(), "```"))


RENDERERS: dict[str, Callable[[], str]] = {
    "service-settings": lambda: render_settings(settings.SERVICE_SETTINGS),
    "client-settings": lambda: render_settings(settings.CLIENT_SETTINGS),
    "errors": render_errors,
    "agp-states": render_agp_states,
    "operations": render_operations,
    "routes": render_routes,
    "commands": render_commands,
    "shared-options": render_shared_options,
    "planned": render_planned,
    "departed": render_departed,
}


def rendered(name: str) -> str:
    if name.startswith("dialect-"):
        return render_dialect(name.removeprefix("dialect-"))
    return RENDERERS[name]()


def rewritten(page: str) -> str:
    """The page with every generated block as the code gives it now."""
    return BLOCK.sub(lambda found: f"{found[1]}{rendered(found['name'])}\n{found[3]}", page)


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    outdated = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        wanted = rewritten(page)
        if wanted == page:
            continue
        outdated.append(str(path.relative_to(DOCS)))
        if not check:
            path.write_text(wanted, encoding="utf-8")
    if check and outdated:
        print(f"docs: {', '.join(outdated)} differ from the code: run scripts/reference.py.")
    return int(check and bool(outdated))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
