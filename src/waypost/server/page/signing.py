"""The page on which somebody signs in with a token."""

from __future__ import annotations

from waypost.errors import WaypostError
from waypost.server.page.layout import Sheet, error_note
from waypost.server.page.markup import Html, el
from waypost.server.page.sessions import Visitor


def sign_in_page(visitor: Visitor, error: WaypostError | None = None) -> Sheet:
    return Sheet(title="Sign in", main=_main(visitor, error), visitor=visitor, section="/sign-in")


def _main(visitor: Visitor, error: WaypostError | None) -> Html:
    if visitor.is_signed_in:
        return el(
            "div",
            el("h1", "Signed in"),
            el("p", "You are ", el("b", visitor.principal.subject or ""), "."),
            class_="state",
        )
    form = el(
        "form",
        el("label", "Token", for_="token"),
        el("input", id="token", name="token", type="password", required=True, autocomplete="off", spellcheck="false"),
        el("div", el("button", "Sign in", class_="first"), class_="row"),
        action="/sign-in",
        method="post",
        class_="entry",
    )
    return el(
        "div",
        el("h1", "Sign in"),
        error_note(error) if error is not None else None,
        el("p", "Open the link that ", el("code", "waypost serve"), " printed, or paste a token.", class_="lead"),
        form,
        el(
            "p",
            "A token of your own: ",
            el("code", "waypost token mint --sub NAME --scope discover:read --scope discover:write"),
            class_="soft",
        ),
        el(
            "p",
            "On the machine of the service, the admin token is in the file ",
            el("code", "admin.token"),
            " of its data folder.",
            class_="soft",
        ),
        class_="narrow",
    )
