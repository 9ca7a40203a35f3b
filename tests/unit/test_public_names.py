"""The public names of the package, pinned."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
import textwrap

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


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__", "errors"}))
def test_each_public_name_has_an_example_that_is_valid_python(name: str) -> None:
    documentation = inspect.getdoc(getattr(waypost, name)) or ""
    if ">>>" in documentation:
        assert doctest.DocTestParser().get_examples(documentation)
        return
    _, mark, example = documentation.partition("Example:\n")
    assert mark, "give it an Example"
    compile(f"async def example():\n{textwrap.indent(textwrap.dedent(example), '    ')}", name, "exec")


@pytest.mark.parametrize("client", [waypost.Client, waypost.SyncClient])
def test_each_method_of_a_client_describes_its_arguments(client: type) -> None:
    for name, method in inspect.getmembers(client, inspect.isfunction):
        arguments = [each for each in inspect.signature(method).parameters if each != "self"]
        documentation = inspect.getdoc(method) or ""
        assert name.startswith("_") or documentation
        if not name.startswith("_"):
            assert [each for each in arguments if f"{each}: " not in documentation] == [], name
        if "await " in documentation:
            assert client is waypost.Client, f"the example of SyncClient.{name} does not block"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Klient"):
        _ = waypost.Klient  # type: ignore[attr-defined]


def test_importing_the_package_loads_neither_client_nor_server() -> None:
    code = "import sys, waypost; print([m for m in sys.modules if m in ('httpx2', 'uvicorn', 'msgspec', 'click')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
