"""Why a candidate was chosen, drawn with bars."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from waypost.cli.badges import badge
from waypost.cli.output import Printer
from waypost.cli.text import clean, short
from waypost.client.results import Candidate

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WIDTH = 20


def bar(share: float, width: int = _WIDTH) -> str:
    """A share of 0..1 as a bar of `width` cells."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def show_candidate(printer: Printer, place: int, candidate: Candidate, *, explain: bool) -> None:
    """Rank, score, name and id, then what it does, then each signal that spoke for it."""
    score = candidate.score or 0.0
    head = Text(f"{place:>2}  ").append(bar(score, 8), style="green").append(f" {score:.2f}  ")
    head.append(clean(candidate.name) or clean(candidate.id), style="bold")
    if candidate.name:
        head.append(f"  {clean(candidate.id)}", style="cyan")
    if candidate.trust:
        head.append("  ").append_text(badge(candidate.trust.get("level")))
    printer.line(head)
    if candidate.description:
        room = printer.console.width - 5 if printer.is_terminal else 160
        printer.line(Text(f"    {short(candidate.description, max(40, room))}", style="dim"))
    if explain:
        for line in _evidence(candidate):
            printer.line(line)
        printer.line("")


def _evidence(candidate: Candidate) -> Iterator[Text]:
    components = sorted(candidate.score_components.items(), key=lambda item: -item[1])
    width = max((len(name) for name, _ in components), default=0)
    for name, share in components:
        line = Text().append(f"    {clean(name):<{width}}  ", style="dim").append(bar(share), style="green")
        yield line.append(f" {share:.2f}")
    if candidate.matched_tags:
        yield _fact("tags", ", ".join(candidate.matched_tags))
    if candidate.expanded_tags:
        yield _fact("related tags", ", ".join(candidate.expanded_tags))
    for example in candidate.matched_examples:
        score = "" if example.score is None else f"  {example.score:.2f}"
        yield _fact("like its example", f"“{clean(example.text)}”{score}")
    if candidate.flags:
        yield _fact("take care", ", ".join(flag.replace("_", " ") for flag in candidate.flags))
    for snippet in candidate.snippets:
        yield _fact("in its words", short(snippet, 160))
    for check in candidate.trust.get("checks", ()):
        reason = f": {check['reason']}" if check.get("reason") else ""
        yield _fact("checked", f"{check['check']} {check['state'].replace('_', ' ')}{reason}")
    updated = candidate.freshness.get("metadata_updated_at")
    if updated:
        yield _fact("updated", str(updated))


def _fact(label: str, text: str) -> Text:
    return Text().append(f"    {label}: ", style="dim").append(clean(text))
