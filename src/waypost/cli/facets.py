"""Counts by tag, protocol, status and owner, drawn with bars on a terminal and as rows in a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from waypost.cli.evidence import bar
from waypost.cli.output import Printer
from waypost.cli.text import short
from waypost.client.results import FacetValue

_NAME_CHARS = 32


def show_facets(printer: Printer, facets: Mapping[str, Sequence[FacetValue]]) -> None:
    if not printer.is_terminal:
        printer.rows((name, short(found.value, 256), str(found.count)) for name in facets for found in facets[name])
        return
    width = max((len(short(item.value, _NAME_CHARS)) for values in facets.values() for item in values), default=0)
    for name, values in facets.items():
        printer.line(Text(name, style="bold dim"))
        most = max((found.count for found in values), default=1)
        for found in values:
            line = Text(f"  {short(found.value, _NAME_CHARS):<{width}}  ")
            printer.line(line.append(bar(found.count / most, 12), style="green").append(f" {found.count}"))
