"""How the answer to a write looks."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text

from waypost.cli.output import Printer, without_none
from waypost.cli.text import clean
from waypost.client.results import Receipt

STYLES = {
    "created": "green",
    "updated": "cyan",
    "refreshed": "cyan",
    "unchanged": "dim",
    "held": "yellow",
    "failed": "red",
}


def show_receipt(printer: Printer, receipt: Receipt, subject: str | None = None) -> None:
    """One receipt; its warnings and losses go to stderr."""
    if not printer.is_human:
        printer.value(receipt_value(receipt))
    else:
        line = Text().append(f"{receipt.outcome:<9}", style=STYLES.get(receipt.outcome, ""))
        line.append(f"  {clean(receipt.id)}")
        if receipt.dialect:
            line.append(f"  ({clean(receipt.dialect)})", style="dim")
        if receipt.expires_at:
            line.append(f"  until {clean(receipt.expires_at)}", style="dim")
        printer.line(line)
    tell_remarks(printer, receipt, subject)


def tell_remarks(printer: Printer, receipt: Receipt, subject: str | None = None) -> None:
    where = f"{subject}: " if subject else ""
    for warning in receipt.warnings:
        printer.note(f"{where}warning: {warning}", style="yellow")
    if receipt.held is not None:
        printer.note(f"{where}`waypost confirm {receipt.id}` shows what waits, and lets it pass.", style="yellow")
    for loss in receipt.losses:
        printer.note(f"{where}not carried: {loss.path} ({loss.reason})")


def receipt_value(receipt: Receipt) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(receipt))
