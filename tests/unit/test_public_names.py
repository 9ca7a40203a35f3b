"""The public names of the package, pinned."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from typing import Any

import pytest

import waypost
from support.docstrings import as_function, example_of, public_classes, public_methods

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
    "conformance",
    "errors",
    "validate",
}


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(waypost.__all__) == PUBLIC
    assert set(dir(waypost)) == PUBLIC


def test_each_public_name_can_be_imported() -> None:
    for name in PUBLIC:
        assert getattr(waypost, name) is not None


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_each_public_name_has_an_example_that_is_valid_python(name: str) -> None:
    documentation = inspect.getdoc(getattr(waypost, name)) or ""
    if ">>>" in documentation:
        assert doctest.DocTestParser().get_examples(documentation)
        return
    example = example_of(getattr(waypost, name))
    assert example, "give it an Example"
    compile(as_function(example), name, "exec")


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(f"{kind.__name__}.{name}", method, id=f"{kind.__name__}.{name}")
        for kind in public_classes()
        for name, method in public_methods(kind)
    ],
)
def test_each_public_method_has_an_example_that_is_valid_python(name: str, method: Any) -> None:
    """tests/service/client/test_examples.py runs them."""
    example = example_of(method)
    assert example, "give it an Example"
    compile(as_function(example), name, "exec")


@pytest.mark.parametrize(
    "kind", [waypost.Announcer, waypost.Discovery, waypost.Finder, waypost.LiveAgent, waypost.KeptAgent, waypost.Agent]
)
def test_each_method_of_other_classes_describes_its_arguments(kind: type) -> None:
    for name, member in vars(kind).items():
        method = getattr(member, "__func__", member)
        if inspect.isfunction(method) and not name.startswith("_"):
            arguments = [
                each for each in inspect.signature(method).parameters if each not in ("self", "cls", "members")
            ]
            assert [each for each in arguments if f"{each}: " not in (inspect.getdoc(method) or "")] == [], name


def test_the_blocking_client_has_the_same_methods_with_the_same_arguments() -> None:
    def signatures(client: type) -> dict[str, list[str]]:
        found = {
            name: list(inspect.signature(each).parameters)
            for name, each in inspect.getmembers(client, inspect.isfunction)
        }
        return {name: arguments for name, arguments in found.items() if not name.startswith("_")}

    blocking = signatures(waypost.SyncClient)
    awaited = signatures(waypost.Client)
    assert blocking == {{"aclose": "close"}.get(name, name): arguments for name, arguments in awaited.items()}


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


def test_a_result_is_shown_on_one_short_line() -> None:
    candidate = {"id": "https://a.example/translator", "name": "Translator", "description": "long " * 500, "score": 0.5}
    result = waypost.SearchResult.parse({"candidates": [{**candidate, "match": "strong"}] * 50})
    agent = waypost.Agent("a", "A", "long " * 500)
    change = {"type": "registered", "id": "a", "at": "2026-01-01T00:00:00Z", "etag": "1", "agent": agent}
    shown = [
        result,
        result.candidates[0],
        agent,
        waypost.Page.parse({"agents": [agent] * 50, "next_cursor": "x" * 300}),
        waypost.Change.parse(change),
        waypost.SyncClient("http://127.0.0.1:1"),
        waypost.Client("http://127.0.0.1:1"),
    ]
    assert [repr(each) for each in shown if "\n" in repr(each) or len(repr(each)) > 120] == []
    assert repr(result) == "<SearchResult 50 candidates, best 'https://a.example/translator'>"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Klient"):
        _ = waypost.Klient  # type: ignore[attr-defined]


def test_importing_the_package_loads_neither_client_nor_server() -> None:
    code = "import sys, waypost; print([m for m in sys.modules if m in ('httpx2', 'uvicorn', 'msgspec', 'click')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
