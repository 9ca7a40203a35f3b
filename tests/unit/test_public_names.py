"""The public names of the package, pinned."""

from __future__ import annotations

import subprocess
import sys

import pytest

import waypost

PUBLIC = {
    "Agent",
    "AgentAnswer",
    "Announcer",
    "BindingPolicy",
    "Candidate",
    "Change",
    "ChatMessage",
    "Client",
    "Discovery",
    "Document",
    "Failure",
    "Finder",
    "FoundAgent",
    "KeptAgent",
    "LiveAgent",
    "Page",
    "Receipt",
    "Reply",
    "Retry",
    "SearchResult",
    "Stats",
    "SyncClient",
    "ValidationReport",
    "WaypostError",
    "__version__",
    "errors",
    "validate",
}


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(waypost.__all__) == PUBLIC
    assert set(dir(waypost)) == PUBLIC


def test_each_public_name_can_be_imported() -> None:
    for name in PUBLIC:
        assert getattr(waypost, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Klient"):
        _ = waypost.Klient  # type: ignore[attr-defined]


def test_importing_the_package_loads_neither_client_nor_server() -> None:
    code = "import sys, waypost; print([m for m in sys.modules if m in ('httpx2', 'uvicorn', 'msgspec', 'click')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
