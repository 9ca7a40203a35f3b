"""The sign-in page."""

from __future__ import annotations

import re

from waypost.errors import WaypostError
from waypost.server.auth.sessions import WebUser
from waypost.server.web.layout import WebPage

_RETURN_PATH = re.compile(r"/(?:register|changes|stats|peers|reference|a/[A-Za-z0-9._~%-]{1,600})?\Z")


def parse_return_path(text: str | None) -> str:
    """Redirect after sign-in to a page of this service only."""
    return text if text is not None and _RETURN_PATH.match(text) else "/"


def make_sign_in_page(
    visitor: WebUser, goes_to: str, error: WaypostError | None = None, *, has_used_link: bool = False
) -> WebPage:
    """`has_used_link`: the visitor followed a sign-in link once more, and is signed in already."""
    values = {"goes_to": goes_to, "error": error, "has_used_link": has_used_link}
    return WebPage(template="sign_in.html", title="Sign in", values=values, visitor=visitor, section="/sign-in")
