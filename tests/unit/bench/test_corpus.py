"""The benchmark's corpus is real, endless, and the same every time."""

from __future__ import annotations

import importlib.util
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from support.records import DECODE
from waypost.protocols.profile.codec import PROFILE


@pytest.fixture(scope="module")
def corpus() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "bench" / "corpus.py"
    spec = importlib.util.spec_from_file_location("corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_document_is_a_valid_profile_and_another_agent(corpus: ModuleType) -> None:
    documents = list(corpus.documents(9_000))
    assert len(documents) == 9_000
    assert len({document["id"] for document in documents}) == 9_000
    for document in islice(documents, 0, None, 3):
        PROFILE.decode(document, DECODE)


def test_the_same_number_gives_the_same_documents(corpus: ModuleType) -> None:
    assert list(corpus.documents(50)) == list(corpus.documents(200))[:50]


def test_a_server_that_comes_round_again_is_told_differently(corpus: ModuleType) -> None:
    count = len(corpus.servers())
    documents = list(corpus.documents(count + 1))
    first, again = documents[0], documents[count]
    assert first["name"] != again["name"]
    assert first["examples"] != again["examples"]
    assert again["name"].startswith(first["name"])
