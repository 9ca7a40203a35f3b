"""`waypost share ID`."""

from __future__ import annotations

import click

from waypost.cli.options import example, texts
from waypost.cli.receipts import show_receipt
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean


@click.command(
    epilog=example("waypost share salary-bot --add alice --add bob", "waypost share salary-bot --remove bob")
)
@click.argument("id")
@click.option("--add", multiple=True, metavar="NAME", help="Let this subject see the agent. May be repeated.")
@click.option("--remove", multiple=True, metavar="NAME", help="Let it no longer see it. May be repeated.")
@with_session
def command(session: Session, id: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:  # noqa: A002
    """Choose who besides its owner sees a private agent; without options, show who does."""
    printer = session.printer()
    with session.client() as client:
        receipt = client.share(id, add=texts(add), remove=texts(remove))
    show_receipt(printer, receipt)
    if printer.is_human:
        printer.line("shared with " + (", ".join(map(clean, receipt.invitees or ())) or "nobody"))
